//! Waits for an object to become what it should be, by watching it.

use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::{Attempt, Result};
use super::kubectl::{Kubectl, Object};
use crate::child;

/// How long one watch is trusted. An object that goes between a look and the watch after it makes
/// no event.
const WATCH_LIMIT: Duration = Duration::from_secs(10);

/// How long a server that cannot be reached is left alone.
const PAUSE: Duration = Duration::from_millis(300);

/// What was seen last when it never came to be.
pub(super) struct Last {
    /// The object, or nothing.
    pub(super) state: Value,
    /// What kept us from looking.
    pub(super) trouble: Option<String>,
}

/// Waits until the fact holds, and answers the object; where there is none the fact sees `null`.
/// `alive` is asked between looks, and its error ends the wait.
pub(super) fn wait(
    kubectl: &Kubectl,
    object: &Object,
    limit: Duration,
    mut fact: impl FnMut(&Value) -> bool,
    mut alive: impl FnMut() -> Result<()>,
) -> Result<Result<Value, Last>> {
    let until = Instant::now() + limit;
    let mut last = Last { state: Value::Null, trouble: None };
    loop {
        alive()?;
        match kubectl.try_find(object) {
            Ok(found) => {
                last = Last { state: found.unwrap_or_default(), trouble: None };
                if fact(&last.state) {
                    return Ok(Ok(last.state));
                }
                let left = until.saturating_duration_since(Instant::now());
                if follow(kubectl, object, left.min(WATCH_LIMIT), &mut last.state, &mut fact)? {
                    return Ok(Ok(last.state));
                }
            }
            Err(error) => {
                last.trouble = Some(super::chain(&error));
                std::thread::sleep(PAUSE);
            }
        }
        if Instant::now() >= until {
            return Ok(Err(last));
        }
    }
}

/// Follows events until the fact holds, the server ends the watch, or the time is over.
fn follow(
    kubectl: &Kubectl,
    object: &Object,
    limit: Duration,
    state: &mut Value,
    fact: &mut impl FnMut(&Value) -> bool,
) -> Result<bool> {
    let mut command = kubectl.watch(object);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut watch = command.spawn().attempt(|| format!("watching {object}"))?;
    let Some(out) = watch.stdout.take() else { return Ok(false) };
    let (tell, events) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let values =
            serde_json::Deserializer::from_reader(BufReader::new(out)).into_iter::<Value>();
        for value in values {
            let Ok(value) = value else { return };
            if tell.send(value).is_err() {
                return;
            }
        }
    });
    let until = Instant::now() + limit;
    let held = loop {
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(event) => {
                *state = object_of(event);
                if fact(state) {
                    break true;
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break false,
        }
    };
    child::kill(&mut watch);
    // Its pipe is closed now.
    let _ = reader.join();
    Ok(held)
}

/// The object after an event: nothing once it is deleted.
fn object_of(mut event: Value) -> Value {
    if event["type"] == "DELETED" { Value::Null } else { event["object"].take() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::cluster::program::{of_machine, run_with};

    /// A program that answers looks with nothing and watches with these lines.
    fn kubectl(folder: &Path, lines: &str) -> Kubectl {
        let program = folder.join("kubectl");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *--watch*) cat <<'EOF'\n{lines}\nEOF\nsleep 60;; esac\n"
        );
        // By another process: one that we start meanwhile would hold a file of ours open, and what
        // is open for writing cannot be executed.
        let mut install = of_machine("install");
        install.args(["-m", "755", "/dev/stdin"]).arg(&program);
        run_with("writing a script", &mut install, script.as_bytes(), WATCH_LIMIT).unwrap();
        Kubectl { program, config: folder.join("config"), home: folder.to_owned() }
    }

    #[test]
    fn an_object_that_comes_to_be_so_ends_the_wait() {
        let folder = tempfile::tempdir().unwrap();
        let lines = r#"{"type":"ADDED","object":{"phase":"Pending"}}
{"type":"MODIFIED","object":{"phase":"Running"}}"#;
        let kubectl = kubectl(folder.path(), lines);
        let pod = Object::within("default", "pod", "a");
        let begun = Instant::now();

        let found = wait(&kubectl, &pod, WATCH_LIMIT, |pod| pod["phase"] == "Running", || Ok(()));

        assert_eq!(found.unwrap().ok(), Some(json!({ "phase": "Running" })));
        assert!(begun.elapsed() < WATCH_LIMIT);
    }

    #[test]
    fn what_was_seen_last_is_told_when_it_never_comes_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let kubectl = kubectl(folder.path(), r#"{"type":"ADDED","object":{"phase":"Pending"}}"#);
        let pod = Object::within("default", "pod", "a");

        let limit = Duration::from_secs(1);
        let found = wait(&kubectl, &pod, limit, |pod| pod["phase"] == "Running", || Ok(()));

        let last = found.unwrap().err().unwrap();
        assert_eq!(last.state, json!({ "phase": "Pending" }));
    }

    #[test]
    fn a_deleted_object_is_nothing() {
        assert_eq!(object_of(json!({ "type": "DELETED", "object": { "a": 1 } })), Value::Null);
    }
}
