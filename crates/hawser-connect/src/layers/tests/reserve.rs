use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::attach::SingleWriter;
use hawser_core::port::Host;
use hawser_core::port::kernel::ReservationStep;
use hawser_core::{ByteSize, Change, Reason};
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{DiskSpec, FindMultipaths, Lun};
use hawser_testkit::sim::multipath as sim;

use crate::layers::reserve;
use crate::shared::multipath::Join;
use crate::shared::users::Whole;
use crate::shared::wait::Deadline;

const NAA: &str = "6001405aaaaaaaaaaaaaaaaaaaaaaaaa";

/// Two hosts that see one volume as `/dev/sdb`.
fn two_hosts() -> (FakeHost, FakeHost) {
    let volume = Lun::scsi(NAA, ByteSize::mib(8));
    let host = |name: &str| {
        let host = FakeHost::new();
        host.kernel().set_initiator(name);
        host.kernel().disk(DiskSpec::new("sdb", &volume));
        host
    };
    (host("a"), host("b"))
}

fn disk() -> &'static Path {
    Path::new("/dev/sdb")
}

fn writer(key: u64, preempt: bool) -> SingleWriter {
    SingleWriter { key, preempt }
}

#[tokio::test]
async fn the_second_host_is_refused_until_the_first_gives_it_back() {
    let (a, b) = two_hosts();

    assert_eq!(reserve::take(&a, disk(), writer(1, false)).await.unwrap(), Change::Made(()));
    assert_eq!(reserve::take(&a, disk(), writer(1, false)).await.unwrap(), Change::Already(()));
    let refused = reserve::take(&b, disk(), writer(2, false)).await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::Reserved));
    assert_eq!(reserve::give_back(&a, disk(), 1).await.unwrap(), Change::Made(()));
    assert_eq!(reserve::give_back(&a, disk(), 1).await.unwrap(), Change::Already(()));
    assert_eq!(reserve::take(&b, disk(), writer(2, false)).await.unwrap(), Change::Made(()));
}

#[tokio::test]
async fn a_host_that_was_thrown_out_is_told_so() {
    let (a, b) = two_hosts();
    reserve::take(&a, disk(), writer(1, false)).await.unwrap();
    assert_eq!(reserve::problem(&a, disk(), 1).await.unwrap(), None);

    reserve::take(&b, disk(), writer(2, true)).await.unwrap();

    let problem = reserve::problem(&a, disk(), 1).await.unwrap().unwrap();
    assert!(problem.contains("0x2"), "{problem}");
    assert_eq!(reserve::problem(&b, disk(), 2).await.unwrap(), None);
    assert_eq!(reserve::give_back(&a, disk(), 1).await.unwrap(), Change::Already(()));
}

#[tokio::test]
async fn zero_is_no_key() {
    let (a, _) = two_hosts();

    let refused = reserve::take(&a, disk(), writer(0, false)).await.unwrap_err();

    assert_eq!(refused.reason(), Some(Reason::InvalidParameters));
}

/// What a session over another portal is to the device: a stranger with the key of this host.
#[tokio::test]
async fn a_key_that_another_path_left_does_not_let_this_one_write() {
    let host = FakeHost::new();
    let volume = Lun::scsi(NAA, ByteSize::mib(8));
    host.kernel().disk(DiskSpec::new("sdb", &volume));
    let write = || host.kernel().edit(|tree| tree.write_disk("sdb", 0, b"x"));
    host.kernel().set_initiator("over portal 1");
    reserve::take(&host, disk(), writer(1, false)).await.unwrap();
    host.kernel().set_initiator("over portal 2");
    assert!(write().is_err(), "not registered yet");

    let taken = reserve::take(&host, disk(), writer(1, false)).await.unwrap();

    assert_eq!(taken, Change::Made(()));
    write().expect("this path is registered now");
    assert_eq!(reserve::take(&host, disk(), writer(1, false)).await.unwrap(), Change::Already(()));
    assert_eq!(reserve::give_back(&host, disk(), 1).await.unwrap(), Change::Made(()));
    volume.registrations(|all| assert!(all.is_empty(), "{all:?}"));
}

#[tokio::test]
async fn hosts_with_several_paths_are_thrown_out_once_each() {
    let host = FakeHost::new();
    let volume = Lun::scsi(NAA, ByteSize::mib(8));
    host.kernel().disk(DiskSpec::new("sdb", &volume));
    // The order in which the device lists them: two hosts, two paths each.
    for (path, key) in [("path 1", 1), ("path 2", 2), ("path 3", 1), ("path 4", 2)] {
        let register = ReservationStep::Register { key };
        volume.registrations(|all| all.step(path, &register)).unwrap();
    }

    reserve::take(&host, disk(), writer(9, true)).await.unwrap();

    assert_eq!(reserve::problem(&host, disk(), 9).await.unwrap(), None);
}

/// The old key goes when the new one is registered, so nobody is left to be thrown out by it.
#[tokio::test]
async fn another_key_of_the_same_host_takes_the_place_of_its_old_one() {
    let (a, b) = two_hosts();
    reserve::take(&a, disk(), writer(1, false)).await.unwrap();

    reserve::take(&a, disk(), writer(2, true)).await.unwrap();
    assert_eq!(reserve::problem(&a, disk(), 2).await.unwrap(), None);

    let step = ReservationStep::Register { key: 7 };
    b.disks().open(disk()).await.unwrap().reserve(&step).await.unwrap();
    reserve::take(&a, disk(), writer(3, true)).await.unwrap();
    assert_eq!(reserve::problem(&a, disk(), 3).await.unwrap(), None, "and the other host is out");
}

/// A map of `sdb` and `sdc`, with its node.
async fn two_paths() -> (FakeHost, Lun, PathBuf) {
    let host = FakeHost::new();
    sim::install(&host);
    host.kernel().multipathd(FindMultipaths::Greedy);
    let volume = Lun::scsi(NAA, ByteSize::mib(8));
    let wwid = format!("3{NAA}");
    let paths = ["sdb", "sdc"].map(|name| {
        host.kernel().disk(DiskSpec::new(name, &volume).wwid(&wwid));
        Whole::new(name)
    });
    let deadline = Deadline::after(Duration::from_secs(60));
    let join = Join { host: &host, wwid: &wwid, paths: &paths, deadline };
    let node = join.run().await.unwrap().expect("a map").map.disk.node;
    (host, volume, node)
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_down_keeps_a_reservation_from_being_taken_and_not_from_being_kept() {
    let (host, volume, map) = two_paths().await;
    let down = |online| host.kernel().edit(|tree| tree.set_online("sdc", online));

    down(false);
    reserve::take(&host, &map, writer(1, false)).await.unwrap_err();
    volume.registrations(|all| assert!(all.is_empty(), "{all:?}"));
    down(true);
    reserve::take(&host, &map, writer(1, false)).await.unwrap();
    down(false);
    let again = reserve::take(&host, &map, writer(1, false)).await.unwrap();

    assert_eq!(again, Change::Already(()));
    assert_eq!(reserve::give_back(&host, &map, 1).await.unwrap(), Change::Made(()));
    volume.registrations(|all| assert!(all.is_empty(), "{all:?}"));
}
