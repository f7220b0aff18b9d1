//! The served OpenAPI document as a judge: every answer must be one that it announces.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rig::{Answered, Rig};

pub(super) struct Book {
    document: Value,
    seen: BTreeSet<(String, String, bool)>,
}

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

impl Book {
    /// Reads the document from the server itself.
    pub(super) async fn open(rig: &Rig) -> Self {
        let mut document = rig.call("GET", "/v1/openapi.json", None).await.json();
        forbid_unknown_fields(&mut document["components"]["schemas"]);
        Self { document, seen: BTreeSet::new() }
    }

    /// Every method and path template of the document.
    pub(super) fn operations(&self) -> Vec<(String, String)> {
        let paths = self.document["paths"].as_object().unwrap();
        let mut all = Vec::new();
        for (path, item) in paths {
            for method in METHODS.iter().filter(|method| item.get(**method).is_some()) {
                all.push(((*method).to_owned(), path.clone()));
            }
        }
        all
    }

    /// Sends a request and judges its answer.
    pub(super) async fn call(
        &mut self,
        rig: &Rig,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Answered {
        let answer = rig.call(method, path, body.as_ref()).await;
        self.judge(method, path, &answer);
        answer
    }

    /// Panics unless the document announces this answer to this request.
    pub(super) fn judge(&mut self, method: &str, path: &str, answer: &Answered) {
        let method = method.to_lowercase();
        let template = self.template(&method, path.split('?').next().unwrap());
        let responses = &self.document["paths"][&template][&method]["responses"];
        let code = answer.status.as_str();
        let announced = responses.get(code).or_else(|| responses.get("default"));
        let announced = announced.unwrap_or_else(|| panic!("{method} {template}: no {code}"));
        let where_ = format!("{method} {path} {code}");
        match announced.get("content").and_then(Value::as_object) {
            None => assert!(answer.body.is_empty(), "{where_}: a body that is not announced"),
            Some(content) => {
                let media = answer.header("content-type").split(';').next().unwrap();
                let Some(entry) = content.get(media) else {
                    panic!("{where_}: {media} is not announced; {content:?}")
                };
                if media.ends_with("json") {
                    self.validate(&entry["schema"], &answer.json(), &where_);
                }
            }
        }
        assert!(!answer.header("x-request-id").is_empty(), "{where_}: no request id");
        self.seen.insert((method, template, answer.status.is_success()));
    }

    /// Panics unless the value fits a schema of the document.
    pub(super) fn validate(&self, schema: &Value, value: &Value, where_: &str) {
        let whole = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "components": self.document["components"],
            "allOf": [schema],
        });
        let validator = jsonschema::validator_for(&whole).expect("the document has valid schemas");
        let problems: Vec<String> = validator
            .iter_errors(value)
            .map(|e| format!("{} at {}", e, e.instance_path()))
            .collect();
        assert!(problems.is_empty(), "{where_}: {problems:#?}\n{value:#}");
    }

    /// The schema with this name.
    pub(super) fn schema(&self, name: &str) -> Value {
        assert!(self.document["components"]["schemas"].get(name).is_some(), "no schema {name}");
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// Panics unless every operation has answered with success and with a refusal.
    pub(super) fn assert_all_seen(&self) {
        for (method, path) in self.operations() {
            for success in [true, false] {
                let key = (method.clone(), path.clone(), success);
                assert!(self.seen.contains(&key), "{method} {path} success={success}: never seen");
            }
        }
    }

    fn template(&self, method: &str, path: &str) -> String {
        let fits = |template: &str| {
            let (a, b): (Vec<_>, Vec<_>) =
                (template.split('/').collect(), path.split('/').collect());
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.starts_with('{') || a == b)
        };
        let all = self.operations();
        let found = all.iter().find(|(m, template)| m == method && fits(template));
        found.unwrap_or_else(|| panic!("{method} {path} is not in the document")).1.clone()
    }
}

/// An object may hold what its schema names and nothing else; else a field that the document forgot
/// would pass.
fn forbid_unknown_fields(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let closed = fields.contains_key("properties")
                && !fields.contains_key("additionalProperties")
                && !fields.contains_key("allOf");
            if closed && fields["properties"].is_object() {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(forbid_unknown_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(forbid_unknown_fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
