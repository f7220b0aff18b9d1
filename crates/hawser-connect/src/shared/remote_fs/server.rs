//! The server of an export: its addresses, whether it answers, and what a refused mount means.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hawser_core::error::Error;
use hawser_core::port::host::MountEntry;
use rustix::io::Errno;
use tokio::net::{TcpStream, UdpSocket, lookup_host};

use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// How long one address of a server may take to answer.
const PROBE: Duration = Duration::from_secs(3);
/// How long a name may take to become addresses.
const LOOKUP: Duration = Duration::from_secs(10);

/// The host of an export as it was written, and without the brackets of IPv6.
pub(crate) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// All addresses of a server.
pub(crate) async fn addresses(
    server: &str,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, AttachError> {
    let server = bare(server);
    let unreachable = |why: String| AttachError::Unreachable { target: server.into(), why };
    let limit = deadline.within(LOOKUP);
    let found = match tokio::time::timeout(limit.left(), lookup_host((server, 0))).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(unreachable(format!("its name has no address ({error})"))),
        Err(_) => return Err(unreachable("its name did not become an address in time".into())),
    };
    let mut all: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    if all.is_empty() {
        return Err(unreachable("its name has no address".into()));
    }
    Ok(all)
}

/// The first address at which somebody listens on this port. Mount calls wait for minutes where
/// nobody answers; this tells the same within seconds.
pub(crate) async fn answering(
    server: &str,
    addresses: &[SocketAddr],
    port: u16,
    deadline: Deadline,
) -> Result<SocketAddr, AttachError> {
    let portal = format!("{server} port {port}");
    let mut last = AttachError::Unreachable { target: portal.clone(), why: "no address".into() };
    for address in addresses {
        let mut dialled = *address;
        dialled.set_port(port);
        let limit = deadline.within(PROBE);
        last = match tokio::time::timeout(limit.left(), TcpStream::connect(dialled)).await {
            Ok(Ok(_)) => return Ok(*address),
            Ok(Err(error)) => refused(&portal, &error),
            Err(_) => AttachError::PortalTimeout { portal: portal.clone(), limit: limit.limit() },
        };
    }
    Err(last)
}

fn refused(portal: &str, error: &io::Error) -> AttachError {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return AttachError::PortalRefused { portal: portal.into() };
    }
    AttachError::Unreachable { target: portal.into(), why: error.to_string() }
}

/// An address as mount options take it: with its scope, without a port.
pub(crate) fn text(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        SocketAddr::V4(_) | SocketAddr::V6(_) => address.ip().to_string(),
    }
}

/// Our own address on the way to a server.
pub(crate) async fn own_address(server: &SocketAddr) -> io::Result<String> {
    let any: SocketAddr =
        if server.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    // Nothing is sent: this only asks the routing table.
    let mut to = *server;
    to.set_port(2049);
    socket.connect(to).await?;
    Ok(text(&socket.local_addr()?))
}

/// The address that a mount is from, as its options tell it.
pub(crate) fn mounted_from(entry: &MountEntry) -> Option<IpAddr> {
    let option = |name: &str| entry.super_options.iter().find_map(|o| o.strip_prefix(name));
    let text = option("addr=").or_else(|| option("ip="))?;
    text.split('%').next().and_then(|text| text.parse().ok())
}

/// The kernel's number behind an error of the host.
pub(crate) fn errno(error: &Error) -> Option<Errno> {
    error.errno().map(Errno::from_raw_os_error)
}

/// What a refused mount means.
pub(crate) fn mount_error(server: &str, export: &str, module: &str, error: Error) -> Error {
    let Some(errno) = errno(&error) else { return error };
    let meant = match errno {
        Errno::ACCESS | Errno::PERM | Errno::KEYREJECTED | Errno::KEYEXPIRED | Errno::NOKEY => {
            AttachError::AuthFailed { target: export.into() }
        }
        Errno::CONNREFUSED => AttachError::PortalRefused { portal: server.into() },
        Errno::TIMEDOUT | Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::NETUNREACH => {
            AttachError::Unreachable { target: server.into(), why: errno.to_string() }
        }
        Errno::NOENT | Errno::STALE | Errno::NXIO => {
            AttachError::TargetNotFound { portal: server.into(), target: export.into() }
        }
        Errno::NODEV => AttachError::Missing {
            what: format!("the kernel module {module}"),
            advice: format!("load it with modprobe {module}, or use a kernel that has it"),
        },
        Errno::PROTONOSUPPORT | Errno::OPNOTSUPP => AttachError::Unreachable {
            target: server.into(),
            why: "it does not speak the version that was asked for".into(),
        },
        _ => return error.context(format!("mounting {export}")),
    };
    Error::from(meant).with_outcome(error.outcome())
}

#[cfg(test)]
mod tests {
    use hawser_core::port::kernel::KernelError;
    use hawser_core::{Kind, Reason};

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(5))
    }

    #[tokio::test]
    async fn a_server_that_listens_is_told_from_one_that_does_not() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let addresses = addresses("127.0.0.1", soon()).await.unwrap();

        assert_eq!(text(&answering("s", &addresses, port, soon()).await.unwrap()), "127.0.0.1");
        drop(listener);
        let error = answering("s", &addresses, port, soon()).await.unwrap_err();
        assert!(matches!(error, AttachError::PortalRefused { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn addresses_of_ipv6_lose_their_brackets_and_keep_their_scope() {
        let found = addresses("[::1]", soon()).await.unwrap();

        assert_eq!(text(&found[0]), "::1");
        let scoped = SocketAddr::V6(std::net::SocketAddrV6::new(
            found[0].ip().to_string().parse().unwrap(),
            0,
            0,
            3,
        ));
        assert_eq!(text(&scoped), "::1%3");
        assert_eq!(own_address(&found[0]).await.unwrap(), "::1");
    }

    #[test]
    fn the_kernels_number_decides_what_a_refused_mount_means() {
        for (number, reason) in [
            (13, Reason::AuthFailed),
            (111, Reason::PortalRefused),
            (113, Reason::TargetUnreachable),
            (2, Reason::TargetNotFound),
            (19, Reason::ToolOrModuleMissing),
        ] {
            let error = Error::from(KernelError::refused("mounting", number)).context("more");
            assert_eq!(mount_error("s", "s:/x", "nfs", error).reason(), Some(reason), "{number}");
        }
        let other = Error::new(Kind::Internal, "something");
        assert_eq!(mount_error("s", "s:/x", "nfs", other).reason(), None);
    }
}
