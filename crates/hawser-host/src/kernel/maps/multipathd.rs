//! The socket of multipathd: a length as the machine's own `size_t`, then that many bytes of text
//! with a NUL at the end; one frame there, one back.

use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use hawser_core::port::kernel::{KernelError, KernelResult};
use rustix::io::Errno;

/// Since 0.12; unlike the next one it is seen from other network namespaces too.
const FILE: &str = "/run/multipathd.socket";
/// Since 0.5.
const ABSTRACT: &str = "/org/kernel/linux/storage/multipathd";
/// Before 0.5.
const OLD_FILE: &str = "/var/run/multipathd.sock";
/// A table of ten thousand paths has two.
const LARGEST: usize = 16 << 20;
const LENGTH: usize = size_of::<usize>();

/// Sends one command and reads its answer. Blocks.
pub(super) fn ask(command: &str, limit: Duration, attempt: String) -> KernelResult<String> {
    let deadline = Instant::now() + limit;
    let asked = connect(addresses()).and_then(|socket| exchange(&socket, command, deadline));
    asked.map_err(|error| match error {
        AskError::Io(source) if late(&source) => KernelError::Late { attempt, limit },
        AskError::Io(source) => KernelError::Refused { attempt, source },
        AskError::Nonsense(why) => KernelError::Nonsense { attempt, why },
    })
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum AskError {
    Io(io::Error),
    Nonsense(String),
}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A socket says "would block" when its own limit has passed.
fn late(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}

fn addresses() -> impl Iterator<Item = io::Result<SocketAddr>> {
    [
        SocketAddr::from_pathname(FILE),
        SocketAddr::from_abstract_name(ABSTRACT),
        SocketAddr::from_pathname(OLD_FILE),
    ]
    .into_iter()
}

/// The first of the addresses at which somebody listens.
pub(super) fn connect(
    addresses: impl Iterator<Item = io::Result<SocketAddr>>,
) -> Result<UnixStream, AskError> {
    for address in addresses {
        match UnixStream::connect_addr(&address?) {
            Ok(socket) if is_trusted(&socket)? => return Ok(socket),
            // While the daemon does not run, anybody may listen under its abstract name.
            Ok(_) => {}
            // Nobody listens, or there is no such file.
            Err(error)
                if [ErrorKind::ConnectionRefused, ErrorKind::NotFound].contains(&error.kind()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::from(Errno::CONNREFUSED).into())
}

/// The daemon is root's, or our own in a test.
fn is_trusted(socket: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?.uid;
    Ok(peer.is_root() || peer == rustix::process::geteuid())
}

pub(super) fn exchange(
    mut socket: &UnixStream,
    command: &str,
    deadline: Instant,
) -> Result<String, AskError> {
    socket.set_write_timeout(Some(left(deadline)?))?;
    socket.write_all(&frame(command)?)?;
    let mut length = [0; LENGTH];
    fill(socket, &mut length, deadline)?;
    let length = usize::from_ne_bytes(length);
    if length == 0 || length > LARGEST {
        return Err(AskError::Nonsense(format!("an answer of {length} bytes")));
    }
    let mut answer = vec![0; length];
    fill(socket, &mut answer, deadline)?;
    Ok(text(&answer))
}

pub(super) fn frame(command: &str) -> Result<Vec<u8>, AskError> {
    if command.contains('\0') {
        return Err(io::Error::from(Errno::INVAL).into());
    }
    let length = command.len() + 1;
    Ok([&length.to_ne_bytes()[..], command.as_bytes(), b"\0"].concat())
}

/// Everything before the first NUL.
pub(super) fn text(answer: &[u8]) -> String {
    let end = answer.iter().position(|byte| *byte == 0).unwrap_or(answer.len());
    String::from_utf8_lossy(&answer[..end]).into_owned()
}

/// Reads all of `buffer`, however slowly it trickles, until the deadline.
fn fill(mut socket: &UnixStream, buffer: &mut [u8], deadline: Instant) -> Result<(), AskError> {
    let (mut done, whole) = (0, buffer.len());
    while done < whole {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(&mut buffer[done..]) {
            Ok(0) => {
                return Err(AskError::Nonsense(format!("it ends after {done} of {whole} bytes")));
            }
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
