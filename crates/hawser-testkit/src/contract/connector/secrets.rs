//! Secrets stay where they belong.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

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

/// Everything that is logged on this thread, at every level.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Logged {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Secrets are in no error, no answer, no log, no argument, no call of the host and no record.
pub async fn secrets_are_hidden(rig: impl Fn() -> ConnectorRig) {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
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
    seen.push(logged.text());

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
    for (path, node) in now.tree.iter().filter(|(path, node)| before.tree.get(*path) != Some(node)) {
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
