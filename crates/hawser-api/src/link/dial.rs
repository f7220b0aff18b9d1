//! Keeps a node connected to its control half.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::Timestamp;
use hawser_core::port::Node;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::drive::{KeepAlive, sentence};
use super::error::LinkError;
use super::serve::{Ended, Session, stopped};
use super::tasks::Tasks;
use super::tls::TlsTarget;
use super::uplink::{Uplink, UpstreamClient};

/// How a node keeps its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialOptions {
    /// The wait after the first failure; doubles with each further one.
    pub first_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
    /// When a silent link counts as lost.
    pub keep_alive: KeepAlive,
    /// How long a call of the node itself waits for a link, where none is up.
    pub upstream_wait: Duration,
}

impl Default for DialOptions {
    /// A server that restarts is found again at once, one that stays away is not flooded. Calls wait
    /// for about as long as the first few dials take; an orchestrator repeats those that fail.
    fn default() -> Self {
        Self {
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(10),
            keep_alive: KeepAlive::default(),
            upstream_wait: Duration::from_secs(3),
        }
    }
}

/// Where a node finds its control half.
pub enum Destination {
    /// On this machine, at a Unix socket.
    Unix(PathBuf),
    /// Anywhere, over mutual TLS. There is no way over TCP without it.
    Tls(Box<TlsTarget>),
}

/// Keeps a node connected to its control half, and the control half reachable for the node.
pub struct Dialler {
    node: Arc<dyn Node>,
    options: DialOptions,
    uplink: Uplink,
}

impl Dialler {
    /// A dialler for this node; dials when it is run.
    pub fn new(node: Arc<dyn Node>, options: DialOptions) -> Self {
        Self { node, options, uplink: Uplink::default() }
    }

    /// The control half, over whichever link is up.
    pub fn upstream(&self) -> UpstreamClient {
        self.uplink.client(self.options.upstream_wait)
    }

    /// Dials, answers calls, and dials again whenever the link is lost, until `shutdown` becomes
    /// true; then waits for the work that is under way.
    pub async fn run(self, to: Destination, shutdown: watch::Receiver<bool>) {
        match to {
            Destination::Unix(path) => {
                self.run_with(|| UnixStream::connect(path.clone()), shutdown).await;
            }
            Destination::Tls(target) => self.run_with(|| target.connect(), shutdown).await,
        }
    }

    /// [`Dialler::run`] over any transport: `connect` opens one more stream to the control half.
    pub async fn run_with<S, C, F>(self, mut connect: C, mut shutdown: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite,
        C: FnMut() -> F,
        F: Future<Output = std::io::Result<S>>,
    {
        let Self { node, options, uplink } = self;
        let tasks = Tasks::default();
        let session =
            Session { node, tasks: tasks.clone(), keep_alive: options.keep_alive, uplink };
        let mut backoff = Backoff::new(options);
        let mut number = 0;
        let mut said = String::new();
        loop {
            let connected = tokio::select! {
                connected = connect() => connected,
                () = stopped(&mut shutdown) => break,
            };
            let error = match connected {
                Ok(stream) => {
                    number = next_number(number);
                    match session.run(stream, number, shutdown.clone()).await {
                        Ended::Never(error) => error,
                        Ended::After(error) if was_turned_away(&error) => error,
                        Ended::After(error) => {
                            backoff.reset();
                            said.clear();
                            error
                        }
                    }
                }
                Err(error) => LinkError::Dial(error),
            };
            if *shutdown.borrow() || shutdown.has_changed().is_err() {
                break;
            }
            let wait = backoff.next(&error);
            // The same trouble again and again is one line of the log, not thousands.
            let reason = sentence(&error);
            session.uplink.down(&reason);
            if reason != said {
                tracing::warn!(%reason, "no link to the control half; trying again");
                said = reason;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stopped(&mut shutdown) => break,
            }
        }
        session.uplink.down("the node is stopping");
        tasks.join().await;
    }
}

/// Dials the control half at a Unix socket, answers its calls, and dials again whenever the link is
/// lost, until `shutdown` becomes true; then waits for the work that is under way.
pub async fn dial(
    path: PathBuf,
    node: Arc<dyn Node>,
    options: DialOptions,
    shutdown: watch::Receiver<bool>,
) {
    Dialler::new(node, options).run(Destination::Unix(path), shutdown).await;
}

/// [`dial`] over any transport: `connect` opens one more stream to the control half.
pub async fn dial_with<S, C, F>(
    connect: C,
    node: Arc<dyn Node>,
    options: DialOptions,
    shutdown: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite,
    C: FnMut() -> F,
    F: Future<Output = std::io::Result<S>>,
{
    Dialler::new(node, options).run_with(connect, shutdown).await;
}

/// True when the control half does not want this node now: dialling at once would not help.
fn was_turned_away(error: &LinkError) -> bool {
    matches!(error, LinkError::Refused { .. } | LinkError::Replaced)
}

/// Larger than every earlier one of this process, and than those of processes before it.
fn next_number(last: u64) -> u64 {
    let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0);
    now.max(last + 1)
}

struct Backoff {
    options: DialOptions,
    wait: Duration,
    random: RandomState,
    tries: u64,
}

impl Backoff {
    fn new(options: DialOptions) -> Self {
        Self { options, wait: options.first_wait, random: RandomState::new(), tries: 0 }
    }

    fn reset(&mut self) {
        self.wait = self.options.first_wait;
    }

    /// The next wait: between half and all of a span that doubles, so that nodes which lost the same
    /// server do not come back in step.
    fn next(&mut self, error: &LinkError) -> Duration {
        // Two processes that serve one node id must not push each other out in turns.
        if matches!(error, LinkError::Replaced) {
            self.wait = self.options.longest_wait;
        }
        let span = self.wait.min(self.options.longest_wait);
        self.wait = (span * 2).min(self.options.longest_wait);
        self.tries += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.tries);
        span.mul_f64(0.5 + (hasher.finish() % 1024) as f64 / 2048.0)
    }
}
