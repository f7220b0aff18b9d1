//! Block devices, beyond what files of sysfs tell.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use super::KernelResult;

/// Opens block devices.
#[async_trait]
pub trait Disks: Send + Sync {
    /// Opens a device without claiming it, and only for reading: udev examines every device that was
    /// open for writing as soon as it is closed. What a [`Disk`] does needs no more.
    async fn open(&self, device: &Path) -> KernelResult<Box<dyn Disk>>;

    /// True when somebody holds the device for himself: a mount, a map above it, swap, or an
    /// exclusive opener. Asked by an exclusive open that is closed at once.
    async fn is_claimed(&self, device: &Path) -> KernelResult<bool>;

    /// Sets or clears the read-only mark of the block layer.
    async fn set_read_only(&self, device: &Path, read_only: bool) -> KernelResult<()>;
}

/// An open block device.
///
/// Errors of earlier writes are told to each opener once, so a caller that wants to know whether
/// everything was written opens the device before it flushes, and flushes through that opening.
#[async_trait]
pub trait Disk: Send + Sync {
    /// Writes out and forgets what is cached for this device (`fsync`, then `BLKFLSBUF`). A flush
    /// that is late goes on, and the next call waits for that same one: its failure is the answer,
    /// and after its success what was written since is flushed too.
    async fn flush(&self, limit: Duration) -> KernelResult<()>;

    /// Reads past the page cache; offset and length in whole sectors.
    async fn read(&self, at: u64, length: usize, limit: Duration) -> KernelResult<Vec<u8>>;

    /// SCSI INQUIRY, of one page of vital product data or the standard answer, asked of the device
    /// itself: what sysfs shows is a copy that may be old.
    async fn inquiry(&self, page: Option<u8>) -> KernelResult<Vec<u8>>;

    /// NVMe Identify of this namespace, 4096 bytes, asked of the target itself: what sysfs shows is
    /// a copy that may be old.
    async fn identify_namespace(&self, what: NamespaceFacts) -> KernelResult<Vec<u8>>;

    /// Who is registered and who holds the reservation.
    async fn reservation(&self) -> KernelResult<Reservation>;

    /// Changes registrations and the reservation, through the kernel's `IOC_PR_*`.
    async fn reserve(&self, step: &ReservationStep) -> KernelResult<()>;
}

/// What NVMe Identify tells of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceFacts {
    /// Size and formats: Identify Namespace (CNS 0).
    Format,
    /// UUID, NGUID and EUI64: the list of identification descriptors (CNS 3); targets before NVMe
    /// 1.3 have none.
    Ids,
}

/// The kinds of reservation that Hawser uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationKind {
    /// One may write, all may read.
    WriteExclusive,
    /// Those registered may write, all may read.
    WriteExclusiveRegistrants,
    /// Something else; as the device tells it.
    Other(u8),
}

/// Who may write, as the device tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Counts changes of registrations.
    pub generation: u32,
    /// The keys of all that are registered.
    pub registered: Vec<Register>,
    /// The kind of the reservation; `None` when there is none.
    pub held: Option<ReservationKind>,
}

/// One registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its key.
    pub key: u64,
    /// It holds the reservation.
    pub holder: bool,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationStep {
    /// Registers `key` for this host, whatever key it had.
    Register {
        /// The new key; 0 takes the registration away.
        key: u64,
    },
    /// Takes the reservation.
    Reserve {
        /// Our key.
        key: u64,
        /// Which kind.
        kind: ReservationKind,
    },
    /// Gives the reservation back.
    Release {
        /// Our key.
        key: u64,
        /// Which kind.
        kind: ReservationKind,
    },
    /// Throws another out, and aborts what it has under way.
    PreemptAndAbort {
        /// Our key.
        key: u64,
        /// The key of whoever is thrown out.
        other: u64,
        /// Which kind is held afterwards.
        kind: ReservationKind,
    },
}
