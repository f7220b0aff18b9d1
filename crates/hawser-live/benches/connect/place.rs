//! What is attached: one target with one volume for each, all at two portals.

use hawser_live::lab::guest::{cmd, initiator, lio, settle};
use serde_json::{Value, json};

/// Where every target listens.
pub(crate) const PORTALS: [&str; 2] = ["127.0.1.1:3260", "127.0.1.2:3260"];

/// The number of the volume of every target.
const LUN: u16 = 1;

/// Over how many ways a volume is attached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ways {
    One,
    Two,
}

/// A target with its volume.
pub(crate) struct Volume {
    /// The target's name.
    pub(crate) iqn: String,
    /// As udev and multipath name it.
    pub(crate) wwid: String,
    _target: lio::Target,
}

impl Volume {
    /// The data that attaches it.
    pub(crate) fn data(&self, ways: Ways) -> Value {
        match ways {
            Ways::One => json!({
                "target_portal": PORTALS[0], "target_iqn": self.iqn, "target_lun": LUN,
                "target_discovered": false, "volume_id": self.iqn,
            }),
            Ways::Two => json!({
                "target_portal": PORTALS[0], "target_iqn": self.iqn, "target_lun": LUN,
                "target_portals": PORTALS, "target_iqns": [self.iqn, self.iqn],
                "target_luns": [LUN, LUN],
                "target_discovered": false, "volume_id": self.iqn,
            }),
        }
    }
}

/// Makes this many of them.
pub(crate) fn volumes(count: usize) -> Vec<Volume> {
    let volumes = (1..=count).map(|number| {
        let iqn = format!("iqn.2004-10.com.example:bench{number}");
        let disk = lio::Disk::new(&format!("bench{number}"), 16);
        let mut target = lio::Target::new(&iqn);
        for portal in PORTALS {
            target.add_portal(portal);
        }
        target.add_lun(LUN, &disk).allow(&initiator()).enable();
        Volume { iqn, wwid: disk.wwid(), _target: target }
    });
    let volumes = volumes.collect();
    settle();
    volumes
}

/// Lets udev and multipathd come to rest.
pub(crate) fn rest(ways: Ways) {
    settle();
    if ways == Ways::Two {
        cmd("multipathd").args(["show", "daemon"]).ok();
        settle();
    }
}

/// How many sessions there are.
pub(crate) fn sessions() -> usize {
    std::fs::read_dir("/sys/class/iscsi_session").map_or(0, |entries| entries.flatten().count())
}
