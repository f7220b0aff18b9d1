//! Which secrets a StorageClass names, for which calls.
//!
//! Names may hold parts of the claim; namespaces may not hold what users choose, but for the claim's
//! own: else a claim could be made to read secrets of others.

use super::error::ClusterError;
use super::names::RESERVED;
use super::objects::{Claim, Object, SecretRef, StorageClass};

/// What a secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Provision,
    ControllerPublish,
    NodeStage,
    NodePublish,
    ControllerExpand,
    NodeExpand,
    ControllerModify,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Self::Provision => "provisioner-secret",
            Self::ControllerPublish => "controller-publish-secret",
            Self::NodeStage => "node-stage-secret",
            Self::NodePublish => "node-publish-secret",
            Self::ControllerExpand => "controller-expand-secret",
            Self::NodeExpand => "node-expand-secret",
            Self::ControllerModify => "controller-modify-secret",
        }
    }
}

/// The secret that a class names for this, or the one that it names for everything.
pub(super) fn of(
    class: &StorageClass,
    purpose: Purpose,
    volume: &str,
    claim: &Claim,
) -> Result<Option<SecretRef>, ClusterError> {
    for word in [purpose.word(), "secret"] {
        let get = |end: &str| class.parameters.get(&format!("{RESERVED}{word}-{end}"));
        let (name, namespace) = match (get("name"), get("namespace")) {
            (None, None) => continue,
            (Some(name), Some(namespace)) => (name, namespace),
            (Some(_), None) | (None, Some(_)) => {
                let message = format!(
                    "class {} names only half of {RESERVED}{word}-name and -namespace",
                    class.name()
                );
                return Err(ClusterError::Wrong(message));
            }
        };
        let key = claim.key();
        let namespace = fill(namespace, |variable| match variable {
            "pv.name" => Some(volume.to_owned()),
            "pvc.namespace" => Some(key.namespace.clone()),
            _ => None,
        })?;
        let name = fill(name, |variable| match variable {
            "pv.name" => Some(volume.to_owned()),
            "pvc.namespace" => Some(key.namespace.clone()),
            "pvc.name" => Some(key.name.clone()),
            other => {
                let annotation = other.strip_prefix("pvc.annotations['")?.strip_suffix("']")?;
                claim.annotation(annotation).map(str::to_owned)
            }
        })?;
        let at = SecretRef { name, namespace };
        check(&at)?;
        return Ok(Some(at));
    }
    Ok(None)
}

/// Replaces each `${…}`.
fn fill(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, ClusterError> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let unknown = || {
            let message =
                format!("the secret template {template:?} has a variable without a value");
            ClusterError::Wrong(message)
        };
        let (variable, left) = after.split_once('}').ok_or_else(unknown)?;
        filled.push_str(before);
        filled.push_str(&value(variable).ok_or_else(unknown)?);
        rest = left;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Refuses what is no name: both become parts of a path on the API server, and whoever may write a
/// volume or a class chooses them. `Wrong` otherwise.
pub(super) fn check(at: &SecretRef) -> Result<(), ClusterError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |text: &str| {
        text.starts_with(plain)
            && text.ends_with(plain)
            && text.chars().all(|c| plain(c) || c == '-')
    };
    if !is_label(&at.namespace) || at.namespace.len() > 63 {
        let namespace: String = at.namespace.chars().take(63).collect();
        return Err(ClusterError::Wrong(format!("{namespace:?} cannot be a namespace")));
    }
    if !at.name.split('.').all(is_label) || at.name.len() > 253 {
        let name: String = at.name.chars().take(63).collect();
        return Err(ClusterError::Wrong(format!("{name:?} cannot be the name of a secret")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(parameters: serde_json::Value) -> StorageClass {
        serde_json::from_value(json!({ "metadata": { "name": "c" }, "parameters": parameters }))
            .unwrap()
    }

    fn claim() -> Claim {
        let metadata = json!({
            "name": "data", "namespace": "shop", "annotations": { "team": "blue" },
        });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn found(parameters: serde_json::Value) -> Result<Option<(String, String)>, ClusterError> {
        let secret = of(&class(parameters), Purpose::NodeStage, "pvc-1", &claim())?;
        Ok(secret.map(|secret| (secret.namespace, secret.name)))
    }

    #[test]
    fn the_secret_of_a_purpose_wins_over_that_for_everything() {
        let both = json!({
            "csi.storage.k8s.io/secret-name": "all",
            "csi.storage.k8s.io/secret-namespace": "s",
            "csi.storage.k8s.io/node-stage-secret-name": "${pvc.annotations['team']}.${pvc.name}",
            "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
        });
        assert_eq!(found(both).unwrap(), Some(("shop".into(), "blue.data".into())));
        let one = json!({
            "csi.storage.k8s.io/secret-name": "all",
            "csi.storage.k8s.io/secret-namespace": "s",
        });
        assert_eq!(found(one).unwrap(), Some(("s".into(), "all".into())));
        assert_eq!(found(json!({ "class": "gold" })).unwrap(), None);
    }

    #[test]
    fn users_cannot_choose_a_namespace_nor_leave_the_path() {
        for (name, namespace) in [
            ("a", "${pvc.annotations['team']}"),
            ("a", "${pvc.name}"),
            ("${pvc.annotations['none']}", "s"),
            ("../a", "s"),
            ("a/b", "s"),
            ("a..b", "s"),
            ("", "s"),
            ("a", "s.t"),
            ("${pv.name", "s"),
        ] {
            let parameters = json!({
                "csi.storage.k8s.io/node-stage-secret-name": name,
                "csi.storage.k8s.io/node-stage-secret-namespace": namespace,
            });
            assert!(found(parameters).is_err(), "{name:?} {namespace:?}");
        }
        let half = json!({ "csi.storage.k8s.io/node-stage-secret-name": "a" });
        assert!(found(half).is_err());
    }
}
