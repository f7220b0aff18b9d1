use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hawser_core::port::Host;
use hawser_core::port::kernel::{NamespaceFacts, Register, ReservationKind, ReservationStep};
use hawser_live::lab::guest::{cmd, modprobe};
use rustix::io::Errno;
use uuid::Uuid;

use crate::{LIMIT, errno, host};

const TOP: &str = "/sys/kernel/config/nvmet";

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A namespace of the kernel's own target, without a network; gone when dropped.
struct Namespace {
    nqn: String,
    uuid: Uuid,
    file: PathBuf,
    device: String,
    node: PathBuf,
    /// The target knows reservations.
    reserves: bool,
}

impl Namespace {
    #[track_caller]
    fn new() -> Self {
        modprobe(&["nvmet", "nvme_loop"]);
        let nqn = format!("nqn.2014-08.com.example:{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let uuid = Uuid::new_v4();
        let file = PathBuf::from(format!("/tmp/nvme-{uuid}.img"));
        fs::File::create(&file).and_then(|file| file.set_len(24 << 20)).unwrap();
        let device =
            cmd("losetup").args(["--find", "--show", "--sector-size=4096"]).arg(&file).ok();
        let (subsystem, port) = places(&nqn);
        let namespace = subsystem.join("namespaces/7");
        fs::create_dir_all(&namespace).unwrap();
        put(&subsystem.join("attr_allow_any_host"), "1");
        put(&namespace.join("device_path"), device.trim());
        put(&namespace.join("device_uuid"), &uuid.to_string());
        let reserves = namespace.join("resv_enable").exists();
        if reserves {
            put(&namespace.join("resv_enable"), "1");
        }
        put(&namespace.join("enable"), "1");
        fs::create_dir_all(&port).unwrap();
        put(&port.join("addr_trtype"), "loop");
        symlink(&subsystem, port.join("subsystems").join(&nqn)).unwrap();
        let node = connected(&nqn, uuid);
        Self { nqn, uuid, file, device: device.trim().to_owned(), node, reserves }
    }
}

/// Connects and answers the node. On a busy machine the namespace of a controller over `loop` has
/// failed to appear at all, for a reason that is not known (a missed keep-alive would explain it): then
/// it is connected again, and what the kernel said is shown should the test fail.
#[track_caller]
fn connected(nqn: &str, uuid: Uuid) -> PathBuf {
    for _ in 0..3 {
        cmd("nvme").args(["connect", "-t", "loop", "-k", "120", "-n", nqn]).ok();
        let begun = Instant::now();
        while begun.elapsed() < LIMIT / 3 {
            if let Some(node) = node_of(uuid) {
                return node;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("{}", cmd("nvme").args(["list-subsys"]).run().stdout);
        println!("{}", cmd("sh").args(["-c", "dmesg | tail -n 20"]).run().stdout);
        cmd("nvme").args(["disconnect", "-n", nqn]).run();
    }
    panic!("no namespace");
}

fn node_of(uuid: Uuid) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/block").ok()?.flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let name = names.find(|name| {
        let found = fs::read_to_string(format!("/sys/block/{name}/uuid"));
        found.is_ok_and(|found| found.trim() == uuid.to_string())
    })?;
    Some(Path::new("/dev").join(name)).filter(|node| node.exists())
}

fn places(nqn: &str) -> (PathBuf, PathBuf) {
    let top = Path::new(TOP);
    (top.join("subsystems").join(nqn), top.join("ports/7"))
}

#[track_caller]
fn put(path: &Path, value: &str) {
    if let Err(error) = fs::write(path, value) {
        panic!("writing {value:?} to {}: {error}", path.display());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let (subsystem, port) = places(&self.nqn);
        cmd("nvme").args(["disconnect", "-n", &self.nqn]).run();
        let _ = fs::remove_file(port.join("subsystems").join(&self.nqn));
        let _ = fs::remove_dir(port);
        let _ = fs::remove_dir(subsystem.join("namespaces/7"));
        let _ = fs::remove_dir(subsystem);
        cmd("losetup").arg("-d").arg(&self.device).run();
        let _ = fs::remove_file(&self.file);
    }
}

#[tokio::test]
async fn a_namespace_describes_itself() {
    let namespace = Namespace::new();
    let host = host();
    let disk = host.disks().open(&namespace.node).await.unwrap();

    let identity = disk.identify_namespace(NamespaceFacts::Format).await.unwrap();

    assert_eq!(identity.len(), 4096);
    let blocks = u64::from_le_bytes(identity[..8].try_into().unwrap());
    let format = usize::from(identity[26] & 0x0f);
    let shift = identity[128 + 4 * format + 2];
    assert_eq!(blocks << shift, 24 << 20);
    let tool = cmd("nvme").args(["id-ns", "--raw-binary"]).arg(&namespace.node).run();
    assert!(tool.status.success(), "{}", tool.stderr);
    // Its output was decoded as text, so what is not ASCII is lost.
    assert_eq!(String::from_utf8_lossy(&identity), tool.stdout, "the same as by its tool");
    let ids = disk.identify_namespace(NamespaceFacts::Ids).await.unwrap();
    let descriptor = [&[3, 16, 0, 0], &namespace.uuid.as_bytes()[..]].concat();
    assert!(ids.windows(20).any(|window| window == descriptor), "{:02x?}", &ids[..64]);
    assert_eq!(errno(disk.inquiry(Some(0x83)).await), Errno::NOTTY);
}

#[tokio::test]
async fn reservations_of_a_namespace_work_where_its_target_knows_them() {
    let namespace = Namespace::new();
    let host = host();
    let disk = host.disks().open(&namespace.node).await.unwrap();
    let kind = ReservationKind::WriteExclusiveRegistrants;
    if !namespace.reserves {
        // What the target answers then has to come through as a refusal.
        let refused = errno(disk.reservation().await);
        assert!([Errno::OPNOTSUPP, Errno::INVAL].contains(&refused), "{refused:?}");
        let refused = errno(disk.reserve(&ReservationStep::Register { key: 5 }).await);
        assert!([Errno::OPNOTSUPP, Errno::INVAL, Errno::IO].contains(&refused), "{refused:?}");
        let refused = errno(disk.reserve(&ReservationStep::Register { key: 0 }).await);
        assert!([Errno::OPNOTSUPP, Errno::INVAL].contains(&refused), "{refused:?}");
        hawser_testkit::skip("the target of this kernel (before 6.13) has no reservations");
        return;
    }

    for key in [4, 5, 5] {
        disk.reserve(&ReservationStep::Register { key }).await.unwrap();
    }
    disk.reserve(&ReservationStep::Reserve { key: 5, kind }).await.unwrap();
    let seen = disk.reservation().await.unwrap();
    assert_eq!(seen.held, Some(kind));
    assert_eq!(seen.registered, [Register { key: 5, holder: true }]);
    disk.reserve(&ReservationStep::Release { key: 5, kind }).await.unwrap();
    for _ in 0..2 {
        disk.reserve(&ReservationStep::Register { key: 0 }).await.unwrap();
    }
    let free = disk.reservation().await.unwrap();
    assert_eq!((free.registered.len(), free.held), (0, None));
}
