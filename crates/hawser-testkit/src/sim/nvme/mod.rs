//! NVMe over Fabrics: the kernel's host side, and subsystems that it reaches.
//!
//! As kernels 6.1 and 6.12 were seen to do it:
//! - making a controller is synchronous; its namespaces appear a wait later;
//! - an unknown subsystem and a host that is not let in are the same refusal;
//! - one host name with two host ids is refused;
//! - with native multipath a namespace is one device over hidden ones, which is there only once some
//!   way is open to input and output; without it each controller has a device of its own;
//! - ids and sizes in sysfs are copies. When a namespace's number is given to another namespace they
//!   tell of the old one until the controller looks again; it then drops the old one, and finds the
//!   new one when it looks once more. Reads and Identify come from the new one all the time;
//! - `uuid` shows the NGUID where there is no UUID; `ana_state` keeps its last value while the
//!   controller reconnects.

mod ids;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::fake_host::kernel::errno::{EALREADY, ECONNREFUSED, EINVAL, EIO, ENODEV, ETIMEDOUT};
use crate::fake_host::kernel::{Answer, DiskSpec, Kernel, Target, Tree, Write};

pub use ids::{Ids, namespace, namespace_with};
use ids::{ids_of, show_ids, wwid};

/// `ENOKEY`: the target wants a key, and there is none.
const ENOKEY: i32 = 126;
/// `EKEYREJECTED`.
const EKEYREJECTED: i32 = 129;

/// Where controllers are in sysfs.
const CONTROLLERS: &str = "/sys/devices/virtual/nvme-fabrics/ctl";

/// How a portal behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Portal {
    /// It takes connections.
    #[default]
    Open,
    /// Nothing listens.
    Refused,
    /// Nothing answers; the kernel gives up after 3 seconds.
    Silent,
}

/// What the NVMe layer of a fake host knows, and what it can reach.
#[derive(Default)]
struct Layer {
    native: bool,
    subsystems: BTreeMap<String, Subsystem>,
    portals: BTreeMap<String, Portal>,
    controllers: BTreeMap<u32, Controller>,
    made: usize,
}

#[derive(Clone, Default)]
struct Subsystem {
    namespaces: Target,
    /// By `traddr:trsvcid`.
    portals: BTreeSet<String>,
    /// Every host when empty.
    hosts: BTreeSet<String>,
    key: Option<String>,
    /// Access by portal and namespace; `optimized` when not said. `None` for all without ANA.
    access: Option<BTreeMap<(String, u64), String>>,
    instance: u32,
}

#[derive(Clone)]
struct Controller {
    nqn: String,
    host_nqn: String,
    host_id: String,
    portal: String,
    state: &'static str,
    /// Namespaces that it has, by number: what was read of each when it was found.
    found: BTreeMap<u64, Ids>,
}

/// Gives the kernel its NVMe layer, with native multipath or without, and the host its name.
pub fn install(kernel: &Kernel, native: bool) {
    kernel
        .module("nvme_core")
        .module("nvme_fabrics")
        .module("nvme_tcp")
        .module("nvme_auth")
        .folder("/sys/class/nvme")
        .folder("/sys/class/nvme-subsystem")
        .folder(CONTROLLERS)
        .value("/sys/module/nvme_core/parameters/multipath", if native { "Y" } else { "N" })
        .value(
            "/etc/nvme/hostnqn",
            "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555",
        )
        .value("/etc/nvme/hostid", "11111111-2222-4333-8444-555555555555")
        .file("/dev/nvme-fabrics", "");
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| layer.native = native));
    kernel
        .on_exchange("/dev/nvme-fabrics", |tree, write| connect(tree, &write.text()))
        .on_write(&format!("{CONTROLLERS}/nvme*/delete_controller"), |tree, write| {
            let instance = instance_of(write)?;
            delete(tree, instance);
            Ok(())
        })
        .on_write(&format!("{CONTROLLERS}/nvme*/rescan_controller"), |tree, write| {
            let instance = instance_of(write)?;
            tree.later(1, move |tree| scan(tree, instance));
            Ok(())
        })
        .on_write(&format!("{CONTROLLERS}/nvme*/ctrl_loss_tmo"), |tree, write| {
            let shown = if write.text() == "-1" { "off".to_owned() } else { write.text() };
            tree.value(write.place, shown);
            Ok(())
        })
        .on_reboot(|tree| {
            tree.with::<Layer, _>(|layer, tree| {
                layer
                    .controllers
                    .retain(|instance, _| tree.exists(format!("{CONTROLLERS}/nvme{instance}")));
            });
        });
}

fn instance_of(write: &Write<'_>) -> Answer<u32> {
    write.above(0).strip_prefix("nvme").and_then(|text| text.parse().ok()).ok_or(ENODEV)
}

/// Adds a subsystem at portals such as `10.0.0.1:4420`.
pub fn add_subsystem(kernel: &Kernel, nqn: &str, namespaces: &Target, portals: &[&str]) {
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            let instance = u32::try_from(layer.subsystems.len()).expect("few subsystems");
            let subsystem = Subsystem {
                namespaces: namespaces.clone(),
                portals: portals.iter().map(|portal| (*portal).to_owned()).collect(),
                instance,
                ..Subsystem::default()
            };
            layer.subsystems.insert(nqn.to_owned(), subsystem);
            for portal in portals {
                layer.portals.insert((*portal).to_owned(), Portal::Open);
            }
        });
    });
}

/// Lets only these hosts in.
pub fn allow(kernel: &Kernel, nqn: &str, hosts: &[&str]) {
    change(kernel, nqn, |subsystem| {
        subsystem.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    });
}

/// Lets only those in who have this key.
pub fn require_key(kernel: &Kernel, nqn: &str, key: &str) {
    change(kernel, nqn, |subsystem| subsystem.key = Some(key.to_owned()));
}

fn change(kernel: &Kernel, nqn: &str, act: impl FnOnce(&mut Subsystem)) {
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            act(layer.subsystems.get_mut(nqn).expect("a subsystem that was added"));
        });
    });
}

/// Lets a portal behave otherwise from now on, for new controllers.
pub fn set_portal(kernel: &Kernel, portal: &str, to: Portal) {
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| layer.portals.insert(portal.to_owned(), to));
    });
}

/// Cuts a portal off, or lets it come back: controllers there reconnect, or are live again.
pub fn set_reachable(kernel: &Kernel, portal: &str, reachable: bool) {
    set_portal(kernel, portal, if reachable { Portal::Open } else { Portal::Silent });
    kernel.edit(|tree| {
        let instances = with_controllers(tree, |controller| controller.portal == portal);
        for instance in instances {
            set_state(tree, instance, if reachable { "live" } else { "connecting" });
            if reachable {
                scan(tree, instance);
            }
        }
    });
}

/// What a portal says of the access to a namespace; hosts are told.
pub fn set_access(kernel: &Kernel, nqn: &str, portal: &str, nsid: u64, access: &str) {
    change(kernel, nqn, |subsystem| {
        let all = subsystem.access.get_or_insert_with(BTreeMap::new);
        all.insert((portal.to_owned(), nsid), access.to_owned());
    });
    tell(kernel, nqn);
}

/// Tells hosts that namespaces of a subsystem have changed: their controllers look.
pub fn tell(kernel: &Kernel, nqn: &str) {
    kernel.edit(|tree| {
        for instance in with_controllers(tree, |c| c.nqn == nqn && c.state == "live") {
            scan(tree, instance);
        }
    });
}

/// How many controllers were made so far.
pub fn made(kernel: &Kernel) -> usize {
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| layer.made))
}

/// Makes a controller by hand, as nvme-cli does; answers its name.
pub fn connect_by_hand(kernel: &Kernel, options: &str) -> String {
    let answer = kernel.edit(|tree| connect(tree, options)).expect("a controller");
    kernel.edit(Tree::settle);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let number = text.split([',', '=']).nth(1).expect("an instance").to_owned();
    format!("nvme{number}")
}

fn with_controllers(tree: &mut Tree, pick: impl Fn(&Controller) -> bool) -> Vec<u32> {
    tree.with::<Layer, _>(|layer, _| {
        layer.controllers.iter().filter(|(_, c)| pick(c)).map(|(instance, _)| *instance).collect()
    })
}

/// A write to `/dev/nvme-fabrics`.
fn connect(tree: &mut Tree, text: &str) -> Answer<Vec<u8>> {
    let mut options = BTreeMap::new();
    for option in text.split(',').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        options.insert(key, value);
    }
    let known = [
        "nqn",
        "transport",
        "traddr",
        "trsvcid",
        "host_traddr",
        "host_iface",
        "hostnqn",
        "hostid",
        "queue_size",
        "nr_io_queues",
        "ctrl_loss_tmo",
        "reconnect_delay",
        "keep_alive_tmo",
        "fast_io_fail_tmo",
        "dhchap_secret",
        "dhchap_ctrl_secret",
        "hdr_digest",
        "data_digest",
    ];
    if options.keys().any(|key| !known.contains(key)) {
        return Err(EINVAL);
    }
    let get = |key: &str| options.get(key).map(|value| (*value).to_owned()).ok_or(EINVAL);
    if get("transport")? != "tcp" {
        return Err(ENODEV);
    }
    let (nqn, host_nqn, host_id) = (get("nqn")?, get("hostnqn")?, get("hostid")?);
    let (address, service) = (get("traddr")?, options.get("trsvcid").copied().unwrap_or("8009"));
    let portal = format!("{address}:{service}");
    let (silent, allowed) = tree.with::<Layer, _>(|layer, _| {
        let allowed = layer.may_connect(&nqn, &portal, &host_nqn, &host_id, &options);
        (layer.portals.get(&portal) == Some(&Portal::Silent), allowed)
    });
    if silent {
        tree.takes(std::time::Duration::from_secs(3));
    }
    allowed?;
    let mut shown = format!("traddr={address},trsvcid={service}");
    for key in ["host_traddr", "host_iface"] {
        if let Some(value) = options.get(key) {
            shown.push_str(&format!(",{key}={value}"));
        }
    }
    shown.push_str(",src_addr=10.0.0.99");
    let loss = match options.get("ctrl_loss_tmo").copied() {
        None => "600",
        Some("-1") => "off",
        Some(other) => other,
    };
    let delay = options.get("reconnect_delay").copied().unwrap_or("10");
    let controller = Controller {
        nqn: nqn.clone(),
        host_nqn,
        host_id,
        portal,
        state: "live",
        found: BTreeMap::new(),
    };
    let instance = add(tree, controller, &shown, loss, delay);
    tree.later(1, move |tree| scan(tree, instance));
    Ok(format!("instance={instance},cntlid={}\n", instance + 1).into_bytes())
}

impl Layer {
    fn may_connect(
        &self,
        nqn: &str,
        portal: &str,
        host_nqn: &str,
        host_id: &str,
        options: &BTreeMap<&str, &str>,
    ) -> Answer<()> {
        let conflict = |c: &Controller| (c.host_nqn == host_nqn) != (c.host_id == host_id);
        if self.controllers.values().any(conflict) {
            return Err(EINVAL);
        }
        let same = |c: &Controller| c.nqn == nqn && c.portal == portal && c.host_nqn == host_nqn;
        if self.controllers.values().any(same) {
            return Err(EALREADY);
        }
        match self.portals.get(portal) {
            None | Some(Portal::Silent) => return Err(ETIMEDOUT),
            Some(Portal::Refused) => return Err(ECONNREFUSED),
            Some(Portal::Open) => {}
        }
        let subsystem = self.subsystems.get(nqn).ok_or(EIO)?;
        let let_in = subsystem.hosts.is_empty() || subsystem.hosts.contains(host_nqn);
        if !let_in || !subsystem.portals.contains(portal) {
            return Err(EIO);
        }
        match (&subsystem.key, options.get("dhchap_secret")) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(ENOKEY),
            (Some(key), Some(given)) if key == given => Ok(()),
            (Some(_), Some(_)) => Err(EKEYREJECTED),
        }
    }
}

fn folder(instance: u32) -> PathBuf {
    PathBuf::from(format!("{CONTROLLERS}/nvme{instance}"))
}

fn add(tree: &mut Tree, controller: Controller, address: &str, loss: &str, delay: &str) -> u32 {
    let instance = tree.with::<Layer, _>(|layer, _| {
        layer.made += 1;
        (0..).find(|n| !layer.controllers.contains_key(n)).expect("a free number")
    });
    let at = folder(instance);
    tree.value(at.join("subsysnqn"), &controller.nqn)
        .value(at.join("transport"), "tcp")
        .value(at.join("address"), address)
        .value(at.join("state"), controller.state)
        .value(at.join("hostnqn"), &controller.host_nqn)
        .value(at.join("hostid"), &controller.host_id)
        .value(at.join("cntlid"), instance + 1)
        .value(at.join("ctrl_loss_tmo"), loss)
        .value(at.join("reconnect_delay"), delay)
        .file(at.join("delete_controller"), "")
        .file(at.join("rescan_controller"), "")
        .link(format!("/sys/class/nvme/nvme{instance}"), &at);
    tree.with::<Layer, _>(|layer, _| layer.controllers.insert(instance, controller));
    tree.emit();
    instance
}

fn set_state(tree: &mut Tree, instance: u32, state: &'static str) {
    tree.with::<Layer, _>(|layer, _| {
        if let Some(controller) = layer.controllers.get_mut(&instance) {
            controller.state = state;
        }
    });
    tree.value(folder(instance).join("state"), state);
    update_heads(tree);
}

fn delete(tree: &mut Tree, instance: u32) {
    let numbers: Vec<u64> = tree.with::<Layer, _>(|layer, _| {
        layer
            .controllers
            .get(&instance)
            .map_or_else(Vec::new, |c| c.found.keys().copied().collect())
    });
    for nsid in numbers {
        drop_way(tree, instance, nsid);
    }
    tree.with::<Layer, _>(|layer, _| layer.controllers.remove(&instance));
    tree.remove(folder(instance));
    tree.remove(format!("/sys/class/nvme/nvme{instance}"));
    update_heads(tree);
    tree.emit();
}

/// What a controller does when it looks.
fn scan(tree: &mut Tree, instance: u32) {
    let Some((controller, subsystem)) = tree.with::<Layer, _>(|layer, _| {
        let controller = layer.controllers.get(&instance)?.clone();
        let subsystem = layer.subsystems.get(&controller.nqn)?.clone();
        Some((controller, subsystem))
    }) else {
        return;
    };
    if controller.state != "live" {
        return;
    }
    for nsid in subsystem.namespaces.numbers() {
        let Some(lun) = subsystem.namespaces.get(nsid) else { continue };
        let ids = ids_of(&lun);
        match controller.found.get(&nsid) {
            // Dropped now, and found when it looks again.
            Some(known) if *known != ids => drop_way(tree, instance, nsid),
            Some(_) => {
                for name in device_names(tree, instance, nsid) {
                    tree.set_size(&name, lun.size());
                }
                set_ana(tree, instance, nsid, &subsystem, &controller.portal);
            }
            None => add_way(tree, instance, nsid, ids, &subsystem, &controller.portal),
        }
    }
    let numbers = subsystem.namespaces.numbers();
    for nsid in controller.found.keys().filter(|nsid| !numbers.contains(nsid)) {
        drop_way(tree, instance, *nsid);
    }
    update_heads(tree);
}

/// The hidden device of a way and the one above it, or the one device without native multipath.
fn names(native: bool, subsystem: u32, instance: u32, nsid: u64) -> (String, Option<String>) {
    if native {
        let way = format!("nvme{subsystem}c{instance}n{nsid}");
        (way, Some(format!("nvme{subsystem}n{nsid}")))
    } else {
        (format!("nvme{instance}n{nsid}"), None)
    }
}

fn names_of(tree: &mut Tree, instance: u32, nsid: u64) -> (String, Option<String>) {
    tree.with::<Layer, _>(|layer, _| {
        let subsystem = layer
            .controllers
            .get(&instance)
            .and_then(|c| layer.subsystems.get(&c.nqn))
            .map_or(0, |subsystem| subsystem.instance);
        names(layer.native, subsystem, instance, nsid)
    })
}

fn device_names(tree: &mut Tree, instance: u32, nsid: u64) -> Vec<String> {
    let (way, head) = names_of(tree, instance, nsid);
    let all = tree.disk_names();
    [Some(way), head].into_iter().flatten().filter(|name| all.contains(name)).collect()
}

fn add_way(
    tree: &mut Tree,
    instance: u32,
    nsid: u64,
    ids: Ids,
    subsystem: &Subsystem,
    portal: &str,
) {
    let (way, head) = names_of(tree, instance, nsid);
    let spec = DiskSpec::slot(&way, &subsystem.namespaces, nsid);
    let spec = if head.is_some() { spec.hidden() } else { spec.wwid(wwid(&ids)) };
    tree.add_disk(spec);
    show_ids(tree, &way, nsid, &ids);
    tree.link(folder(instance).join(&way), format!("/sys/block/{way}"));
    tree.with::<Layer, _>(|layer, _| {
        if let Some(controller) = layer.controllers.get_mut(&instance) {
            controller.found.insert(nsid, ids);
        }
    });
    set_ana(tree, instance, nsid, subsystem, portal);
}

fn set_ana(tree: &mut Tree, instance: u32, nsid: u64, subsystem: &Subsystem, portal: &str) {
    let Some(all) = &subsystem.access else { return };
    let (way, _) = names_of(tree, instance, nsid);
    let access = all.get(&(portal.to_owned(), nsid)).map_or("optimized", String::as_str);
    tree.value(format!("/sys/block/{way}/ana_state"), access);
}

fn drop_way(tree: &mut Tree, instance: u32, nsid: u64) {
    let (way, _) = names_of(tree, instance, nsid);
    tree.remove(folder(instance).join(&way));
    tree.remove_disk(&way);
    tree.with::<Layer, _>(|layer, _| {
        if let Some(controller) = layer.controllers.get_mut(&instance) {
            controller.found.remove(&nsid);
        }
    });
    update_heads(tree);
}

/// Heads are there while they have ways, and work while one of these does.
fn update_heads(tree: &mut Tree) {
    let (native, all): (bool, Vec<(u32, Controller, Subsystem)>) =
        tree.with::<Layer, _>(|layer, _| {
            let with = |(instance, controller): (&u32, &Controller)| {
                let subsystem = layer.subsystems.get(&controller.nqn)?.clone();
                Some((*instance, controller.clone(), subsystem))
            };
            (layer.native, layer.controllers.iter().filter_map(with).collect())
        });
    let mut heads: BTreeMap<String, (bool, u64, Ids, Target)> = BTreeMap::new();
    for (instance, controller, subsystem) in &all {
        for (nsid, ids) in &controller.found {
            let (way, head) = names(native, subsystem.instance, *instance, *nsid);
            let access = tree.text(format!("/sys/block/{way}/ana_state"));
            let open = ["", "optimized", "non-optimized"].contains(&access.as_str());
            let works = controller.state == "live" && open;
            if tree.disk_names().contains(&way) {
                tree.set_online(&way, works);
            }
            let Some(head) = head else { continue };
            let entry = (false, *nsid, ids.clone(), subsystem.namespaces.clone());
            heads.entry(head).or_insert(entry).0 |= works;
        }
    }
    let there: Vec<String> = tree
        .disk_names()
        .into_iter()
        .filter(|name| native && name.starts_with("nvme") && !name[4..].contains('c'))
        .collect();
    for name in there.iter().filter(|name| !heads.contains_key(*name)) {
        tree.remove_disk(name);
    }
    for (name, (works, nsid, ids, target)) in heads {
        if there.contains(&name) {
            tree.set_online(&name, works);
        } else if works {
            tree.add_disk(DiskSpec::slot(&name, &target, nsid));
            show_ids(tree, &name, nsid, &ids);
        }
    }
}
