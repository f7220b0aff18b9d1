//! NVMe subsystems in the guest's kernel, made by hand in configfs.
//!
//! ```no_run
//! use hawser_live::lab::guest::nvmet;
//!
//! let disk = nvmet::Disk::new(64);
//! let mut subsystem = nvmet::Subsystem::new("nqn.2024-01.com.example:s1");
//! subsystem.add_namespace(1, &disk, "0b9d5a10-1111-4222-8333-444455556666");
//! let port = nvmet::Port::tcp("127.0.1.1:4420".parse().unwrap());
//! port.show(&subsystem);
//! ```
//!
//! A port that is dropped shows nothing any more, and a subsystem that is dropped is gone with its
//! controllers; a disk goes once no subsystem has it any more.

use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{cmd, modprobe};

const TOP: &str = "/sys/kernel/config/nvmet";

/// Numbers of ports and files.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The folder of the target, with its module loaded.
#[track_caller]
fn top() -> PathBuf {
    super::number();
    if !Path::new(TOP).exists() {
        modprobe(&["nvmet"]);
    }
    PathBuf::from(TOP)
}

#[track_caller]
fn make(path: &Path) {
    if let Err(error) = fs::create_dir(path) {
        panic!("making {}: {error}", path.display());
    }
}

#[track_caller]
fn put(path: &Path, value: &str) {
    if let Err(error) = fs::write(path, value) {
        panic!("writing {value:?} to {}: {error}", path.display());
    }
}

/// Removes an object or a link, where it is there.
fn remove(path: &Path) {
    let removed = if path.is_symlink() { fs::remove_file(path) } else { fs::remove_dir(path) };
    let Err(error) = removed else { return };
    let gone = error.kind() == std::io::ErrorKind::NotFound;
    // While a test fails its own message matters more than what is left.
    if !gone && !std::thread::panicking() {
        panic!("removing {}: {error}", path.display());
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// What a namespace shows: a loop device over memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Backing>);

#[derive(Debug)]
struct Backing {
    file: PathBuf,
    device: PathBuf,
}

impl Disk {
    /// With blocks of 512 bytes.
    #[track_caller]
    pub fn new(mib: u64) -> Self {
        Self::with_blocks(mib, 512)
    }

    /// With blocks of this many bytes.
    #[track_caller]
    pub fn with_blocks(mib: u64, block: u32) -> Self {
        super::number();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = PathBuf::from(format!("/tmp/nvmet-{number}.img"));
        let made = File::create_new(&file).and_then(|made| made.set_len(mib << 20));
        made.expect("a new file in memory");
        let block = block.to_string();
        let device = cmd("losetup").args(["--find", "--show", "-b", &block]).arg(&file).ok();
        Self(Arc::new(Backing { file, device: device.trim().into() }))
    }

    /// Makes it larger. Subsystems are told with [`Subsystem::revalidate`].
    #[track_caller]
    pub fn grow(&self, mib: u64) {
        let opened = OpenOptions::new().write(true).open(&self.0.file);
        opened.and_then(|file| file.set_len(mib << 20)).expect("a file in memory grows");
        cmd("losetup").arg("-c").arg(&self.0.device).ok();
    }

    /// What is on it, seen from behind: past the host side and the network.
    #[track_caller]
    pub fn read(&self, offset: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let file = File::open(&self.0.file).expect("what is behind the disk is there");
        file.read_exact_at(&mut bytes, offset).expect("it can be read");
        bytes
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        cmd("losetup").arg("-d").arg(&self.device).run();
        let _ = fs::remove_file(&self.file);
    }
}

/// A subsystem.
#[derive(Debug)]
pub struct Subsystem {
    nqn: String,
    object: PathBuf,
    hosts: Vec<PathBuf>,
    disks: Vec<(u32, Disk)>,
}

impl Subsystem {
    /// One that lets every host in.
    #[track_caller]
    pub fn new(nqn: &str) -> Self {
        let object = top().join("subsystems").join(nqn);
        make(&object);
        put(&object.join("attr_allow_any_host"), "1");
        Self { nqn: nqn.to_owned(), object, hosts: Vec::new(), disks: Vec::new() }
    }

    /// Its name.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    fn namespace(&self, nsid: u32) -> PathBuf {
        self.object.join("namespaces").join(nsid.to_string())
    }

    /// Shows a disk under a number; hosts are told.
    #[track_caller]
    pub fn add_namespace(&mut self, nsid: u32, disk: &Disk, uuid: &str) -> &mut Self {
        let object = self.namespace(nsid);
        make(&object);
        put(&object.join("device_path"), &disk.0.device.display().to_string());
        put(&object.join("device_uuid"), uuid);
        put(&object.join("enable"), "1");
        self.disks.push((nsid, disk.clone()));
        self
    }

    /// The same with a NGUID beside the UUID.
    #[track_caller]
    pub fn set_nguid(&mut self, nsid: u32, nguid: &str) -> &mut Self {
        let object = self.namespace(nsid);
        put(&object.join("enable"), "0");
        put(&object.join("device_nguid"), nguid);
        put(&object.join("enable"), "1");
        self
    }

    /// Takes a namespace away; hosts are told.
    #[track_caller]
    pub fn remove_namespace(&mut self, nsid: u32) -> &mut Self {
        let object = self.namespace(nsid);
        put(&object.join("enable"), "0");
        remove(&object);
        self.disks.retain(|(number, _)| *number != nsid);
        self
    }

    /// Gives the number of a namespace to another disk.
    #[track_caller]
    pub fn swap_namespace(&mut self, nsid: u32, disk: &Disk, uuid: &str) -> &mut Self {
        self.remove_namespace(nsid).add_namespace(nsid, disk, uuid)
    }

    /// Lets a namespace see that its disk has grown; hosts are told.
    #[track_caller]
    pub fn revalidate(&self, nsid: u32) {
        put(&self.namespace(nsid).join("revalidate_size"), "1");
    }

    /// Puts a namespace into a group of access; see [`Port::set_access`].
    #[track_caller]
    pub fn set_group(&self, nsid: u32, group: u32) {
        put(&self.namespace(nsid).join("ana_grpid"), &group.to_string());
    }

    /// Lets only the named hosts in, from now on this one.
    #[track_caller]
    pub fn allow(&mut self, host_nqn: &str) -> &mut Self {
        let host = top().join("hosts").join(host_nqn);
        if !host.exists() {
            make(&host);
        }
        put(&self.object.join("attr_allow_any_host"), "0");
        let link = self.object.join("allowed_hosts").join(host_nqn);
        symlink(&host, &link).expect("a host is let in");
        self.hosts.push(host);
        self
    }

    /// Lets this host in only with this key; with the second one, it asks for proof itself.
    #[track_caller]
    pub fn require_key(&mut self, host_nqn: &str, key: &str, own: Option<&str>) -> &mut Self {
        let host = top().join("hosts").join(host_nqn);
        make(&host);
        put(&host.join("dhchap_key"), key);
        if let Some(own) = own {
            put(&host.join("dhchap_ctrl_key"), own);
        }
        self.allow(host_nqn)
    }
}

impl Drop for Subsystem {
    fn drop(&mut self) {
        for port in entries(&Path::new(TOP).join("ports")) {
            remove(&port.join("subsystems").join(&self.nqn));
        }
        for namespace in entries(&self.object.join("namespaces")) {
            let _ = fs::write(namespace.join("enable"), "0");
            remove(&namespace);
        }
        for host in entries(&self.object.join("allowed_hosts")) {
            remove(&host);
        }
        remove(&self.object);
        for host in &self.hosts {
            remove(host);
        }
    }
}

/// Where subsystems are reached.
#[derive(Debug)]
pub struct Port {
    object: PathBuf,
}

impl Port {
    /// Over TCP.
    #[track_caller]
    pub fn tcp(address: SocketAddr) -> Self {
        modprobe(&["nvmet_tcp"]);
        Self::ip("tcp", address)
    }

    /// Over RDMA; the address is that of a network card with an RDMA device.
    #[track_caller]
    pub fn rdma(address: SocketAddr) -> Self {
        modprobe(&["nvmet_rdma"]);
        Self::ip("rdma", address)
    }

    #[track_caller]
    fn ip(transport: &str, address: SocketAddr) -> Self {
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        Self::make(transport, family, &address.ip().to_string(), Some(address.port()))
    }

    /// Over Fibre Channel; the address is that of a target port, such as `nn-0x…:pn-0x…`.
    #[track_caller]
    pub fn fc(address: &str) -> Self {
        modprobe(&["nvmet_fc"]);
        Self::make("fc", "fc", address, None)
    }

    /// Within the kernel.
    #[track_caller]
    pub fn loopback() -> Self {
        modprobe(&["nvme_loop"]);
        Self::make("loop", "", "", None)
    }

    #[track_caller]
    fn make(transport: &str, family: &str, address: &str, service: Option<u16>) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let object = top().join("ports").join(number.to_string());
        make(&object);
        put(&object.join("addr_trtype"), transport);
        if !family.is_empty() {
            put(&object.join("addr_adrfam"), family);
            put(&object.join("addr_traddr"), address);
        }
        if let Some(service) = service {
            put(&object.join("addr_trsvcid"), &service.to_string());
        }
        Self { object }
    }

    /// Shows a subsystem.
    #[track_caller]
    pub fn show(&self, subsystem: &Subsystem) -> &Self {
        let link = self.object.join("subsystems").join(&subsystem.nqn);
        if let Err(error) = symlink(&subsystem.object, &link) {
            panic!("showing {} at {}: {error}", subsystem.nqn, self.object.display());
        }
        self
    }

    /// Shows a subsystem no more; its controllers here end.
    pub fn hide(&self, subsystem: &Subsystem) {
        remove(&self.object.join("subsystems").join(&subsystem.nqn));
    }

    /// What it says of the access to the namespaces of a group: `optimized`, `non-optimized`,
    /// `inaccessible`. Every namespace is in group 1 at first.
    #[track_caller]
    pub fn set_access(&self, group: u32, access: &str) {
        let object = self.object.join("ana_groups").join(group.to_string());
        if !object.exists() {
            make(&object);
        }
        put(&object.join("ana_state"), access);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        for subsystem in entries(&self.object.join("subsystems")) {
            remove(&subsystem);
        }
        for group in entries(&self.object.join("ana_groups")) {
            if group.file_name().is_some_and(|name| name != "1") {
                remove(&group);
            }
        }
        remove(&self.object);
    }
}

/// The controllers that the host side has of a subsystem.
pub fn controllers(nqn: &str) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let is_of = |path: &PathBuf| {
        fs::read_to_string(path.join("subsysnqn")).is_ok_and(|text| text.trim() == nqn)
    };
    let mut names: Vec<String> = entries(Path::new("/sys/class/nvme"))
        .iter()
        .filter(|p| is_of(p))
        .filter_map(name)
        .collect();
    names.sort();
    names
}
