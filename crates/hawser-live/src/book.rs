//! The served OpenAPI document as a judge of real answers.

use std::path::Path;

use serde_json::{Value, json};

use crate::raw::{self, Answer};

/// The document of one server. Objects are closed: a field that the document forgot is an error.
pub struct Book {
    document: Value,
}

impl Book {
    /// Reads the document from the server itself.
    pub fn open(socket: &Path) -> Self {
        let answer = raw::call(socket, "GET", "/v1/openapi.json", None);
        assert_eq!(answer.status, 200, "the server serves its document");
        let mut document = answer.json();
        close(&mut document["components"]["schemas"]);
        Self { document }
    }

    /// Sends a request and judges its answer.
    pub fn call(&self, socket: &Path, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string);
        let answer = raw::call(socket, method, path, body.as_deref());
        self.judge(method, path, &answer);
        answer
    }

    /// Panics unless the document announces this answer to this request.
    pub fn judge(&self, method: &str, path: &str, answer: &Answer) {
        let context = format!("{method} {path}: {}", answer.status);
        let plain = path.split('?').next().unwrap_or(path);
        let paths = self.document["paths"].as_object().expect("the document has paths");
        let found = paths.iter().find(|(template, item)| {
            fits(template, plain) && item.get(method.to_lowercase()).is_some()
        });
        let (_, item) = found.unwrap_or_else(|| panic!("{context}: not in the document"));
        let responses = &item[method.to_lowercase()]["responses"];
        let announced =
            responses.get(answer.status.to_string()).or_else(|| responses.get("default"));
        let announced = announced.unwrap_or_else(|| panic!("{context}: status not announced"));
        let Some(content) = announced.get("content").and_then(Value::as_object) else {
            assert!(answer.body.is_empty(), "{context}: a body that is not announced");
            return;
        };
        let media = answer.header("content-type").split(';').next().unwrap_or_default();
        let entry =
            content.get(media).unwrap_or_else(|| panic!("{context}: {media} not announced"));
        if media.ends_with("json") {
            self.validate(&entry["schema"], &answer.json(), &context);
        }
    }

    /// Panics unless the value fits a schema of the document.
    pub fn validate(&self, schema: &Value, value: &Value, context: &str) {
        let whole = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "components": self.document["components"],
            "allOf": [schema],
        });
        let validator = jsonschema::validator_for(&whole).expect("the document has valid schemas");
        let problems: Vec<String> = validator
            .iter_errors(value)
            .map(|problem| format!("{problem} at {}", problem.instance_path()))
            .collect();
        assert!(problems.is_empty(), "{context}: {problems:#?}\n{value:#}");
    }

    /// The schema that the document announces for a success of this request.
    pub fn schema_of(&self, method: &str, path: &str, status: &str) -> Value {
        self.document["paths"][path][method]["responses"][status]["content"]["application/json"]
            ["schema"]
            .clone()
    }
}

/// True when a path is one of a template such as `/v1/volumes/{volume}`.
fn fits(template: &str, path: &str) -> bool {
    let (wanted, found): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    wanted.len() == found.len()
        && wanted.iter().zip(&found).all(|(part, word)| part.starts_with('{') || part == word)
}

/// Allows in an object what its schema names and nothing else.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let closed = fields.get("properties").is_some_and(Value::is_object)
                && !fields.contains_key("additionalProperties")
                && !fields.contains_key("allOf");
            if closed {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
