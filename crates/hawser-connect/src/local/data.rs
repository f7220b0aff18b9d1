//! What a ConnectionInfo says about a local volume, checked.

use std::path::{Component, Path, PathBuf};

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use serde::Deserialize;

use super::error::LocalError;

/// The fields as they come. Numbers may come as texts, as everywhere in the os-brick world.
#[derive(Deserialize)]
struct Raw {
    path: Option<String>,
    kind: Option<Kind>,
    /// The whole of os-brick's form. Callers of the other form echo back in it what `connect`
    /// answered: there it means nothing.
    device_path: Option<String>,
    volume_id: Option<String>,
    sector_size: Option<Number>,
    access_mode: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    File,
    Directory,
    Device,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(u64),
    Text(String),
}

/// A local volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) form: Form,
    /// The publication's own wish for a device that refuses writes.
    pub(super) read_only: bool,
}

/// What a local volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An image that gets a loop device with this mark.
    Image { mark: String, sector_size: Option<u32> },
    /// A folder that is used as it is.
    Folder { volume_id: Option<String> },
    /// A device that is there already.
    Device,
}

/// The kernel keeps 64 bytes of label; the host port takes this much of it for marks.
const LONGEST_MARK: usize = 55;

/// Reads the data, and refuses a volume that is not the one the publication means.
pub(super) fn read(info: &ConnectionInfo) -> Result<Target, LocalError> {
    let target = parse(info)?;
    match (&info.identity, target.identity()) {
        (None, _) => Ok(target),
        (Some(expected), Some(found)) if *expected == found => Ok(target),
        (Some(expected), Some(found)) => Err(LocalError::IdentityMismatch {
            path: target.path,
            expected: expected.clone(),
            found,
        }),
        (Some(expected), None) => {
            let what = match target.form {
                Form::Folder { .. } => "a folder without volume_id",
                Form::Device => "a device given by its path",
                Form::Image { .. } => "an image",
            };
            Err(LocalError::NoIdentity { path: target.path, expected: expected.clone(), what })
        }
    }
}

/// Reads the data alone.
pub(super) fn parse(info: &ConnectionInfo) -> Result<Target, LocalError> {
    let raw: Raw = info.parse()?;
    let (path, kind) = match (raw.path, raw.kind, raw.device_path) {
        (Some(path), Some(kind), _) => (path, kind),
        (None, None | Some(Kind::Device), Some(device)) => (device, Kind::Device),
        (Some(_), None, _) | (None, _, _) => return Err(LocalError::NoPath),
    };
    let path = check_path(path)?;
    let read_only = match raw.access_mode.as_deref() {
        None | Some("rw") => false,
        Some("ro") => true,
        Some(other) => return Err(LocalError::BadAccessMode(other.chars().take(16).collect())),
    };
    let form = match kind {
        Kind::File => Form::Image {
            mark: raw.volume_id.filter(|id| is_mark(id)).ok_or(LocalError::BadVolumeId)?,
            sector_size: raw.sector_size.map(check_sector_size).transpose()?,
        },
        Kind::Directory => Form::Folder { volume_id: raw.volume_id },
        Kind::Device => Form::Device,
    };
    Ok(Target { path, form, read_only })
}

fn check_path(path: String) -> Result<PathBuf, LocalError> {
    let legal = path.starts_with('/')
        && !path.contains('\0')
        && Path::new(&path).components().all(|part| part != Component::ParentDir);
    if !legal {
        return Err(LocalError::BadPath { path: path.chars().take(256).collect() });
    }
    // Without doubled and closing slashes and `.`: the kernel's spelling, to compare with.
    Ok(Path::new(&path).components().collect())
}

fn is_mark(id: &str) -> bool {
    (1..=LONGEST_MARK).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn check_sector_size(number: Number) -> Result<u32, LocalError> {
    let value = match number {
        Number::Plain(value) => value,
        Number::Text(text) => text.trim().parse().unwrap_or(0),
    };
    match value {
        512 => Ok(512),
        4096 => Ok(4096),
        other => Err(LocalError::BadSectorSize(other)),
    }
}

impl Target {
    /// What the volume says of itself, where it can.
    pub(super) fn identity(&self) -> Option<Identity> {
        match &self.form {
            Form::Image { mark, .. } => Some(Identity::new("image", mark)),
            Form::Folder { volume_id } => volume_id.as_ref().map(|id| Identity::new("folder", id)),
            Form::Device => None,
        }
    }
}
