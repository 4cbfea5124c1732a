//! The query string of a request to the metadata service.

use std::collections::BTreeMap;

/// The parameters of a request, each with one value.
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    /// The parameters, or the name of one that is given twice.
    pub(crate) fn parse(query: &str) -> Result<Self, String> {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let name = name.into_owned();
            if parameters.contains_key(&name) {
                return Err(name);
            }
            parameters.insert(name, value.into_owned());
        }
        Ok(Self(parameters))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}
