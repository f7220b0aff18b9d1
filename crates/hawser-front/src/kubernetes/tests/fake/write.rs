//! Creating and removing.

use serde_json::{Value, json};

use super::answer::Refusal;
use super::call::Target;
use super::known::StatusPart;
use super::name::is_legal;
use super::state::State;
use super::update::{check_shape, tidy};

/// What generated names end with; the real one leaves out vowels, too.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl State {
    pub(super) fn create(&mut self, target: &Target, mut object: Value) -> Result<Value, Refusal> {
        if target.known().is_some_and(|known| known.namespaced) && target.namespace.is_none() {
            return Err(Refusal::method_not_allowed(target, &http::Method::POST));
        }
        check_shape(target, &mut object)?;
        let name = self.name_of(target, &object)?;
        if object["metadata"]["resourceVersion"].as_str().is_some_and(|given| !given.is_empty()) {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::new(500, message));
        }
        let key = target.key(&name);
        if self.objects.contains_key(&key) {
            return Err(Refusal::exists(target, &name));
        }
        let metadata = object["metadata"].as_object_mut().expect("its shape was checked");
        let own = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
        for field in own {
            metadata.remove(field);
        }
        metadata.insert("name".to_owned(), json!(name));
        if let Some(namespace) = &target.namespace {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        if !target.is_builtin() {
            metadata.insert("generation".to_owned(), json!(1));
        }
        reset_status(target, &mut object);
        self.begin(&mut object);
        tidy(&mut object);
        Ok(self.store(key, object))
    }

    fn name_of(&mut self, target: &Target, object: &Value) -> Result<String, Refusal> {
        let metadata = &object["metadata"];
        let name = match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, Some(prefix)) if !prefix.is_empty() => {
                let number = usize::try_from(self.number()).expect("a small number");
                let letter = |place: u32| {
                    char::from(LETTERS[number / LETTERS.len().pow(place) % LETTERS.len()])
                };
                let ending: String = (0..5).rev().map(letter).collect();
                format!("{prefix}{ending}")
            }
            _ => {
                let why = "metadata.name: Required value: name or generateName is required";
                return Err(Refusal::invalid(target, "", why));
            }
        };
        match is_legal(&name) {
            true => Ok(name),
            false => Err(Refusal::invalid(target, &name, "metadata.name: Invalid value")),
        }
    }

    pub(super) fn delete(&mut self, target: &Target, options: &Value) -> Result<Value, Refusal> {
        let object = self.get(target)?;
        let name = target.name.as_deref().unwrap_or_default();
        for field in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][field];
            let found = &object["metadata"][field];
            if !wanted.is_null() && wanted != found {
                let why = format!("Precondition failed: {field} {wanted}, in the object {found}");
                return Err(Refusal::conflict(target, name, &why));
            }
        }
        let key = target.key(name);
        let last = self.finish(&key).expect("it was just found");
        if self.objects.contains_key(&key) || returns_deleted(target) {
            return Ok(last);
        }
        let uid = &object["metadata"]["uid"];
        let details = json!({ "kind": target.plural, "name": name, "uid": uid });
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "details": details }))
    }
}

/// A new object has the status that its type gives it, whatever its maker says.
fn reset_status(target: &Target, object: &mut Value) {
    let status = match (target.group.as_str(), target.plural.as_str()) {
        ("", "persistentvolumes" | "persistentvolumeclaims" | "pods") => {
            Some(json!({ "phase": "Pending" }))
        }
        // The kubelet brings it along.
        ("", "nodes") => return,
        ("storage.k8s.io", "volumeattachments") => Some(json!({ "attached": false })),
        _ if target.known().is_some_and(|known| known.status == StatusPart::Missing) => return,
        _ => None,
    };
    let fields = object.as_object_mut().expect("its shape was checked");
    match status {
        Some(status) => fields.insert("status".to_owned(), status),
        None => fields.remove("status"),
    };
}

/// Whether a removal is answered with the object itself, rather than with a word.
fn returns_deleted(target: &Target) -> bool {
    let whole = ["persistentvolumes", "persistentvolumeclaims", "pods"];
    target.group == "storage.k8s.io"
        || target.group.is_empty() && whole.contains(&target.plural.as_str())
}
