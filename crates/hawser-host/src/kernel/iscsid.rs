//! The management socket of iscsid: one request of a fixed size there, one answer back.
//!
//! A request is `command` and `payload_len`, 32 bits each, then a union that begins with the number of
//! the session and goes on with a node record, whose size depends on the release. iscsid reads exactly
//! as much as its own structure has and leaves the rest unread. So more is sent than any release
//! reads, all zero after the number; see `usr/mgmt_ipc.h` of open-iscsi.

use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{Iscsid, KernelError, KernelResult};
use rustix::io::Errno;

use super::no_answer;
use crate::workers::Workers;

const ABSTRACT: &str = "ISCSIADM_ABSTRACT_NAMESPACE";
const LOGOUT: u32 = 2;
/// Four times what 2.1.8 reads (16104 bytes), and less than what a socket takes without a reader.
const LENGTH: usize = 64 << 10;

/// iscsid of this machine.
#[derive(Debug)]
pub(crate) struct LinuxIscsid {
    workers: Workers,
}

impl LinuxIscsid {
    pub(crate) fn new(workers: Workers) -> Self {
        Self { workers }
    }
}

#[async_trait]
impl Iscsid for LinuxIscsid {
    async fn logout(&self, session: u32, limit: Duration) -> KernelResult<i32> {
        let attempt = format!("asking iscsid to end session {session}");
        let words = attempt.clone();
        let asked = self.workers.run("a question to iscsid", limit, move || {
            let address = SocketAddr::from_abstract_name(ABSTRACT);
            let answer = address.and_then(|address| ask(&address, session, limit));
            answer.map_err(|source| {
                let attempt = words;
                if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
                    KernelError::Late { attempt, limit }
                } else if source.kind() == ErrorKind::InvalidData {
                    KernelError::Nonsense { attempt, why: source.to_string() }
                } else {
                    KernelError::Refused { attempt, source }
                }
            })
        });
        asked.await.unwrap_or_else(|error| Err(no_answer(attempt, error)))
    }
}

/// Sends one request and reads the head of its answer. Blocks.
fn ask(address: &SocketAddr, session: u32, limit: Duration) -> io::Result<i32> {
    let mut socket = UnixStream::connect_addr(address)?;
    // While the daemon does not run, anybody may listen under its name.
    let peer = rustix::net::sockopt::socket_peercred(&socket)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(Errno::CONNREFUSED.into());
    }
    let limit = Some(limit.max(Duration::from_millis(1)));
    socket.set_write_timeout(limit)?;
    socket.set_read_timeout(limit)?;
    match socket.write_all(&request(session)) {
        // It has read as much as its release reads, and has answered already.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written?,
    }
    let mut head = [0; 8];
    match socket.read_exact(&mut head) {
        Ok(()) => answer(head),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(io::Error::new(ErrorKind::InvalidData, "it hung up"))
        }
        Err(error) => Err(error),
    }
}

fn request(session: u32) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    bytes[..4].copy_from_slice(&LOGOUT.to_ne_bytes());
    bytes[8..12].copy_from_slice(&session.to_ne_bytes());
    bytes
}

/// The code of an answer that is one to our request.
fn answer(head: [u8; 8]) -> io::Result<i32> {
    let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
    match u32::from_ne_bytes(word(0)) {
        LOGOUT => Ok(i32::from_ne_bytes(word(4))),
        other => {
            let why = format!("an answer to command {other}");
            Err(io::Error::new(ErrorKind::InvalidData, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// A daemon that reads so much of a request, answers, and hangs up with the rest unread.
    fn daemon(
        name: &str,
        reads: usize,
        answer: &'static [u8],
    ) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
        let name = format!("hawser-iscsid-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let serve = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = vec![0; reads];
            socket.read_exact(&mut request).unwrap();
            socket.write_all(answer).unwrap();
            request
        });
        (address, serve)
    }

    const LIMIT: Duration = Duration::from_secs(5);

    #[test]
    fn a_daemon_of_any_release_understands_the_head_and_is_understood() {
        for (name, reads) in [("old", 3000), ("now", 16104), ("new", 60000)] {
            let (address, serve) = daemon(name, reads, &[2, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9]);

            assert_eq!(ask(&address, 0x0102, LIMIT).unwrap(), 0);

            let request = serve.join().unwrap();
            assert_eq!(request[..12], [2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0]);
            assert!(request[12..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_refusal_is_its_code_and_anything_else_is_an_error() {
        let (address, _serve) = daemon("refusal", 64, &[2, 0, 0, 0, 28, 0, 0, 0]);
        assert_eq!(ask(&address, 1, LIMIT).unwrap(), 28);
        let (address, _serve) = daemon("odd", 64, &[7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ask(&address, 1, LIMIT).unwrap_err().kind(), ErrorKind::InvalidData);
        let (address, _serve) = daemon("short", 64, &[2, 0]);
        assert!(ask(&address, 1, LIMIT).is_err());
        let nobody = SocketAddr::from_abstract_name("hawser-iscsid-nobody").unwrap();
        let refused = ask(&nobody, 1, LIMIT).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }

    hawser_testkit::fuzz_corpus!(corpus, "iscsid_answer", |bytes| {
        if let Some(head) = bytes.first_chunk()
            && answer(*head).is_ok_and(|code| code == 0)
        {
            assert_eq!(*head, [2, 0, 0, 0, 0, 0, 0, 0], "a refusal was taken for a logout");
        }
    });
}
