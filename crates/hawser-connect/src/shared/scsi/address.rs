//! Where the SCSI layer has a device.

use std::fmt;
use std::str::FromStr;

use crate::shared::error::AttachError;
use crate::shared::fields;

/// Host, channel, target and number of a device, as sysfs writes them: `3:0:0:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) host: u32,
    pub(crate) channel: u32,
    pub(crate) target: u32,
    pub(crate) lun: u64,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, channel, target, lun } = self;
        write!(f, "{host}:{channel}:{target}:{lun}")
    }
}

/// A text that is no address.
#[derive(Debug)]
pub(crate) struct NoAddress;

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let words: Vec<&str> = text.split(':').collect();
        let [host, channel, target, lun] = words.as_slice() else { return Err(NoAddress) };
        let number = |word: &str| match word.bytes().all(|byte| byte.is_ascii_digit()) {
            true => word.parse::<u64>().map_err(|_| NoAddress),
            false => Err(NoAddress),
        };
        let narrow = |word: &str| u32::try_from(number(word)?).map_err(|_| NoAddress);
        Ok(Self {
            host: narrow(host)?,
            channel: narrow(channel)?,
            target: narrow(target)?,
            lun: number(lun)?,
        })
    }
}

/// How a storage system's number of a volume becomes the number that the kernel uses
/// (`addressing_mode` of the connection info).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// As it is (`SAM`, `transparent`).
    #[default]
    Plain,
    /// Flat space from 256 on (`SAM2`).
    FlatAbove255,
    /// Always flat space (`SAM3-flat`).
    Flat,
}

/// The bits that say "flat space" in a single-level LUN.
const FLAT: u64 = 0x4000;

impl Addressing {
    /// Reads the field `addressing_mode`.
    pub(crate) fn of(fields: &fields::Fields) -> Result<Self, AttachError> {
        match fields.text("addressing_mode")? {
            None | Some("SAM" | "transparent") => Ok(Self::Plain),
            Some("SAM2") => Ok(Self::FlatAbove255),
            Some("SAM3-flat") => Ok(Self::Flat),
            Some(_) => {
                let why = "must be SAM, transparent, SAM2 or SAM3-flat";
                Err(fields::invalid("addressing_mode", why))
            }
        }
    }

    /// The number that the kernel uses.
    pub(crate) fn lun(self, number: u64) -> u64 {
        match self {
            Self::Plain => number,
            Self::FlatAbove255 if number < 256 => number,
            Self::FlatAbove255 | Self::Flat => number.saturating_add(FLAT),
        }
    }
}
