use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hawser_core::port::Host;
use hawser_core::port::kernel::{KernelError, MapTarget};
use hawser_live::lab::guest::{self, cmd, modprobe, settle, wait_for};
use rustix::io::Errno;

use crate::scsi::Shared;
use crate::{LIMIT, errno, host};

/// A map made by hand; gone when dropped.
struct Map {
    name: &'static str,
}

impl Map {
    #[track_caller]
    fn new(name: &'static str, table: &str) -> Self {
        modprobe(&["dm_mod"]);
        cmd("dmsetup").args(["create", name]).input(table).ok();
        settle();
        Self { name }
    }

    fn node(&self) -> PathBuf {
        Path::new("/dev/mapper").join(self.name)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.node().exists() {
            cmd("dmsetup").args(["remove", "--force", "--retry", self.name]).run();
        }
    }
}

fn target(start: u64, length: u64, kind: &str, parameters: &str) -> MapTarget {
    MapTarget { start, length, kind: kind.into(), parameters: parameters.into() }
}

#[tokio::test]
async fn a_map_tells_its_table_and_status_and_is_removed_once_it_is_closed() {
    let shared = Shared::new(1);
    let host = host();
    let maps = host.maps();
    let device = shared.node(0).display();
    let map = Map::new(
        "kernel-linear",
        &format!("0 2048 linear {device} 0\n2048 4096 linear {device} 8192\n"),
    );

    let table = maps.table(map.name).await.unwrap();
    let status = maps.status(map.name).await.unwrap();
    let text = cmd("dmsetup").args(["table", map.name]).ok();

    let lines: Vec<String> = table
        .iter()
        .map(|line| format!("{} {} {} {}\n", line.start, line.length, line.kind, line.parameters))
        .collect();
    assert_eq!(lines.concat(), text, "dmsetup reads the same");
    assert_eq!(table.len(), 2);
    let expected = [target(0, 2048, "linear", ""), target(2048, 4096, "linear", "")];
    assert_eq!(status, expected);

    let open = fs::File::open(map.node()).unwrap();
    assert_eq!(errno(maps.remove(map.name).await), Errno::BUSY);
    assert_eq!(maps.table(map.name).await.unwrap().len(), 2, "it is not put down for later");
    drop(open);
    maps.remove(map.name).await.unwrap();
    assert_eq!(errno(maps.table(map.name).await), Errno::NXIO);
    assert_eq!(errno(maps.remove(map.name).await), Errno::NXIO);
    wait_for("end of the link", LIMIT, || (!map.node().is_symlink()).then_some(()));
}

#[tokio::test]
async fn a_table_that_is_longer_than_a_first_look_comes_whole() {
    let shared = Shared::new(1);
    let device = shared.node(0).display();
    let table: String =
        (0..2000).map(|line| format!("{} 8 linear {device} {}\n", line * 8, line * 8)).collect();
    let map = Map::new("kernel-long", &table);
    let host = host();

    let read = host.maps().table(map.name).await.unwrap();
    let status = host.maps().status(map.name).await.unwrap();

    assert_eq!((read.len(), status.len()), (2000, 2000));
    assert_eq!(read[1999].start, 1999 * 8);
    assert!(read[1999].parameters.ends_with(" 15992"), "{:?}", read[1999]);
    host.maps().remove(map.name).await.unwrap();
}

#[tokio::test]
async fn what_no_map_understands_is_refused_with_a_number() {
    let shared = Shared::new(1);
    let map = Map::new("kernel-deaf", &format!("0 2048 linear {} 0\n", shared.node(0).display()));
    let host = host();
    let maps = host.maps();

    assert_eq!(errno(maps.message(map.name, "fail_if_no_path").await), Errno::INVAL);
    assert_eq!(errno(maps.message("kernel-absent", "fail_if_no_path").await), Errno::NXIO);
    assert_eq!(errno(maps.status("").await), Errno::INVAL);
    maps.remove(map.name).await.unwrap();
}

/// The worst case of a detach: every path is gone and the map keeps what was written.
#[tokio::test]
async fn a_queueing_map_without_a_path_answers_and_its_flush_fails_once_it_is_told_to() {
    let shared = Shared::new(1);
    modprobe(&["dm_multipath", "dm_round_robin"]);
    let device = shared.node(0).display();
    let map = Map::new(
        "kernel-queue",
        &format!("0 8192 multipath 1 queue_if_no_path 0 1 1 round-robin 0 1 1 {device} 1\n"),
    );
    let host = host();
    let maps = host.maps();
    let active = maps.status(map.name).await.unwrap();
    assert_eq!(active[0].kind, "multipath");
    let number = active[0].parameters.split(' ').find(|word| word.contains(':')).unwrap();
    assert!(active[0].parameters.contains(&format!("{number} A ")), "{active:?}");
    let disk = host.disks().open(&map.node()).await.unwrap();
    let writer = OpenOptions::new().write(true).open(map.node()).unwrap();

    maps.message(map.name, &format!("fail_path {number}")).await.unwrap();
    writer.write_all_at(&[1; 65536], 0).unwrap();
    let late = disk.flush(Duration::from_secs(2)).await;
    assert!(matches!(late, Err(KernelError::Late { .. })), "{late:?}");

    let begun = Instant::now();
    let failed = maps.status(map.name).await.unwrap();
    let table = maps.table(map.name).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(failed[0].parameters.contains(&format!("{number} F ")), "{failed:?}");
    assert!(table[0].parameters.contains("queue_if_no_path"), "{table:?}");
    assert_eq!(errno(maps.remove(map.name).await), Errno::BUSY);
    let late = disk.flush(Duration::from_secs(1)).await;
    assert!(matches!(late, Err(KernelError::Late { .. })), "{late:?}");

    maps.message(map.name, "fail_if_no_path").await.unwrap();
    assert_eq!(
        errno(disk.flush(LIMIT).await),
        Errno::IO,
        "what was written is lost, and it says so"
    );
    drop((disk, writer));
    // The disk is closed on a thread, and udev looks at it after its writer.
    settle();
    let until = Instant::now() + LIMIT;
    while let Err(error) = maps.remove(map.name).await {
        assert_eq!(error.errno(), Some(Errno::BUSY.raw_os_error()), "{error:?}");
        assert!(Instant::now() < until, "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn multipathd_is_asked_through_its_socket() {
    let host = host();
    let maps = host.maps();
    let absent = maps.multipathd("show daemon", LIMIT).await;
    assert_eq!(errno(absent), Errno::CONNREFUSED);

    let daemon = guest::multipathd();
    let said = maps.multipathd("show daemon", LIMIT).await.unwrap();
    assert!(said.contains(&daemon.pid().to_string()) && said.contains("idle"), "{said}");
    let status = maps.multipathd("show status", LIMIT).await.unwrap();
    assert!(status.contains("path checker states"), "{status}");
    let config = maps.multipathd("show config", LIMIT).await.unwrap();
    assert!(config.len() > 10_000 && config.contains("polling_interval"), "{}", config.len());
    assert_eq!(config, cmd("multipathd").args(["show", "config"]).ok(), "the same as by its tool");
    let unknown = maps.multipathd("make coffee", LIMIT).await;
    assert!(unknown.is_ok_and(|said| !said.contains("ok\n")), "its refusal is its answer");

    daemon.signal(rustix::process::Signal::STOP);
    let begun = Instant::now();
    let silent = maps.multipathd("show daemon", Duration::from_secs(1)).await;
    daemon.signal(rustix::process::Signal::CONT);
    assert!(matches!(silent, Err(KernelError::Late { .. })), "{silent:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    daemon.stop();
}
