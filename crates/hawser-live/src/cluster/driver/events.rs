//! What programs told of claims: events of the cluster.

use serde_json::Value;

use crate::cluster::Kubectl;

/// Warnings about claims with one of these reasons, as lines.
#[track_caller]
pub fn claim_warnings(kubectl: &Kubectl, reasons: &[&str]) -> Vec<String> {
    about_claims(&kubectl.list("events"), |event| {
        event["type"] == "Warning" && reasons.iter().any(|reason| event["reason"] == *reason)
    })
}

/// Every event about one claim, as lines.
#[track_caller]
pub fn claim_events(kubectl: &Kubectl, name: &str) -> Vec<String> {
    about_claims(&kubectl.list("events"), |event| event["involvedObject"]["name"] == name)
}

/// Every warning about one claim, as lines.
#[track_caller]
pub fn warnings_of(kubectl: &Kubectl, name: &str) -> Vec<String> {
    about_claims(&kubectl.list("events"), |event| {
        event["type"] == "Warning" && event["involvedObject"]["name"] == name
    })
}

fn about_claims(events: &[Value], wanted: impl Fn(&Value) -> bool) -> Vec<String> {
    let claims = events
        .iter()
        .filter(|event| event["involvedObject"]["kind"] == "PersistentVolumeClaim")
        .filter(|event| wanted(event));
    claims.map(line).collect()
}

fn line(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}: {} by {}: {}",
        text(&event["involvedObject"]["name"]),
        text(&event["reason"]),
        text(&event["source"]["component"]),
        text(&event["message"]),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_events_of_claims_are_lines() {
        let events = [
            json!({ "involvedObject": { "kind": "PersistentVolumeClaim", "name": "data" },
                    "reason": "ProvisioningFailed", "message": "no room", "type": "Warning",
                    "source": { "component": "a" } }),
            json!({ "involvedObject": { "kind": "Pod", "name": "data" } }),
        ];
        let lines = about_claims(&events, |event| event["type"] == "Warning");
        assert_eq!(lines, ["data: ProvisioningFailed by a: no room"]);
        assert!(about_claims(&events, |_| false).is_empty());
    }
}
