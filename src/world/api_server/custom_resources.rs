//! Kinds that come with a `CustomResourceDefinition` and go with it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ApiServer;
use super::kinds::{CUSTOM_RESOURCE_DEFINITIONS, Custom, CustomColumn, Kind, Status};
use super::paths::Target;
use super::store::Actor;

impl ApiServer {
    /// The kind that a path names.
    pub(super) fn kind_at(&self, target: &Target) -> Option<Arc<Kind>> {
        let is_meant = |kind: &&Arc<Kind>| {
            kind.plural == target.plural && kind.group == target.group && kind.version == target.version
        };
        self.kinds().iter().find(is_meant).cloned()
    }

    /// Whether the API group is one of Kubernetes, which answer in another way when they do not know a path.
    pub(super) fn serves_group(&self, group: &str) -> bool {
        self.kinds().iter().any(|kind| kind.custom.is_none() && kind.group == group)
    }

    /// Serves what the definitions say, if it is one of them that has just been written. The objects of a kind that is not
    /// served any more are gone.
    pub(super) fn kinds_may_have_changed(&self, resource: &str) {
        if resource != CUSTOM_RESOURCE_DEFINITIONS {
            return;
        }
        let defined: Vec<Arc<Kind>> = self
            .list(CUSTOM_RESOURCE_DEFINITIONS, None)
            .iter()
            .flat_map(|definition| defined_by(definition))
            .map(Arc::new)
            .collect();
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        self.set_kinds(|kinds| {
            let is_known = |resource: &String| kinds.iter().any(|kind| kind.is_called(resource));
            new = defined.iter().map(|kind| kind.resource()).filter(|resource| !is_known(resource)).collect();
            let is_defined = |kind: &Arc<Kind>| defined.iter().any(|one| one.resource() == kind.resource());
            gone = kinds
                .iter()
                .filter(|kind| kind.custom.is_some() && !is_defined(kind))
                .map(|kind| kind.resource())
                .collect();
            kinds.retain(|kind| kind.custom.is_none());
            kinds.extend(defined.iter().cloned());
        });
        let by = Actor::new("kube-apiserver");
        let now = self.clock().now().wall;
        let mut locked = self.store().lock();
        for resource in new {
            locked.begin(&resource);
        }
        for resource in gone {
            let keys: Vec<_> = locked.list(&resource, None).map(|(key, _)| key.clone()).collect();
            for key in keys {
                locked.commit(&by, &resource, key, None, now);
            }
        }
    }
}

/// The kinds that a definition defines: one for each version that is served.
fn defined_by(definition: &Value) -> Vec<Kind> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .map(|version| Kind {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            plural: text(&names["plural"]),
            singular: text(&names["singular"]),
            kind: text(&names["kind"]),
            short_names: names["shortNames"].as_array().into_iter().flatten().map(text).collect(),
            namespaced: spec["scope"] == "Namespaced",
            status: if version["subresources"]["status"].is_object() { Status::Custom } else { Status::None },
            generation: true,
            custom: Some(Custom {
                columns: columns_of(version),
                selectable: selectable_of(version),
                schema: version["schema"]["openAPIV3Schema"].clone(),
            }),
        })
        .collect()
}

fn columns_of(version: &Value) -> Vec<CustomColumn> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(columns) = version["additionalPrinterColumns"].as_array() else {
        return vec![CustomColumn {
            name: "Age".into(),
            kind: "date".into(),
            json_path: ".metadata.creationTimestamp".into(),
            priority: 0,
        }];
    };
    let column = |column: &Value| CustomColumn {
        name: text(&column["name"]),
        kind: text(&column["type"]),
        json_path: text(&column["jsonPath"]),
        priority: column["priority"].as_i64().unwrap_or_default(),
    };
    columns.iter().map(column).collect()
}

fn selectable_of(version: &Value) -> Vec<String> {
    let paths = version["selectableFields"].as_array().into_iter().flatten();
    paths.filter_map(|field| field["jsonPath"].as_str()).map(|path| path.trim_start_matches('.').to_owned()).collect()
}

/// What the status of a definition says at once: the real server takes some seconds for it.
pub(super) fn established(names: &Value, versions: &Value, at: &Value) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at});
    let stored: Vec<&Value> = versions
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| &version["name"])
        .collect();
    json!({
        "acceptedNames": names,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    })
}
