//! DRBD between two guests, as it is meant to be: what one host writes, the other reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hawser_core::{Change, Reason};
use hawser_live::lab::guest::drbd::{Backing, ByHand, End, SECRET, config};
use hawser_live::lab::guest::{self, Leftovers, Peer, Volume, modprobe};
use serde_json::json;

const NODE: &str = "/dev/drbd100";

fn end(guest: u8, disk: &Backing) -> End {
    End {
        host: format!("lab{guest}"),
        minor: 100,
        disk: disk.node.clone(),
        address: format!("{}:7789", Peer::address(guest)),
    }
}

#[test]
fn a_volume_moves_from_host_to_host_with_its_data() {
    modprobe(&["drbd"]);
    let first = guest::number() == 1;
    let disk = Backing::new("pair", 64);
    let config = config("vol1", [&end(1, &disk), &end(2, &disk)]);
    let data = json!({ "name": "vol1", "device": NODE, "config": config, "provider_auth": SECRET });
    let volume = Volume::new("drbd", data);
    let mut peer = Peer::join();
    // Both hosts keep the data, so both have the resource up all the time.
    let by_hand = ByHand::new("vol1", 100, &config);
    by_hand.create_metadata();
    by_hand.admin(&["up"]);
    peer.meet("up");
    if first {
        by_hand.skip_first_sync();
    }
    by_hand.wait("ds:UpToDate/UpToDate");
    let before = Leftovers::snapshot();
    peer.meet("in sync");

    for round in 1..=2_u8 {
        let writes = first == (round == 1);
        if writes {
            assert!(volume.connect().unwrap().is_made());
            let file = File::options().write(true).open(NODE).unwrap();
            file.write_all_at(&[round; 4096], 4096).unwrap();
            file.sync_all().unwrap();
        }
        peer.meet("written");
        if !writes {
            let error = volume.connect().expect_err("it is used on the other host");
            assert_eq!(error.reason(), Some(Reason::Reserved), "{error:?}");
            assert!(by_hand.state().contains("cs:Connected"), "{}", by_hand.state());
        }
        peer.meet("refused");
        if writes {
            assert!(!volume.connect().unwrap().is_made());
            assert!(volume.health().unwrap().healthy, "{:?}", volume.health());
            assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
            assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        }
        peer.meet("given back");
        if !writes {
            assert!(volume.connect().unwrap().is_made());
            let mut bytes = [0; 4096];
            File::open(NODE).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
            assert_eq!(bytes, [round; 4096]);
            assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        }
        assert!(by_hand.state().contains("ro:"), "still up: {}", by_hand.state());
        before.assert_restored();
        peer.meet("round over");
    }
    drop(by_hand);
    assert!(!Path::new("/sys/block/drbd100").exists());
    peer.meet("done");
}

#[test]
fn a_host_without_the_resource_up_attaches_it_and_takes_it_down_again() {
    modprobe(&["drbd"]);
    let first = guest::number() == 1;
    let disk = Backing::new("client", 64);
    let config = config("vol1", [&end(1, &disk), &end(2, &disk)]);
    let data = json!({ "name": "vol1", "device": NODE, "config": config, "provider_auth": SECRET });
    let volume = Volume::new("drbd", data);
    let mut peer = Peer::join();
    let by_hand = ByHand::new("vol1", 100, &config);
    by_hand.create_metadata();
    by_hand.admin(&["up"]);
    peer.meet("up");
    if first {
        by_hand.skip_first_sync();
    }
    by_hand.wait("ds:UpToDate/UpToDate");
    peer.meet("in sync");
    if first {
        by_hand.admin(&["down"]);
        let before = Leftovers::snapshot();
        for _ in 0..2 {
            assert!(volume.connect().unwrap().is_made());
            assert!(by_hand.state().contains("ro:Primary/Secondary"), "{}", by_hand.state());
            assert!(volume.disconnect().unwrap().is_made());
            assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
            assert_eq!(by_hand.state(), "", "down");
            before.assert_restored();
        }
    }
    peer.meet("attached twice");
    if !first {
        assert!(by_hand.state().contains("ds:UpToDate"), "{}", by_hand.state());
    }
    peer.meet("done");
}
