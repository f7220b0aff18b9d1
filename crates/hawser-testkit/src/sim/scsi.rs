//! SCSI: hosts, targets and volumes behind sessions or remote ports.
//!
//! As a kernel 6.1 was seen to do it:
//! - a scan is synchronous for the SCSI device; its disk appears a wait later;
//! - a scan for what is there already, or for nothing, is no error and does nothing;
//! - `delete` refuses nothing, however the disk is used;
//! - page 0x83, the wwid and the size in sysfs are copies: when the storage system shows another
//!   volume under the same number, they go on telling of the old one until `rescan`, while reads
//!   and INQUIRY already come from the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::fake_host::kernel::errno::{EINVAL, ENODEV};
use crate::fake_host::kernel::{Answer, DiskSpec, Kernel, Lun, Target, Tree, Write};

/// The address of a target: host, channel, number.
pub type TargetAddress = (u32, u32, u32);

/// What the SCSI layer of a fake host knows.
#[derive(Default)]
struct Layer {
    hosts: BTreeMap<u32, PathBuf>,
    targets: BTreeMap<TargetAddress, Reach>,
    devices: BTreeMap<(TargetAddress, u64), Device>,
    wide_scans: usize,
    generation: u64,
}

/// A target that can be reached.
#[derive(Clone)]
struct Reach {
    /// Where its devices are in sysfs.
    folder: PathBuf,
    target: Target,
    online: bool,
    /// The numbers that its driver lets through; all where it does not care.
    only: Option<BTreeSet<u64>>,
}

/// A device that was found.
#[derive(Clone)]
struct Device {
    folder: PathBuf,
    /// Tells it from one that was at the same address before.
    generation: u64,
    disk: Option<String>,
}

/// Gives the kernel its SCSI layer. Simulations of transports do it for themselves.
pub fn install(kernel: &Kernel) {
    let installed = kernel.edit(|tree| tree.exists("/sys/bus/scsi/devices"));
    if installed {
        return;
    }
    for folder in ["/sys/bus/scsi/devices", "/sys/class/scsi_host", "/sys/class/scsi_device"] {
        kernel.folder(folder);
    }
    kernel
        .module("scsi_mod")
        .module("sd_mod")
        .on_write("/sys/devices/**/scsi_host/host*/scan", scan)
        .on_write("/sys/devices/**/target*/*:*:*:*/delete", |tree, write| {
            with_device(tree, write, |tree, address, _| remove_device(tree, address))
        })
        .on_write("/sys/devices/**/target*/*:*:*:*/rescan", |tree, write| {
            with_device(tree, write, refresh)
        })
        .on_write("/sys/devices/**/target*/*:*:*:*/state", set_state)
        .on_reboot(|tree| {
            tree.with::<Layer, _>(|layer, tree| {
                layer.devices.retain(|_, device| tree.exists(&device.folder));
                layer.targets.retain(|_, reach| tree.exists(&reach.folder));
                layer.hosts.retain(|_, folder| tree.exists(folder));
            });
        });
}

/// Adds a host bus adapter or the host of a session, below a folder of sysfs such as
/// `/sys/devices/platform/host3`; answers that folder.
pub fn add_host(tree: &mut Tree, number: u32, folder: &str) -> PathBuf {
    let folder = PathBuf::from(folder);
    let class = folder.join(format!("scsi_host/host{number}"));
    tree.file(class.join("scan"), "")
        .value(class.join("unique_id"), number)
        .value(class.join("state"), "running")
        .link(class.join("device"), &folder)
        .link(format!("/sys/class/scsi_host/host{number}"), &class)
        .link(format!("/sys/bus/scsi/devices/host{number}"), &folder);
    tree.with::<Layer, _>(|layer, _| layer.hosts.insert(number, folder.clone()));
    tree.emit();
    folder
}

/// Takes a host away with all of its targets and devices.
pub fn remove_host(tree: &mut Tree, number: u32) {
    let targets: Vec<TargetAddress> = tree.with::<Layer, _>(|layer, _| {
        layer.targets.keys().filter(|address| address.0 == number).copied().collect()
    });
    for address in targets {
        remove_target(tree, address);
    }
    if let Some(folder) = tree.with::<Layer, _>(|layer, _| layer.hosts.remove(&number)) {
        tree.remove(folder);
    }
    tree.remove(format!("/sys/class/scsi_host/host{number}"));
    tree.remove(format!("/sys/bus/scsi/devices/host{number}"));
    tree.emit();
}

/// Makes a target reachable through a host; its devices will be in `parent`, such as the folder of
/// a session or of a remote port. Nothing is scanned.
pub fn add_target(tree: &mut Tree, address: TargetAddress, parent: &str, target: &Target) {
    let (host, channel, number) = address;
    let folder = PathBuf::from(parent).join(format!("target{host}:{channel}:{number}"));
    tree.folder(&folder)
        .link(format!("/sys/bus/scsi/devices/target{host}:{channel}:{number}"), &folder);
    let reach = Reach { folder, target: target.clone(), online: true, only: None };
    tree.with::<Layer, _>(|layer, _| layer.targets.insert(address, reach));
    tree.emit();
}

/// Takes a target away with all of its devices, whoever uses them.
pub fn remove_target(tree: &mut Tree, address: TargetAddress) {
    for lun in luns(tree, address) {
        // It was listed just now.
        let _ = remove_device(tree, (address, lun));
    }
    if let Some(reach) = tree.with::<Layer, _>(|layer, _| layer.targets.remove(&address)) {
        tree.remove(reach.folder);
    }
    let (host, channel, number) = address;
    tree.remove(format!("/sys/bus/scsi/devices/target{host}:{channel}:{number}"));
    tree.emit();
}

/// The way to a target fails or works again: reads and writes through its disks fail meanwhile.
pub fn set_online(tree: &mut Tree, address: TargetAddress, online: bool) {
    tree.with::<Layer, _>(|layer, tree| {
        if let Some(reach) = layer.targets.get_mut(&address) {
            reach.online = online;
        }
        for device in layer.devices.iter().filter(|(key, _)| key.0 == address).map(|(_, d)| d) {
            let state = if online { "running" } else { "transport-offline" };
            tree.value(device.folder.join("state"), state);
            if let Some(disk) = &device.disk {
                tree.set_online(disk, online);
            }
        }
    });
    tree.emit();
}

/// The driver of a target lets scans through for these numbers alone, or for all.
pub fn set_only(tree: &mut Tree, address: TargetAddress, only: Option<BTreeSet<u64>>) {
    tree.with::<Layer, _>(|layer, _| {
        if let Some(reach) = layer.targets.get_mut(&address) {
            reach.only = only;
        }
    });
}

/// Looks for volumes, as a scan does; `None` stands for all.
pub fn scan_for(
    tree: &mut Tree,
    host: u32,
    channel: Option<u32>,
    target: Option<u32>,
    lun: Option<u64>,
) {
    let fits = |address: &TargetAddress| {
        address.0 == host
            && channel.is_none_or(|channel| channel == address.1)
            && target.is_none_or(|target| target == address.2)
    };
    let targets: Vec<(TargetAddress, Reach)> = tree.with::<Layer, _>(|layer, _| {
        let all = layer.targets.iter().filter(|(address, reach)| fits(address) && reach.online);
        all.map(|(address, reach)| (*address, reach.clone())).collect()
    });
    for (address, reach) in targets {
        let numbers = match lun {
            Some(lun) => vec![lun],
            None => reach.target.numbers(),
        };
        for number in numbers {
            let passes = reach.only.as_ref().is_none_or(|only| only.contains(&number));
            if let Some(lun) = reach.target.get(number).filter(|_| passes) {
                add_device(tree, (address, number), &reach, &lun);
            }
        }
    }
}

/// Takes one device of a target away, whoever uses it; false when there is none.
pub fn remove_lun(tree: &mut Tree, address: TargetAddress, lun: u64) -> bool {
    remove_device(tree, (address, lun)).is_ok()
}

/// The numbers of the volumes that were found at a target.
pub fn luns(tree: &mut Tree, address: TargetAddress) -> Vec<u64> {
    tree.with::<Layer, _>(|layer, _| {
        layer.devices.keys().filter(|key| key.0 == address).map(|key| key.1).collect()
    })
}

/// The disk at an address, once it has appeared.
pub fn disk_at(tree: &mut Tree, address: TargetAddress, lun: u64) -> Option<String> {
    tree.with::<Layer, _>(|layer, _| layer.devices.get(&(address, lun))?.disk.clone())
}

/// How often somebody scanned for all volumes of a host at once, which finds those of others.
pub fn wide_scans(kernel: &Kernel) -> usize {
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| layer.wide_scans))
}

/// A write to `scan`.
fn scan(tree: &mut Tree, write: &Write<'_>) -> Answer<()> {
    let host = write.above(0).trim_start_matches("host").parse().map_err(|_| EINVAL)?;
    let text = write.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    let [channel, target, lun] = words.as_slice() else { return Err(EINVAL) };
    let number = |word: &str| match word {
        "-" => Ok(None),
        word => word.parse::<u64>().map(Some).map_err(|_| EINVAL),
    };
    let narrow = |number: Option<u64>| number.map(u32::try_from).transpose().map_err(|_| EINVAL);
    let (channel, target) = (narrow(number(channel)?)?, narrow(number(target)?)?);
    let lun = number(lun)?;
    if lun.is_none() {
        tree.with::<Layer, _>(|layer, _| layer.wide_scans += 1);
    }
    scan_for(tree, host, channel, target, lun);
    Ok(())
}

fn name_of(((host, channel, target), lun): (TargetAddress, u64)) -> String {
    format!("{host}:{channel}:{target}:{lun}")
}

fn add_device(tree: &mut Tree, address: (TargetAddress, u64), reach: &Reach, lun: &Lun) {
    let name = name_of(address);
    let folder = reach.folder.join(&name);
    if tree.exists(&folder) {
        return;
    }
    let class = folder.join("scsi_device").join(&name);
    tree.value(folder.join("type"), 0)
        .value(folder.join("vendor"), "LIO-ORG ")
        .value(folder.join("model"), "disk            ")
        .value(folder.join("rev"), "4.0 ")
        .value(folder.join("state"), "running")
        .file(folder.join("delete"), "")
        .file(folder.join("rescan"), "")
        .link(class.join("device"), &folder)
        .link(format!("/sys/class/scsi_device/{name}"), &class)
        .link(format!("/sys/bus/scsi/devices/{name}"), &folder);
    copy_pages(tree, &folder, lun);
    let generation = tree.with::<Layer, _>(|layer, _| {
        layer.generation += 1;
        let device = Device { folder, generation: layer.generation, disk: None };
        layer.devices.insert(address, device);
        layer.generation
    });
    tree.emit();
    tree.later(1, move |tree| probe_disk(tree, address, generation));
}

/// What the kernel remembers of a volume.
fn copy_pages(tree: &mut Tree, folder: &std::path::Path, lun: &Lun) {
    for page in [0x80, 0x83] {
        let file = folder.join(format!("vpd_pg{page:02x}"));
        match lun.page(Some(page)) {
            Some(bytes) => {
                tree.file(file, bytes);
            }
            None => {
                tree.remove(file);
            }
        }
    }
    match lun.naa() {
        Some(naa) => {
            tree.value(folder.join("wwid"), format!("naa.{naa}"));
        }
        None => {
            tree.remove(folder.join("wwid"));
        }
    }
}

/// The disk driver takes a device, some time after it was found.
fn probe_disk(tree: &mut Tree, address: (TargetAddress, u64), generation: u64) {
    let found = tree.with::<Layer, _>(|layer, _| {
        let device = layer.devices.get(&address).filter(|d| d.generation == generation)?.clone();
        Some((device, layer.targets.get(&address.0)?.target.clone()))
    });
    let Some((device, target)) = found else { return };
    let name = tree.free_sd();
    let mut spec = DiskSpec::slot(&name, &target, address.1).below(&device.folder);
    if let Some(naa) = target.get(address.1).and_then(|lun| lun.naa()) {
        spec = spec.wwid(format!("3{naa}")).links([format!("scsi-3{naa}"), format!("wwn-0x{naa}")]);
    }
    tree.add_disk(spec);
    tree.with::<Layer, _>(|layer, _| {
        if let Some(device) = layer.devices.get_mut(&address) {
            device.disk = Some(name);
        }
    });
}

/// Finds the device that a file of sysfs belongs to.
fn with_device(
    tree: &mut Tree,
    write: &Write<'_>,
    act: impl FnOnce(&mut Tree, (TargetAddress, u64), Device) -> Answer<()>,
) -> Answer<()> {
    let name = write.above(0);
    let found = tree.with::<Layer, _>(|layer, _| {
        let mut all = layer.devices.iter();
        all.find(|(address, _)| name_of(**address) == name).map(|(a, d)| (*a, d.clone()))
    });
    let (address, device) = found.ok_or(ENODEV)?;
    act(tree, address, device)
}

/// A write to `delete`, or a transport that goes.
fn remove_device(tree: &mut Tree, address: (TargetAddress, u64)) -> Answer<()> {
    let device = tree.with::<Layer, _>(|layer, _| layer.devices.remove(&address)).ok_or(ENODEV)?;
    if let Some(disk) = device.disk {
        tree.remove_disk(&disk);
    }
    let name = name_of(address);
    tree.remove(device.folder);
    tree.remove(format!("/sys/class/scsi_device/{name}"));
    tree.remove(format!("/sys/bus/scsi/devices/{name}"));
    tree.emit();
    Ok(())
}

/// A write to `rescan`: the copies are made again.
fn refresh(tree: &mut Tree, address: (TargetAddress, u64), device: Device) -> Answer<()> {
    let target = tree.with::<Layer, _>(|layer, _| {
        layer.targets.get(&address.0).filter(|reach| reach.online).map(|r| r.target.clone())
    });
    // A path that is down answers nothing, and the copies stay.
    let Some(lun) = target.and_then(|target| target.get(address.1)) else { return Ok(()) };
    copy_pages(tree, &device.folder, &lun);
    if let Some(disk) = device.disk {
        tree.set_size(&disk, lun.size());
        if lun.is_read_only() {
            tree.set_read_only(&disk, true);
        }
    }
    tree.emit();
    Ok(())
}

/// A write to `state`.
fn set_state(tree: &mut Tree, write: &Write<'_>) -> Answer<()> {
    let state = write.text();
    let online = match state.as_str() {
        "running" => true,
        "offline" => false,
        _ => return Err(EINVAL),
    };
    with_device(tree, write, |tree, _, device| {
        tree.value(device.folder.join("state"), state);
        if let Some(disk) = device.disk {
            tree.set_online(&disk, online);
        }
        Ok(())
    })
}
