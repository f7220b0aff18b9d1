//! The other guest of a job with two.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::{number, wait_for};

/// How long one guest waits for the other.
const LIMIT: Duration = Duration::from_secs(120);

/// Where the first guest waits for the second.
const PORT: u16 = 9;

/// A connection to the same test in the other guest. When that test fails, so does this one.
#[derive(Debug)]
pub struct Peer {
    read: BufReader<TcpStream>,
    write: TcpStream,
}

impl Peer {
    /// The address of a guest on the wire between the two.
    pub fn address(guest: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, guest)
    }

    /// Waits for the other guest, which runs the same test.
    #[track_caller]
    pub fn join() -> Self {
        let first = (Self::address(1), PORT);
        let stream = if number() == 1 {
            let listener = TcpListener::bind(first).expect("the port is free");
            listener.set_nonblocking(true).expect("a socket");
            wait_for("other guest", LIMIT, || listener.accept().ok()).0
        } else {
            wait_for("other guest", LIMIT, || TcpStream::connect(first).ok())
        };
        stream.set_nonblocking(false).expect("a socket");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        stream.set_nodelay(true).expect("a socket");
        let write = stream.try_clone().expect("a descriptor");
        Self { read: BufReader::new(stream), write }
    }

    /// Waits until the other guest has come to the same place.
    #[track_caller]
    pub fn meet(&mut self, place: &str) {
        self.send(place);
        let other = self.receive();
        assert_eq!(other, place, "the guests are at different places");
    }

    /// Sends one line.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        let sent = self.write.write_all(format!("{line}\n").as_bytes());
        sent.expect("the other guest listens");
    }

    /// Waits for a line.
    #[track_caller]
    pub fn receive(&mut self) -> String {
        let mut line = String::new();
        let count = self.read.read_line(&mut line).expect("the other guest speaks in time");
        assert!(count > 0, "the test ended in the other guest");
        line.trim_end().to_owned()
    }
}
