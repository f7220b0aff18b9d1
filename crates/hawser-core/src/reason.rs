//! [`Reason`]: why a volume could not be attached, detached or grown on a host, in one stable word.

use serde::{Deserialize, Serialize};

/// Why, finer than a [`Kind`](crate::Kind): the words of the host library. Programs decide by them
/// whether to repeat; `docs/connectors.md` has a line for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The connection info or an option can never work.
    InvalidParameters,
    /// No connector for this protocol on this platform.
    UnsupportedProtocol,
    /// A program, daemon or kernel module is missing here.
    ToolOrModuleMissing,
    /// Multipath was enforced, and this host has none.
    MultipathUnavailable,
    /// The target does not accept the name or the secret.
    AuthFailed,
    /// No way to the target.
    TargetUnreachable,
    /// Nobody listens at the portal.
    PortalRefused,
    /// The portal does not answer.
    PortalTimeout,
    /// The portal answers, and has no such target.
    TargetNotFound,
    /// The target answers, and has no such volume.
    LunNotFound,
    /// This host has no host bus adapter for the protocol.
    NoHba,
    /// Another volume is where this one should be.
    IdentityMismatch,
    /// The device refuses writes.
    DeviceReadOnly,
    /// Somebody uses the device.
    DeviceBusy,
    /// Cached data could not be written out; nothing is lost yet.
    FlushFailed,
    /// Cached data could not be written out and is lost, by a forced detach.
    DataLost,
    /// A device, map or session did not go away.
    NotRemoved,
    /// A path is down, so nobody can say whether the volume has grown on all of them.
    PathsDown,
    /// This kind of volume cannot be encrypted.
    EncryptionUnsupported,
    /// The key does not open the device.
    WrongKey,
    /// Another host holds the right to write.
    Reserved,
    /// The host does not answer in time.
    HostTimeout,
    /// Several things failed; each has a line.
    Several,
}

impl Reason {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 23] = [
        Self::InvalidParameters,
        Self::UnsupportedProtocol,
        Self::ToolOrModuleMissing,
        Self::MultipathUnavailable,
        Self::AuthFailed,
        Self::TargetUnreachable,
        Self::PortalRefused,
        Self::PortalTimeout,
        Self::TargetNotFound,
        Self::LunNotFound,
        Self::NoHba,
        Self::IdentityMismatch,
        Self::DeviceReadOnly,
        Self::DeviceBusy,
        Self::FlushFailed,
        Self::DataLost,
        Self::NotRemoved,
        Self::PathsDown,
        Self::EncryptionUnsupported,
        Self::WrongKey,
        Self::Reserved,
        Self::HostTimeout,
        Self::Several,
    ];

    /// The stable word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidParameters => "invalid_parameters",
            Self::UnsupportedProtocol => "unsupported_protocol",
            Self::ToolOrModuleMissing => "tool_or_module_missing",
            Self::MultipathUnavailable => "multipath_unavailable",
            Self::AuthFailed => "auth_failed",
            Self::TargetUnreachable => "target_unreachable",
            Self::PortalRefused => "portal_refused",
            Self::PortalTimeout => "portal_timeout",
            Self::TargetNotFound => "target_not_found",
            Self::LunNotFound => "lun_not_found",
            Self::NoHba => "no_hba",
            Self::IdentityMismatch => "identity_mismatch",
            Self::DeviceReadOnly => "device_read_only",
            Self::DeviceBusy => "device_busy",
            Self::FlushFailed => "flush_failed",
            Self::DataLost => "data_lost",
            Self::NotRemoved => "not_removed",
            Self::PathsDown => "paths_down",
            Self::EncryptionUnsupported => "encryption_unsupported",
            Self::WrongKey => "wrong_key",
            Self::Reserved => "reserved",
            Self::HostTimeout => "host_timeout",
            Self::Several => "several",
        }
    }

    /// The reason of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// True when the same request may succeed later without anybody changing anything here.
    pub fn may_pass(self) -> bool {
        match self {
            Self::TargetUnreachable
            | Self::PortalRefused
            | Self::PortalTimeout
            | Self::TargetNotFound
            | Self::LunNotFound
            | Self::DeviceReadOnly
            | Self::DeviceBusy
            | Self::FlushFailed
            | Self::NotRemoved
            | Self::PathsDown
            | Self::HostTimeout => true,
            Self::InvalidParameters
            | Self::UnsupportedProtocol
            | Self::ToolOrModuleMissing
            | Self::MultipathUnavailable
            | Self::AuthFailed
            | Self::NoHba
            | Self::IdentityMismatch
            | Self::DataLost
            | Self::EncryptionUnsupported
            | Self::WrongKey
            | Self::Reserved
            | Self::Several => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_word_and_is_found_by_it() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        assert_eq!(Reason::parse("bad luck"), None);
    }
}
