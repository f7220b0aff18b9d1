//! Faults of the network inside the guest.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::cmd;

/// Names of the tables that cuts are made of.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A portal that nobody can reach while this lives; dropping it mends the way.
#[derive(Debug)]
pub struct Cut {
    table: String,
}

impl Cut {
    /// Packets to and from the address vanish, as with a pulled cable.
    #[track_caller]
    pub fn silent(portal: SocketAddr) -> Self {
        Self::new(portal, "drop", "drop")
    }

    /// Packets to the address are answered with a reset, as with a dead service.
    #[track_caller]
    pub fn refused(portal: SocketAddr) -> Self {
        // The resets themselves come back this way and must pass.
        Self::new(portal, "reject with tcp reset", "tcp flags & rst == 0 reject with tcp reset")
    }

    #[track_caller]
    fn new(portal: SocketAddr, there: &str, back: &str) -> Self {
        let table = format!("lab_cut_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let family = if portal.is_ipv4() { "ip" } else { "ip6" };
        let (address, port) = (portal.ip(), portal.port());
        let rules = format!(
            "table inet {table} {{\nchain in {{\ntype filter hook input priority 0\n\
             {family} daddr {address} tcp dport {port} {there}\n\
             {family} saddr {address} tcp sport {port} {back}\n}}\n}}\n"
        );
        cmd("nft").args(["-f", "-"]).input(rules).ok();
        Self { table }
    }

    /// Mends the way, which dropping does too.
    pub fn mend(self) {}
}

impl Drop for Cut {
    fn drop(&mut self) {
        let mended = cmd("nft").args(["delete", "table", "inet", &self.table]).try_run();
        let mended = mended.is_ok_and(|done| done.status.success());
        // While a test fails its own message matters more.
        assert!(mended || std::thread::panicking(), "{} is still cut", self.table);
    }
}
