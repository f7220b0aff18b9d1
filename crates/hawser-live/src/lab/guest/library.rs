//! The library as a program has it that keeps records, with what lies above devices: LUKS and
//! reservations. [`super::Volume`] has one connector and nothing else.

use std::path::{Path, PathBuf};

use hawser_connect::node::NodeHalf;
use hawser_connect::{HostSettings, open};
use hawser_core::Error;
use hawser_core::attach::{Attach, Detach};
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Library;
use hawser_core::port::library::VolumeKey;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// One host: a library with records of its own. Two of them know nothing of each other.
pub struct Host {
    runtime: Runtime,
    library: NodeHalf,
    _dir: TempDir,
}

impl Host {
    /// A host that has attached nothing yet.
    #[track_caller]
    pub fn new() -> Self {
        super::number();
        let dir = TempDir::new().expect("a folder for records");
        let settings = HostSettings {
            run_dir: dir.path().join("run"),
            lock_dir: dir.path().join("lock"),
            ..HostSettings::default()
        };
        let library = open(settings).expect("a library");
        Self { runtime: Runtime::new().expect("a runtime"), library, _dir: dir }
    }

    /// Attaches a volume and answers its device.
    pub fn connect(&self, info: &ConnectionInfo, attach: &Attach) -> Result<PathBuf, Error> {
        let connected = self.runtime.block_on(self.library.connect(info, attach));
        connected.map(|change| change.into_inner().path)
    }

    /// Detaches it.
    pub fn disconnect(&self, info: &ConnectionInfo) -> Result<(), Error> {
        self.disconnect_as(info, &Detach::default())
    }

    /// Detaches it in another way.
    pub fn disconnect_as(&self, info: &ConnectionInfo, detach: &Detach) -> Result<(), Error> {
        let key = VolumeKey::Info(info.clone());
        self.runtime.block_on(self.library.disconnect(&key, detach)).map(|_| ())
    }

    /// Where it is, by its name: what its record says decides.
    pub fn lookup(&self, volume: &str) -> Result<Option<PathBuf>, Error> {
        let found = self.runtime.block_on(self.library.lookup(&VolumeKey::Volume(volume.into())));
        found.map(|device| device.map(|device| device.path))
    }

    /// Makes the host see its size, and answers it.
    #[track_caller]
    pub fn extend(&self, info: &ConnectionInfo) -> u64 {
        let key = VolumeKey::Info(info.clone());
        let device = self.runtime.block_on(self.library.extend(&key)).expect("it grows");
        device.size_bytes.expect("it has a size")
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

/// How a volume of this protocol is reached.
#[track_caller]
pub fn info(protocol: &str, data: Value) -> ConnectionInfo {
    let info = json!({ "driver_volume_type": protocol, "data": data });
    serde_json::from_value(info).expect("a connection info")
}

/// A device that is there already, as a volume.
#[track_caller]
pub fn device(path: &Path, volume: &str) -> ConnectionInfo {
    info("local", json!({ "device_path": path, "volume_id": volume }))
}
