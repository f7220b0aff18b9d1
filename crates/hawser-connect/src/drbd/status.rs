//! What the kernel says about resources: the lines of `drbdsetup events2 --now`, which DRBD 8.4 and 9
//! print alike.

use std::collections::BTreeMap;

/// One resource of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resource {
    /// Writes are allowed here.
    pub(super) primary: bool,
    pub(super) connections: Vec<Connection>,
    pub(super) devices: Vec<Device>,
    /// What the data of a peer is that is not up to date: `Inconsistent` while it is brought up.
    pub(super) behind: Option<String>,
}

/// A way to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// The peer's name, where DRBD knows it.
    pub(super) peer: String,
    /// `Connected`, `Connecting`, `StandAlone` and so on.
    pub(super) state: String,
    /// The peer's number, by which other lines mean it.
    number: String,
}

/// What a connection is called here whose ends have not compared their data yet. DRBD 8.4 and its
/// programs call that connected; a split brain is found only afterwards.
const NOT_COMPARED: &str = "Connecting";

/// A volume on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) minor: u32,
    /// `UpToDate`, `Inconsistent`, `Diskless` and so on.
    pub(super) disk: String,
}

impl Resource {
    /// The volume with this number.
    pub(super) fn device(&self, minor: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.minor == minor)
    }

    /// True when a connection was given up, which DRBD does when peers disagree.
    pub(super) fn stands_alone(&self) -> bool {
        self.connections.iter().any(|connection| connection.state == "StandAlone")
    }

    /// True when there is no peer, or one that answers.
    pub(super) fn is_connected(&self) -> bool {
        self.connections.is_empty() || self.connections.iter().any(Connection::works)
    }

    /// Nothing is mirrored over the way to this peer.
    fn not_compared(&mut self, number: &str) {
        for way in &mut self.connections {
            if way.number == number && way.works() {
                way.state = NOT_COMPARED.into();
            }
        }
    }

    /// True when every peer answers.
    pub(super) fn is_complete(&self) -> bool {
        self.connections.iter().all(Connection::works)
    }
}

impl Connection {
    fn works(&self) -> bool {
        self.state == "Connected"
    }
}

/// Reads all resources by their names; lines that make no sense are passed over.
pub(super) fn parse(text: &str) -> BTreeMap<String, Resource> {
    let mut resources: BTreeMap<String, Resource> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("exists") {
            continue;
        }
        let kind = words.next().unwrap_or_default();
        let fields: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once(':')).collect();
        let Some(name) = fields.get("name") else { continue };
        let resource = resources.entry((*name).to_owned()).or_default();
        let field = |key: &str| fields.get(key).copied().unwrap_or_default().to_owned();
        match kind {
            "resource" => resource.primary = field("role") == "Primary",
            "connection" => {
                let (peer, state) = (field("conn-name"), field("connection"));
                let number = field("peer-node-id");
                resource.connections.push(Connection { peer, state, number });
            }
            "device" => {
                if let Ok(minor) = field("minor").parse() {
                    resource.devices.push(Device { minor, disk: field("disk") });
                }
            }
            "peer-device" => {
                if field("replication") == "Off" {
                    let number = field("peer-node-id");
                    resource.not_compared(&number);
                }
                let disk = field("peer-disk");
                // A peer without a disk of its own has no data to be behind.
                if disk != "UpToDate" && disk != "Diskless" {
                    resource.behind = Some(disk);
                }
            }
            _ => {}
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As DRBD 8.4.11 prints it.
    const EIGHT: &str = "\
exists resource name:r0 role:Primary suspended:no
exists connection name:r0 peer-node-id:0 conn-name:peer connection:Connected role:Secondary
exists device name:r0 volume:0 minor:100 disk:UpToDate
exists peer-device name:r0 peer-node-id:0 conn-name:peer volume:0 replication:Established peer-disk:UpToDate resync-suspended:no
exists resource name:r1 role:Secondary suspended:no
exists connection name:r1 peer-node-id:0 connection:StandAlone role:Unknown
exists device name:r1 volume:0 minor:1 disk:Inconsistent
exists peer-device name:r1 peer-node-id:0 volume:0 replication:Off peer-disk:DUnknown resync-suspended:no
exists -
";

    /// What drbdsetup 9 makes of the state WFReportParams of DRBD 8.4.
    const COMPARING: &str = "\
exists resource name:r0 role:Secondary suspended:no
exists connection name:r0 peer-node-id:0 conn-name:peer connection:Connected role:Unknown
exists device name:r0 volume:0 minor:100 disk:UpToDate
exists peer-device name:r0 peer-node-id:0 conn-name:peer volume:0 replication:Off peer-disk:DUnknown resync-suspended:no
exists -
";

    #[test]
    fn ends_that_have_not_compared_their_data_are_not_connected() {
        let found = &parse(COMPARING)["r0"];

        assert!(!found.is_complete() && !found.is_connected(), "{found:?}");
        assert!(!found.stands_alone());
        assert!(parse(EIGHT)["r0"].is_complete());
    }

    /// As DRBD 9 prints it, with more fields.
    const NINE: &str = "\
exists resource name:r0 role:Secondary suspended:no force-io-failures:no may_promote:yes promotion_score:10101
exists connection name:r0 peer-node-id:1 conn-name:b connection:Connecting role:Unknown
exists connection name:r0 peer-node-id:2 conn-name:c connection:Connected role:Secondary
exists device name:r0 volume:0 minor:1000 backing_dev:/dev/vg/r0 disk:UpToDate client:no open:no quorum:yes
exists -
";

    #[test]
    fn both_versions_are_read() {
        let all = parse(EIGHT);
        assert!(all["r0"].primary && all["r0"].is_complete());
        assert_eq!(all["r0"].device(100).unwrap().disk, "UpToDate");
        assert_eq!((&all["r0"].behind, all["r1"].behind.as_deref()), (&None, Some("DUnknown")));
        assert!(all["r1"].stands_alone() && !all["r1"].is_connected());
        let nine = &parse(NINE)["r0"];
        assert!(!nine.primary && nine.is_connected() && !nine.is_complete());
        assert_eq!(nine.connections[0].peer, "b");
        assert!(parse("exists -\n").is_empty());
    }

    proptest! {
        #[test]
        fn any_output_is_read(text in "\\PC{0,80}(\n\\PC{0,40}){0,3}") {
            let _ = parse(&text);
            let _ = parse(&format!("exists device {text}"));
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "drbdsetup_status", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = parse(&text);
    });
}
