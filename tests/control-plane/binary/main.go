// Control-plane is a whole Kubernetes control plane in one program: etcd, the API server, the controller manager, the
// scheduler and kubectl, chosen by the first argument. Linking them together once is much cheaper than five times.
//
// The server components end when their standard input closes. Whoever starts one keeps the other end of that pipe,
// and the operating system closes it however that process ends: a test that panics or is killed leaves nothing behind.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usage = `usage: control-plane COMPONENT [ARGUMENT...]

Components: kubectl; etcd, kube-apiserver, kube-controller-manager, kube-scheduler (these end when standard input
closes).
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	component := os.Args[1]
	// The components read os.Args themselves and must not see the name that chose them.
	os.Args = append([]string{component}, os.Args[2:]...)

	switch component {
	case "etcd":
		endWithStandardInput()
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		serve(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		serve(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		serve(scheduler.NewSchedulerCommand())
	case "kubectl":
		// kubectl words its own errors.
		if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	default:
		fmt.Fprintf(os.Stderr, "unknown component %q\n\n%s", component, usage)
		os.Exit(2)
	}
}

func serve(command *cobra.Command) {
	endWithStandardInput()
	os.Exit(cli.Run(command))
}

// endWithStandardInput ends the process at once, without a graceful shutdown: all state is thrown away with it.
func endWithStandardInput() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}
