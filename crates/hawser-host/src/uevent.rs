//! Waits for the kernel's device events instead of sleeping.
//!
//! [`Uevents::subscribe`] comes before the act whose effect is waited for, so no event is missed.
//! It blocks, for calls that run on a worker; what waits on the runtime is in `kernel::events`.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with, sockopt,
};

/// The group the kernel itself sends to: a device has come, gone or changed.
pub(crate) const KERNEL_GROUP: u32 = 1;
/// The group udev sends to once its rules have run: the device's links are there.
pub(crate) const UDEV_GROUP: u32 = 2;
/// Room for the events of a storm, some ten thousand; it takes memory only while they wait.
const ROOM: usize = 16 << 20;
/// How often the condition is looked at when no event comes. A process in a network namespace of
/// its own, as in a container, may be sent no device events at all, and an unprivileged one may
/// not be allowed to listen; then this is the whole wait. It is cheap: one file of sysfs.
pub(crate) const RECHECK: Duration = Duration::from_millis(50);
/// `UEVENT_BUFFER_SIZE` is 2048 in the kernel; no message is longer than its header and that.
const LARGEST_MESSAGE: usize = 8192;

/// One event of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uevent {
    /// `add`, `remove`, `change` and so on.
    pub(crate) action: String,
    /// Below `/sys`.
    pub(crate) path: String,
    /// `block`, `scsi` and so on.
    pub(crate) subsystem: String,
}

/// Reads one message: `action@path`, then `KEY=value` pairs, NUL between them. `None` for
/// anything else, such as udev's own messages.
pub(crate) fn parse(message: &[u8]) -> Option<Uevent> {
    let mut parts = message.split(|byte| *byte == 0).map(|part| std::str::from_utf8(part).ok());
    let (action, path) = parts.next()??.split_once('@')?;
    let subsystem = parts.flatten().find_map(|part| part.strip_prefix("SUBSYSTEM="))?;
    Some(Uevent { action: action.into(), path: path.into(), subsystem: subsystem.into() })
}

/// Listens to these groups from now on. `None` where that is not permitted.
pub(crate) fn listen(groups: u32) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))
            .and_then(|socket| {
                // As much as we are allowed; what does not fit is told as ENOBUFS.
                let _ = sockopt::set_socket_recv_buffer_size_force(&socket, ROOM)
                    .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, ROOM));
                bind(&socket, &SocketAddrNetlink::new(0, groups))?;
                Ok(socket)
            });
    if let Err(error) = &socket {
        tracing::debug!(%error, "no device events here, re-checking instead");
    }
    socket.ok()
}

/// A subscription to the kernel's device events.
pub(crate) struct Uevents {
    /// `None` where listening is not permitted; then waits fall back to [`RECHECK`].
    socket: Option<OwnedFd>,
}

impl Uevents {
    /// Listens from now on.
    pub(crate) fn subscribe() -> Self {
        Self { socket: listen(KERNEL_GROUP) }
    }

    /// Waits until `predicate` holds, looking at it after each event of `subsystem`; false when
    /// the deadline passes first. Blocks: for workers only.
    pub(crate) fn wait_for<E>(
        &self,
        subsystem: &str,
        mut predicate: impl FnMut() -> Result<bool, E>,
        deadline: Instant,
    ) -> Result<bool, E> {
        loop {
            if predicate()? {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.wait_for_event(subsystem, left.min(RECHECK));
        }
    }

    /// Returns at an event of `subsystem`, or when `limit` has passed.
    fn wait_for_event(&self, subsystem: &str, limit: Duration) {
        let Some(socket) = &self.socket else {
            std::thread::sleep(limit);
            return;
        };
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(left) else { return };
            let mut polled = [PollFd::new(socket, PollFlags::IN)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return std::thread::sleep(left),
            }
            let mut buffer = [0_u8; LARGEST_MESSAGE];
            match recvfrom(socket, &mut buffer[..], RecvFlags::empty()) {
                // Only the kernel, port 0, is believed.
                Ok((_, length, Some(from)))
                    if SocketAddrNetlink::try_from(from.clone())
                        .is_ok_and(|from| from.pid() == 0) =>
                {
                    let event = parse(&buffer[..length.min(LARGEST_MESSAGE)]);
                    if event.is_some_and(|event| event.subsystem == subsystem) {
                        return;
                    }
                }
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                // ENOBUFS: events were lost; one of them may have been ours.
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_event_of_the_kernel_is_read() {
        let message = include_bytes!("../testdata/corpus/uevent/loop-change");

        let event = parse(message).unwrap();

        assert_eq!(event.action, "change");
        assert_eq!(event.path, "/devices/virtual/block/loop3");
        assert_eq!(event.subsystem, "block");
    }

    #[test]
    fn a_message_of_udev_is_none_of_ours() {
        assert_eq!(parse(b"libudev\0\xfe\xed\xca\xfe"), None);
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let start = Instant::now();

        let met = Uevents::subscribe().wait_for(
            "block",
            || Ok::<_, Infallible>(false),
            start + Duration::from_millis(120),
        );

        assert_eq!(met, Ok(false));
        assert!(start.elapsed() >= Duration::from_millis(120));
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(message in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = parse(&message);
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "uevent", |bytes| {
        let _ = parse(bytes);
    });
}
