//! What a ConnectionInfo says about an AoE volume, checked.

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;

use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::users::Whole;

/// The last shelf; the next number means all of them.
const LAST_SHELF: u64 = 65_534;
/// The last slot; the next number means all of them.
const LAST_SLOT: u64 = 254;
/// The kernel's `IFNAMSIZ` without the closing NUL.
const LONGEST_INTERFACE: usize = 15;

/// One slot of one shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) shelf: u16,
    pub(super) slot: u8,
    /// Interfaces over which it is reached; none: whatever the driver uses.
    pub(super) interfaces: Vec<String>,
    pub(super) read_only: bool,
    /// What its device must say of itself, all of it.
    pub(super) expected: Vec<Identity>,
}

/// Reads the data.
pub(super) fn read(info: &ConnectionInfo) -> Result<Target, AttachError> {
    let fields = Fields::of(info)?;
    let shelf = fields.need_number("target_shelf", 0..=LAST_SHELF)?;
    let slot = fields.need_number("target_lun", 0..=LAST_SLOT)?;
    let interfaces = fields.texts("interfaces")?;
    let legal = |name: &String| {
        (1..=LONGEST_INTERFACE).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
            && !name.starts_with('.')
    };
    if !interfaces.iter().all(legal) {
        return Err(invalid("interfaces", "must be names of network interfaces"));
    }
    Ok(Target {
        shelf: u16::try_from(shelf).unwrap_or_default(),
        slot: u8::try_from(slot).unwrap_or_default(),
        interfaces,
        read_only: fields.read_only()?.unwrap_or(false),
        expected: fields.expected(info)?,
    })
}

impl Target {
    /// What the driver calls it.
    pub(super) fn name(&self) -> String {
        format!("e{}.{}", self.shelf, self.slot)
    }

    /// Its disk, whether it is there or not.
    pub(super) fn disk(&self) -> Whole {
        Whole::new(format!("etherd!{}", self.name()))
    }

    /// Where it is, as an identity: all there is when the target tells no serial number.
    pub(super) fn address(&self) -> Identity {
        Identity::new("aoe", self.name())
    }
}
