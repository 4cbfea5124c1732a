#!/usr/bin/env bash
# A node with 30 pods and a disruption budget, whose machine Azure is going to move to another host: the agent cordons
# and drains it in time and gives it back afterwards. A real control plane, a mock of Azure's metadata service at
# twentyfold speed, and the agent as operators run it.
#
#   cargo run -p control-plane -- run --nodes 3 -- tests/walkthrough.sh
set -euo pipefail
cd "$(dirname "$0")/.."

node=aks-np1-12345678-vmss000000
say() { printf '\n== %s\n' "$*"; }

say "Building the agent and the mock"
cargo build --quiet -p remediator -p mock-imds
programs=${CARGO_TARGET_DIR:-target}/debug

say "30 pods on $node, of which at most 5 may be away at a time"
kubectl cordon -l "kubernetes.io/hostname!=$node" >/dev/null
kubectl create deployment web --image=web --replicas=30
kubectl create poddisruptionbudget web --selector=app=web --max-unavailable=5
kubectl rollout status deployment/web --timeout=60s | tail -n 1
kubectl uncordon -l "kubernetes.io/hostname!=$node" >/dev/null
kubectl get nodes

say "Azure announces a redeploy; the agent of $node listens (30 s of notice, 30 s of impact)"
"$programs/mock-imds" --scenario mock-imds/scenarios/redeploy.yaml --speed 20 --listen 127.0.0.1:0 >mock-imds.log &
trap 'kill $(jobs -p) 2>/dev/null; rm -f mock-imds.log' EXIT
until imds=$(grep -o -m 1 'http://[0-9.:]*' mock-imds.log); do sleep 0.1; done
"$programs/remediator" agent --node "$node" --imds "$imds" --listen 127.0.0.1:0 --log-format text &
agent=$!

kubectl wait --for=jsonpath='{.spec.unschedulable}'=true "node/$node" --timeout=30s >/dev/null
while [ -n "$(kubectl get node "$node" -o jsonpath='{.spec.unschedulable}')" ]; do sleep 0.5; done
kill "$agent"
wait "$agent"

say "The node tells the story"
kubectl describe node "$node" | sed -n '/^Unschedulable:/p; /^Events:/,$p'

say "The pods have moved"
kubectl get deployment web
kubectl get pods --field-selector="spec.nodeName=$node"
