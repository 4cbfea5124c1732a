//! Label selectors as workloads and budgets have them
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#resources-that-support-set-based-requirements>).

use serde_json::Value;

/// One requirement on a label or a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Requirement {
    /// An entry of `matchExpressions` or `matchFields`.
    pub fn new(entry: &Value) -> Self {
        let values = entry["values"].as_array().into_iter().flatten();
        Self {
            key: entry["key"].as_str().unwrap_or_default().to_owned(),
            operator: entry["operator"].as_str().unwrap_or_default().to_owned(),
            values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// What it is about.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether something with this value, or without one, meets it. An operator that nobody knows is never met.
    pub fn is_met(&self, value: Option<&str>) -> bool {
        let is_among = || value.is_some_and(|value| self.values.iter().any(|wanted| wanted == value));
        let compared = || {
            let value: i64 = value?.parse().ok()?;
            let bound: i64 = self.values.first()?.parse().ok()?;
            Some(value.cmp(&bound))
        };
        match self.operator.as_str() {
            "In" => is_among(),
            "NotIn" => !is_among(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
            "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
            _ => false,
        }
    }
}

/// A selector; one without requirements selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<(String, String)>,
    expressions: Vec<Requirement>,
}

impl Selector {
    /// The selector in a field; `None`, which selects nothing, if it is not there.
    pub fn new(field: &Value) -> Option<Self> {
        let field = field.as_object()?;
        let labels = field.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        let expressions = field.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            labels: labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect(),
            expressions: expressions.map(Requirement::new).collect(),
        })
    }

    /// Whether it selects this object.
    pub fn selects(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|(key, value)| labels[key.as_str()] == value.as_str())
            && self.expressions.iter().all(|expression| expression.is_met(labels[expression.key()].as_str()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_expressions_must_all_be_met() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        let selects = |selector: Value| Selector::new(&selector).map(|selector| selector.selects(&object));
        assert_eq!(selects(Value::Null), None);
        assert_eq!(selects(json!({})), Some(true));
        assert_eq!(selects(json!({"matchLabels": {"app": "web"}})), Some(true));
        assert_eq!(selects(json!({"matchLabels": {"app": "web", "tier": "back"}})), Some(false));
        for (key, operator, values, met) in [
            ("app", "In", vec!["web", "api"], true),
            ("app", "NotIn", vec!["web"], false),
            ("zone", "NotIn", vec!["1"], true),
            ("tier", "Exists", vec![], true),
            ("tier", "DoesNotExist", vec![], false),
            ("tier", "Near", vec![], false),
        ] {
            let expression = json!({"key": key, "operator": operator, "values": values});
            let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [expression]});
            assert_eq!(selects(selector), Some(met), "{key} {operator}");
        }
    }
}
