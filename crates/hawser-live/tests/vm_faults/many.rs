//! Many at once.

use std::thread;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Detach};
use hawser_live::lab::guest::san::{IQN, San, names, read, write};
use hawser_live::lab::guest::{Leftovers, Volume, initiator, lio, settle};
use serde_json::{Value, json};

use hawser_live::lab::guest::faults::Tally;

const TARGETS: u16 = 4;
const VOLUMES: u16 = 16;

fn content(target: u16, volume: u16) -> Vec<u8> {
    format!("volume {volume} of target {target}").into_bytes()
}

/// Attaches a volume and makes sure that its device is that of nobody else.
#[track_caller]
fn check(data: &Value, target: u16, volume: u16) {
    let attach = Attach { deadline: Duration::from_secs(240), ..Attach::default() };
    let made = Volume::new("iscsi", data.clone()).connect_as(&attach).expect("connect");
    let (device, expected) = (made.get().path(), content(target, volume));
    assert_eq!(read(device, 8192, expected.len()), expected, "{} is another", device.display());
    write(device, 0, &[0x5A; 4096]);
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
            write(disk.device(), 8192, &content(target, volume));
            made.add_lun(volume, &disk);
            disks.push((target, volume, disk));
        }
        made.allow(&initiator()).enable();
        targets.push(made);
    }
    settle();
    let before = Leftovers::snapshot();
    let asked: Vec<(u16, u16, Value)> = disks
        .iter()
        .map(|(target, volume, disk)| {
            let data = json!({ "target_portal": format!("127.0.2.{target}:3260"),
                "target_iqn": format!("{IQN}-many{target}"), "target_lun": volume,
                "volume_id": format!("many-{target}-{volume}"), "wwn": disk.wwid() });
            (*target, *volume, data)
        })
        .collect();
    let mut tally = Tally::of("64 at once");

    let begun = Instant::now();
    thread::scope(|scope| {
        for (target, volume, data) in &asked {
            scope.spawn(move || check(data, *target, *volume));
        }
    });
    let attached = begun.elapsed();
    assert_eq!(names("/sys/class/iscsi_session").len(), usize::from(TARGETS));
    for (_, _, disk) in &disks {
        assert_eq!(disk.read(0, 4096), vec![0x5A; 4096], "a write went elsewhere");
    }
    let begun = Instant::now();
    thread::scope(|scope| {
        for (_, _, data) in &asked {
            let data = data.clone();
            scope.spawn(move || {
                let detach = Detach { deadline: Duration::from_secs(240), ..Detach::default() };
                let volume = Volume::new("iscsi", data);
                volume.disconnect_as(&Attach::default(), &detach).expect("disconnect");
            });
        }
    });
    let detached = begun.elapsed();

    tally.point("after all", &before);
    println!("64 at once: attached in {attached:?}, detached in {detached:?}");
    tally.close();
}
