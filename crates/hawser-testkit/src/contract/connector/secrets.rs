//! Secrets stay where they belong.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Once;

use hawser_core::Error;
use hawser_core::attach::Identity;
use hawser_core::secret::Secret;

use super::{ConnectorRig, ENOUGH};
use crate::fake_host::{Node, When};

/// What is given to rigs that have no secret of their own.
const SECRET: &str = "hunter2-correct-horse";

/// A rig with at least one secret, and all of them.
fn with_secret(rig: &impl Fn() -> ConnectorRig) -> (ConnectorRig, Vec<String>) {
    let mut rig = rig();
    if rig.info.secrets.is_empty() {
        for field in ["auth_password", "keyring", "secret"] {
            rig.info.secrets.insert(field.into(), Secret::new(SECRET));
        }
    }
    let secrets = rig.info.secrets.values().map(|secret| secret.expose().to_owned()).collect();
    (rig, secrets)
}

thread_local! {
    /// What was logged on this thread since somebody began to listen.
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Writes to the thread's log, where somebody listens.
struct ThreadLog;

impl Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|log| {
            if let Some(log) = log {
                log.extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Begins to listen to everything that this thread logs, at every level.
///
/// One listener for the whole process: with one for each thread, a place in the code that another
/// thread reached first would be taken for one that nobody listens to.
fn listen() {
    static LISTENER: Once = Once::new();
    LISTENER.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(|| ThreadLog)
            .finish();
        tracing::subscriber::set_global_default(subscriber)
            .expect("tests with this contract have no listener of their own");
    });
    LOGGED.set(Some(Vec::new()));
}

/// What was logged since then; nothing more is kept.
fn heard() -> String {
    let bytes = LOGGED.take().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Secrets are in no error, no answer, no log, no argument, no call of the host and no record.
pub async fn secrets_are_hidden(rig: impl Fn() -> ConnectorRig) {
    listen();
    let mut seen = Vec::new();
    for nth in 0..ENOUGH {
        let (rig, _) = with_secret(&rig);
        rig.host.fail_call(nth, When::Before);
        let result = rig.connect().await;
        let ended = rig.host.struck() == 0;
        rig.host.heal();
        if let Ok(change) = &result {
            let gone = rig.disconnect(&rig.record(change.get())).await;
            seen.push(shown(&gone.map(|change| format!("{change:?}"))));
        }
        seen.push(shown(&result.map(|change| format!("{change:?}"))));
        seen.push(format!("{:?}", rig.host.calls()));
        seen.push(serde_json::to_string(&rig.intent()).expect("a record"));
        if rig.secret_arguments.is_none() {
            seen.push(rig.host.arguments().join(" "));
        }
        if ended {
            break;
        }
    }
    let (mut rig, secrets) = with_secret(&rig);
    rig.info.identity = Some(Identity::new("image", "other"));
    seen.push(shown(&rig.connect().await.map(|change| format!("{change:?}"))));
    rig.info.data.clear();
    seen.push(shown(&rig.connect().await.map(|change| format!("{change:?}"))));
    seen.push(format!("{:?}", rig.info));
    seen.push(heard());

    for text in seen {
        for secret in &secrets {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

/// A file that must hold a secret is for nobody else to read, and goes with the volume.
pub async fn secrets_leave_no_file_that_others_can_read(rig: impl Fn() -> ConnectorRig) {
    let (rig, secrets) = with_secret(&rig);
    let before = rig.host.snapshot();

    let attached = rig.connect().await.expect("connect").into_inner();

    let now = rig.host.snapshot();
    for (path, node) in now.tree.iter().filter(|(path, node)| before.tree.get(*path) != Some(node))
    {
        let Node::File(data, mode) = node else { continue };
        let text = String::from_utf8_lossy(data);
        let holds = secrets.iter().any(|secret| text.contains(secret));
        assert!(!holds || mode & 0o077 == 0, "{} has mode {mode:o}", path.display());
    }
    rig.disconnect(&rig.record(&attached)).await.expect("disconnect");
    rig.is_as(&before, "afterwards");
}

fn shown(result: &std::result::Result<String, Error>) -> String {
    match result {
        Ok(text) => text.clone(),
        Err(error) => format!("{error} {error:?} {}", error.sentence()),
    }
}
