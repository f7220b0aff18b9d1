//! Who asked the server for what: its audit log.

use std::collections::BTreeMap;

use serde_json::Value;

/// One request that the server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The program, as the first word of its user agent says it: `csi-provisioner`.
    pub agent: String,
    /// The user.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// `persistentvolumeclaims`, with `/status` and the like; nothing for what is no object.
    pub resource: String,
    /// The object; nothing where several are asked for, or the server chooses the name.
    pub name: String,
    /// The status of the answer.
    pub code: u64,
}

impl Request {
    /// The program, or the user where the program does not say what it is.
    pub fn who(&self) -> &str {
        if self.agent.is_empty() { &self.user } else { &self.agent }
    }

    /// True when it may have changed something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// Reads a log; lines that are no answers are left out.
pub(super) fn parse(log: &str) -> Vec<Request> {
    log.lines().filter_map(|line| request(&serde_json::from_str(line).ok()?)).collect()
}

fn request(event: &Value) -> Option<Request> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let code = event["responseStatus"]["code"].as_u64()?;
    let agent = event["userAgent"].as_str().unwrap_or_default();
    let object = &event["objectRef"];
    let mut resource = text(&object["resource"]);
    if let Some(part) = object["subresource"].as_str() {
        resource = format!("{resource}/{part}");
    }
    Some(Request {
        agent: agent.split('/').next().unwrap_or_default().to_owned(),
        user: text(&event["user"]["username"]),
        verb: text(&event["verb"]),
        resource,
        name: text(&object["name"]),
        code,
    })
}

/// How many each program made.
pub fn by_agent(requests: &[Request]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.who()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answered_requests_are_counted_by_program() {
        let log = r#"{"stage":"ResponseComplete","userAgent":"csi-provisioner/v5 (linux)","verb":"update","user":{"username":"system:admin"},"objectRef":{"resource":"persistentvolumeclaims","subresource":"status","name":"data"},"responseStatus":{"code":200}}
{"stage":"ResponseStarted","userAgent":"kubectl/v1","verb":"watch"}
half a li"#;
        let found = parse(log);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].resource, "persistentvolumeclaims/status");
        assert_eq!(found[0].name, "data");
        assert!(found[0].is_write());
        assert_eq!(by_agent(&found), BTreeMap::from([("csi-provisioner", 1)]));
    }

    #[test]
    fn a_program_that_does_not_say_what_it_is_is_known_by_its_user() {
        let log = r#"{"verb":"get","user":{"username":"somebody"},"responseStatus":{"code":200}}"#;
        let found = parse(log);
        assert_eq!(found[0].who(), "somebody");
        assert!(!found[0].is_write());
    }
}
