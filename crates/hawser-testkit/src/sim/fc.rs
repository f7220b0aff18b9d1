//! Fibre Channel: adapters, remote ports and the targets behind them, on every kind of machine.
//!
//! As kernels 6.1 were seen to do it:
//! - a remote port that goes stays in sysfs, `Blocked` and then `Not Present`; its devices answer
//!   errors and stay too;
//! - `fc_transport` has an entry only for remote ports that are targets; others have the target
//!   number `-1`;
//! - no fabric login belongs to a volume: detaching removes devices and nothing else;
//! - on s390x, where the adapter does not scan by itself, a unit is added and removed by writing its
//!   64 bit number to `unit_add` and `unit_remove` of the remote port; `unit_remove` knows only what
//!   `unit_add` added, and a scan finds only that. A unit is a folder, whether the storage system
//!   has such a volume or not. With NPIV and `allow_lun_scan` a scan finds everything;
//! - on s390x a port that the driver has not heard of appears after a write to `port_rescan`.

use std::collections::{BTreeMap, BTreeSet};

use super::scsi;
use crate::fake_host::Kernel;
use crate::fake_host::kernel::errno::{EEXIST, EINVAL, ENODEV};
use crate::fake_host::kernel::{Answer, Target, Tree, Write};

/// How a remote port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// It answers.
    Online,
    /// It went a moment ago: input and output wait.
    Blocked,
    /// It is gone.
    NotPresent,
}

impl PortState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Online => "Online",
            Self::Blocked => "Blocked",
            Self::NotPresent => "Not Present",
        }
    }
}

/// An adapter of this host.
#[derive(Clone)]
struct Adapter {
    /// Its folder in sysfs, below that of the bus.
    folder: String,
    /// On s390x: the bus id.
    bus_id: Option<String>,
    /// On s390x: volumes are found without being named.
    finds: bool,
    ports: u32,
}

impl Adapter {
    fn wants_units(&self) -> bool {
        self.bus_id.is_some() && !self.finds
    }
}

/// A remote port as one adapter sees it.
#[derive(Clone)]
struct Remote {
    folder: String,
    address: scsi::TargetAddress,
    /// Added by hand, on s390x.
    units: BTreeSet<u64>,
}

#[derive(Default)]
struct Layer {
    adapters: BTreeMap<u32, Adapter>,
    remotes: BTreeMap<(u32, String), Remote>,
    /// Ports of the fabric that drivers ask for only when they are told to.
    unheard: Vec<(u32, String, Target)>,
}

/// Gives a host the transport, without any adapter.
pub fn install(kernel: &Kernel) {
    scsi::install(kernel);
    kernel.module("scsi_transport_fc");
    for class in ["fc_host", "fc_remote_ports", "fc_transport"] {
        kernel.folder(format!("/sys/class/{class}"));
    }
    kernel
        .on_write("/sys/devices/css0/**/0x*/unit_add", |tree, write| unit(tree, write, true))
        .on_write("/sys/devices/css0/**/0x*/unit_remove", |tree, write| unit(tree, write, false))
        .on_write("/sys/devices/css0/**/port_rescan", |tree, write| {
            port_rescan(tree, &write.above(0))
        })
        .on_reboot(|tree| {
            tree.with::<Layer, _>(|layer, tree| {
                for ((adapter, _), remote) in &mut layer.remotes {
                    remote.units.clear();
                    if layer.adapters[adapter].wants_units() {
                        scsi::set_only(tree, remote.address, Some(BTreeSet::new()));
                    }
                }
            });
        });
}

/// An adapter on a PCI bus, online; WWNs are 16 hexadecimal digits.
pub fn add_adapter(kernel: &Kernel, number: u32, wwpn: &str) {
    let folder = format!("/sys/devices/pci0000:00/0000:00:0{number}.0/host{number}");
    kernel.edit(|tree| add(tree, number, wwpn, folder, None));
}

/// An adapter of a ppc64 machine: a virtual one, without PCI.
pub fn add_vio_adapter(kernel: &Kernel, number: u32, wwpn: &str) {
    let folder = format!("/sys/devices/vio/3000000{number}/host{number}");
    kernel.edit(|tree| add(tree, number, wwpn, folder, None));
}

/// An adapter of an s390x machine, with its bus id such as `0.0.1940`.
pub fn add_ccw_adapter(kernel: &Kernel, number: u32, wwpn: &str, bus_id: &str) {
    let bus = format!("/sys/devices/css0/0.0.000{number}/{bus_id}");
    kernel
        .module("zfcp")
        .link(format!("/sys/bus/ccw/drivers/zfcp/{bus_id}"), &bus)
        .link(format!("/sys/bus/ccw/devices/{bus_id}"), &bus)
        .value(format!("{bus}/online"), 1)
        .file(format!("{bus}/port_rescan"), "")
        .file("/sys/module/zfcp/parameters/allow_lun_scan", "N\n");
    let folder = format!("{bus}/host{number}");
    kernel.edit(|tree| add(tree, number, wwpn, folder, Some(bus_id.into())));
}

/// An adapter of an s390x machine is a virtual port of its own, and scans are let through or not.
/// Before it sees any port.
pub fn set_npiv(kernel: &Kernel, number: u32, allow_lun_scan: bool) {
    let allow = if allow_lun_scan { "Y\n" } else { "N\n" };
    kernel
        .value(format!("/sys/class/fc_host/host{number}/port_type"), "NPIV VPORT")
        .value(format!("/sys/class/fc_host/host{number}/permanent_port_name"), "0xc05076ffe5000001")
        .file("/sys/module/zfcp/parameters/allow_lun_scan", allow);
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            if let Some(adapter) = layer.adapters.get_mut(&number) {
                adapter.finds = allow_lun_scan;
            }
        });
    });
}

fn add(tree: &mut Tree, number: u32, wwpn: &str, folder: String, bus_id: Option<String>) {
    scsi::add_host(tree, number, &folder);
    let class = format!("{folder}/fc_host/host{number}");
    tree.value(format!("{class}/port_name"), format!("0x{wwpn}"))
        .value(format!("{class}/node_name"), format!("0x20{}", &wwpn[2..]))
        .value(format!("{class}/port_state"), "Online")
        .value(format!("{class}/port_type"), "NPort (fabric via point-to-point)")
        .value(format!("{class}/speed"), "16 Gbit")
        .file(format!("{class}/issue_lip"), "")
        .link(format!("{class}/device"), &folder)
        .link(format!("/sys/class/fc_host/host{number}"), &class);
    let adapter = Adapter { folder, bus_id, finds: false, ports: 0 };
    tree.with::<Layer, _>(|layer, _| layer.adapters.insert(number, adapter));
}

/// An adapter is online or not.
pub fn set_adapter(kernel: &Kernel, number: u32, online: bool) {
    let state = if online { "Online" } else { "Linkdown" };
    kernel.value(format!("/sys/class/fc_host/host{number}/port_state"), state);
}

/// The fabric lets an adapter see a remote port that is a target.
pub fn add_remote_port(kernel: &Kernel, adapter: u32, wwpn: &str, target: &Target) {
    kernel.edit(|tree| show_port(tree, adapter, wwpn, target));
}

/// The fabric has a port of which the driver of an s390x adapter has not heard yet.
pub fn add_unheard_port(kernel: &Kernel, adapter: u32, wwpn: &str, target: &Target) {
    let port = (adapter, wwpn.to_owned(), target.clone());
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| layer.unheard.push(port)));
}

/// A write to `port_rescan` of the adapter with this bus id.
fn port_rescan(tree: &mut Tree, bus_id: &str) -> Answer<()> {
    let ports = tree.with::<Layer, _>(|layer, _| {
        let ours = |adapter: u32| layer.adapters[&adapter].bus_id.as_deref() == Some(bus_id);
        let (ours, others) = layer.unheard.drain(..).partition(|port| ours(port.0));
        layer.unheard = others;
        let ports: Vec<(u32, String, Target)> = ours;
        ports
    });
    for (adapter, wwpn, target) in ports {
        // The fabric answers a moment later.
        tree.later(1, move |tree| show_port(tree, adapter, &wwpn, &target));
    }
    Ok(())
}

/// The same from within a behaviour.
pub fn show_port(tree: &mut Tree, adapter: u32, wwpn: &str, target: &Target) {
    let (its, port) = tree.with::<Layer, _>(|layer, _| {
        let its = layer.adapters.get_mut(&adapter).expect("an adapter");
        its.ports += 1;
        (its.clone(), its.ports - 1)
    });
    let name = format!("rport-{adapter}:0-{port}");
    let folder = format!("{}/{name}", its.folder);
    let class = format!("{folder}/fc_remote_ports/{name}");
    let address = (adapter, 0, port);
    tree.value(format!("{class}/port_name"), format!("0x{wwpn}"))
        .value(format!("{class}/node_name"), format!("0x20{}", &wwpn[2..]))
        .value(format!("{class}/port_state"), "Online")
        .value(format!("{class}/roles"), "FCP Target")
        .value(format!("{class}/scsi_target_id"), port)
        .value(format!("{class}/dev_loss_tmo"), 60)
        .value(format!("{class}/fast_io_fail_tmo"), "off")
        .link(format!("{class}/device"), &folder)
        .link(format!("/sys/class/fc_remote_ports/{name}"), &class);
    scsi::add_target(tree, address, &folder, target);
    let scsi_target = format!("target{adapter}:0:{port}");
    let class = format!("{folder}/{scsi_target}/fc_transport/{scsi_target}");
    tree.value(format!("{class}/port_name"), format!("0x{wwpn}"))
        .value(format!("{class}/node_name"), format!("0x20{}", &wwpn[2..]))
        .link(format!("{class}/device"), format!("{folder}/{scsi_target}"))
        .link(format!("/sys/class/fc_transport/{scsi_target}"), &class);
    if let Some(bus_id) = &its.bus_id {
        let unit = format!("/sys/bus/ccw/drivers/zfcp/{bus_id}/0x{wwpn}");
        for file in ["unit_add", "unit_remove"] {
            tree.file(format!("{unit}/{file}"), "");
        }
    }
    if its.wants_units() {
        scsi::set_only(tree, address, Some(BTreeSet::new()));
    }
    let remote = Remote { folder, address, units: BTreeSet::new() };
    tree.with::<Layer, _>(|layer, _| layer.remotes.insert((adapter, wwpn.into()), remote));
    tree.emit();
}

/// A remote port goes or comes back; its devices fail meanwhile.
pub fn set_remote_port(kernel: &Kernel, adapter: u32, wwpn: &str, state: PortState) {
    kernel.edit(|tree| {
        let key = (adapter, wwpn.to_owned());
        let remote = tree.with::<Layer, _>(|layer, _| layer.remotes[&key].clone());
        let name = remote.folder.rsplit('/').next().unwrap_or_default().to_owned();
        tree.value(format!("/sys/class/fc_remote_ports/{name}/port_state"), state.as_str());
        scsi::set_online(tree, remote.address, state == PortState::Online);
    });
}

/// The address of a remote port behind an adapter.
pub fn address_of(kernel: &Kernel, adapter: u32, wwpn: &str) -> Option<scsi::TargetAddress> {
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            layer.remotes.get(&(adapter, wwpn.to_owned())).map(|remote| remote.address)
        })
    })
}

/// The number that the kernel makes of the eight bytes of a LUN: pairs of bytes, the first lowest.
fn number_of(fcp_lun: &str) -> Answer<u64> {
    let digits = fcp_lun.strip_prefix("0x").filter(|digits| digits.len() == 16).ok_or(EINVAL)?;
    let bytes = u64::from_str_radix(digits, 16).map_err(|_| EINVAL)?;
    let pair = |nth: u32| bytes >> (48 - 16 * nth) & 0xffff;
    Ok((0..4).map(|nth| pair(nth) << (16 * nth)).sum())
}

/// A write to `unit_add` or `unit_remove`.
fn unit(tree: &mut Tree, write: &Write<'_>, adds: bool) -> Answer<()> {
    let lun = number_of(&write.text())?;
    let wwpn = write.above(0).trim_start_matches("0x").to_owned();
    let bus_id = write.above(1);
    let (address, only) = tree.with::<Layer, _>(|layer, _| {
        let of = |adapter: &Adapter| adapter.bus_id.as_deref() == Some(&bus_id);
        let (number, adapter) = layer.adapters.iter().find(|(_, its)| of(its)).ok_or(ENODEV)?;
        let remote = layer.remotes.get_mut(&(*number, wwpn)).ok_or(ENODEV)?;
        match adds {
            true if !remote.units.insert(lun) => return Err(EEXIST),
            // What was not added here is not known here.
            false if !remote.units.remove(&lun) => return Err(EINVAL),
            true | false => {}
        }
        Ok((remote.address, adapter.wants_units().then(|| remote.units.clone())))
    })?;
    let folder = write.place.with_file_name(write.text());
    scsi::set_only(tree, address, only);
    if adds {
        tree.value(folder.join("status"), "0x54000000").value(folder.join("failed"), 0);
        scsi::scan_for(tree, address.0, Some(address.1), Some(address.2), Some(lun));
    } else {
        tree.remove(folder);
        scsi::remove_lun(tree, address, lun);
    }
    tree.emit();
    Ok(())
}
