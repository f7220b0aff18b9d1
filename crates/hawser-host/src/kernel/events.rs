//! Device events on the runtime: the kernel's, and udev's once its rules have run.
//!
//! What an event says is not read: it is a reason to look, and one look serves all that have come.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{DeviceEvents, Events};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, timeout};

use crate::sys::watch;
use crate::uevent::{KERNEL_GROUP, RECHECK, UDEV_GROUP, listen};

/// In a network namespace of its own a process may listen and still be sent nothing, which looks
/// like a quiet host. So until one event has come, we do not rely on them.
static EVENTS_COME: AtomicBool = AtomicBool::new(false);

/// As many events are thrown away in one go; more are found at the next look.
const BATCH: usize = 4096;

/// The device events of this machine.
#[derive(Debug)]
pub(crate) struct LinuxEvents;

impl Events for LinuxEvents {
    fn subscribe(&self) -> Box<dyn DeviceEvents> {
        let socket = listen(KERNEL_GROUP | UDEV_GROUP);
        Box::new(Subscription { source: socket.map_or(Source::Deaf, Source::Fresh) })
    }
}

struct Subscription {
    source: Source,
}

enum Source {
    /// Listens; not yet known to the runtime, as a subscription can be made outside of it.
    Fresh(OwnedFd),
    Watched(AsyncFd<OwnedFd>),
    /// No events can be had.
    Deaf,
}

impl Subscription {
    fn watched(&mut self) -> Option<&AsyncFd<OwnedFd>> {
        let source = std::mem::replace(&mut self.source, Source::Deaf);
        self.source = match source {
            Source::Fresh(socket) => watch::readable(socket).map_or(Source::Deaf, Source::Watched),
            Source::Watched(_) | Source::Deaf => source,
        };
        match &self.source {
            Source::Watched(socket) => Some(socket),
            Source::Fresh(_) | Source::Deaf => None,
        }
    }
}

#[async_trait]
impl DeviceEvents for Subscription {
    async fn changed(&mut self, limit: Duration) {
        let Some(socket) = self.watched() else { return sleep(limit.min(RECHECK)).await };
        let proven = EVENTS_COME.load(Ordering::Relaxed);
        let wait = if proven { limit } else { limit.min(RECHECK) };
        match timeout(wait, next(socket)).await {
            Ok(true) => EVENTS_COME.store(true, Ordering::Relaxed),
            Ok(false) => self.source = Source::Deaf,
            Err(_) => {}
        }
    }
}

/// Waits for an event; false when the socket is of no use any more.
async fn next(socket: &AsyncFd<OwnedFd>) -> bool {
    loop {
        let Ok(mut ready) = socket.readable().await else { return false };
        match take_all(socket.get_ref()) {
            Ok(0) => ready.clear_ready(),
            Ok(_) => return true,
            Err(error) => {
                tracing::warn!(%error, "device events broke off, re-checking instead");
                return false;
            }
        }
    }
}

/// Throws away the events that wait and answers how many there were.
fn take_all(socket: &OwnedFd) -> Result<usize, Errno> {
    for taken in 0..BATCH {
        match recv(socket, &mut [0_u8; 1], RecvFlags::empty()) {
            // ENOBUFS: some were lost, and one of them may be the one that is waited for.
            Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(taken),
            Err(error) => return Err(error),
        }
    }
    Ok(BATCH)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    /// A subscription whose events the test makes.
    fn pair() -> (Subscription, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (Subscription { source: Source::Fresh(ours) }, theirs)
    }

    fn tell(socket: &OwnedFd) {
        send(socket, b"change@/devices/virtual/block/loop3\0", SendFlags::empty()).unwrap();
    }

    #[tokio::test]
    async fn an_event_that_came_before_the_wait_is_not_missed() {
        let (mut events, kernel) = pair();
        tell(&kernel);
        tell(&kernel);
        let start = Instant::now();

        events.changed(Duration::from_secs(20)).await;

        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(EVENTS_COME.load(Ordering::Relaxed));
        events.changed(Duration::from_millis(60)).await;
        assert!(start.elapsed() >= Duration::from_millis(60), "one look serves both");
    }

    #[tokio::test]
    async fn an_event_ends_the_wait() {
        let (mut events, kernel) = pair();
        tell(&kernel);
        events.changed(Duration::from_secs(20)).await;
        let start = Instant::now();
        let teller = tokio::spawn(async move {
            sleep(Duration::from_millis(80)).await;
            tell(&kernel);
            kernel
        });

        events.changed(Duration::from_secs(20)).await;

        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(80), "{waited:?}: there was nothing to see");
        assert!(waited < Duration::from_secs(5));
        drop(teller.await.unwrap());
    }

    #[tokio::test]
    async fn without_events_it_answers_every_50_ms() {
        let mut events = Subscription { source: Source::Deaf };
        let start = Instant::now();

        for _ in 0..3 {
            events.changed(Duration::from_secs(20)).await;
        }

        assert!(start.elapsed() >= Duration::from_millis(150));
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn a_wait_ends_at_its_limit() {
        let mut events = LinuxEvents.subscribe();
        let start = Instant::now();

        while start.elapsed() < Duration::from_millis(120) {
            events.changed(Duration::from_millis(20)).await;
        }

        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_subscription_can_be_made_outside_of_the_runtime() {
        let mut events = LinuxEvents.subscribe();

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

        runtime.block_on(events.changed(Duration::from_millis(10)));
    }
}
