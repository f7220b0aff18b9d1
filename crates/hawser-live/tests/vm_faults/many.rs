//! Many at once.

use std::thread;
use std::time::{Duration, Instant};

use hawser_live::lab::guest::san::{IQN, San, names, read};
use hawser_live::lab::guest::{Leftovers, initiator, lio, settle};
use serde_json::json;

use hawser_live::lab::guest::faults::{Asked, Tally};

const TARGETS: u16 = 4;
const VOLUMES: u16 = 16;

fn content(target: u16, volume: u16) -> Vec<u8> {
    format!("volume {volume} of target {target}").into_bytes()
}

/// The volume with its device, which is that of nobody else.
#[track_caller]
fn check(asked: &Asked, target: u16, volume: u16) {
    let device = asked.connect();
    let expected = content(target, volume);
    assert_eq!(read(&device, 8192, expected.len()), expected, "{} is another", device.display());
}

#[test]
fn sixty_four_attaches_at_once_over_four_targets_get_each_their_own_volume() {
    // Its daemons serve the others too.
    let _san = San::new(&["127.0.1.9:3260"], 1);
    let mut disks = Vec::new();
    let mut targets = Vec::new();
    for target in 1..=TARGETS {
        let iqn = format!("{IQN}-many{target}");
        let mut made = lio::Target::new(&iqn);
        made.add_portal(&format!("127.0.2.{target}:3260"));
        for volume in 1..=VOLUMES {
            let disk = lio::Disk::new(&format!("many{target}x{volume}"), 8);
            hawser_live::lab::guest::san::write(disk.device(), 8192, &content(target, volume));
            made.add_lun(volume, &disk);
            disks.push((target, volume, disk));
        }
        made.allow(&initiator()).enable();
        targets.push(made);
    }
    settle();
    let before = Leftovers::snapshot();
    let asked: Vec<(u16, u16, Asked)> = disks
        .iter()
        .map(|(target, volume, disk)| {
            let data = json!({ "target_portal": format!("127.0.2.{target}:3260"),
                "target_iqn": format!("{IQN}-many{target}"), "target_lun": volume,
                "volume_id": format!("many-{target}-{volume}"), "wwn": disk.wwid() });
            (*target, *volume, Asked::new(data, &[]).patient())
        })
        .collect();
    let mut tally = Tally::of("64 at once");

    let begun = Instant::now();
    thread::scope(|scope| {
        for (target, volume, asked) in &asked {
            scope.spawn(move || check(asked, *target, *volume));
        }
    });
    let attached = begun.elapsed();
    assert_eq!(names("/sys/class/iscsi_session").len(), usize::from(TARGETS));
    for (_, _, disk) in &disks {
        assert_eq!(disk.read(0, 4096), vec![0x5A; 4096], "a write went elsewhere");
    }
    let begun = Instant::now();
    thread::scope(|scope| {
        for (_, _, asked) in &asked {
            scope.spawn(move || asked.disconnect());
        }
    });
    let detached = begun.elapsed();

    tally.point("after all", &before);
    println!("64 at once: attached in {attached:?}, detached in {detached:?}");
    assert!(attached < Duration::from_secs(150), "took {attached:?}");
    tally.close();
}
