//! The host library over fakes: what it writes first, and what the doctor makes of its remains.

use std::fs;

use hawser_core::Reason;
use hawser_core::attach::{Attach, AttachState, Detach};
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_core::doctor::{FindingCode, Repair};
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{HostMount, MountSource};
use hawser_core::port::library::VolumeKey;
use hawser_core::port::{Host, Library, Node};
use serde_json::json;

use super::rig::{Rig, drop_after};
use crate::library::instance;
use crate::node::NodeHalf;

/// A program's library on the rig's host, and the same host as a server's node sees it.
fn library(rig: &mut Rig) -> NodeHalf {
    rig.instance = instance();
    rig.restarted()
}

fn info(rig: &Rig) -> ConnectionInfo {
    let data = json!({ "file": rig.image, "mark": "data-1", "volume_id": "data-1" });
    ConnectionInfo::new(Protocol::new("fake"), data.as_object().unwrap().clone(), None)
}

#[tokio::test]
async fn what_is_about_to_be_made_is_recorded_first_and_gone_last() {
    let mut rig = Rig::new();
    let (library, info) = (library(&mut rig), info(&rig));
    let records = || rig.registry.records.lock().unwrap().values().cloned().collect::<Vec<_>>();
    let (mut intents, mut leaving) = (0, 0);

    for polls in 0.. {
        let done = drop_after(polls, library.connect(&info, &Attach::default())).await;
        let found = records();
        if !rig.host.snapshot().loops.is_empty() {
            assert_eq!(found.len(), 1, "a device without a record after {polls} polls");
        }
        intents += found.iter().filter(|record| record.state == AttachState::Intent).count();
        if let Some(done) = done {
            done.unwrap();
            break;
        }
    }
    for polls in 0.. {
        let key = VolumeKey::Volume("data-1".into());
        let done = drop_after(polls, library.disconnect(&key, &Detach::default())).await;
        let found = records();
        assert!(!found.is_empty() || rig.host.snapshot().loops.is_empty(), "after {polls} polls");
        leaving += found.iter().filter(|record| record.state == AttachState::Detaching).count();
        if let Some(done) = done {
            done.unwrap();
            break;
        }
    }
    assert!(intents > 0 && leaving > 0, "{intents} intents, {leaving} on the way out");
    assert!(records().is_empty());
}

#[tokio::test]
async fn what_a_dead_program_left_is_listed_by_name_and_repaired_by_whoever_looks() {
    let mut rig = Rig::new();
    let (dead, info) = (library(&mut rig), info(&rig));
    let (next, server) = (rig.restarted(), rig.stranger());

    for doctor in [&next, &server] {
        dead.connect(&info, &Attach::default()).await.unwrap();
        let publication = rig.registry.records.lock().unwrap().keys().next().unwrap().clone();
        rig.registry.edit(&publication, |record| {
            record.state = AttachState::Intent;
            record.attached = None;
        });

        let found = doctor.survey(false).await.unwrap();
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].code, found[0].fixable), (FindingCode::HalfMadeAttachment, true));
        assert_eq!(found[0].subject, "data-1");
        assert!(found[0].advice.contains("hawser disconnect --volume data-1"), "{found:#?}");
        assert_eq!(rig.host.snapshot().loops.len(), 1, "looking changes nothing");

        let fixed = doctor.survey(true).await.unwrap();
        assert_eq!(fixed[0].repair, Some(Repair::Done));
        assert!(rig.host.snapshot().loops.is_empty());
        assert_eq!(doctor.survey(true).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_program_mounts_what_it_attached_as_it_likes() {
    let mut rig = Rig::new();
    let (library, info) = (library(&mut rig), info(&rig));
    let device = library.connect(&info, &Attach::default()).await.unwrap().into_inner();
    rig.host.make_filesystem(&device.path, FsKind::Ext4, rig.uuid).await.unwrap();
    fs::create_dir(rig.target()).unwrap();
    let source = MountSource::Device { device: device.path, fs: FsKind::Ext4 };
    let mount = HostMount { source, target: rig.target(), read_only: false, flags: Vec::new() };
    rig.host.mount(&mount).await.unwrap();

    assert_eq!(library.survey(true).await.unwrap(), []);
    assert!(rig.is_mounted());
    let key = VolumeKey::Volume("data-1".into());
    library.disconnect(&key, &Detach::default()).await.expect_err("it is in use");
}

#[tokio::test]
async fn a_node_says_of_itself_what_its_properties_say() {
    let rig = Rig::new();
    let record = rig.node.describe().await.unwrap();
    let properties = rig.node.properties(&Default::default()).await.unwrap();

    for key in ["platform", "os_type", "host", "ip", "boot_id", "protocols", "nvme_hostid"] {
        assert_eq!(record.properties.get(key), properties.get(key), "{key}");
        assert!(properties.contains_key(key), "{key}");
    }
}

#[tokio::test]
async fn a_node_with_a_damaged_file_still_says_who_it_is_and_what_is_wrong() {
    let rig = Rig::new();
    rig.host.kernel().file("/etc/nvme/hostnqn", "not a name\n");

    let record = rig.node.describe().await.unwrap();

    assert_eq!(record.properties["platform"], "X86");
    assert!(record.properties["warnings"][0].as_str().unwrap().contains("/etc/nvme/hostnqn"));
}

#[tokio::test]
async fn a_protocol_that_nobody_has_is_refused_with_its_reason() {
    let mut rig = Rig::new();
    let library = library(&mut rig);
    let info = ConnectionInfo::new(Protocol::new("pigeon"), Default::default(), None);

    let error = library.connect(&info, &Attach::default()).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::UnsupportedProtocol));
    assert!(rig.registry.records.lock().unwrap().is_empty());
}
