//! Mount options: which belong to the mount, which to the file system, and which to nobody.

use std::ffi::CString;

use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{HostMount, MountSource};
use hawser_core::secret::Secret;
use rustix::mount::{MountAttrFlags, MountFlags};

use super::error::MountError;

/// The options of the mount itself, in both spellings of the kernel.
const ATTRIBUTES: [(&str, MountAttrFlags, MountFlags); 8] = [
    ("nosuid", MountAttrFlags::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
    ("nodev", MountAttrFlags::MOUNT_ATTR_NODEV, MountFlags::NODEV),
    ("noexec", MountAttrFlags::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
    ("noatime", MountAttrFlags::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
    ("strictatime", MountAttrFlags::MOUNT_ATTR_STRICTATIME, MountFlags::STRICTATIME),
    ("relatime", MountAttrFlags::MOUNT_ATTR_RELATIME, MountFlags::RELATIME),
    ("nodiratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
    ("nosymfollow", MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
];
/// What is on a volume is not trusted: neither its programs nor its device nodes get rights of this
/// host.
const ALWAYS: [&str; 2] = ["nosuid", "nodev"];
/// Words that ask for those rights.
const RIGHTS: [&str; 2] = ["suid", "dev"];
/// The kernel's defaults, which mount(8) accepts as words, and words that only fstab has a use for.
const DEFAULTS: [&str; 6] = ["defaults", "exec", "_netdev", "nofail", "auto", "noauto"];
/// Words that turn one mount call into another.
const OTHER_CALLS: [&str; 14] = [
    "remount",
    "bind",
    "rbind",
    "move",
    "loop",
    "source",
    "shared",
    "rshared",
    "private",
    "rprivate",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
];
/// Options that bring a second device or file into the mount, past every identity check.
const OTHER_DEVICES: [&str; 6] =
    ["device", "journal_dev", "journal_path", "logdev", "rtdev", "journal_async_dev"];

/// Labels of SELinux. Their values have colons and commas, and come in quotes for the sake of mount(8),
/// which takes the quotes off.
pub(super) const LABELS: [&str; 4] = ["context", "fscontext", "defcontext", "rootcontext"];

/// Options whose values must come as secrets: all others may be shown.
const SECRET: [&str; 4] = ["password", "pass", "password2", "passwd"];

/// Options, sorted by whom they are for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// No writes: asked for by the request or by an option.
    pub(super) read_only: bool,
    /// Only through this mount: the file system is mounted for writing elsewhere.
    pub(super) written_elsewhere: bool,
    /// Of the mount, for the new interface.
    pub(super) attributes: MountAttrFlags,
    /// Of the mount, for mount(2).
    pub(super) flags: MountFlags,
    /// Of the file system.
    pub(super) filesystem: Vec<(String, Option<String>)>,
}

impl Options {
    /// Sorts the options of a request and refuses what is malformed or dangerous.
    pub(super) fn parse(request: &HostMount) -> Result<Self, MountError> {
        let mut options = Self {
            read_only: request.read_only,
            written_elsewhere: false,
            attributes: MountAttrFlags::empty(),
            flags: MountFlags::empty(),
            filesystem: Vec::new(),
        };
        for option in &request.flags {
            options.add(option, request)?;
        }
        match request.source {
            MountSource::Device { .. } | MountSource::Bind { .. } | MountSource::Network { .. } => {
                for name in ALWAYS {
                    options.set(name);
                }
            }
            // A device in a file is there to be opened.
            MountSource::Raw { .. } => {}
        }
        if let MountSource::Device { fs: FsKind::Xfs, .. } = request.source {
            // A copy has the UUID of its original, and xfs refuses to mount both otherwise.
            if !options.filesystem.iter().any(|(key, _)| key == "nouuid") {
                options.filesystem.push(("nouuid".into(), None));
            }
        }
        if options.read_only {
            options.attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
            options.flags |= MountFlags::RDONLY;
        }
        Ok(options)
    }

    /// Sets an option of the mount; false when it is none.
    fn set(&mut self, option: &str) -> bool {
        let found = ATTRIBUTES.iter().find(|(name, ..)| *name == option);
        if let Some((_, attribute, flag)) = found {
            self.attributes |= *attribute;
            self.flags |= *flag;
        }
        found.is_some()
    }

    fn add(&mut self, option: &str, request: &HostMount) -> Result<(), MountError> {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (option, None),
        };
        if SECRET.contains(&key) {
            let why = "it must be given as a secret";
            return Err(MountError::Option { option: key.to_owned(), why });
        }
        let refuse = |why| Err(MountError::Option { option: option.to_owned(), why });
        if option.is_empty() || option.len() > 256 {
            return refuse("it must have 1 to 256 characters");
        }
        let plain =
            |text: &str| text.bytes().all(|b| b.is_ascii_graphic() && !b",\\\"'".contains(&b));
        // Names of users and shares have blanks, backslashes and letters of all scripts.
        let network = matches!(request.source, MountSource::Network { .. });
        let label = LABELS.contains(&key);
        let value = if label { value.map(|value| without_quotes(&value)) } else { value };
        let value_is_plain = |value: &String| match (label, network) {
            (true, _) => value.bytes().all(|b| b.is_ascii_graphic() && !b"\\\"'".contains(&b)),
            (false, true) => !value.chars().any(char::is_control),
            (false, false) => plain(value),
        };
        if !plain(key) || !value.as_ref().is_none_or(value_is_plain) {
            return refuse(
                "only printable characters without commas, quotes and blanks are allowed",
            );
        }
        if OTHER_CALLS.contains(&key) {
            return refuse("it would make this another call than a mount");
        }
        if OTHER_DEVICES.contains(&key) {
            return refuse("it would bring a second device into the mount");
        }
        if RIGHTS.contains(&key) {
            return refuse("what is on a volume gets no rights of this host");
        }
        let raw = matches!(request.source, MountSource::Raw { .. });
        match option {
            "ro" => self.read_only = true,
            "rw" if request.read_only => return refuse("the mount is to be read-only"),
            "rw" => {}
            "nodev" if raw => return refuse("a device that is shown with it cannot be opened"),
            _ if DEFAULTS.contains(&option) || self.set(option) => {}
            _ => match request.source {
                MountSource::Device { .. } | MountSource::Network { .. } => {
                    self.filesystem.push((key.to_owned(), value));
                }
                MountSource::Bind { .. } => {
                    return refuse("a bind has no options of a file system");
                }
                MountSource::Raw { .. } => {
                    return refuse("a device without a file system has none of its options");
                }
            },
        }
        Ok(())
    }

    /// The file system's options as mount(2) takes them.
    pub(super) fn joined(&self, secrets: &[(String, Secret)]) -> Result<CString, MountError> {
        let open = self.filesystem.iter().map(|(key, value)| (key, value.as_deref()));
        let hidden = secrets.iter().map(|(key, secret)| (key, Some(secret.expose())));
        let mut joined = String::new();
        for (key, value) in open.chain(hidden) {
            // Only of labels the kernel takes the quotes off.
            let label = LABELS.contains(&key.as_str());
            if value.is_some_and(|value| value.contains('\0') || (!label && value.contains(','))) {
                let why = "this kernel takes no value with a comma";
                return Err(MountError::Option { option: key.clone(), why });
            }
            if !joined.is_empty() {
                joined.push(',');
            }
            joined.push_str(key);
            match value {
                Some(value) if label => joined.push_str(&format!("=\"{value}\"")),
                Some(value) => joined.push_str(&format!("={value}")),
                None => {}
            }
        }
        // Without NUL, as was looked for.
        Ok(CString::new(joined).unwrap_or_default())
    }
}

/// A value as mount(8) would give it to the kernel.
fn without_quotes(value: &str) -> String {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    inner.unwrap_or(value).to_owned()
}
