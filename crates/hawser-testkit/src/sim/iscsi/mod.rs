//! iSCSI: portals and targets, sessions in sysfs, the node database below `/etc/iscsi`, `iscsid` and
//! `iscsiadm`.
//!
//! As open-iscsi 2.1.8 on Debian 12 was seen to do it:
//! - a record that was made by hand is the file `nodes/IQN/IP,PORT`, one that discovery made is
//!   `nodes/IQN/IP,PORT,TPGT/IFACE`; login reads it, so settings may be written there directly;
//! - a portal that is silent, one that refuses and one without the target all end with exit code 8,
//!   after as many tries as the record allows; without any second try a target that is not there
//!   ends with 5 at once, and so does a wrong secret with 24;
//! - every session has a SCSI host of its own, whose number is never used again;
//! - without `node.session.scan = manual` login finds every volume of the target.

mod admin;
mod database;

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};

use super::scsi;
use crate::fake_host::kernel::{Target, Tree};
use crate::fake_host::{FakeHost, Kernel};

/// The sockets of this host, and that of the daemon there.
const SOCKETS: &str = "/proc/net/unix";
const LISTENING: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n\
    0000000000000000: 00000002 00000000 00010000 0001 01 20123 @ISCSIADM_ABSTRACT_NAMESPACE\n";

/// How a portal behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortalState {
    /// It takes connections.
    #[default]
    Open,
    /// Nothing listens.
    Refuses,
    /// Nothing answers.
    Silent,
}

/// An address and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Portal {
    address: IpAddr,
    port: u16,
}

impl Portal {
    /// `192.0.2.10`, `192.0.2.10:3260`, `[2001:db8::1]:3260`, each with or without `,tpgt`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.split(',').next()?;
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Some(Self { address, port: 3260 });
        }
        let (address, port) = text.rsplit_once(':')?;
        let address = address.trim_matches(['[', ']']).parse().ok()?;
        Some(Self { address, port: port.parse().ok()? })
    }

    /// As `iscsiadm` prints it.
    fn text(&self) -> String {
        match self.address {
            IpAddr::V4(address) => format!("{address}:{}", self.port),
            IpAddr::V6(address) => format!("[{address}]:{}", self.port),
        }
    }

    /// As the database has it in names of files.
    fn file_name(&self) -> String {
        format!("{},{}", self.address, self.port)
    }
}

/// A target at a portal.
#[derive(Clone)]
struct Export {
    portal: Portal,
    iqn: String,
    group: u32,
    luns: Target,
}

/// A session of this host.
#[derive(Clone)]
struct Session {
    iqn: String,
    portal: Portal,
    group: u32,
    transport: &'static str,
    host: u32,
}

/// What is beyond this host, and what this host has of it.
#[derive(Default)]
struct Layer {
    exports: Vec<Export>,
    portals: BTreeMap<Portal, PortalState>,
    chap: BTreeMap<String, (String, String)>,
    discovery: BTreeMap<Portal, (String, String)>,
    /// A portal lists the targets of all portals, not only its own.
    lists_all: bool,
    /// What takes connections of those who look whether anybody listens.
    listeners: Vec<TcpListener>,
    sessions: BTreeMap<u32, Session>,
    next_session: u32,
    next_host: u32,
    logins: usize,
    commands: usize,
}

/// Gives a host the modules, the daemon, its tool, and a name.
pub fn install(host: &FakeHost) {
    let kernel = host.kernel();
    scsi::install(kernel);
    for module in ["scsi_transport_iscsi", "libiscsi", "libiscsi_tcp", "iscsi_tcp"] {
        kernel.module(module);
    }
    for class in ["iscsi_host", "iscsi_session", "iscsi_connection", "iscsi_transport/tcp"] {
        kernel.folder(format!("/sys/class/{class}"));
    }
    kernel
        .file("/etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.1993-08.org.debian:01:fake\n")
        .file("/etc/iscsi/iscsid.conf", "node.startup = manual\n")
        .folder("/sys/devices/platform")
        .folder("/etc/iscsi/nodes")
        .folder("/etc/iscsi/send_targets")
        .folder("/etc/iscsi/ifaces")
        .folder("/run/lock/iscsi")
        .daemon("iscsid", 522)
        .file(SOCKETS, LISTENING)
        .on_logout(admin::logout_by_message)
        .on_reboot(|tree| {
            tree.with::<Layer, _>(|layer, tree| {
                layer.sessions.retain(|id, _| tree.exists(class_path(*id)));
            });
        });
    host.tool("iscsiadm", admin::run);
    host.only_looks(|call| call.method == "run" && admin::only_looks(&call.detail));
}

/// The daemon runs or not.
pub fn set_daemon(kernel: &Kernel, runs: bool) {
    if runs {
        kernel.daemon("iscsid", 522).file(SOCKETS, LISTENING);
    } else {
        kernel.remove_all("/proc/522").remove_all(SOCKETS);
    }
}

/// A storage system shows a target at a portal, such as `192.0.2.10:3260` or `[2001:db8::1]:3260`.
pub fn add_portal(kernel: &Kernel, portal: &str, iqn: &str, luns: &Target) {
    let portal = Portal::parse(portal).expect("a portal");
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            let group = 1 + layer.exports.iter().filter(|export| export.iqn == iqn).count() as u32;
            layer.exports.push(Export { portal, iqn: iqn.into(), group, luns: luns.clone() });
        });
    });
}

/// A portal of this machine that really takes connections, as long as the host lives: such as
/// `127.0.0.1:41237`.
pub fn listen(kernel: &Kernel) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let portal = listener.local_addr().expect("a bound socket").to_string();
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| layer.listeners.push(listener)));
    portal
}

/// A portal tells its targets only to who knows this.
pub fn set_discovery_chap(kernel: &Kernel, portal: &str, user: &str, password: &str) {
    let portal = Portal::parse(portal).expect("a portal");
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            layer.discovery.insert(portal, (user.into(), password.into()));
        });
    });
}

/// Every portal lists the targets of all portals, as LIO does it.
pub fn list_all(kernel: &Kernel) {
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| layer.lists_all = true));
}

/// A target lets in only who knows this.
pub fn set_chap(kernel: &Kernel, iqn: &str, user: &str, password: &str) {
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            layer.chap.insert(iqn.into(), (user.into(), password.into()));
        });
    });
}

/// How a portal behaves from now on; sessions through it lose their way or find it again.
pub fn set_portal(kernel: &Kernel, portal: &str, state: PortalState) {
    let portal = Portal::parse(portal).expect("a portal");
    kernel.edit(|tree| {
        let ids: Vec<u32> = tree.with::<Layer, _>(|layer, _| {
            layer.portals.insert(portal.clone(), state);
            let through = layer.sessions.iter().filter(|(_, session)| session.portal == portal);
            through.map(|(id, _)| *id).collect()
        });
        for id in ids {
            let online = state == PortalState::Open;
            let text = if online { "LOGGED_IN" } else { "FAILED" };
            tree.value(format!("{}/state", class_path(id)), text);
            let host = tree.with::<Layer, _>(|layer, _| layer.sessions[&id].host);
            scsi::set_online(tree, (host, 0, 0), online);
        }
    });
}

/// The sessions of this host: id, target and portal.
pub fn sessions(kernel: &Kernel) -> Vec<(u32, String, String)> {
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            let all = layer.sessions.iter();
            all.map(|(id, one)| (*id, one.iqn.clone(), one.portal.text())).collect()
        })
    })
}

/// How often somebody logged in, and how often `iscsiadm` was run.
pub fn counts(kernel: &Kernel) -> (usize, usize) {
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| (layer.logins, layer.commands)))
}

fn class_path(id: u32) -> String {
    format!("/sys/class/iscsi_session/session{id}")
}

/// The kernel has a session: its SCSI host, its files, and what a scan of it would find.
fn open_session(tree: &mut Tree, export: &Export, record: &database::Record) -> u32 {
    let (id, host, transport) = tree.with::<Layer, _>(|layer, _| {
        layer.logins += 1;
        layer.next_session += 1;
        layer.next_host += 1;
        let transport = if record.get("iface.transport_name") == "iser" { "iser" } else { "tcp" };
        let session = Session {
            iqn: export.iqn.clone(),
            portal: export.portal.clone(),
            group: export.group,
            transport,
            host: 32 + layer.next_host,
        };
        let host = session.host;
        layer.sessions.insert(layer.next_session, session);
        (layer.next_session, host, transport)
    });
    let folder = format!("/sys/devices/platform/host{host}");
    scsi::add_host(tree, host, &folder);
    let iscsi_host = format!("{folder}/iscsi_host/host{host}");
    tree.value(format!("{folder}/scsi_host/host{host}/proc_name"), format!("iscsi_{transport}"))
        .value(format!("{iscsi_host}/initiatorname"), "iqn.1993-08.org.debian:01:fake")
        .value(format!("{iscsi_host}/netdev"), "default")
        .link(format!("{iscsi_host}/device"), &folder)
        .link(format!("/sys/class/iscsi_host/host{host}"), &iscsi_host);
    let session = format!("{folder}/session{id}");
    let class = format!("{session}/iscsi_session/session{id}");
    tree.value(format!("{class}/targetname"), &export.iqn)
        .value(format!("{class}/tpgt"), export.group)
        .value(format!("{class}/ifacename"), record.get_or("iface.iscsi_ifacename", "default"))
        .value(format!("{class}/state"), "LOGGED_IN")
        .value(format!("{class}/recovery_tmo"), record.get_or(database::REPLACEMENT, "120"))
        .value(format!("{class}/username"), record.get_or(database::USER, "(null)"))
        .value(format!("{class}/creator"), "522")
        .link(format!("{class}/device"), &session)
        .link(class_path(id), &class);
    let connection = format!("{session}/connection{id}:0");
    let class = format!("{connection}/iscsi_connection/connection{id}:0");
    for field in ["address", "persistent_address"] {
        tree.value(format!("{class}/{field}"), export.portal.address);
    }
    for field in ["port", "persistent_port"] {
        tree.value(format!("{class}/{field}"), export.portal.port);
    }
    tree.link(format!("{class}/device"), &connection)
        .link(format!("/sys/class/iscsi_connection/connection{id}:0"), &class);
    scsi::add_target(tree, (host, 0, 0), &session, &export.luns);
    if record.get("node.session.scan") != "manual" {
        scsi::scan_for(tree, host, Some(0), Some(0), None);
    }
    tree.emit();
    id
}

/// The kernel lets go of a session and of all that came with it.
fn close_session(tree: &mut Tree, id: u32) {
    let Some(session) = tree.with::<Layer, _>(|layer, _| layer.sessions.remove(&id)) else {
        return;
    };
    scsi::remove_host(tree, session.host);
    tree.remove(class_path(id));
    tree.remove(format!("/sys/class/iscsi_connection/connection{id}:0"));
    tree.remove(format!("/sys/class/iscsi_host/host{}", session.host));
    tree.emit();
}
