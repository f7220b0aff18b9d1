//! What a program is told about a device: its lasting name, its WWID, its paths; all from sysfs.

use std::path::{Path, PathBuf};

use hawser_core::attach::Attached;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;
use hawser_core::port::library::{DeviceInfo, PathInfo};

/// Which of udev's names is best, best first: those that say who a device is.
const LINKS: [&str; 8] = [
    "dm-uuid-mpath-",
    "wwn-0x",
    "nvme-uuid.",
    "nvme-eui.",
    "nvme-nguid.",
    "emc-vol-",
    "scsi-3",
    "scsi-",
];

const BY_ID: &str = "/dev/disk/by-id";

/// Describes what is attached.
pub(crate) fn describe(
    host: &dyn Host,
    volume: &str,
    kind: Option<&str>,
    attached: &Attached,
) -> Result<DeviceInfo> {
    let files = host.files();
    let block = |device: &Path| -> Result<DeviceInfo> {
        let name = kernel_name(files, device)?;
        let map = match &name {
            Some(name) => multipath_wwid(files, name)?,
            None => None,
        };
        let scheme = attached.identity().filter(|identity| identity.scheme == "wwid");
        Ok(DeviceInfo {
            kind: kind.unwrap_or("block").into(),
            path: device.into(),
            link: link_of(files, device)?,
            volume_id: volume.into(),
            identity: attached.identity().cloned(),
            scsi_wwn: scheme.map(|identity| identity.value.clone()),
            multipath_id: map,
            size_bytes: None,
            paths: match &name {
                Some(name) => paths_of(files, name)?,
                None => Vec::new(),
            },
        })
    };
    let plain = |kind: &str, path: &Path| DeviceInfo {
        kind: kind.into(),
        path: path.into(),
        link: None,
        volume_id: volume.into(),
        identity: None,
        scsi_wwn: None,
        multipath_id: None,
        size_bytes: None,
        paths: Vec::new(),
    };
    Ok(match attached {
        Attached::Block { device, size, .. } => {
            DeviceInfo { size_bytes: Some(size.get()), ..block(device)? }
        }
        Attached::Directory { path } => plain(kind.unwrap_or("directory"), path),
        Attached::File { path } => plain(kind.unwrap_or("file"), path),
    })
}

/// `dm-3` of `/dev/mapper/x`; `None` when it is no block device now.
fn kernel_name(files: &dyn Files, device: &Path) -> Result<Option<String>> {
    let Some((major, minor)) = files.device_number(device)? else { return Ok(None) };
    let target = files.resolve(Path::new(&format!("/sys/dev/block/{major}:{minor}")))?;
    Ok(target.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())))
}

/// The WWID of a map of several paths.
fn multipath_wwid(files: &dyn Files, name: &str) -> Result<Option<String>> {
    let uuid = files.read_text(&sys_block(name).join("dm/uuid"))?;
    Ok(uuid.and_then(|uuid| Some(uuid.strip_prefix("mpath-")?.to_owned())))
}

fn sys_block(name: &str) -> PathBuf {
    Path::new("/sys/class/block").join(name)
}

/// The best of udev's links that lead to this very device now.
fn link_of(files: &dyn Files, device: &Path) -> Result<Option<PathBuf>> {
    let Some(number) = files.device_number(device)? else { return Ok(None) };
    let names = files.list(Path::new(BY_ID))?;
    for prefix in LINKS {
        for name in names.iter().filter(|name| name.starts_with(prefix)) {
            let link = Path::new(BY_ID).join(name);
            if files.device_number(&link)? == Some(number) {
                return Ok(Some(link));
            }
        }
    }
    Ok(None)
}

/// What a device stands on, down to where the transport begins.
fn paths_of(files: &dyn Files, name: &str) -> Result<Vec<PathInfo>> {
    let slaves = files.list(&sys_block(name).join("slaves"))?;
    if !slaves.is_empty() {
        let mut paths = Vec::new();
        for slave in slaves {
            paths.extend(paths_of(files, &slave)?);
        }
        return Ok(paths);
    }
    if name.starts_with("nvme") {
        return nvme_paths(files, name);
    }
    let device = sys_block(name).join("device");
    let Some(real) = files.resolve(&device)? else { return Ok(Vec::new()) };
    let Some(state) = files.read_text(&device.join("state"))? else { return Ok(Vec::new()) };
    let address = real.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    Ok(vec![PathInfo { device: name.to_owned(), address, state }])
}

/// The controllers of a namespace: hidden paths below its subsystem, or its own controller.
fn nvme_paths(files: &dyn Files, name: &str) -> Result<Vec<PathInfo>> {
    let Some(head) = files.resolve(&sys_block(name))? else { return Ok(Vec::new()) };
    let Some(parent) = head.parent() else { return Ok(Vec::new()) };
    let Some((instance, namespace)) = split_namespace(name) else { return Ok(Vec::new()) };
    let mut paths = Vec::new();
    for controller in files.list(Path::new("/sys/class/nvme"))? {
        let folder = Path::new("/sys/class/nvme").join(&controller);
        let hidden = hidden_path(instance, &controller, namespace);
        let has_hidden = files.resolve(&folder.join(&hidden))?.is_some();
        let is_own = files.resolve(&folder)?.as_deref() == Some(parent);
        if !has_hidden && !is_own {
            continue;
        }
        let state = files.read_text(&folder.join("state"))?.unwrap_or_default();
        let device = if has_hidden { hidden } else { name.to_owned() };
        paths.push(PathInfo { device, address: controller, state });
    }
    Ok(paths)
}

/// `nvme0n1` is instance 0 and namespace 1.
fn split_namespace(name: &str) -> Option<(u32, u32)> {
    let (instance, namespace) = name.strip_prefix("nvme")?.split_once('n')?;
    Some((instance.parse().ok()?, namespace.parse().ok()?))
}

/// The node of one path to a namespace: `nvme0c1n1`.
fn hidden_path(instance: u32, controller: &str, namespace: u32) -> String {
    let number = controller.strip_prefix("nvme").unwrap_or(controller);
    format!("nvme{instance}c{number}n{namespace}")
}
