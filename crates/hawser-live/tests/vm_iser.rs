//! iSER: iSCSI over RDMA, with the soft RoCE device of the kernel on the guest's network card.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach, Multipath};
use hawser_core::{ByteSize, Change, Reason};
use hawser_live::lab::guest::luks::keeps_a_secret;
use hawser_live::lab::guest::san::{San, names, read, write};
use hawser_live::lab::guest::{Volume, cmd, modprobe, wait_for};
use serde_json::json;

const ONE: &str = "10.0.2.15:3260";
const TWO: &str = "10.0.2.16:3260";
const LIMIT: Duration = Duration::from_secs(60);
const CONFIGURATION: &str = "defaults {\n find_multipaths no\n polling_interval 1\n \
    user_friendly_names no\n}\nblacklist {\n devnode \"^(vd|loop|dm-|ram)\"\n}\n";

/// An RDMA device over the card, which has a second address; it stays for the whole suite.
fn fabric() {
    modprobe(&["rdma_rxe", "ib_iser", "ib_isert"]);
    if !fs::exists("/sys/class/infiniband/rxe0").expect("sysfs") {
        cmd("ip").args(["addr", "add", "10.0.2.16/24", "dev", "eth0"]).ok();
        cmd("rdma").args(["link", "add", "rxe0", "type", "rxe", "netdev", "eth0"]).ok();
        wait_for("RDMA device", LIMIT, || {
            let state = fs::read_to_string("/sys/class/infiniband/rxe0/ports/1/state");
            state.is_ok_and(|state| state.contains("ACTIVE")).then_some(())
        });
    }
}

fn san(portals: &[&str]) -> San {
    fabric();
    let mut san = San::with_multipath(portals, 1, CONFIGURATION);
    for portal in portals {
        san.target.set_iser(portal, true);
    }
    san.remember();
    san
}

fn path_of(attached: &Change<Attached>) -> PathBuf {
    attached.get().path().to_owned()
}

fn transports() -> Vec<String> {
    let hosts = names("/sys/class/iscsi_host");
    let name = |host: &String| fs::read_to_string(format!("/sys/class/scsi_host/{host}/proc_name"));
    hosts.iter().map(|host| name(host).unwrap_or_default().trim().to_owned()).collect()
}

#[test]
fn a_host_without_an_rdma_device_says_so() {
    // Runs first, by its name: the device of the other tests stays.
    if fs::exists("/sys/class/infiniband/rxe0").expect("sysfs") {
        return hawser_testkit::skip("another test made the device already");
    }
    modprobe(&["ib_iser"]);
    let san = San::new(&[ONE], 1);

    let refused = Volume::new("iser", san.one_way(1)).connect().expect_err("no adapter");

    assert_eq!(refused.reason(), Some(Reason::NoHba), "{refused:?}");
    san.assert_clean();
}

#[test]
fn a_volume_over_rdma_lives_twice_and_leaves_nothing() {
    let mut san = san(&[ONE]);
    san.stop_multipathd();
    let disk = &san.disks[0];
    let mut size = 32;

    for round in 0..2_u8 {
        let volume = Volume::new("ISER", san.one_way(1));
        let made = volume.connect().expect("connect");
        let device = path_of(&made);
        assert!(made.is_made());
        assert!(transports().iter().all(|name| name.contains("iser")), "{:?}", transports());
        write(&device, 4096, &[0x60 + round; 8192]);
        assert_eq!(disk.read(4096, 8192), vec![0x60 + round; 8192]);
        assert_eq!(volume.connect().expect("again"), Change::Already(made.get().clone()));
        size += 32;
        disk.grow(size);
        assert_eq!(volume.extend().expect("extend"), ByteSize::mib(size));
        assert_eq!(read(&device, 4096, 8192), vec![0x60 + round; 8192]);
        assert_eq!(volume.disconnect().expect("disconnect"), Change::Made(()));
        san.assert_clean();
        assert_eq!(volume.disconnect().expect("again"), Change::Already(()));
    }
}

#[test]
fn two_portals_over_rdma_are_one_map() {
    let san = san(&[ONE, TWO]);
    let volume = Volume::new("iser", san.all_ways(1));
    let all = Attach { multipath: Multipath::Enforced, ..Attach::default() };

    let made = volume.connect_as(&all).expect("connect");

    let map = path_of(&made);
    let name = map.file_name().expect("a device").to_string_lossy().into_owned();
    assert_eq!(names(&format!("/sys/block/{name}/slaves")).len(), 2, "{made:?}");
    write(&map, 0, &[0x66; 4096]);
    assert_eq!(san.disks[0].read(0, 4096), vec![0x66; 4096]);
    volume.disconnect_as(&all, &Detach::default()).expect("disconnect");
    san.assert_clean();
}

#[test]
fn luks2_above_it_keeps_what_is_written_from_the_storage() {
    let mut san = san(&[ONE]);
    san.stop_multipathd();

    keeps_a_secret("iser", san.one_way(1), &Attach::default());

    san.assert_clean();
}

#[test]
fn a_target_that_is_not_there_is_told_and_nothing_stays() {
    let san = san(&[ONE]);
    let mut data = san.one_way(1);
    data["target_portal"] = json!("10.0.2.15:3999");
    let begun = Instant::now();

    let refused = Volume::new("iser", data).connect().expect_err("nobody listens");

    assert!(refused.reason().is_some(), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "took {:?}", begun.elapsed());
    san.assert_clean();
}

#[test]
fn chap_works_over_rdma_too() {
    let mut san = san(&[ONE]);
    san.stop_multipathd();
    san.target.chap("user1", "correct-horse-battery");
    let mut data = san.one_way(1);
    data["auth_username"] = json!("user1");
    data["auth_password"] = json!("correct-horse-battery");

    let volume = Volume::new("iser", data.clone());
    volume.connect().expect("connect");
    volume.disconnect().expect("disconnect");
    san.assert_clean();

    data["auth_password"] = json!("something-else-12");
    let refused = Volume::new("iser", data).connect().expect_err("the secret is wrong");
    // LIO drops the connection with its refusal, which then does not always arrive over RDMA.
    let said = [Some(Reason::AuthFailed), Some(Reason::PortalTimeout)];
    assert!(said.contains(&refused.reason()), "{refused:?}");
    san.assert_clean();
}
