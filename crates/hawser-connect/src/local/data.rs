//! What a ConnectionInfo says about a local volume, checked.

use std::path::{Component, Path, PathBuf};

use hawser_core::attach::Identity;
use hawser_core::connection::{ConnectionInfo, Data};
use serde::Deserialize;

use super::error::LocalError;
use super::lvm::Name;
use crate::shared::digest;

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
    file_path: Option<String>,
    direct_io: Option<bool>,
    logical_block_size: Option<Number>,
    offset: Option<Number>,
    size_limit: Option<Number>,
    vg_name: Option<String>,
    lv_name: Option<String>,
    activate: Option<bool>,
    exclusive: Option<bool>,
    /// The identity in the words of older callers.
    wwn: Option<String>,
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

impl Number {
    /// Its value; what is no number is none.
    fn value(&self) -> Option<u64> {
        match self {
            Self::Plain(value) => Some(*value),
            Self::Text(text) => text.trim().parse().ok(),
        }
    }
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
    /// A logical volume of LVM; what it must be is asked of LVM.
    Logical { name: Name, activate: bool, exclusive: bool, expected: Vec<Identity> },
}

/// The kernel keeps 64 bytes of label; the host port takes this much of it for marks.
const LONGEST_MARK: usize = 55;

/// Reads the data, and refuses a volume that is not the one the publication means.
pub(super) fn read(info: &ConnectionInfo) -> Result<Target, LocalError> {
    let target = parse(info)?;
    if matches!(target.form, Form::Logical { .. }) {
        return Ok(target);
    }
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
                Form::Logical { .. } => "a logical volume",
            };
            Err(LocalError::NoIdentity { path: target.path, expected: expected.clone(), what })
        }
    }
}

/// Reads the data alone.
pub(super) fn parse(info: &ConnectionInfo) -> Result<Target, LocalError> {
    let raw: Raw = info.parse()?;
    let read_only = match raw.access_mode.as_deref() {
        None | Some("rw") => false,
        Some("ro") => true,
        Some(other) => return Err(LocalError::BadAccessMode(other.chars().take(16).collect())),
    };
    let file = raw.file_path.is_some();
    let logical = raw.vg_name.is_some() || raw.lv_name.is_some();
    let plain = raw.path.is_some() || raw.kind.is_some();
    let (path, form) = match (plain, file, logical) {
        (_, false, false) => plain_form(raw)?,
        (false, true, false) => file_form(raw)?,
        (false, false, true) => logical_form(raw, info)?,
        (true, _, _) | (false, true, true) => {
            let why = "is given together with another way to say which volume is meant";
            let field = if file { "file_path" } else { "vg_name" };
            return Err(LocalError::BadField { field, why });
        }
    };
    Ok(Target { path, form, read_only })
}

/// True where `device_path` is the volume and not an answer that comes back.
pub(super) fn is_given_by_device_path(data: &Data) -> bool {
    let others = ["path", "file_path", "vg_name", "lv_name"];
    !others.iter().any(|field| data.contains_key(*field))
}

/// `path` with its `kind`, or os-brick's `device_path`.
fn plain_form(raw: Raw) -> Result<(PathBuf, Form), LocalError> {
    let (path, kind) = match (raw.path, raw.kind, raw.device_path) {
        (Some(path), Some(kind), _) => (path, kind),
        (None, None | Some(Kind::Device), Some(device)) => (device, Kind::Device),
        (Some(_), None, _) | (None, _, _) => return Err(LocalError::NoPath),
    };
    let path = check_path(path)?;
    let form = match kind {
        Kind::File => Form::Image {
            mark: raw.volume_id.filter(|id| is_mark(id)).ok_or(LocalError::BadVolumeId)?,
            sector_size: raw.sector_size.map(check_sector_size).transpose()?,
        },
        Kind::Directory => Form::Folder { volume_id: raw.volume_id },
        Kind::Device => Form::Device,
    };
    Ok((path, form))
}

/// `file_path`; without a volume's id its mark is made of its path.
fn file_form(raw: Raw) -> Result<(PathBuf, Form), LocalError> {
    let path = check_path(raw.file_path.unwrap_or_default())?;
    for (field, value) in [("offset", &raw.offset), ("size_limit", &raw.size_limit)] {
        match value.as_ref().map(Number::value) {
            None | Some(Some(0)) => {}
            Some(Some(_)) => {
                let why = "the device is always over the whole file";
                return Err(LocalError::NotSupported { field, why });
            }
            Some(None) => return Err(LocalError::BadField { field, why: "must be a number" }),
        }
    }
    if raw.direct_io == Some(false) {
        let why = "direct I/O is used wherever the file system can";
        return Err(LocalError::NotSupported { field: "direct_io", why });
    }
    let mark = match raw.volume_id {
        Some(id) if is_mark(&id) => id,
        Some(_) => return Err(LocalError::BadVolumeId),
        None => format!("file-{}", digest::short(path.as_os_str().as_encoded_bytes())),
    };
    let sectors = raw.logical_block_size.or(raw.sector_size);
    Ok((path, Form::Image { mark, sector_size: sectors.map(check_sector_size).transpose()? }))
}

/// `vg_name` and `lv_name`.
fn logical_form(raw: Raw, info: &ConnectionInfo) -> Result<(PathBuf, Form), LocalError> {
    let part = |field, value: Option<String>| match value {
        Some(value) if is_lvm_name(&value) => Ok(value),
        Some(_) => Err(LocalError::BadField { field, why: "is no name that LVM allows" }),
        None => Err(LocalError::BadField { field, why: "is missing" }),
    };
    let name = Name { vg: part("vg_name", raw.vg_name)?, lv: part("lv_name", raw.lv_name)? };
    let wwn = raw.wwn.filter(|wwn| !wwn.is_empty()).map(|wwn| Identity::new("wwid", wwn));
    let form = Form::Logical {
        activate: raw.activate.unwrap_or(true),
        exclusive: raw.exclusive.unwrap_or(false),
        expected: info.identity.iter().cloned().chain(wwn).collect(),
        name: name.clone(),
    };
    Ok((Path::new("/dev").join(name.to_string()), form))
}

/// As lvm(8) has it; never what a program could take for an option or a path.
fn is_lvm_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte);
    (1..=127).contains(&name.len())
        && !name.starts_with('-')
        && !matches!(name, "." | "..")
        && name.bytes().all(legal)
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
    match number.value().unwrap_or(0) {
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
            Form::Device | Form::Logical { .. } => None,
        }
    }
}
