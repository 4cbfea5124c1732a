//! What is wrong with an object, in the words of the real server. Only what somebody would notice is checked.

use serde_json::Value;

use super::kinds::{
    CUSTOM_RESOURCE_DEFINITIONS, DAEMON_SETS, DEPLOYMENTS, DISRUPTION_BUDGETS, EVENTS, Kind, LEASES, NAMESPACES, NODES,
    PODS, REPLICA_SETS, STATEFUL_SETS,
};
use super::refusal::Cause;
use super::selectors::LabelSelector;
use super::{events, schema};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
    must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// What is said of a name that has other characters in it.
pub(super) const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
    regex used for validation is '[0-9]+%')";
const POD_UPDATES: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// A text as it is shown in a refusal.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_name_part(text: &str) -> bool {
    let ends = |character: Option<char>| character.is_some_and(|one| one.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().next_back())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Why a text is no key of a label, or no name of a controller.
pub(super) fn wrong_qualified_name(text: &str) -> Option<String> {
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if let Some(prefix) = prefix
        && !is_subdomain(prefix)
    {
        return Some(format!("prefix part {SUBDOMAIN}"));
    }
    match name {
        "" => Some("name part must be non-empty".into()),
        name if name.len() > 63 => Some("name part must be no more than 63 bytes".into()),
        name if !is_name_part(name) => Some(NAME_PART.into()),
        _ => None,
    }
}

/// Why a text is no value of a label.
pub(super) fn wrong_label_value(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!text.is_empty() && !is_name_part(text)).then_some(LABEL_VALUE)
}

/// What is wrong with a new object.
pub(super) fn of_new(kind: &Kind, resource: &str, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    name(kind, resource, object, &mut causes);
    labels(object, 1, &mut causes);
    causes.extend(kind.custom.iter().flat_map(|custom| schema::wrong(&custom.schema, object)));
    match resource {
        EVENTS => causes.extend(events::wrong_with_new(kind, object)),
        DISRUPTION_BUDGETS => disruption_budget(object, &mut causes),
        CUSTOM_RESOURCE_DEFINITIONS => definition(object, &mut causes),
        PODS if object["spec"]["containers"].as_array().is_none_or(Vec::is_empty) => {
            causes.push(Cause::required("spec.containers", ""));
        }
        DEPLOYMENTS | REPLICA_SETS | STATEFUL_SETS | DAEMON_SETS => workload(object, &mut causes),
        NODES => causes.extend(taints(object)),
        LEASES => lease(object, &mut causes),
        _ => {}
    }
    causes
}

/// What is wrong with a changed object. The real server checks some things twice and says them twice.
pub(super) fn of_change(kind: &Kind, resource: &str, before: &Value, after: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    finalizers(before, after, &mut causes);
    if before["metadata"]["labels"] != after["metadata"]["labels"] {
        labels(after, if resource == NODES { 4 } else { 2 }, &mut causes);
    }
    causes.extend(kind.custom.iter().flat_map(|custom| schema::wrong(&custom.schema, after)));
    match resource {
        EVENTS => causes.extend(events::wrong_with_change(kind, before, after)),
        LEASES => lease(after, &mut causes),
        NODES => {
            if before["spec"]["taints"] != after["spec"]["taints"] {
                causes.extend(taints(after));
                causes.extend(taints(after));
            }
            let machine = &before["spec"]["providerID"];
            if !machine.is_null() && *machine != after["spec"]["providerID"] {
                let why = "node updates may not change providerID except from \"\" to valid";
                causes.push(Cause::forbidden("spec.providerID", why));
            }
        }
        PODS if before["spec"] != after["spec"] => pod_spec(&before["spec"], &after["spec"], &mut causes),
        DISRUPTION_BUDGETS => {
            disruption_budget(after, &mut causes);
            for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                not_negative(&format!("status.{count}"), &after["status"][count], &mut causes);
            }
        }
        DEPLOYMENTS | REPLICA_SETS | STATEFUL_SETS | DAEMON_SETS => {
            workload(after, &mut causes);
            if before["spec"]["selector"] != after["spec"]["selector"] {
                causes.push(Cause::invalid("spec.selector", &after["spec"]["selector"], "field is immutable"));
            }
        }
        _ => {}
    }
    causes
}

fn name(kind: &Kind, resource: &str, object: &Value, causes: &mut Vec<Cause>) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if kind.group == "rbac.authorization.k8s.io" {
        // Names of roles have colons and capitals: anything that can stand in a path will do.
        if matches!(name, "." | "..") || name.contains(['/', '%']) {
            causes.push(Cause::invalid("metadata.name", quoted(name), "may not contain '/' or '%'"));
        }
    } else if resource == NAMESPACES {
        if !is_label(name) {
            causes.push(Cause::invalid("metadata.name", quoted(name), LABEL));
        }
    } else if !is_subdomain(name) {
        causes.push(Cause::invalid("metadata.name", quoted(name), SUBDOMAIN));
    } else if name.len() > 253 {
        causes.push(Cause::invalid("metadata.name", quoted(name), "must be no more than 253 bytes"));
    }
}

fn labels(object: &Value, times: usize, causes: &mut Vec<Cause>) {
    let mut wrong = Vec::new();
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        if let Some(why) = wrong_qualified_name(key) {
            wrong.push(Cause::invalid("metadata.labels", quoted(key), why));
        }
        let value = value.as_str().unwrap_or_default();
        if let Some(why) = wrong_label_value(value) {
            wrong.push(Cause::invalid("metadata.labels", quoted(value), why));
        }
    }
    if !wrong.is_empty() {
        causes.extend(std::iter::repeat_n(wrong, times).flatten());
    }
}

fn finalizers(before: &Value, after: &Value, causes: &mut Vec<Cause>) {
    if before["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let of = |object: &'_ Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let known = of(before);
    let new: Vec<String> = of(after).iter().filter(|one| !known.contains(one)).map(Value::to_string).collect();
    if !new.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            new.join(", ")
        );
        let cause = Cause::forbidden("metadata.finalizers", why);
        causes.extend([cause.clone(), cause]);
    }
}

fn taints(node: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, taint) in taints.iter().enumerate() {
        let field = format!("metadata.taints[{index}]");
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        let (key, effect) = (text("key"), text("effect"));
        if let Some(why) = wrong_qualified_name(key) {
            causes.push(Cause::invalid(format!("{field}.key"), quoted(key), why));
        }
        if let Some(why) = wrong_label_value(text("value")) {
            causes.push(Cause::invalid(format!("{field}.value"), quoted(text("value")), why));
        }
        match effect {
            "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
            "" => causes.push(Cause::required(format!("{field}.effect"), "")),
            other => {
                let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
                causes.push(Cause::not_supported(format!("{field}.effect"), quoted(other), &effects));
            }
        }
        if taints[..index].iter().any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"]) {
            let since = if taint["timeAdded"].is_null() { "null".to_owned() } else { taint["timeAdded"].to_string() };
            let message = format!(
                "Duplicate value: {{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{since}}}: taints must be unique by \
                 key and effect pair",
                quoted(key),
                quoted(text("value")),
                quoted(effect),
            );
            causes.push(Cause { reason: "FieldValueDuplicate", field, message });
        }
    }
    causes
}

fn lease(lease: &Value, causes: &mut Vec<Cause>) {
    for (field, why) in [("leaseDurationSeconds", "must be greater than 0"), ("leaseTransitions", "")] {
        let number = lease["spec"][field].as_i64();
        let least = i64::from(field == "leaseDurationSeconds");
        if let Some(number) = number.filter(|number| *number < least) {
            let why = if why.is_empty() { "must be greater than or equal to 0" } else { why };
            causes.push(Cause::invalid(format!("spec.{field}"), number, why));
        }
    }
}

fn not_negative(field: &str, value: &Value, causes: &mut Vec<Cause>) {
    if let Some(number) = value.as_i64().filter(|number| *number < 0) {
        causes.push(Cause::invalid(field, number, "must be greater than or equal to 0"));
    }
}

fn disruption_budget(budget: &Value, causes: &mut Vec<Cause>) {
    let spec = &budget["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["minAvailable"], spec["selector"], spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]
        );
        causes.push(Cause::invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let path = format!("spec.{field}");
        match &spec[field] {
            Value::String(text) => {
                let digits = text.strip_suffix('%').unwrap_or_default();
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    causes.push(Cause::invalid(path, quoted(text), PERCENT));
                } else if digits.parse::<u32>().map_or(true, |percent| percent > 100) {
                    causes.push(Cause::invalid(path, quoted(text), "must not be greater than 100%"));
                }
            }
            number => not_negative(&path, number, causes),
        }
    }
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    if let Some(policy) = spec["unhealthyPodEvictionPolicy"].as_str().filter(|policy| !policies.contains(policy)) {
        causes.push(Cause::not_supported("spec.unhealthyPodEvictionPolicy", quoted(policy), &policies));
    }
}

fn workload(workload: &Value, causes: &mut Vec<Cause>) {
    let spec = &workload["spec"];
    not_negative("spec.replicas", &spec["replicas"], causes);
    let labels = &spec["template"]["metadata"]["labels"];
    let selector = &spec["selector"];
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
    }
    let selector = LabelSelector::of_object(selector);
    if selector.is_empty() || !selector.matches(labels) {
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, why));
    }
}

/// Of a pod's spec hardly anything can be changed.
fn pod_spec(before: &Value, after: &Value, causes: &mut Vec<Cause>) {
    let without_what_may_change = |spec: &Value| {
        let mut spec = spec.clone();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container["image"] = Value::Null;
            }
        }
        for field in ["activeDeadlineSeconds", "tolerations"] {
            spec[field] = Value::Null;
        }
        spec
    };
    let list = |spec: &Value, field: &str| spec[field].as_array().cloned().unwrap_or_default();
    if list(after, "containers").is_empty() {
        causes.push(Cause::required("spec.containers", ""));
    }
    if list(before, "containers").len() != list(after, "containers").len() {
        causes.push(Cause::forbidden("spec.containers", "pod updates may not add or remove containers"));
        return;
    }
    let tolerations = list(after, "tolerations");
    if list(before, "tolerations").iter().any(|one| !tolerations.contains(one)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", why));
    }
    if without_what_may_change(before) != without_what_may_change(after) {
        causes.push(Cause::forbidden("spec", POD_UPDATES));
    }
}

fn definition(definition: &Value, causes: &mut Vec<Cause>) {
    let spec = &definition["spec"];
    let text = |field: &str| spec.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let (plural, group) = (text("/names/plural"), text("/group"));
    for (field, value) in
        [("spec.group", group), ("spec.names.plural", plural), ("spec.names.kind", text("/names/kind"))]
    {
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", quoted(name), why));
    }
    if spec["versions"].as_array().is_none_or(|versions| !versions.iter().any(|one| one["storage"] == true)) {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &spec["versions"], why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_taint_is_there_once_by_key_and_effect() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let other = json!({"key": "a", "effect": "NoExecute"});
        assert!(taints(&json!({"spec": {"taints": [taint, other]}})).is_empty());
        let wrong = taints(&json!({"spec": {"taints": [taint, taint]}}));
        assert_eq!((wrong[0].reason, wrong[0].field.as_str()), ("FieldValueDuplicate", "metadata.taints[1]"));
        assert_eq!(
            wrong[0].message,
            "Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be \
             unique by key and effect pair"
        );
    }

    #[test]
    fn names_and_labels_are_what_kubernetes_takes() {
        assert!(is_subdomain("aks-np1-12345678-vmss000000") && is_subdomain("a.b") && !is_subdomain("A_b"));
        assert!(wrong_qualified_name("remediator.dev/agent").is_none() && wrong_qualified_name("a/b/c").is_some());
        assert!(wrong_label_value("").is_none() && wrong_label_value("x y").is_some());
    }

    #[test]
    fn of_a_pod_only_image_and_further_tolerations_may_change() {
        let before = json!({"containers": [{"name": "c", "image": "i:1"}], "tolerations": [{"key": "a"}]});
        let changed = |change: fn(&mut Value)| {
            let mut after = before.clone();
            change(&mut after);
            let mut causes = Vec::new();
            pod_spec(&before, &after, &mut causes);
            causes.into_iter().map(|cause| cause.field).collect::<Vec<_>>()
        };
        assert!(changed(|spec| spec["containers"][0]["image"] = json!("i:2")).is_empty());
        assert!(changed(|spec| spec["tolerations"] = json!([{"key": "a"}, {"key": "b"}])).is_empty());
        assert_eq!(changed(|spec| spec["nodeName"] = json!("n")), ["spec"]);
        assert_eq!(changed(|spec| spec["tolerations"] = json!([])), ["spec.tolerations"]);
    }
}
