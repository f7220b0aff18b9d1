//! What can go wrong with a local volume.

use std::io;
use std::path::PathBuf;

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfoError;
use hawser_core::{Classify, Error, Kind, Outcome, Reason};

/// Why a local volume could not be attached, found or taken away.
#[derive(Debug, thiserror::Error)]
pub(super) enum LocalError {
    #[error("reading the connection info of a local volume")]
    Malformed(#[from] ConnectionInfoError),
    #[error(
        "a local volume needs one of: path and its kind (file, directory or device), file_path, \
         vg_name and lv_name, or device_path"
    )]
    NoPath,
    #[error("the connection info of a local volume is not usable: {field} {why}")]
    BadField { field: &'static str, why: &'static str },
    #[error("{field} is not supported for a local volume: {why}")]
    NotSupported { field: &'static str, why: &'static str },
    #[error(
        "the mount option {option} cannot be given to the folder {}: it is on this host already \
         and nothing is mounted; leave the option out, or seLinuxMount of the CSI driver where it \
         is a label of SELinux", .path.display()
    )]
    FolderOption { path: PathBuf, option: String },
    #[error("LVM knows no {name} on this host; look with lvs, and whether its disks are attached")]
    NoVolume { name: String },
    #[error("{name} is not active, and activate is false; activate it with lvchange -ay {name}")]
    NotActive { name: String },
    #[error(
        "{name} is half activated by somebody else; activate it with lvchange -ay {name}, or \
         deactivate it"
    )]
    HalfActive { name: String },
    #[error(
        "{name} is active and other hosts may have it active too; deactivate it everywhere first"
    )]
    NotExclusive { name: String },
    #[error("{path:?} is not usable as a path: it must be absolute, without `..` and NUL")]
    BadPath { path: String },
    #[error("a local volume of kind file needs a volume_id of 1 to 55 visible ASCII characters")]
    BadVolumeId,
    #[error("{0} is no sector size: use 512 or 4096")]
    BadSectorSize(u64),
    #[error("{0:?} is no access mode: use rw or ro")]
    BadAccessMode(String),
    #[error(
        "refusing {}: it is {found}, not {expected}; \
         check which volume this publication belongs to", .path.display()
    )]
    IdentityMismatch { path: PathBuf, expected: Identity, found: Identity },
    #[error(
        "refusing {}: its publication asks for {expected}, and {what} says nothing of itself",
        .path.display()
    )]
    NoIdentity { path: PathBuf, expected: Identity, what: &'static str },
    #[error("looking at {}", .path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error("{} is {found}, and the volume is a {wanted}", .path.display())]
    WrongKind { path: PathBuf, wanted: &'static str, found: &'static str },
    #[error(
        "{} is attached as {} {}, and was asked for {}; disconnect it first",
        .path.display(), .device.display(), mode(!*.read_only), mode(*.read_only)
    )]
    OtherMode { path: PathBuf, device: PathBuf, read_only: bool },
    #[error(
        "{} is attached as {} with sectors of {found} bytes, and was asked for {wanted}; \
         disconnect it first", .path.display(), .device.display()
    )]
    OtherSectors { path: PathBuf, device: PathBuf, wanted: u32, found: u32 },
    #[error(
        "{} is attached as {} by somebody else; two devices over one image destroy it: \
         detach that one first (losetup -d {})",
        .path.display(), .device.display(), .device.display()
    )]
    Foreign { path: PathBuf, device: PathBuf },
    #[error(
        "{} still has the image that was {} before; disconnect that volume first",
        .device.display(), .path.display()
    )]
    Replaced { path: PathBuf, device: PathBuf },
    #[error(
        "{} cannot be made to refuse writes; attach it read-write and mount it read-only",
        .path.display()
    )]
    ReadOnlyDevice { path: PathBuf },
    #[error("{} is not attached to this host", .path.display())]
    NotAttached { path: PathBuf },
    #[error(
        "the image {} has {image} bytes, less than its device {} with {size}; \
         nothing was made smaller", .path.display(), .device.display()
    )]
    Shrunk { path: PathBuf, device: PathBuf, image: u64, size: u64 },
    #[error("attaching {} did not end within {limit:?}", .path.display())]
    Deadline { path: PathBuf, limit: std::time::Duration },
    #[error("taking {} away again failed too ({undo})", .path.display())]
    Undo { path: PathBuf, undo: String, source: Error },
}

fn mode(read_only: bool) -> &'static str {
    if read_only { "read-only" } else { "read-write" }
}

impl Classify for LocalError {
    fn kind(&self) -> Kind {
        match self {
            Self::Malformed(source) => source.kind(),
            Self::NoPath
            | Self::BadPath { .. }
            | Self::BadVolumeId
            | Self::BadSectorSize(_)
            | Self::BadField { .. }
            | Self::FolderOption { .. }
            | Self::BadAccessMode(_) => Kind::Invalid,
            Self::IdentityMismatch { .. }
            | Self::NoIdentity { .. }
            | Self::WrongKind { .. }
            | Self::OtherMode { .. }
            | Self::OtherSectors { .. }
            | Self::Foreign { .. }
            | Self::Replaced { .. }
            | Self::NotAttached { .. }
            | Self::NotActive { .. }
            | Self::HalfActive { .. }
            | Self::NotExclusive { .. }
            | Self::Shrunk { .. } => Kind::Precondition,
            Self::ReadOnlyDevice { .. } | Self::NotSupported { .. } => Kind::Unsupported,
            Self::NoVolume { .. } => Kind::NotFound,
            Self::Look { source, .. } if source.kind() == io::ErrorKind::NotFound => Kind::NotFound,
            Self::Look { source, .. } => crate::error::kind_of(source),
            Self::Deadline { .. } => Kind::Timeout,
            Self::Undo { source, .. } => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Deadline { .. } | Self::Undo { .. } => Outcome::Unknown,
            Self::Malformed(_)
            | Self::NoPath
            | Self::BadPath { .. }
            | Self::BadVolumeId
            | Self::BadSectorSize(_)
            | Self::BadField { .. }
            | Self::FolderOption { .. }
            | Self::NotSupported { .. }
            | Self::NoVolume { .. }
            | Self::NotActive { .. }
            | Self::HalfActive { .. }
            | Self::NotExclusive { .. }
            | Self::BadAccessMode(_)
            | Self::IdentityMismatch { .. }
            | Self::NoIdentity { .. }
            | Self::Look { .. }
            | Self::WrongKind { .. }
            | Self::OtherMode { .. }
            | Self::OtherSectors { .. }
            | Self::Foreign { .. }
            | Self::Replaced { .. }
            | Self::ReadOnlyDevice { .. }
            | Self::NotAttached { .. }
            | Self::Shrunk { .. } => Outcome::Nothing,
        }
    }
    fn reason(&self) -> Option<Reason> {
        match self {
            Self::Malformed(_)
            | Self::NoPath
            | Self::BadPath { .. }
            | Self::BadVolumeId
            | Self::BadSectorSize(_)
            | Self::BadField { .. }
            | Self::FolderOption { .. }
            | Self::BadAccessMode(_) => Some(Reason::InvalidParameters),
            Self::IdentityMismatch { .. } | Self::NoIdentity { .. } => {
                Some(Reason::IdentityMismatch)
            }
            Self::NoVolume { .. } => Some(Reason::LunNotFound),
            Self::Look { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some(Reason::LunNotFound)
            }
            Self::OtherMode { read_only: false, .. } => Some(Reason::DeviceReadOnly),
            Self::Deadline { .. } => Some(Reason::HostTimeout),
            Self::Undo { source, .. } => source.reason(),
            Self::NotSupported { .. }
            | Self::NotActive { .. }
            | Self::HalfActive { .. }
            | Self::NotExclusive { .. }
            | Self::Look { .. }
            | Self::WrongKind { .. }
            | Self::OtherMode { .. }
            | Self::OtherSectors { .. }
            | Self::Foreign { .. }
            | Self::Replaced { .. }
            | Self::ReadOnlyDevice { .. }
            | Self::NotAttached { .. }
            | Self::Shrunk { .. } => None,
        }
    }
}
