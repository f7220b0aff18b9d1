//! Free ports of loopback, and the address that a node has.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use super::error::{Attempt, ClusterError, Result};

/// How long the machine's own loopback may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The ports of one cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
    pub(super) server: u16,
    pub(super) controllers: u16,
    pub(super) scheduler: u16,
    pub(super) kubelets: [u16; 2],
}

impl Ports {
    /// Ports that nobody has now. Whoever takes some holds a lock of the cache until the cluster
    /// listens, so that no other cluster is given them meanwhile.
    pub(super) fn free() -> Result<Self> {
        let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listeners: std::io::Result<Vec<TcpListener>> = (0..7).map(bind).collect();
        let what = || "looking for free ports".to_owned();
        let listeners = listeners.attempt(what)?;
        let mut found = listeners
            .iter()
            .map(|listener| listener.local_addr().map(|address| address.port()).attempt(what));
        let mut next = || found.next().unwrap_or(Ok(0));
        Ok(Self {
            etcd: next()?,
            etcd_peer: next()?,
            server: next()?,
            controllers: next()?,
            scheduler: next()?,
            kubelets: [next()?, next()?],
        })
    }
}

/// One more port that nobody has now.
pub(super) fn own_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.attempt(|| "looking for a free port".to_owned())?.port())
}

/// True when somebody listens on a port of loopback.
pub(super) fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, ANSWER_LIMIT).is_ok()
}

/// An address of this machine that is not of loopback: kubelet insists on one. Nothing is sent:
/// the kernel is asked which one it would send from.
pub(super) fn own_address() -> Result<Ipv4Addr> {
    let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    match asked {
        Ok(SocketAddr::V4(address)) if !address.ip().is_loopback() => Ok(*address.ip()),
        Ok(_) | Err(_) => Err(ClusterError::NoAddress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_nobody_listens_on_them() {
        let ports = Ports::free().unwrap();
        let mut all = vec![
            ports.etcd,
            ports.etcd_peer,
            ports.server,
            ports.controllers,
            ports.scheduler,
            ports.kubelets[0],
            ports.kubelets[1],
        ];
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 7);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(answers(listener.local_addr().unwrap().port()));
    }
}
