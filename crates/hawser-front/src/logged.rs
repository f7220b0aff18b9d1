//! What the tests of this crate log, kept for those that look at it.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing_subscriber::EnvFilter;

/// Everything, of every crate: nothing secret may be there, either.
const FILTER: &str = "trace";

/// Everything that was logged.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

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
    /// The lines that have a word.
    pub(crate) fn with(&self, word: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    }
}

/// Keeps what every test of this process logs. One for all: a subscriber of one thread alone may miss
/// lines whose place in the code another thread has met first.
pub(crate) fn keep() -> Lines {
    static KEPT: OnceLock<Lines> = OnceLock::new();
    let kept = KEPT.get_or_init(|| {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_env_filter(EnvFilter::new(FILTER))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("no other subscriber");
        lines
    });
    kept.clone()
}
