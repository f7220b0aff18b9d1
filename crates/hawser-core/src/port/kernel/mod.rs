//! The kernel's own interfaces, as connectors use them: files of sysfs, device events, block
//! devices, device maps, network block devices.
//!
//! These are parts of the [`Host`](crate::port::Host) port; a host hands them out. They are narrow
//! on purpose: a fake of each fits in a few hundred lines, so every connector is tested without a
//! kernel as well as on one.

mod disk;
mod error;
mod events;
mod files;
mod iscsid;
mod locks;
mod maps;
mod nbd;

pub use disk::{
    Disk, Disks, NamespaceFacts, Register, Reservation, ReservationKind, ReservationStep,
};
pub use error::KernelError;
pub use events::{DeviceEvents, Events};
pub use files::Files;
pub use iscsid::Iscsid;
pub use locks::{LockMode, Locks};
pub use maps::{MapTarget, Maps};
pub use nbd::{Nbd, NbdAttach};

/// What every call of these parts answers.
pub type KernelResult<T> = Result<T, KernelError>;
