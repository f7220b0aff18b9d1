//! The connector port: one protocol on this host.

use async_trait::async_trait;

use crate::attach::{Attach, AttachRecord, Attached, Detach, Health};
use crate::change::Change;
use crate::connection::{ConnectionInfo, Data, HINTS};
use crate::error::Result;
use crate::port::host::Host;
use crate::size::ByteSize;

/// Makes a remote volume usable on this host, and takes it away again.
///
/// # Contract
///
/// Every implementation passes `connector_contract!`:
/// - a second `connect` to the same target answers `Change::Already` with the same path;
/// - `disconnect` of something absent is `Change::Already`, never an error;
/// - a failed `connect` leaves nothing behind on the host;
/// - a device whose identity differs from `info.identity` is refused by name and left alone;
/// - the future may be dropped at any `.await`; either call is safe afterwards.
///
/// A connector keeps no state: what it needs to disconnect is in the record, which the caller wrote
/// before `connect` (as an intent, without `attached`) and after it.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Protocol names this connector answers to, and how well it is supported.
    fn info(&self) -> &'static ConnectorInfo;

    /// True when a field of the data says which volume is meant or how it is attached. Two connection
    /// infos that differ in other fields only are one: storage systems add fields, and programs send
    /// back what they were answered. Data and field are in snake case.
    fn counts(&self, data: &Data, field: &str) -> bool {
        let _ = data;
        !HINTS.contains(&field)
    }

    /// Attaches the volume and waits until its device, directory or file can be opened.
    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>>;

    /// Flushes and detaches what the record names. A record that is only an intent may name nothing,
    /// something, or all of it.
    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>>;

    /// Makes this host see the volume's new size, and answers it. Never shrinks. For folders: the
    /// size the storage system enforces, or 0 where it enforces none.
    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize>;

    /// What is attached for this information now, without changing anything.
    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>>;

    /// Whether the attachment works.
    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health>;
}

/// What a connector says of itself: the table of the documentation is made from it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectorInfo {
    /// The protocol names it answers to, canonical one first.
    pub protocols: &'static [&'static str],
    /// How well it is supported.
    pub maturity: Maturity,
    /// What proves it, and what limits it, in words.
    pub note: &'static str,
    /// Where it works.
    pub platforms: &'static [Platform],
    /// What it gives.
    pub abilities: Abilities,
    /// What it was proven against.
    pub proof: Proof,
    /// What the host must have.
    pub needs: &'static [Need],
}

/// What a connector can do beyond connect and disconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// A larger volume is seen without detaching it.
    pub extend: bool,
    /// How several paths become one device.
    pub multipath: Option<PathsBy>,
    /// LUKS between device and user.
    pub encryption: bool,
    /// A single writer is enforced at the device.
    pub reservation: bool,
}

/// How several paths become one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathsBy {
    /// dm-multipath and multipathd.
    DeviceMapper,
    /// The protocol's own driver; dm-multipath where that is switched off.
    NativeOrDeviceMapper,
    /// Several connections of one device.
    Connections,
    /// The driver itself, without anything to set.
    Driver,
}

/// What a connector was proven against, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A real kernel and a real target, in the lab.
    RealKernel,
    /// The real daemon or server, in the lab.
    RealDaemon,
    /// A simulator of the vendor's interface, written from its specification.
    Simulator,
    /// Recorded or constructed files.
    Fixtures,
}

impl Proof {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RealKernel => "real kernel and target",
            Self::RealDaemon => "real daemon",
            Self::Simulator => "simulator",
            Self::Fixtures => "fixtures",
        }
    }
}

/// A family of machines, with the constants that storage systems know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// 32 and 64 bit.
    X86,
    /// IBM Z.
    S390,
    /// 64 bit, both byte orders.
    Ppc64,
    /// Every machine, also those without a constant.
    All,
}

impl Platform {
    /// The family of a machine, as `uname -m` names it.
    pub fn of(machine: &str) -> Self {
        match machine {
            "x86_64" | "i386" | "i486" | "i586" | "i686" => Self::X86,
            "s390" | "s390x" => Self::S390,
            "ppc64" | "ppc64le" => Self::Ppc64,
            _ => Self::All,
        }
    }

    /// The constant.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::X86 => "X86",
            Self::S390 => "S390",
            Self::Ppc64 => "PPC64",
            Self::All => "ALL",
        }
    }
}

/// One thing that a host must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The right to change devices and mounts.
    Root,
    /// A kernel module, loaded, built in or loadable.
    Module(&'static str),
    /// The same for one of its protocols only.
    ModuleOf {
        /// The protocol.
        protocol: &'static str,
        /// The module.
        module: &'static str,
    },
    /// A program and the packages that have it.
    Program {
        /// Its bare name.
        name: &'static str,
        /// Where to get it.
        packages: Packages,
    },
    /// A file that a package or a driver makes.
    File {
        /// Its path.
        path: &'static str,
        /// What makes it, in words.
        from: &'static str,
    },
    /// A daemon that must run.
    Daemon {
        /// Its name, as in `/proc/PID/comm`.
        name: &'static str,
        /// The packages that have it.
        packages: Packages,
    },
}

/// One package in the four package worlds; empty where that world has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packages {
    /// Debian and Ubuntu.
    pub apt: &'static str,
    /// Fedora and its relatives.
    pub dnf: &'static str,
    /// SUSE.
    pub zypper: &'static str,
    /// Alpine.
    pub apk: &'static str,
}

/// How well something is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maturity {
    /// Proven against the real thing in every test run.
    Stable,
    /// Complete, proven against less than the real thing.
    Preview,
    /// For a storage system that is no longer sold.
    Legacy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_known_by_their_family() {
        for (machine, constant) in [
            ("x86_64", "X86"),
            ("i686", "X86"),
            ("s390x", "S390"),
            ("ppc64le", "PPC64"),
            ("aarch64", "ALL"),
        ] {
            assert_eq!(Platform::of(machine).as_str(), constant);
        }
    }
}
