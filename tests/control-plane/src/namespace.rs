//! A namespace for one test, with nodes and permissions of its own.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace as CoreNamespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::follow::{TimedOut, wait_until};
use crate::kubelet::NodeSpec;
use crate::workload::Workload;

/// Label on everything that belongs to a test's namespace but lives outside it; the value is the namespace.
pub const NAMESPACE_LABEL: &str = "control-plane.test/namespace";

/// How long the controller manager may take to make the `default` service account.
const ACCOUNT_LIMIT: Duration = Duration::from_mins(1);

/// Why something in a namespace could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The API server refused or did not answer.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// What a controller has to do was not done in time.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
    /// The API server gave no token.
    #[error("the API server answered the request for a token without one")]
    NoToken,
}

/// A namespace with a name that nobody else has.
#[derive(Clone)]
pub struct Namespace {
    client: Client,
    name: String,
}

impl Namespace {
    /// Makes a namespace whose name begins with `prefix`, and waits until pods can be made in it, which a controller
    /// manager must allow by making the `default` service account.
    pub async fn create(client: &Client, prefix: &str) -> Result<Self, NamespaceError> {
        let namespaces: Api<CoreNamespace> = Api::all(client.clone());
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let created =
            namespaces.create(&PostParams::default(), &CoreNamespace { metadata, ..Default::default() }).await?;
        let namespace = Self { client: client.clone(), name: created.name_any() };
        let accounts: Api<ServiceAccount> = namespace.api();
        let selection = ListParams::default().fields("metadata.name=default");
        wait_until(&accounts, &selection, "the default service account exists", ACCOUNT_LIMIT, |found| {
            !found.is_empty()
        })
        .await?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client that made it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Objects of one kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::core::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// A node for this namespace: the pods of its workloads go here, those of other namespaces do not. Its name is
    /// `NAMESPACE-NAME`.
    pub fn node(&self, name: &str) -> NodeSpec {
        self.owned(NodeSpec::new(&format!("{}-{name}", self.name)))
    }

    /// A node for this namespace as AKS makes it, with a scale set that no other namespace has.
    pub fn aks_node(&self, pool: &str, instance: u32) -> NodeSpec {
        let mut hasher = DefaultHasher::new();
        self.name.hash(&mut hasher);
        let number = u32::try_from(hasher.finish() % 100_000_000).unwrap_or_default();
        self.owned(NodeSpec::aks(pool, number, instance))
    }

    fn owned(&self, node: NodeSpec) -> NodeSpec {
        node.label(NAMESPACE_LABEL, &self.name)
    }

    /// Waits until exactly `count` pods of a workload are there and Ready, and none is being deleted.
    pub async fn wait_for_ready(
        &self,
        workload: &Workload,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<Pod>, TimedOut> {
        let selection = ListParams::default().labels(&workload.selector());
        let goal = format!("{count} pods of {} are Ready", workload.name());
        wait_until(&self.api(), &selection, &goal, limit, |pods| pods.len() == count && pods.values().all(is_ready))
            .await
    }

    /// Waits until the pods of this namespace, by `namespace/name`, are as `reached` wants them.
    pub async fn wait_for_pods(
        &self,
        goal: &str,
        limit: Duration,
        reached: impl FnMut(&BTreeMap<String, Pod>) -> bool,
    ) -> Result<Vec<Pod>, TimedOut> {
        wait_until(&self.api(), &ListParams::default(), goal, limit, reached).await
    }

    /// Makes a service account that may do, in the whole cluster, what `rules` say, and returns a token for it.
    pub async fn service_account(&self, name: &str, rules: Vec<PolicyRule>) -> Result<String, NamespaceError> {
        let create = PostParams::default();
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        self.api().create(&create, &ServiceAccount { metadata, ..ServiceAccount::default() }).await?;

        let cluster_name = format!("{}-{name}", self.name);
        let labels = BTreeMap::from([(NAMESPACE_LABEL.to_owned(), self.name.clone())]);
        let metadata = ObjectMeta { name: Some(cluster_name.clone()), labels: Some(labels), ..ObjectMeta::default() };
        let role = ClusterRole { metadata: metadata.clone(), rules: Some(rules), aggregation_rule: None };
        Api::<ClusterRole>::all(self.client.clone()).create(&create, &role).await?;
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.name}],
        }))
        .map_err(kube::Error::SerdeError)?;
        Api::<ClusterRoleBinding>::all(self.client.clone()).create(&create, &binding).await?;
        self.token(name, None).await
    }

    /// Lets a service account of this namespace do, in this namespace only, what `rules` say.
    pub async fn allow_here(&self, service_account: &str, rules: Vec<PolicyRule>) -> Result<(), NamespaceError> {
        let metadata = ObjectMeta { name: Some(service_account.to_owned()), ..ObjectMeta::default() };
        let role = Role { metadata: metadata.clone(), rules: Some(rules) };
        self.api().create(&PostParams::default(), &role).await?;
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": service_account},
            "subjects": [{"kind": "ServiceAccount", "name": service_account, "namespace": self.name}],
        }))
        .map_err(kube::Error::SerdeError)?;
        self.api().create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    /// A new token for a service account. Bound to a pod that runs under the account it names the pod and its node, as
    /// one mounted into the pod does; unbound it names only the account.
    pub async fn token(&self, service_account: &str, bound_to: Option<&Pod>) -> Result<String, NamespaceError> {
        let bound_object_ref = bound_to.map(|pod| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        });
        let spec = TokenRequestSpec { bound_object_ref, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = self.api();
        let answer = accounts.create_token_request(service_account, &PostParams::default(), &request).await?;
        answer.status.map(|status| status.token).ok_or(NamespaceError::NoToken)
    }

    /// Deletes the namespace with its nodes, roles and admission policies. Its pods go at once, whatever their grace; the namespace itself
    /// goes when the controller manager has emptied it, which is not waited for.
    pub async fn delete(&self) -> Result<(), kube::Error> {
        let delete = DeleteParams::default();
        let ours = ListParams::default().labels(&format!("{NAMESPACE_LABEL}={}", self.name));
        Api::<CoreNamespace>::all(self.client.clone()).delete(&self.name, &delete).await?;
        Api::<Node>::all(self.client.clone()).delete_collection(&delete, &ours).await?;
        Api::<ClusterRoleBinding>::all(self.client.clone()).delete_collection(&delete, &ours).await?;
        Api::<ClusterRole>::all(self.client.clone()).delete_collection(&delete, &ours).await?;
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(self.client.clone());
        if_served(bindings.delete_collection(&delete, &ours).await)?;
        let policies = Api::<ValidatingAdmissionPolicy>::all(self.client.clone());
        if_served(policies.delete_collection(&delete, &ours).await)?;
        // After the namespace, so that no controller can replace them.
        self.api::<Pod>().delete_collection(&delete.grace_period(0), &ListParams::default()).await?;
        Ok(())
    }
}

/// Not every API server knows of every kind; what it does not know there is nothing of.
fn if_served<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        // Not `is_not_found`: where the kind is missing the body says nothing.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

/// One rule of a role; `""` is the core API group.
pub fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    PolicyRule {
        api_groups: Some(owned(groups)),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// Whether the pod is Ready and not being deleted.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
