//! One message to the client, and its answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// Brings a volume.
pub(super) const ATTACH: u16 = 1;
/// Takes it away.
pub(super) const DETACH: u16 = 2;

/// How long a client on this host may take to accept.
const DIAL_LIMIT: Duration = Duration::from_secs(3);

/// Length of what follows, operation, id, instance.
pub(super) fn message(operation: u16, id: u64) -> [u8; 26] {
    let mut bytes = [0; 26];
    bytes[..2].copy_from_slice(&24_u16.to_be_bytes());
    bytes[2..4].copy_from_slice(&operation.to_be_bytes());
    bytes[4..12].copy_from_slice(&id.to_be_bytes());
    bytes[12..].copy_from_slice(b"DEFAULT-INSTID");
    bytes
}

/// Asks, and believes four zero bytes only.
pub(super) async fn ask(
    client: SocketAddr,
    operation: u16,
    id: u64,
    deadline: Deadline,
) -> Result<(), AttachError> {
    let limits = (deadline.within(DIAL_LIMIT).left(), deadline.left(), deadline.limit());
    let talk = move || talk(client, operation, id, limits);
    // A client that answers byte by byte has no more time than any other.
    match tokio::time::timeout(deadline.left(), tokio::task::spawn_blocking(talk)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Err(unknown(client, deadline.limit())),
    }
}

fn talk(
    client: SocketAddr,
    operation: u16,
    id: u64,
    (dial, left, limit): (Duration, Duration, Duration),
) -> Result<(), AttachError> {
    let portal = client.to_string();
    // No time at all is no limit to the system.
    let least = Duration::from_millis(1);
    let mut stream = TcpStream::connect_timeout(&client, dial.max(least)).map_err(|error| {
        let portal = portal.clone();
        if error.kind() == io::ErrorKind::ConnectionRefused {
            AttachError::PortalRefused { portal }
        } else if error.kind() == io::ErrorKind::TimedOut {
            AttachError::PortalTimeout { portal, limit: dial }
        } else {
            AttachError::Unreachable { target: portal, why: error.to_string() }
        }
    })?;
    let mut answer = [0; 4];
    let mut exchange = || {
        stream.set_read_timeout(Some(left.max(least)))?;
        stream.set_write_timeout(Some(left.max(least)))?;
        stream.write_all(&message(operation, id))?;
        stream.read_exact(&mut answer)
    };
    // From here on it was asked, and may have done it.
    exchange().map_err(|_| unknown(client, limit))?;
    match u32::from_be_bytes(answer) {
        0 => Ok(()),
        code => {
            let why = format!("it refused with code {code}");
            Err(AttachError::Unreachable { target: portal, why })
        }
    }
}

fn unknown(client: SocketAddr, limit: Duration) -> AttachError {
    AttachError::Deadline { attempt: format!("asking the DISCO client at {client}"), limit }
}
