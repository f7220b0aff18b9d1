//! What a program costs beside a message: `iscsiadm` against the socket of iscsid (ADR 0009).
//!
//! A login message is a whole node record as this release of open-iscsi has it in memory. It is not
//! made here: it is taken from an `iscsiadm` that logs in, and sent again.

use std::fs;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Instant;

use hawser_live::lab::guest::cmd;
use hawser_live::report::{Figure, Report, median, milliseconds};

use crate::floor::{Floor, session};
use crate::place::{self, Volume, Ways};
use crate::sides::Side;

const SOCKET: &str = "ISCSIADM_ABSTRACT_NAMESPACE";

/// The head of a request to log in, and of one to log out.
const LOGIN: u32 = 1;
const LOGOUT: u32 = 2;

/// Medians of so many.
const ROUNDS: usize = 10;

/// What `iscsiadm` writes to iscsid.
const TRACE: &str = "/tmp/iscsiadm.strace";

/// Measures both ways to log in and out.
pub(crate) fn run(report: &mut Report, volume: &Volume, floor: &mut Floor) {
    floor.prepare();
    let login = captured(volume);
    place::rest(Ways::One);
    let logout = |session: u32| {
        let mut bytes = vec![0; login.len()];
        bytes[..4].copy_from_slice(&LOGOUT.to_ne_bytes());
        bytes[8..12].copy_from_slice(&session.to_ne_bytes());
        bytes
    };
    send(&logout(number()));
    place::rest(Ways::One);
    let mut took = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let mut step = |at: usize, work: &dyn Fn()| {
            let begun = Instant::now();
            work();
            took[at].push(begun.elapsed().as_secs_f64());
            place::rest(Ways::One);
        };
        step(0, &|| session(volume, Ways::One, "--login"));
        step(1, &|| session(volume, Ways::One, "--logout"));
        step(2, &|| send(&login));
        let own = logout(number());
        step(3, &|| send(&own));
    }
    floor.finish();
    let [tool_in, tool_out, message_in, message_out] = took.map(median);
    for (name, ours, peer) in [
        ("iscsid-login-message-against-iscsiadm", message_in, tool_in),
        ("iscsid-logout-message-against-iscsiadm", message_out, tool_out),
    ] {
        let figure = Figure {
            ours: milliseconds(ours),
            peer: Some(milliseconds(peer)),
            ratio: Some(ours / peer),
            bar: None,
        };
        report.add(name, figure);
    }
}

/// The only session that there is.
fn number() -> u32 {
    let names = fs::read_dir("/sys/class/iscsi_session").expect("there is a session").flatten();
    let mut numbers = names
        .filter_map(|name| name.file_name().to_str()?.strip_prefix("session")?.parse::<u32>().ok());
    numbers.next().expect("there is a session")
}

/// Logs in with `iscsiadm` and answers the request that it sent.
fn captured(volume: &Volume) -> Vec<u8> {
    let of = ["-m", "node", "-T", &volume.iqn, "-p", place::PORTALS[0], "--login"];
    let options = ["-xx", "-s", "65536", "-e", "trace=write,sendto", "-o", TRACE, "iscsiadm"];
    cmd("strace").args(options).args(of).ok();
    let text = fs::read_to_string(TRACE).expect("strace writes");
    let requests = text.lines().filter_map(|line| bytes(line.split('"').nth(1)?));
    let is_login = |request: &Vec<u8>| request.starts_with(&LOGIN.to_ne_bytes());
    let request = requests.filter(|request| request.len() > 4096).find(is_login);
    let request = request.expect("iscsiadm asks iscsid to log in");
    println!("a request to iscsid has {} bytes here", request.len());
    request
}

/// `\x01\x00…` as bytes.
fn bytes(text: &str) -> Option<Vec<u8>> {
    text.split("\\x").skip(1).map(|digits| u8::from_str_radix(digits, 16).ok()).collect()
}

/// Sends a request and waits for its answer, which is success.
fn send(request: &[u8]) {
    let address = SocketAddr::from_abstract_name(SOCKET).expect("a name");
    let mut socket = UnixStream::connect_addr(&address).expect("iscsid listens");
    socket.write_all(request).expect("iscsid reads");
    let mut head = [0; 8];
    socket.read_exact(&mut head).expect("iscsid answers");
    assert_eq!(head[4..], [0; 4], "iscsid answers {head:?}");
}
