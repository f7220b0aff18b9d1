use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::port::Host;
use hawser_core::port::kernel::NbdAttach;
use hawser_live::lab::guest::{Daemon, cmd, modprobe, wait_for};
use rustix::io::Errno;

use crate::{LIMIT, errno, host};

const MIB: u64 = 1 << 20;

/// A server with one export of 16 MiB.
struct Server {
    _daemon: Daemon,
    socket: PathBuf,
    file: PathBuf,
}

impl Server {
    #[track_caller]
    fn new(name: &str) -> Self {
        modprobe(&["nbd"]);
        let socket = PathBuf::from(format!("/tmp/{name}.sock"));
        let file = PathBuf::from(format!("/tmp/{name}.img"));
        File::create(&file).and_then(|file| file.set_len(16 * MIB)).unwrap();
        let daemon = cmd("qemu-nbd")
            .args(["--persistent", "--shared=8", "--format=raw", "--export-name=data", "-k"])
            .arg(&socket)
            .arg(&file)
            .start();
        wait_for("NBD server", LIMIT, || UnixStream::connect(&socket).ok());
        Self { _daemon: daemon, socket, file }
    }

    /// A connection with the handshake done, the size of the export and its flags.
    #[track_caller]
    fn connect(&self) -> (OwnedFd, u64, u64) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut hello = [0; 18];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..16], *b"NBDMAGICIHAVEOPT");
        // Fixed newstyle and no zeroes, then the export by its name.
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        let mut option = b"IHAVEOPT".to_vec();
        option.extend(1_u32.to_be_bytes());
        option.extend(4_u32.to_be_bytes());
        option.extend(b"data");
        stream.write_all(&option).unwrap();
        let mut export = [0; 10];
        stream.read_exact(&mut export).unwrap();
        let size = u64::from_be_bytes(export[..8].try_into().unwrap());
        let flags = u64::from(u16::from_be_bytes(export[8..].try_into().unwrap()));
        stream.set_read_timeout(None).unwrap();
        (stream.into(), size, flags)
    }

    #[track_caller]
    fn attach(&self, connections: usize, backend: &str) -> NbdAttach {
        let links: Vec<_> = (0..connections).map(|_| self.connect()).collect();
        let (size, server_flags) = (links[0].1, links[0].2);
        NbdAttach {
            sockets: links.into_iter().map(|(socket, ..)| socket).collect(),
            size,
            block_size: 512,
            server_flags,
            timeout: Duration::from_secs(30),
            dead_connection_timeout: Duration::from_secs(5),
            backend: backend.into(),
        }
    }
}

fn sysfs(index: u32, file: &str) -> String {
    let path = format!("/sys/block/nbd{index}/{file}");
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn node(index: u32) -> PathBuf {
    Path::new("/dev").join(format!("nbd{index}"))
}

#[tokio::test]
async fn a_device_is_attached_used_grown_and_taken_away() {
    let server = Server::new("nbd-life");
    let host = host();
    let nbd = host.nbd();

    let index = nbd.attach(server.attach(2, "volume-1")).await.unwrap();

    assert_eq!(sysfs(index, "size"), (16 * MIB / 512).to_string());
    assert_eq!(sysfs(index, "backend"), "volume-1");
    let disk = host.disks().open(&node(index)).await.unwrap();
    let file = File::options().write(true).open(node(index)).unwrap();
    file.write_all_at(&[5; 4096], MIB).unwrap();
    disk.flush(LIMIT).await.unwrap();
    let mut behind = [0; 4096];
    File::open(&server.file).unwrap().read_exact_at(&mut behind, MIB).unwrap();
    assert_eq!(behind, [5; 4096]);
    assert_eq!(disk.read(MIB, 4096, LIMIT).await.unwrap(), [5; 4096]);
    drop((disk, file));

    nbd.reconfigure(index, 32 * MIB, Vec::new()).await.unwrap();
    wait_for("larger device", LIMIT, || {
        (sysfs(index, "size") == (32 * MIB / 512).to_string()).then_some(())
    });

    nbd.detach(index).await.unwrap();
    wait_for("end of the device", LIMIT, || (sysfs(index, "size") == "0").then_some(()));
    nbd.detach(index).await.unwrap();
    wait_for("end of its owner", LIMIT, || sysfs(index, "pid").is_empty().then_some(()));
}

#[tokio::test]
async fn attaches_at_once_get_devices_of_their_own() {
    let server = Server::new("nbd-many");
    let host = host();
    let nbd = host.nbd();

    let all = (0..6).map(|number| nbd.attach(server.attach(1, &format!("volume-{number}"))));
    let indices = futures_util::future::try_join_all(all).await.unwrap();

    let mut distinct = indices.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 6, "{indices:?}");
    for (number, index) in indices.iter().enumerate() {
        assert_eq!(sysfs(*index, "backend"), format!("volume-{number}"));
        nbd.detach(*index).await.unwrap();
    }
    for index in indices {
        wait_for("end of the device", LIMIT, || (sysfs(index, "size") == "0").then_some(()));
    }
}

#[tokio::test]
async fn a_device_goes_on_with_a_new_connection_after_its_own_was_lost() {
    let server = Server::new("nbd-again");
    let host = host();
    let nbd = host.nbd();
    let mut attach = server.attach(1, "volume-1");
    attach.dead_connection_timeout = Duration::from_secs(60);
    let held = attach.sockets[0].try_clone().unwrap();
    let index = nbd.attach(attach).await.unwrap();
    let disk = host.disks().open(&node(index)).await.unwrap();
    disk.read(0, 4096, LIMIT).await.unwrap();

    rustix::net::shutdown(&held, rustix::net::Shutdown::Both).unwrap();
    drop(held);
    // The kernel notices the loss by itself, and takes no new connection before.
    let mut read = Err(Errno::AGAIN);
    for _ in 0..40 {
        let (socket, size, _) = server.connect();
        nbd.reconfigure(index, size, vec![socket]).await.unwrap();
        if disk.read(4096, 4096, Duration::from_secs(1)).await.is_ok() {
            read = Ok(());
            break;
        }
    }

    assert_eq!(read, Ok(()));
    drop(disk);
    nbd.detach(index).await.unwrap();
    wait_for("end of the device", LIMIT, || (sysfs(index, "size") == "0").then_some(()));
}

#[tokio::test]
async fn what_the_driver_refuses_has_its_number() {
    modprobe(&["nbd"]);
    let host = host();
    let nbd = host.nbd();

    assert_eq!(errno(nbd.reconfigure(3, MIB, Vec::new()).await), Errno::INVAL, "not attached");
    assert_eq!(errno(nbd.detach(9999).await), Errno::INVAL, "no such device");
    let not_a_socket = OwnedFd::from(File::open("/dev/null").unwrap());
    let attach = NbdAttach {
        sockets: vec![not_a_socket],
        size: MIB,
        block_size: 512,
        server_flags: 1,
        timeout: Duration::from_secs(30),
        dead_connection_timeout: Duration::ZERO,
        backend: "none".into(),
    };
    assert_eq!(errno(nbd.attach(attach).await), Errno::NOTSOCK);
}
