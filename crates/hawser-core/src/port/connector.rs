//! The connector port: one protocol on this host.

use std::fmt;

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
    /// What each ability was proven against.
    pub proofs: Proofs,
    /// What differs for one of several protocols.
    pub own: &'static [Own],
    /// What the host must have.
    pub needs: &'static [Need],
}

impl ConnectorInfo {
    /// The note of one of its protocols, and what that was proven against.
    pub fn told(&self, protocol: &str) -> (&'static str, Proofs) {
        let own = self.own.iter().find(|own| own.protocol == protocol);
        own.map_or((self.note, self.proofs), |own| (own.note, own.proofs))
    }
}

/// What is told of one of several protocols in place of what is told of all.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The protocol.
    pub protocol: &'static str,
    /// Its note.
    pub note: &'static str,
    /// What its abilities were proven against.
    pub proofs: Proofs,
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

/// What each ability of a connector was proven against; the ones that it lacks do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proofs {
    /// Attaching and detaching.
    pub connect: Proof,
    /// Seeing a larger volume.
    pub extend: Proof,
    /// Several paths.
    pub multipath: Proof,
    /// LUKS above it.
    pub encryption: Proof,
    /// A single writer.
    pub reservation: Proof,
}

impl Proofs {
    /// What the connector does itself has one proof. LUKS and reservations are laid above its device
    /// by others, and count as not proven until it is said what proves them there.
    pub const fn of(own: Proof) -> Self {
        Self {
            connect: own,
            extend: own,
            multipath: own,
            encryption: Proof::Nothing,
            reservation: Proof::Nothing,
        }
    }

    /// With this proof of LUKS above its device.
    pub const fn encryption(self, encryption: Proof) -> Self {
        Self { encryption, ..self }
    }

    /// With this proof of reservations at its device.
    pub const fn reservation(self, reservation: Proof) -> Self {
        Self { reservation, ..self }
    }
}

/// What an ability was proven against, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A real kernel and a real target, by this suite of the lab.
    Kernel(&'static str),
    /// The real daemon or server, by this suite of the lab.
    Daemon(&'static str),
    /// A simulator of the vendor's interface, written from its specification.
    Simulator,
    /// Recorded or constructed files.
    Fixtures,
    /// Nothing: it should work, and nobody has seen it.
    Nothing,
}

impl fmt::Display for Proof {
    /// A word, and the suite where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(suite) => write!(f, "kernel {suite}"),
            Self::Daemon(suite) => write!(f, "daemon {suite}"),
            Self::Simulator => f.write_str("simulator"),
            Self::Fixtures => f.write_str("fixtures"),
            Self::Nothing => f.write_str("not proven"),
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
    /// A daemon that must run, and that connecting does not start by itself.
    Daemon {
        /// Its name, as in `/proc/PID/comm`.
        name: &'static str,
        /// Where it is asked, or started by asking; without it, that its process is there counts.
        socket: Option<AbstractSocket>,
        /// Where to get it, in words.
        from: &'static str,
    },
}

/// An abstract Unix socket that a daemon, or whoever starts it on demand, listens at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbstractSocket {
    /// Its name, without the zero byte or `@` before it.
    pub name: &'static str,
    /// A file of settings and the one in it that has the command by which the programs of the daemon
    /// start it where nobody listens.
    pub starter: Option<(&'static str, &'static str)>,
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

    #[test]
    fn what_lies_above_a_device_is_not_proven_by_the_device() {
        let proofs = Proofs::of(Proof::Kernel("vm_a"));
        assert_eq!(proofs.extend.to_string(), "kernel vm_a");
        assert_eq!((proofs.encryption, proofs.reservation), (Proof::Nothing, Proof::Nothing));
        let proofs = proofs.encryption(Proof::Simulator);
        assert_eq!((proofs.encryption, proofs.reservation), (Proof::Simulator, Proof::Nothing));
    }
}
