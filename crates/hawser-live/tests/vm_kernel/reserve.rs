use std::path::PathBuf;
use std::time::Instant;

use hawser_core::port::Host;
use hawser_core::port::kernel::{Disk, Register, ReservationKind, ReservationStep};
use hawser_live::lab::guest::{self, cmd, settle, wait_for};
use rustix::io::Errno;

use crate::iscsi::TwoHosts;
use crate::scsi::{Shared, can_write};
use crate::{LIMIT, errno, host};

const ONE: u64 = 0x1111_2222_3333_4444;
const TWO: u64 = 0xaaaa_bbbb_cccc_dddd;
const KIND: ReservationKind = ReservationKind::WriteExclusiveRegistrants;

async fn register(disk: &dyn Disk, key: u64) {
    disk.reserve(&ReservationStep::Register { key }).await.unwrap();
}

#[tokio::test]
async fn one_host_writes_and_the_other_is_kept_out_until_it_throws_the_first_out() {
    let shared = TwoHosts::new();
    let host = host();
    let one = host.disks().open(shared.node(0)).await.unwrap();
    let two = host.disks().open(shared.node(1)).await.unwrap();
    let free = two.reservation().await.unwrap();
    assert_eq!((free.registered.len(), free.held), (0, None));

    // The first registers, changes its key, and takes the reservation; each twice.
    for key in [TWO, ONE, ONE] {
        register(&*one, key).await;
    }
    let reserve = |key| ReservationStep::Reserve { key, kind: KIND };
    one.reserve(&reserve(ONE)).await.unwrap();
    one.reserve(&reserve(ONE)).await.unwrap();

    let seen = two.reservation().await.unwrap();
    assert_eq!(seen.held, Some(KIND));
    assert_eq!(seen.registered, [Register { key: ONE, holder: true }]);
    assert!(seen.generation > free.generation, "{seen:?}");
    assert_eq!(seen, one.reservation().await.unwrap());
    let tool = cmd("sg_persist").args(["--in", "--read-keys"]).arg(shared.node(1)).ok();
    assert!(tool.contains("0x1111222233334444"), "{tool}");
    assert!(can_write(shared.node(0)) && !can_write(shared.node(1)));

    // The second may not take it, and may write once it is registered.
    assert_eq!(errno(two.reserve(&reserve(TWO)).await), Errno::BADE);
    register(&*two, TWO).await;
    assert_eq!(errno(two.reserve(&reserve(TWO)).await), Errno::BADE);
    assert!(can_write(shared.node(1)));
    let both = two.reservation().await.unwrap();
    assert_eq!(both.registered.len(), 2, "{both:?}");

    // It throws the first out.
    let throw = ReservationStep::PreemptAndAbort { key: TWO, other: ONE, kind: KIND };
    two.reserve(&throw).await.unwrap();
    let after = one.reservation().await.unwrap();
    assert_eq!(after.registered, [Register { key: TWO, holder: true }]);
    assert_eq!(after.held, Some(KIND));
    assert!(can_write(shared.node(1)) && !can_write(shared.node(0)));
    let again = two.reserve(&throw).await;
    assert_eq!(errno(again), Errno::BADE, "nobody has that key any more");
    assert_eq!(errno(one.reserve(&reserve(ONE)).await), Errno::BADE);

    // Everything is given back, twice.
    let release = ReservationStep::Release { key: TWO, kind: KIND };
    two.reserve(&release).await.unwrap();
    two.reserve(&release).await.unwrap();
    assert_eq!(two.reservation().await.unwrap().held, None);
    register(&*two, 0).await;
    register(&*two, 0).await;
    let free = one.reservation().await.unwrap();
    assert_eq!((free.registered.len(), free.held), (0, None));
    assert!(can_write(shared.node(0)));
}

#[tokio::test]
async fn only_the_holder_writes_where_the_reservation_says_so() {
    let shared = Shared::new(2);
    let host = host();
    let one = host.disks().open(shared.node(0)).await.unwrap();
    let two = host.disks().open(shared.node(1)).await.unwrap();
    let kind = ReservationKind::WriteExclusive;
    register(&*one, ONE).await;
    register(&*two, TWO).await;

    one.reserve(&ReservationStep::Reserve { key: ONE, kind }).await.unwrap();

    let seen = two.reservation().await.unwrap();
    assert_eq!(seen.held, Some(kind));
    let holders: Vec<u64> = seen.registered.iter().filter(|r| r.holder).map(|r| r.key).collect();
    assert_eq!(holders, [ONE]);
    assert!(can_write(shared.node(0)) && !can_write(shared.node(1)));
    register(&*one, 0).await;
    assert!(can_write(shared.node(1)), "the reservation goes with its holder");
    register(&*two, 0).await;
}

#[tokio::test]
async fn a_kind_of_others_is_told_as_the_disk_tells_it() {
    let shared = Shared::new(1);
    let host = host();
    let disk = host.disks().open(shared.node(0)).await.unwrap();
    register(&*disk, ONE).await;

    let tool = cmd("sg_persist").args(["--out", "--reserve", "--prout-type=7"]);
    tool.arg("--param-rk=0x1111222233334444").arg(shared.node(0)).ok();

    let seen = disk.reservation().await.unwrap();
    assert_eq!(seen.held, Some(ReservationKind::Other(7)));
    assert_eq!(seen.registered, [Register { key: ONE, holder: true }]);
    register(&*disk, 0).await;
}

#[tokio::test]
async fn a_map_registers_all_its_paths_and_is_read_through_one() {
    let daemon = guest::multipathd();
    let shared = Shared::new(3);
    let host = host();
    let map = PathBuf::from(format!("/dev/mapper/{}", shared.wwid()));
    let paths = || {
        let table = cmd("dmsetup").args(["deps", "-o", "devname"]).arg(&map).run();
        table.stdout.matches("sd").count()
    };
    wait_for("map of three paths", LIMIT, || (map.exists() && paths() == 3).then_some(()));
    settle();
    let disk = host.disks().open(&map).await.unwrap();

    register(&*disk, ONE).await;
    disk.reserve(&ReservationStep::Reserve { key: ONE, kind: KIND }).await.unwrap();

    let seen = disk.reservation().await.unwrap();
    assert_eq!(seen.registered, [Register { key: ONE, holder: true }; 3]);
    assert_eq!(seen.held, Some(KIND));
    assert!((0..3).all(|path| can_write(shared.node(path))), "each path is registered");

    // With a path lost it is read through another.
    shared.set_state(0, "offline");
    let seen = disk.reservation().await.unwrap();
    assert_eq!(seen.held, Some(KIND));
    // With all of them lost the map would hold the question, and it is not asked.
    (1..3).for_each(|path| shared.set_state(path, "offline"));
    let begun = Instant::now();
    let lost = errno(disk.reservation().await);
    (0..3).for_each(|path| shared.set_state(path, "running"));
    assert!([Errno::NXIO, Errno::NODEV, Errno::NOLINK].contains(&lost), "{lost:?}");
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    wait_for("paths", LIMIT, || {
        let status = cmd("dmsetup").arg("status").arg(shared.wwid()).ok();
        (status.matches(" A ").count() == 4).then_some(())
    });

    disk.reserve(&ReservationStep::Release { key: ONE, kind: KIND }).await.unwrap();
    register(&*disk, 0).await;
    let free = disk.reservation().await.unwrap();
    assert_eq!((free.registered.len(), free.held), (0, None));
    drop(disk);
    settle();
    wait_for("end of the map", LIMIT, || {
        cmd("multipath").arg("-f").arg(shared.wwid()).succeeds().then_some(())
    });
    drop(daemon);
}
