//! HTTP by hand over the Unix socket: for what no well-behaved client would send.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// No answer takes longer than this.
const LIMIT: Duration = Duration::from_secs(60);

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    /// The status code; 0 when the server hung up without one.
    pub status: u16,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header; empty when it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The body as JSON; panics with the text when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error} in {}: {}", self.status, String::from_utf8_lossy(&self.body))
        })
    }

    /// Reads the bytes of a whole answer whose end is the end of the connection.
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = end.map_or((bytes, &[][..]), |at| (&bytes[..at], &bytes[at + 4..]));
        let head = String::from_utf8_lossy(head);
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self { status: status.unwrap_or(0), headers, body: body.to_vec() }
    }
}

/// A connection with a limit on every read and write.
pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream.set_write_timeout(Some(LIMIT)).expect("a limit");
    stream
}

/// Sends bytes as they are and reads until the server hangs up.
pub fn send(socket: &Path, bytes: &[u8]) -> Answer {
    let mut stream = connect(socket);
    // A server that has read enough hangs up; what it said is still there to be read.
    let _ = stream.write_all(bytes);
    read_answer(&mut stream)
}

/// Reads until the server hangs up. One that hangs up on unread bytes may reset the connection:
/// what had arrived counts.
pub fn read_answer(stream: &mut UnixStream) -> Answer {
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("no end of the answer within {LIMIT:?}")
            }
            Err(_) => break,
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    Answer::parse(&answer)
}

/// One whole request on a connection of its own.
pub fn call(socket: &Path, method: &str, path: &str, body: Option<&str>) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n");
    if let Some(body) = body {
        let length = body.len();
        request += &format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    }
    request += "\r\n";
    request += body.unwrap_or_default();
    send(socket, request.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let answer = Answer::parse(b"HTTP/1.1 404 Not Found\r\nContent-Type: a/b\r\n\r\n{}");

        assert_eq!((answer.status, answer.header("content-type")), (404, "a/b"));
        assert_eq!(answer.json(), serde_json::json!({}));
        assert_eq!(Answer::parse(b"").status, 0);
    }
}
