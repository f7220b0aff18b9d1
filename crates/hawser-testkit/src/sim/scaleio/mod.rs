//! ScaleIO (PowerFlex), from its specification alone: the REST gateway, which maps volumes to
//! clients, and the client of this host, which shows what is mapped to it.
//!
//! The gateway is a real HTTPS server on a port of its own; everything that the specification does
//! not list is refused with 404. The client answers two ioctls of `/dev/scini`, shows disks
//! `scinia`, `scinib`, … with links `emc-vol-MDM-VOLUME`, and brings the mapped ones back some time
//! after a reboot.

mod gateway;
mod http;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::fake_host::FakeHost;
use crate::fake_host::kernel::{DiskSpec, Kernel, Lun, Tree};

/// This host to the gateway.
pub const GUID: &str = "3d4a1f52-93c6-4e0b-a0c1-5b7f9d2e6a10";

/// The management cluster, in the names of links.
pub const MDM: &str = "1f2e3d4c5b6a7980";

/// Who may log in.
pub const USER: &str = "admin";

/// With this password.
pub const PASSWORD: &str = "correct horse battery";

const QUERY_GUID: u32 = 0x610e;
const RESCAN: u32 = 0x610a;
const ENOTTY: i32 = 25;
const EINVAL: i32 = 22;

/// How the gateway behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As specified.
    #[default]
    Works,
    /// Takes connections and says nothing.
    Silent,
    /// Does what it is asked and hangs up without an answer.
    HangsUp,
    /// Answers these bytes instead of HTTP.
    Babbles(Vec<u8>),
    /// Answers this status and body to everything but a login.
    Answers(u16, String),
}

/// A volume as the gateway knows it.
struct Volume {
    id: String,
    name: String,
    lun: Lun,
    /// The clients that it is mapped to.
    mapped: Vec<String>,
    limits: Option<Value>,
}

#[derive(Default)]
struct State {
    volumes: Vec<Volume>,
    tokens: Vec<String>,
    issued: usize,
    requests: Vec<String>,
    manner: Manner,
    new_codes: bool,
    no_limits: bool,
    late_at_boot: bool,
    /// The client has not found its cluster since it was booted.
    lost: bool,
    /// The disks of volumes, by id; a name is not used twice.
    disks: BTreeMap<String, String>,
}

/// What the gateway and the client share.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gateway; it ends when it is dropped.
pub struct Gateway {
    shared: Shared,
    kernel: Kernel,
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Gateway {
    /// Starts one for a host that has the client.
    pub fn start(host: &FakeHost) -> Self {
        let shared = Shared::default();
        install_client(host, &shared);
        let ended = Arc::new(AtomicBool::new(false));
        let address = gateway::serve(shared.clone(), host.kernel().clone(), ended.clone());
        Self { shared, kernel: host.kernel().clone(), address, ended }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What signs for it, as PEM.
    pub fn certificate() -> &'static str {
        http::certificate()
    }

    /// A volume.
    pub fn add_volume(&self, id: &str, name: &str, lun: &Lun) {
        let (id, name, lun) = (id.to_owned(), name.to_owned(), lun.clone());
        let volume = Volume { id, name, lun, mapped: Vec::new(), limits: None };
        self.shared.lock().volumes.push(volume);
    }

    /// Deletes a volume.
    pub fn remove_volume(&self, id: &str) {
        self.shared.lock().volumes.retain(|volume| volume.id != id);
    }

    /// Gives a volume another name.
    pub fn rename_volume(&self, id: &str, name: &str) {
        let mut state = self.shared.lock();
        if let Some(volume) = state.volumes.iter_mut().find(|volume| volume.id == id) {
            name.clone_into(&mut volume.name);
        }
    }

    /// Somebody else maps a volume to this host.
    pub fn map(&self, id: &str) {
        gateway::map(&self.shared, &self.kernel, id, GUID);
    }

    /// Somebody else takes a volume from this host.
    pub fn unmap(&self, id: &str) {
        gateway::unmap(&self.shared, &self.kernel, id, GUID);
    }

    /// True when a volume is mapped to this host.
    pub fn is_mapped(&self, id: &str) -> bool {
        let state = self.shared.lock();
        state.volumes.iter().any(|v| v.id == id && v.mapped.iter().any(|guid| guid == GUID))
    }

    /// The limits that were set for a volume.
    pub fn limits(&self, id: &str) -> Option<Value> {
        self.shared.lock().volumes.iter().find(|v| v.id == id).and_then(|v| v.limits.clone())
    }

    /// No token that was given out is good any more.
    pub fn expire_tokens(&self) {
        self.shared.lock().tokens.clear();
    }

    /// Everything that was asked: `POST /api/…`.
    pub fn requests(&self) -> Vec<String> {
        self.shared.lock().requests.clone()
    }

    /// From now on it behaves like this.
    pub fn set_manner(&self, manner: Manner) {
        self.shared.lock().manner = manner;
    }

    /// Answers with the error codes of version 4.
    pub fn use_new_codes(&self) {
        self.shared.lock().new_codes = true;
    }

    /// After a boot the client finds its cluster only when somebody talks to it.
    pub fn late_at_boot(&self) {
        self.shared.lock().late_at_boot = true;
    }

    /// Refuses to limit anything.
    pub fn refuse_limits(&self) {
        self.shared.lock().no_limits = true;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // It waits for the next connection; this is the last one.
        let _ = std::net::TcpStream::connect(self.address);
    }
}

/// The client: `/dev/scini`, and what a reboot brings back.
fn install_client(host: &FakeHost, shared: &Shared) {
    let kernel = host.kernel();
    kernel.module("scini").file("/dev/scini", "");
    let state = shared.clone();
    kernel.on_control("/dev/scini", move |tree, write| match (write.request, write.data) {
        (QUERY_GUID, data) if data == [0; 24] => {
            if std::mem::take(&mut state.lock().lost) {
                return_all(tree, &state);
            }
            let guid = uuid::Uuid::parse_str(GUID).expect("a constant");
            Ok([[0; 8].as_slice(), guid.as_bytes()].concat())
        }
        (RESCAN, data) if data == [0; 8] => {
            rescan(tree, &state);
            Ok(vec![0; 8])
        }
        (QUERY_GUID | RESCAN, _) => Err(EINVAL),
        _ => Err(ENOTTY),
    });
    host.only_looks(|call| call.detail == format!("/dev/scini {QUERY_GUID:#x}"));
    let state = shared.clone();
    kernel.on_reboot(move |tree| {
        let late = {
            let mut state = state.lock();
            state.lost = state.late_at_boot;
            state.lost
        };
        if !late {
            return_all(tree, &state);
        }
    });
}

/// Brings the disks back that are mapped to this host.
fn return_all(tree: &mut Tree, shared: &Shared) {
    let mapped: Vec<String> = {
        let state = shared.lock();
        let ours = |volume: &&Volume| volume.mapped.iter().any(|guid| guid == GUID);
        state.volumes.iter().filter(ours).map(|volume| volume.id.clone()).collect()
    };
    for id in mapped {
        // The client has to find its cluster first.
        show(tree, shared, &id, 3);
    }
}

/// Shows the disk of a volume after so many waits, if it is still mapped then.
fn show(tree: &mut Tree, shared: &Shared, id: &str, waits: usize) {
    let (shared, id) = (shared.clone(), id.to_owned());
    tree.later(waits, move |tree| {
        let found = {
            let mut state = shared.lock();
            let count = u8::try_from(state.disks.len()).unwrap_or(25).min(25);
            let next = format!("scini{}", char::from(b'a' + count));
            let name = state.disks.entry(id.clone()).or_insert(next).clone();
            let volume = state.volumes.iter().find(|volume| volume.id == id);
            let ours = volume.filter(|volume| volume.mapped.iter().any(|guid| guid == GUID));
            ours.map(|volume| (name, volume.lun.clone()))
        };
        let Some((name, lun)) = found else { return };
        if !tree.disk_names().contains(&name) {
            let link = format!("emc-vol-{MDM}-{id}");
            tree.add_disk(DiskSpec::new(name, &lun).links([link]));
        }
    });
}

/// Takes the disk of a volume away after one wait, if it is not mapped again by then.
fn hide(tree: &mut Tree, shared: &Shared, id: &str) {
    let (shared, id) = (shared.clone(), id.to_owned());
    tree.later(1, move |tree| {
        let name = {
            let state = shared.lock();
            let volume = state.volumes.iter().find(|volume| volume.id == id);
            let ours = volume.is_some_and(|v| v.mapped.iter().any(|guid| guid == GUID));
            if ours { None } else { state.disks.get(&id).cloned() }
        };
        if let Some(name) = name {
            tree.remove_disk(&name);
        }
    });
}

/// The client asks how large everything is.
fn rescan(tree: &mut Tree, shared: &Shared) {
    let sizes: Vec<(String, u64)> = {
        let state = shared.lock();
        let size =
            |volume: &Volume| Some((state.disks.get(&volume.id)?.clone(), volume.lun.size()));
        state.volumes.iter().filter_map(size).collect()
    };
    tree.later(1, move |tree| {
        for (name, size) in sizes {
            if tree.disk_names().contains(&name) {
                tree.set_size(&name, size);
            }
        }
    });
}
