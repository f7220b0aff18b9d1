//! The library port: what a program on a host asks for, by the volume's outside name alone.

use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::attach::{Attach, Detach, Identity};
use crate::change::Change;
use crate::connection::ConnectionInfo;
use crate::error::Result;

/// The host-side library: properties, connect, disconnect, extend, device path.
///
/// Implemented in process by `hawser-connect`, and across a node's socket by the client of
/// `hawser-api`, so that a program in any language need not start a process per call.
///
/// # Contract
///
/// - a volume is known by its outside name, the `volume_id` of its connection info; without one, by
///   a digest of the whole info without secrets;
/// - every call is idempotent and safe to repeat after any failure or crash;
/// - what is about to be made is recorded before it is made, what was made before the answer.
#[async_trait]
pub trait Library: Send + Sync {
    /// What this host tells a storage system of itself.
    async fn properties(&self, wanted: &PropertiesRequest) -> Result<Map<String, Value>>;

    /// Makes the volume usable here. A second call answers the same device, as `Already`.
    async fn connect(&self, info: &ConnectionInfo, attach: &Attach) -> Result<Change<DeviceInfo>>;

    /// Writes out what is cached, takes the volume away, and answers the path it had. Absent is
    /// `Already`.
    async fn disconnect(
        &self,
        volume: &VolumeKey,
        detach: &Detach,
    ) -> Result<Change<Option<PathBuf>>>;

    /// Makes this host see the volume's new size, and answers what there is then.
    async fn extend(&self, volume: &VolumeKey) -> Result<DeviceInfo>;

    /// Where the volume is on this host now; `None` when it is not. Changes nothing.
    async fn lookup(&self, volume: &VolumeKey) -> Result<Option<DeviceInfo>>;

    /// What is built in, and what this host lacks for it.
    async fn connectors(&self) -> Result<Vec<ConnectorStatus>>;
}

/// How a caller names a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeKey {
    /// By its outside name.
    Volume(String),
    /// By what it was, or would be, connected with.
    Info(ConnectionInfo),
}

/// What the properties are for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PropertiesRequest {
    /// Several paths are wanted.
    pub multipath: bool,
    /// Several paths, or a refusal.
    pub enforce_multipath: bool,
    /// The address that storage systems should know this host by; found out when left out.
    pub ip: Option<String>,
    /// The name that storage systems should know this host by; the host name when left out.
    pub host: Option<String>,
    /// A volume may be attached without a storage network.
    pub do_local_attach: bool,
    /// `X86`, `S390`, `PPC64` or `ALL`: refused when this host is another.
    pub platform: Option<String>,
    /// `LINUX` or `ALL`; `WIN` and others are refused.
    pub os_type: Option<String>,
    /// Keys in camel case (`osType`) instead of os-brick's (`os_type`).
    pub camel_case: bool,
}

/// What a program gets to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// `block`, `directory`, `file`, or the word that os-brick has for it (`local`, `gpfs`).
    #[serde(rename = "type")]
    pub kind: String,
    /// The node, folder or file to use.
    pub path: PathBuf,
    /// A name of it that stays the same as long as it is attached, below `/dev/disk/by-id` where
    /// udev has made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<PathBuf>,
    /// The volume's outside name.
    pub volume_id: String,
    /// What the device says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The WWID in the form of udev, for SCSI devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scsi_wwn: Option<String>,
    /// The same, where the device is a map of several paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multipath_id: Option<String>,
    /// In bytes; nothing for folders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// What the device stands on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathInfo>,
}

/// One way to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathInfo {
    /// The kernel's name, such as `sdb` or `nvme0c1n1`.
    pub device: String,
    /// `H:C:T:L`, or the controller.
    pub address: String,
    /// As the kernel tells it: `running`, `offline`, `live`, `connecting`.
    pub state: String,
}

/// One connector on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectorStatus {
    /// The protocol.
    pub protocol: String,
    /// `stable`, `preview` or `legacy`.
    pub maturity: String,
    /// What proves that it attaches and detaches; `proofs` has the rest.
    pub proof: String,
    /// What proves each of its abilities.
    #[serde(default)]
    pub proofs: ProofWords,
    /// In words.
    pub note: String,
    /// Nothing is missing here.
    pub ready: bool,
    /// What is missing, and how to get it.
    pub missing: Vec<Missing>,
    /// The platforms it works on.
    pub platforms: Vec<String>,
    /// A larger volume is seen without detaching it.
    pub extend: bool,
    /// How several paths become one device; nothing when they do not.
    pub multipath: Option<String>,
    /// LUKS between device and user.
    pub encryption: bool,
    /// A single writer is enforced at the device.
    pub reservation: bool,
}

/// What proves each ability of a connector: `kernel SUITE` or `daemon SUITE` (the real thing, by that
/// suite of the lab), `simulator`, `fixtures` or `not proven`; nothing for what it cannot do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProofWords {
    /// Attaching and detaching.
    pub connect: Option<String>,
    /// Seeing a larger volume.
    pub extend: Option<String>,
    /// Several paths.
    pub multipath: Option<String>,
    /// LUKS above it.
    pub encryption: Option<String>,
    /// A single writer.
    pub reservation: Option<String>,
}

/// Something that a host lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// How to get it here.
    pub advice: String,
}
