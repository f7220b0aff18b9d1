//! LUKS and reservations above a device, on a real kernel and a real target.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_layers/luks.rs"]
mod luks;
#[path = "vm_layers/reserve.rs"]
mod reserve;

use std::path::{Path, PathBuf};
use std::time::Duration;

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

const LIMIT: Duration = Duration::from_secs(60);
/// Where the targets are reached.
const PORTALS: [&str; 2] = ["127.0.1.1:3260", "127.0.1.2:3260"];

/// What becomes a map: every SCSI disk, also with one path. Without a path it does as `no_path` says.
fn maps(no_path: &str) -> String {
    format!(
        "defaults {{\n find_multipaths no\n polling_interval 1\n user_friendly_names no\n}}\n\
         overrides {{\n no_path_retry {no_path}\n}}\n\
         blacklist {{\n devnode \"^(vd|loop|dm-|ram)\"\n}}\n"
    )
}

/// One host: a library with records of its own.
struct Host {
    runtime: Runtime,
    library: NodeHalf,
    _dir: TempDir,
}

impl Host {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let settings = HostSettings {
            run_dir: dir.path().join("run"),
            lock_dir: dir.path().join("lock"),
            ..HostSettings::default()
        };
        let library = open(settings).unwrap();
        Self { runtime: Runtime::new().unwrap(), library, _dir: dir }
    }

    fn connect(&self, info: &ConnectionInfo, attach: &Attach) -> Result<PathBuf, Error> {
        let connected = self.runtime.block_on(self.library.connect(info, attach));
        connected.map(|change| change.into_inner().path)
    }

    fn disconnect(&self, info: &ConnectionInfo) -> Result<(), Error> {
        self.disconnect_as(info, &Detach::default())
    }

    fn disconnect_as(&self, info: &ConnectionInfo, detach: &Detach) -> Result<(), Error> {
        let key = VolumeKey::Info(info.clone());
        self.runtime.block_on(self.library.disconnect(&key, detach)).map(|_| ())
    }

    /// By its name: what its record says decides.
    fn lookup(&self, volume: &str) -> Result<Option<PathBuf>, Error> {
        let found = self.runtime.block_on(self.library.lookup(&VolumeKey::Volume(volume.into())));
        found.map(|device| device.map(|device| device.path))
    }

    fn extend(&self, info: &ConnectionInfo) -> u64 {
        let key = VolumeKey::Info(info.clone());
        self.runtime.block_on(self.library.extend(&key)).unwrap().size_bytes.unwrap()
    }
}

fn info(protocol: &str, data: Value) -> ConnectionInfo {
    serde_json::from_value(json!({ "driver_volume_type": protocol, "data": data })).unwrap()
}

fn device(path: &Path, volume: &str) -> ConnectionInfo {
    info("local", json!({ "device_path": path, "volume_id": volume }))
}
