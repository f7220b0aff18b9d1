//! What the NVMe suites share.
#![allow(dead_code, reason = "each suite uses its part")]

pub(crate) mod tcp;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::attach::{Attach, Multipath};
use hawser_live::lab::guest::faults::Asked;
use hawser_live::lab::guest::{Volume, nvmet};
use serde_json::{Value, json};

/// How long anything that is waited for may take in a guest without acceleration.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) const UUID: &str = "0b9d5a10-1111-4222-8333-444455556666";
pub(crate) const OTHER: &str = "0b9d5a10-1111-4222-8333-444455557777";

/// Every path.
pub(crate) fn many() -> Attach {
    Attach { multipath: Multipath::Wanted, ..Attach::default() }
}

/// The data of a volume at TCP portals, with limits that suit a test.
pub(crate) fn data(nqn: &str, uuid: &str, portals: &[&str]) -> Value {
    let portal = |text: &&str| {
        let (address, port) = text.rsplit_once(':').expect("address and port");
        json!([address.trim_matches(['[', ']']), port, "tcp"])
    };
    let portals: Vec<Value> = portals.iter().map(portal).collect();
    json!({ "target_nqn": nqn, "vol_uuid": uuid, "portals": portals,
            "reconnect_delay": 1, "keep_alive_tmo": 2 })
}

/// The data with one more field.
pub(crate) fn with(mut data: Value, key: &str, value: Value) -> Value {
    data[key] = value;
    data
}

pub(crate) fn volume(data: Value) -> Volume {
    Volume::new("nvmeof", data)
}

/// The same as somebody has it who runs the command, over every path.
pub(crate) fn asked(data: Value) -> Asked {
    Asked::over("nvmeof", data, &["--multipath"])
}

/// Writes through the page cache and out of it.
#[track_caller]
pub(crate) fn write(device: &Path, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(device).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    file.sync_all().unwrap();
}

/// Reads past what another opener cached.
#[track_caller]
pub(crate) fn read(device: &Path, offset: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    File::open(device).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// The number of bytes that the kernel believes a device to have.
#[track_caller]
pub(crate) fn size(device: &Path) -> u64 {
    let name = device.file_name().unwrap().to_string_lossy().into_owned();
    let sectors = std::fs::read_to_string(format!("/sys/class/block/{name}/size")).unwrap();
    sectors.trim().parse::<u64>().unwrap() * 512
}

/// The state of every controller of a subsystem.
pub(crate) fn states(nqn: &str) -> Vec<String> {
    let state = |name: &String| {
        let text = std::fs::read_to_string(format!("/sys/class/nvme/{name}/state"));
        text.unwrap_or_default().trim().to_owned()
    };
    nvmet::controllers(nqn).iter().map(state).collect()
}

/// The device of a namespace, where its node is there; not the hidden ones of its ways.
pub(crate) fn device_of(uuid: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir("/sys/block").ok()?.flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let name = names.find(|name| {
        let wwid = std::fs::read_to_string(format!("/sys/block/{name}/wwid")).unwrap_or_default();
        wwid.trim() == format!("uuid.{uuid}") && Path::new("/dev").join(name).exists()
    })?;
    Some(Path::new("/dev").join(name))
}
