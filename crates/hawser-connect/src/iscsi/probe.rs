//! Whether anybody listens, before iscsid is sent there: it takes minutes to notice that nobody does,
//! and tells a closed port like a dead host.

use std::io;
use std::path::Path;
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use tokio::net::{TcpStream, lookup_host};

use super::data::{Target, Transport};
use super::portal::Portal;
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// How long a portal may take to answer.
pub(super) const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// Finds out whether anybody listens. RDMA has no such question, and an interface of its own may go
/// where the host's routes do not.
pub(super) async fn target(
    host: &dyn Host,
    iface: &str,
    target: &Target,
    deadline: Deadline,
) -> Result<()> {
    match target.transport {
        Transport::Tcp if iface == "default" => portal(&target.portal, deadline).await,
        Transport::Tcp => Ok(()),
        Transport::Iser => {
            let adapters = host.files().list(Path::new("/sys/class/infiniband"))?;
            match adapters.is_empty() {
                true => Err(AttachError::NoHba { kind: "RDMA" }.into()),
                false => Ok(()),
            }
        }
    }
}

/// Connects to a portal and hangs up.
pub(super) async fn portal(portal: &Portal, deadline: Deadline) -> Result<()> {
    let limit = deadline.within(PROBE_LIMIT).left();
    let work = async {
        let addresses = lookup_host((portal.address.as_str(), portal.port)).await?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    let name = portal.to_string();
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Err(AttachError::PortalRefused { portal: name }.into())
        }
        Ok(Err(error)) => {
            Err(AttachError::Unreachable { target: name, why: error.to_string() }.into())
        }
        Err(_) => Err(AttachError::PortalTimeout { portal: name, limit }.into()),
    }
}
