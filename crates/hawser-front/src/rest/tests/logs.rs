//! What the log says: once per request, with the names that find it again.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;

use super::rig::Rig;

#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn with(&self, word: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    }
}

/// Keeps what every test of this process logs. One for all: a subscriber of one thread alone may miss
/// lines whose place in the code another thread has met first.
pub(super) fn keep() -> Lines {
    static KEPT: OnceLock<Lines> = OnceLock::new();
    let kept = KEPT.get_or_init(|| {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("no other subscriber");
        lines
    });
    kept.clone()
}

#[tokio::test]
async fn each_outcome_is_logged_once_with_request_volume_and_cause() {
    let lines = keep();
    let rig = Rig::start();
    let create = async |name: &str, id: &str| {
        let body = Full::new(Bytes::from(json!({ "name": name, "size": 1 }).to_string()));
        let request = Request::post("/v1/volumes")
            .header("content-type", "application/json")
            .header("x-request-id", id);
        rig.send(request.body(body).unwrap()).await
    };

    create("internal", "r-internal").await;
    let made = create("data", "r-made").await.json();
    create("..", "r-refused").await;

    let internal = lines.with("request.id=r-internal");
    assert_eq!(internal.len(), 1, "{internal:?}");
    assert!(internal[0].contains("ERROR") && internal[0].contains("the secret of the pool"));
    let made_lines = lines.with("request.id=r-made");
    assert_eq!(made_lines.len(), 1, "{made_lines:?}");
    let id = made["id"].as_str().unwrap();
    for part in [&*format!("volume.id=\"{id}\""), "http.route=/v1/volumes", "http.method=POST"] {
        assert!(made_lines[0].contains(part), "no {part} in {}", made_lines[0]);
    }
    let refused = lines.with("request.id=r-refused");
    assert!(refused.len() == 1 && refused[0].contains(" INFO "), "{refused:?}");
    rig.stop().await;
}
