//! What can go wrong between a device and its user.

use std::path::PathBuf;

use hawser_core::error::Error;
use hawser_core::port::host::ToolFailed;
use hawser_core::port::kernel::KernelError;
use hawser_core::{Classify, Kind, Outcome, Reason};

/// Why a layer could not be put on, or taken off.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayerError {
    #[error("{} is no block device: it can be neither encrypted nor reserved", path.display())]
    NoBlock { path: PathBuf },
    #[error("the volume is encrypted, and no key was given; put it in encryption_key")]
    NoKey,
    #[error("the key does not open {}", device.display())]
    WrongKey { device: PathBuf },
    #[error(
        "{} has no {format} header and is not blank ({found}): it is not touched; \
         give the right volume, or make the header by hand", device.display()
    )]
    NotEncrypted { device: PathBuf, format: &'static str, found: String },
    #[error(
        "{} is blank and has no {format} header; ask for format_if_blank to make one",
        device.display()
    )]
    Blank { device: PathBuf, format: &'static str },
    #[error(
        "{name} is open over {found} instead of {}; somebody else made it, or the device was \
         exchanged: close it by hand after you have looked", device.display()
    )]
    OtherDevice { name: String, device: PathBuf, found: String },
    #[error(
        "{name} is open and is not LUKS; somebody else made it: close it by hand after you have \
         looked"
    )]
    NotLuks { name: String },
    #[error("the volume is encrypted, and its device is not open: connect it again")]
    NotOpen,
    #[error("{attempt}")]
    Tool { attempt: String, source: ToolFailed },
    #[error("cryptsetup cannot be run; install cryptsetup")]
    NoCryptsetup { source: Error },
    #[error("{} is in use; let go of it first", device.display())]
    Busy { device: PathBuf },
    #[error("{attempt}")]
    Kernel { attempt: String, source: KernelError },
    #[error(
        "another host holds the right to write to {} (key {holder:#x}); take it away there, or \
         ask for preempt if that host must not write any more", device.display()
    )]
    Reserved { device: PathBuf, holder: u64 },
    #[error("0 is no key of a reservation")]
    NoReservationKey,
    #[error(
        "{} still lists {others} other hosts after they were thrown out", device.display()
    )]
    NotAlone { device: PathBuf, others: usize },
    #[error("what had been made could not be taken back ({undo})")]
    Undo { undo: String, source: Error },
}

impl Classify for LayerError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoBlock { .. } | Self::NoKey | Self::NoReservationKey => Kind::Invalid,
            Self::WrongKey { .. } => Kind::Denied,
            Self::NotEncrypted { .. }
            | Self::Blank { .. }
            | Self::OtherDevice { .. }
            | Self::NotLuks { .. }
            | Self::NotOpen
            | Self::Reserved { .. }
            | Self::NotAlone { .. } => Kind::Precondition,
            Self::Tool { .. } => Kind::Unavailable,
            Self::NoCryptsetup { .. } => Kind::Unsupported,
            Self::Busy { .. } => Kind::Busy,
            Self::Kernel { source, .. } => source.kind(),
            Self::Undo { source, .. } => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Undo { .. } => Outcome::Unknown,
            Self::Kernel { source, .. } => source.outcome(),
            Self::NoCryptsetup { source } => source.outcome(),
            Self::NoBlock { .. }
            | Self::NoKey
            | Self::WrongKey { .. }
            | Self::NotEncrypted { .. }
            | Self::Blank { .. }
            | Self::OtherDevice { .. }
            | Self::NotLuks { .. }
            | Self::NotOpen
            | Self::Tool { .. }
            | Self::Busy { .. }
            | Self::Reserved { .. }
            | Self::NoReservationKey
            | Self::NotAlone { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::NoBlock { .. } => Some(Reason::EncryptionUnsupported),
            Self::NoKey | Self::NoReservationKey => Some(Reason::InvalidParameters),
            Self::WrongKey { .. } => Some(Reason::WrongKey),
            Self::NotEncrypted { .. } | Self::OtherDevice { .. } | Self::NotLuks { .. } => {
                Some(Reason::IdentityMismatch)
            }
            Self::NoCryptsetup { .. } => Some(Reason::ToolOrModuleMissing),
            Self::Busy { .. } => Some(Reason::DeviceBusy),
            Self::Reserved { .. } | Self::NotAlone { .. } => Some(Reason::Reserved),
            Self::Undo { source, .. } => source.reason(),
            Self::Blank { .. } | Self::NotOpen | Self::Tool { .. } | Self::Kernel { .. } => None,
        }
    }
}
