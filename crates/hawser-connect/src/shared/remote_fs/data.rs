//! What a connection info says about a volume in a file system of another machine.

use std::path::{Component, Path, PathBuf};

use hawser_core::attach::{Attach, Attached, Identity};
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Host;
use md5::{Digest, Md5};

use super::options::Options;
use crate::shared::digest::short;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};

/// What Linux takes as a name.
const LONGEST_NAME: usize = 255;
/// What Linux takes as a path.
const LONGEST_PATH: usize = 4096;

/// A volume in a file system of another machine: a file there, or the whole of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    /// What is mounted, byte for byte as it was given.
    pub(crate) export: String,
    /// Where it is mounted.
    pub(crate) target: PathBuf,
    /// The folder below the mount that holds the volume; empty for the mount itself.
    pub(crate) inside: PathBuf,
    /// The file; none when the folder is the volume.
    pub(crate) name: Option<String>,
    /// How it is mounted.
    pub(crate) options: Options,
    /// It must refuse writes.
    pub(crate) read_only: bool,
    /// Which use of the mount this is.
    pub(crate) id: Option<String>,
}

/// How the folder of a mount is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By a digest of the export, below the base: one mount for each export, as os-brick names it.
    Digest,
    /// The base itself: one mount for the host, and the export is a folder in it.
    Base,
}

impl Volume {
    /// Reads the data.
    pub(crate) fn read(
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
        naming: Naming,
    ) -> Result<Self, AttachError> {
        let fields = Fields::of(info)?;
        let export = export(&fields)?;
        let name = fields.text("name")?.filter(|name| !name.is_empty());
        let name = name.map(|name| check_name("name", name)).transpose()?;
        let base = match fields.text("mount_point_base")? {
            Some(base) => check_base(base)?,
            None => host.files().run_dir().join("mnt"),
        };
        let mut options = Options::parse(fields.text("options")?.unwrap_or_default())?;
        let said = options.read_only();
        for flag in &attach.mount_flags {
            options.add(flag)?;
        }
        let asked = attach.read_only
            || fields.read_only()? == Some(true)
            || (said.is_none() && options.read_only() == Some(true));
        let (target, inside) = match naming {
            // A mount for readers beside the one for writers: both may be wanted at once. Where
            // the options themselves say `ro`, os-brick uses the plain name.
            Naming::Digest if asked && said != Some(true) => {
                (base.join(format!("{}-ro", digest(&export))), PathBuf::new())
            }
            Naming::Digest => (base.join(digest(&export)), PathBuf::new()),
            Naming::Base => (base, Path::new(&check_name("export", &export)?).join("00")),
        };
        let read_only = asked || said == Some(true);
        Ok(Self { export, target, inside, name, options, read_only, id: fields.volume_id()? })
    }

    /// Refuses a volume that is not the one its publication means. A file has no `wwn`: one that is
    /// expected all the same is of something else.
    pub(crate) fn check_identity(&self, info: &ConnectionInfo) -> Result<(), AttachError> {
        let found = self.identity();
        let mut all = Fields::of(info)?.expected(info)?.into_iter();
        match all.find(|expected| *expected != found) {
            None => Ok(()),
            Some(expected) => {
                let (device, found) = (self.path(), found.to_string());
                Err(AttachError::WrongIdentity { device, expected, found })
            }
        }
    }

    /// What a volume is called that is reached by name only.
    fn identity(&self) -> Identity {
        match &self.name {
            Some(name) => Identity::new("export", format!("{}/{name}", self.export)),
            None => Identity::new("export", &self.export),
        }
    }

    /// Where the volume is when it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        let mut path = self.target.clone();
        // Not `join` of something empty: that leaves a slash at the end.
        path.extend(self.inside.components());
        path.extend(self.name.as_deref());
        path
    }

    /// What a caller gets.
    pub(crate) fn attached(&self) -> Attached {
        match self.name {
            Some(_) => Attached::File { path: self.path() },
            None => Attached::Directory { path: self.path() },
        }
    }

    /// The name of this use of the mount, for its note.
    pub(crate) fn key(&self) -> String {
        let id = self.id.as_deref().unwrap_or_default();
        let name = self.name.as_deref().unwrap_or_default();
        short(format!("{id}\0{}\0{name}", self.inside.display()).as_bytes())
    }

    /// The name of the mount, for its lock and notes.
    pub(crate) fn mount_key(&self) -> String {
        use std::os::unix::ffi::OsStrExt;
        short(self.target.as_os_str().as_bytes())
    }
}

/// One export; where a storage system lists several ways to it, the first.
fn export(fields: &Fields) -> Result<String, AttachError> {
    let export = fields.texts("export")?.into_iter().next();
    let export = export.ok_or_else(|| invalid("export", "is missing"))?;
    if export.is_empty() || export.len() > LONGEST_PATH {
        return Err(invalid("export", "must have 1 to 4096 bytes"));
    }
    // It becomes an argument of programs. Shares and folders may well have blanks inside.
    if export.starts_with('-') || export.trim() != export {
        return Err(invalid("export", "must not begin with - nor begin or end with a blank"));
    }
    Ok(export)
}

/// A name of one file: it must not lead anywhere else.
fn check_name(field: &str, name: &str) -> Result<String, AttachError> {
    if name.len() > LONGEST_NAME {
        return Err(invalid(field, "must have at most 255 bytes"));
    }
    if name.contains('/') || name.contains('\0') || name == ".." || name == "." {
        return Err(invalid(field, "must be the name of one file, without slashes"));
    }
    Ok(name.into())
}

fn check_base(base: &str) -> Result<PathBuf, AttachError> {
    let path = Path::new(base);
    let plain = path.is_absolute()
        && base.len() < LONGEST_PATH
        && path.components().all(|part| part != Component::ParentDir)
        && path.components().count() > 1;
    if !plain {
        return Err(invalid("mount_point_base", "must be an absolute path without `..`, not /"));
    }
    // Without doubled and closing slashes: the kernel's spelling, to compare with.
    Ok(path.components().collect())
}

/// The name that os-brick gives the mount of an export, so that both use one mount.
pub(crate) fn digest(export: &str) -> String {
    hex(&Md5::digest(export.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
