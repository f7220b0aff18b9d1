//! The settings of a local class.

use std::path::PathBuf;

use hawser_core::ByteSize;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::error::LocalError;

/// What a class of provider `local` may say.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The pool folder; absolute. Made when only its last component is missing.
    pub path: PathBuf,
    /// What a volume is.
    #[serde(default)]
    pub kind: PoolKind,
    /// How many bytes may be promised for each byte that the pool can hold; above 0, at most 1000.
    #[serde(default = "one")]
    pub overcommit: f64,
    /// How much of the file system is never promised.
    #[serde(default)]
    pub reserve: Reserve,
    /// The logical sector size of the devices.
    #[serde(default)]
    pub sector_size: SectorSize,
}

impl Settings {
    /// Refuses values that no pool can have.
    pub(super) fn validate(&self) -> Result<(), LocalError> {
        if !self.path.is_absolute() {
            return Err(LocalError::RelativePath { path: self.path.clone() });
        }
        // Written so that NaN is refused too.
        if !(self.overcommit > 0.0 && self.overcommit <= MOST_OVERCOMMIT) {
            return Err(LocalError::Overcommit { value: self.overcommit, most: MOST_OVERCOMMIT });
        }
        Ok(())
    }
}

/// Beyond this a limit is no limit; it also keeps the arithmetic far from overflow.
const MOST_OVERCOMMIT: f64 = 1000.0;

fn one() -> f64 {
    1.0
}

/// What a volume of a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// A sparse file, used through a loop device.
    #[default]
    Image,
    /// A plain folder; needs no privileges.
    Folder,
}

impl PoolKind {
    /// The word in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Folder => "folder",
        }
    }
}

/// How much of the file system is never promised to volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// So many bytes.
    Bytes(ByteSize),
    /// This part of the file system's size.
    Percent(u8),
}

impl Default for Reserve {
    /// One percent: block maps of thin images and the service's own store need some room on the
    /// same file system, and xfs and btrfs keep none back of their own accord.
    fn default() -> Self {
        Self::Percent(1)
    }
}

impl Reserve {
    /// The reserve in bytes on a file system of this size.
    pub(super) fn of(self, total: ByteSize) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.get(),
            Self::Percent(percent) => {
                // Below the u64 total, since the percentage is below 100.
                (u128::from(total.get()) * u128::from(percent) / 100) as u64
            }
        }
    }
}

impl<'de> Deserialize<'de> for Reserve {
    /// A size as everywhere (`10GiB`, plain bytes) or a whole percentage from `0%` to `99%`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        if let Some(number) = value.as_str().and_then(|text| text.trim().strip_suffix('%')) {
            return match number.trim_end().parse::<u8>() {
                Ok(percent) if percent < 100 => Ok(Self::Percent(percent)),
                Ok(_) | Err(_) => Err(D::Error::custom(format!(
                    "a reserve of {:?}%: write a whole number from 0% to 99%",
                    number.chars().take(16).collect::<String>()
                ))),
            };
        }
        ByteSize::deserialize(value).map(Self::Bytes).map_err(D::Error::custom)
    }
}

/// The logical sector size of a pool's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u32")]
pub enum SectorSize {
    /// 512 bytes: what every program expects.
    #[default]
    B512,
    /// 4096 bytes: for pools on disks with native 4 KiB sectors.
    B4096,
}

impl SectorSize {
    /// In bytes.
    pub fn get(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

impl TryFrom<u32> for SectorSize {
    type Error = String;

    fn try_from(bytes: u32) -> Result<Self, String> {
        match bytes {
            512 => Ok(Self::B512),
            4096 => Ok(Self::B4096),
            other => Err(format!("a sector size of {other}: choose 512 or 4096")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<Settings, String> {
        let settings: Settings = serde_json::from_value(value).map_err(|e| e.to_string())?;
        settings.validate().map_err(|e| e.to_string())?;
        Ok(settings)
    }

    #[test]
    fn a_path_is_enough() {
        let settings = read(json!({ "path": "/pool" })).unwrap();

        assert_eq!(settings.kind, PoolKind::Image);
        assert_eq!(settings.overcommit, 1.0);
        assert_eq!(settings.reserve, Reserve::Percent(1));
        assert_eq!(settings.sector_size.get(), 512);
    }

    #[test]
    fn every_setting_is_read() {
        let settings = read(json!({ "path": "/pool", "kind": "folder", "overcommit": 2.5,
            "reserve": "10GiB", "sector_size": 4096 }))
        .unwrap();

        assert_eq!(settings.kind, PoolKind::Folder);
        assert_eq!(settings.overcommit, 2.5);
        assert_eq!(settings.reserve, Reserve::Bytes(ByteSize::gib(10)));
        assert_eq!(settings.sector_size.get(), 4096);
    }

    #[test]
    fn what_no_pool_can_have_is_refused() {
        for bad in [
            json!({}),
            json!({ "path": "pool" }),
            json!({ "path": "/p", "kind": "tape" }),
            json!({ "path": "/p", "overcommit": 0 }),
            json!({ "path": "/p", "overcommit": -1 }),
            json!({ "path": "/p", "overcommit": 1000.5 }),
            json!({ "path": "/p", "reserve": "100%" }),
            json!({ "path": "/p", "reserve": "-1%" }),
            json!({ "path": "/p", "reserve": -1 }),
            json!({ "path": "/p", "sector_size": 520 }),
            json!({ "path": "/p", "pathh": "/q" }),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_percentage_is_taken_of_the_whole() {
        assert_eq!(Reserve::Percent(5).of(ByteSize::bytes(1000)), 50);
        assert_eq!(Reserve::Percent(99).of(ByteSize::bytes(u64::MAX)), u64::MAX / 100 * 99 + 14);
    }
}
