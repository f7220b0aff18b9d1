//! Which secrets a driver gets for a snapshot.
//!
//! What is needed to take and to remove a snapshot, the snapshot controller has written into the
//! content, whose class may be gone by then. The rest is written in classes, with variables.

use std::collections::BTreeMap;

use super::super::error::ClusterError;
use super::super::names::RESERVED;
use super::super::objects::{Object, ObjectRef, SecretRef};
use super::super::secrets;

/// The two keys that name a secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) name: &'static str,
    pub(super) namespace: &'static str,
}

/// What variables stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variables<'a> {
    /// `volumesnapshot` or `volumegroupsnapshot`.
    pub(super) kind: &'static str,
    /// The name of the content.
    pub(super) content: &'a str,
    /// The wish of the user, where secrets may depend on it.
    pub(super) wish: Option<&'a ObjectRef>,
}

/// The secret that annotations of an object name. `Wrong` when they cannot.
pub(super) fn of_object<K: Object>(
    object: &K,
    keys: Keys,
) -> Result<Option<SecretRef>, ClusterError> {
    let Some(all) = &object.meta().annotations else { return Ok(None) };
    let (Some(name), Some(namespace)) = (all.get(keys.name), all.get(keys.namespace)) else {
        return Ok(None);
    };
    checked(namespace.clone(), name.clone()).map(Some)
}

/// The secret that parameters of a class name. `Wrong` when they cannot.
pub(super) fn of_class(
    parameters: &BTreeMap<String, String>,
    keys: Keys,
    variables: Variables<'_>,
) -> Result<Option<SecretRef>, ClusterError> {
    let of = |key: &str| parameters.get(&format!("{RESERVED}{key}"));
    let (name, namespace) = match (of(keys.name), of(keys.namespace)) {
        (None, None) => return Ok(None),
        (Some(name), Some(namespace)) => (name, namespace),
        (Some(_), None) | (None, Some(_)) => {
            let message = format!("the class has one of {} and {} only", keys.name, keys.namespace);
            return Err(ClusterError::Wrong(message));
        }
    };
    let Variables { kind, content, wish } = variables;
    let mut known = vec![(format!("{kind}content.name"), content)];
    known.extend(wish.map(|wish| (format!("{kind}.namespace"), wish.namespace.as_str())));
    let namespace = filled(namespace, &known)?;
    // Users choose this one: it is not for namespaces.
    known.extend(wish.map(|wish| (format!("{kind}.name"), wish.name.as_str())));
    checked(namespace, filled(name, &known)?).map(Some)
}

/// A text with its variables replaced.
fn filled(text: &str, known: &[(String, &str)]) -> Result<String, ClusterError> {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let unknown = |name: &str| {
            let names: Vec<_> = known.iter().map(|(name, _)| format!("${{{name}}}")).collect();
            let known = names.join(", ");
            ClusterError::Wrong(format!("{text:?} of the class has {name:?}, not one of {known}"))
        };
        let (name, after) = after.split_once('}').ok_or_else(|| unknown(after))?;
        let value = known.iter().find(|(known, _)| known == name).ok_or_else(|| unknown(name))?;
        done.push_str(before);
        done.push_str(value.1);
        rest = after;
    }
    done.push_str(rest);
    Ok(done)
}

/// A place that can be.
fn checked(namespace: String, name: String) -> Result<SecretRef, ClusterError> {
    let at = SecretRef { name, namespace };
    secrets::check(&at)?;
    Ok(at)
}
