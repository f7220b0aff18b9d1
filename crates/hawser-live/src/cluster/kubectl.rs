//! The cluster as a test sees it: through the real kubectl. What goes wrong panics, with what was
//! attempted, because a test is what calls it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::error::{ClusterError, Result};
use super::program::{Done, SHOWN_LINES, end, of_machine, tail};

/// How long one command may take.
const LIMIT: Duration = Duration::from_secs(60);

/// kubectl with the rights of one user.
#[derive(Clone, Debug)]
pub struct Kubectl {
    pub(super) program: PathBuf,
    pub(super) config: PathBuf,
    /// Where it may keep what it learned of the server.
    pub(super) home: PathBuf,
}

/// Something in the cluster, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    kind: String,
    namespace: Option<String>,
    name: String,
}

impl Object {
    /// Of the cluster: `node`, `persistentvolume`.
    pub fn new(kind: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: None, name: name.to_owned() }
    }

    /// Of a namespace: `pod`, `persistentvolumeclaim`.
    pub fn within(namespace: &str, kind: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::new(kind, name) }
    }

    /// The arguments that say where it is.
    fn place(&self) -> Vec<String> {
        self.namespace.iter().map(|namespace| format!("--namespace={namespace}")).collect()
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name } = self;
        match namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{name}"),
            None => write!(f, "{kind} {name}"),
        }
    }
}

impl Kubectl {
    /// Runs it to its end, whatever that is.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Done {
        unwrap(self.try_run(args, &[]))
    }

    /// Runs it and answers what it said; a failure panics with everything that it said.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        unwrap(self.try_ok(args, &[]))
    }

    /// The same with `-o json`.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        unwrap(self.try_json(args))
    }

    /// An object as it is now; `None` when it is not there.
    #[track_caller]
    pub fn find(&self, object: &Object) -> Option<Value> {
        unwrap(self.try_find(object))
    }

    /// All objects of a kind, in every namespace.
    #[track_caller]
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let mut list = self.json(&["get", kind, "--all-namespaces"]);
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes what a text of YAML or JSON says, or changes it to that.
    #[track_caller]
    pub fn apply(&self, text: impl AsRef<str>) {
        unwrap(self.try_apply(text.as_ref()));
    }

    /// The same for one object, or several in a list.
    #[track_caller]
    pub fn apply_json(&self, objects: &[Value]) {
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.apply(list.to_string());
    }

    /// Changes fields of an object: what is `null` goes, lists are replaced.
    #[track_caller]
    pub fn patch(&self, object: &Object, change: &Value) {
        let (place, change) = (object.place(), change.to_string());
        let mut args = vec!["patch", &object.kind, &object.name, "--type=merge", "-p", &change];
        args.extend(place.iter().map(String::as_str));
        self.ok(&args);
    }

    /// Deletes an object and does not wait until it is gone; one that is not there is fine.
    #[track_caller]
    pub fn delete(&self, object: &Object) {
        let mut args = vec!["delete", &object.kind, &object.name, "--ignore-not-found"];
        let place = object.place();
        args.extend(place.iter().map(String::as_str));
        args.push("--wait=false");
        self.ok(&args);
    }

    /// What the only container of a pod said.
    #[track_caller]
    pub fn logs(&self, namespace: &str, pod: &str) -> String {
        self.ok(&["logs", pod, &format!("--namespace={namespace}")])
    }

    /// Runs a command in the only container of a pod.
    #[track_caller]
    pub fn exec(&self, namespace: &str, pod: &str, command: &[&str]) -> Done {
        let place = format!("--namespace={namespace}");
        let mut args = vec!["exec", pod, &place, "--"];
        args.extend(command);
        self.run(&args)
    }

    pub(super) fn try_run(&self, args: &[&str], input: &[u8]) -> Result<Done> {
        let mut command = self.command();
        end(&format!("kubectl {}", args.join(" ")), command.args(args), input, LIMIT)
    }

    pub(super) fn try_ok(&self, args: &[&str], input: &[u8]) -> Result<String> {
        let Done { status, stdout, stderr } = self.try_run(args, input)?;
        if status.success() {
            return Ok(stdout);
        }
        let tail = tail(&format!("{stdout}{stderr}"), SHOWN_LINES);
        Err(ClusterError::Step { what: format!("kubectl {}", args.join(" ")), status, tail })
    }

    pub(super) fn try_json(&self, args: &[&str]) -> Result<Value> {
        let said = self.try_ok(&[args, &["-o", "json"][..]].concat(), &[])?;
        let what = || format!("the answer of kubectl {}", args.join(" "));
        serde_json::from_str(&said).map_err(|source| ClusterError::Json { what: what(), source })
    }

    pub(super) fn try_find(&self, object: &Object) -> Result<Option<Value>> {
        let place = object.place();
        let mut args = vec!["get", &object.kind, &object.name, "--ignore-not-found", "-o", "json"];
        args.extend(place.iter().map(String::as_str));
        let said = self.try_ok(&args, &[])?;
        if said.trim().is_empty() {
            return Ok(None);
        }
        let what = format!("{object} as kubectl shows it");
        serde_json::from_str(&said).map_err(|source| ClusterError::Json { what, source })
    }

    pub(super) fn try_apply(&self, text: &str) -> Result<()> {
        // By the server: it keeps no copy of the text in the object, which has limits.
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.try_ok(&args, text.as_bytes()).map(drop)
    }

    /// A watch of one object; every line is an event.
    pub(super) fn watch(&self, object: &Object) -> Command {
        let mut command = self.command();
        command.args(["get", &object.kind]).args(object.place());
        // Not by name: then it would have to be there already.
        command.arg(format!("--field-selector=metadata.name={}", object.name));
        command.args(["--watch", "--output-watch-events", "-o", "json"]);
        command
    }

    fn command(&self) -> Command {
        let mut command = of_machine(&self.program.to_string_lossy());
        command.arg("--kubeconfig").arg(&self.config).env("HOME", &self.home);
        command
    }
}

#[track_caller]
pub(super) fn unwrap<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{}", super::chain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_says_where_it_is() {
        let pod = Object::within("default", "pod", "a");
        assert_eq!(pod.to_string(), "pod default/a");
        assert_eq!(pod.place(), ["--namespace=default"]);
        assert!(Object::new("node", "a").place().is_empty());
    }
}
