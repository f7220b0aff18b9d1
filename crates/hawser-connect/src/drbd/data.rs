//! What a ConnectionInfo says about a DRBD resource, checked.

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;

use super::config;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::users::Whole;

/// DRBD's own limit is 127; this becomes part of the name of a file.
const LONGEST_NAME: usize = 100;
/// The last minor number.
const LAST_MINOR: u32 = (1 << 20) - 1;

/// One resource, and its volume that is used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) minor: u32,
    /// With a gap for the secret.
    pub(super) config: String,
    pub(super) read_only: bool,
    /// It may be used although no peer answers.
    pub(super) degraded: bool,
}

/// Why there is no target.
#[derive(Debug)]
pub(super) enum NoTarget {
    /// The data makes no sense.
    Bad(AttachError),
    /// It is not the volume that was meant.
    Other(AttachError),
}

/// Reads the data, and refuses what cannot be this volume.
pub(super) fn read(info: &ConnectionInfo) -> Result<Target, NoTarget> {
    let (target, expected) = parse(info).map_err(NoTarget::Bad)?;
    match expected.into_iter().find(|expected| *expected != target.identity()) {
        None => Ok(target),
        Some(expected) => Err(NoTarget::Other(AttachError::WrongIdentity {
            device: target.disk().node,
            expected,
            found: target.identity().to_string(),
        })),
    }
}

fn parse(info: &ConnectionInfo) -> Result<(Target, Vec<Identity>), AttachError> {
    let fields = Fields::of(info)?;
    let name = fields.need_text("name")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    // What begins with a dash is an option to a program, with a dot a hidden file.
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if name.len() > LONGEST_NAME || !begins || !name.chars().all(legal) || name == "all" {
        let why = "must be the name of a resource: letters, digits, dots, dashes, underscores";
        return Err(invalid("name", why));
    }
    let device = fields.need_text("device")?;
    let minor = device.strip_prefix("/dev/drbd").filter(|digits| !digits.starts_with('+'));
    let minor = minor.and_then(|digits| digits.parse().ok()).filter(|n| *n <= LAST_MINOR);
    let Some(minor) = minor else {
        return Err(invalid("device", "must be a device of DRBD, such as /dev/drbd100"));
    };
    let config = fields.lines("config")?.to_owned();
    config::check(&config)?;
    let target = Target {
        name: name.to_owned(),
        minor,
        config,
        read_only: fields.read_only()?.unwrap_or(false),
        degraded: fields.flag("allow_degraded")?.unwrap_or(false),
    };
    Ok((target, fields.expected(info)?))
}

impl Target {
    /// Its disk, whether it is there or not.
    pub(super) fn disk(&self) -> Whole {
        Whole::new(format!("drbd{}", self.minor))
    }

    /// A resource is known by its name, everywhere in its cluster.
    pub(super) fn identity(&self) -> Identity {
        Identity::new("drbd", &self.name)
    }
}
