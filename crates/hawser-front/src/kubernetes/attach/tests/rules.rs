//! What is asked for and what is written, without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use hawser_core::Timestamp;
use serde_json::{Value, json};
use tonic::Status;

use super::rig::{HELD, NODE_ID, Rig};
use crate::kubernetes::attach::drift::is_astray;
use crate::kubernetes::attach::patches::{self, Undone};
use crate::kubernetes::attach::{Task, publish};
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::objects::{Attachment, Object, Volume};
use crate::kubernetes::table::Changed;

fn attachment(metadata: Value, status: Value) -> Attachment {
    let mut object = super::rig::attachment("a", "pv", "n1");
    object["metadata"] = metadata;
    object["metadata"]["name"] = json!("a");
    object["status"] = status;
    serde_json::from_value(object).unwrap()
}

const GONE: &str = "2026-01-01T00:00:00Z";

#[test]
fn the_driver_is_asked_for_what_the_volume_says() {
    let volume: Volume = serde_json::from_value(json!({
        "metadata": { "name": "pv" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "mountOptions": ["noatime"],
            "csi": {
                "driver": "csi.hawser.storage", "volumeHandle": "vol-1", "readOnly": true,
                "fsType": "xfs", "volumeAttributes": { "class": "gold" },
            },
        },
    }))
    .unwrap();

    let request = publish::request(&volume, volume.csi().unwrap(), "n1").unwrap();

    assert_eq!((request.volume_id.as_str(), request.node_id.as_str()), ("vol-1", "n1"));
    assert!(request.readonly);
    assert_eq!(request.volume_context, BTreeMap::from([("class".into(), "gold".into())]));
    let capability = request.volume_capability.unwrap();
    let mode = AccessMode { mode: Mode::SingleNodeMultiWriter as i32 };
    assert_eq!(capability.access_mode, Some(mode));
    let mount = MountVolume {
        fs_type: "xfs".into(),
        mount_flags: vec!["noatime".into()],
        ..MountVolume::default()
    };
    assert_eq!(capability.access_type, Some(AccessType::Mount(mount)));
}

#[test]
fn only_what_is_missing_is_written_and_lists_only_if_nobody_else_wrote() {
    let bare = attachment(
        json!({ "uid": "u", "resourceVersion": "7", "finalizers": ["other"] }),
        json!({}),
    );
    let patch = patches::hold_on(&bare, HELD, "n1").unwrap();
    let metadata = json!({
        "uid": "u", "resourceVersion": "7", "finalizers": ["other", HELD],
        "annotations": { NODE_ID: "n1" },
    });
    assert_eq!(patch, json!({ "metadata": metadata }));

    let annotations = json!({ NODE_ID: "n1" });
    let held = attachment(
        json!({ "uid": "u", "finalizers": [HELD], "annotations": annotations }),
        json!({}),
    );
    assert_eq!(patches::hold_on(&held, HELD, "n1"), None);
    assert_eq!(patches::hold(&held, HELD), None);
    let renamed = patches::hold_on(&held, HELD, "n2").unwrap();
    let metadata = json!({ "uid": "u", "annotations": { NODE_ID: "n2" } });
    assert_eq!(renamed, json!({ "metadata": metadata }));
    assert_eq!(patches::release(&bare, HELD), None);
}

#[test]
fn what_a_node_needs_no_longer_is_not_told_any_more() {
    let context = BTreeMap::from([("b".to_owned(), "2".to_owned())]);
    let status = json!({ "attached": true, "attachmentMetadata": { "a": "1", "b": "2" } });

    let patch = patches::attached(&attachment(json!({ "uid": "u" }), status), &context).unwrap();

    assert_eq!(patch["status"]["attachmentMetadata"], json!({ "a": null, "b": "2" }));
    assert_eq!(patch["metadata"], json!({ "uid": "u" }));
    let same = json!({ "attached": true, "attachmentMetadata": { "b": "2" } });
    assert_eq!(patches::attached(&attachment(json!({}), same), &context), None);
}

#[test]
fn a_long_failure_is_cut_between_letters_and_one_that_is_told_is_not_told_again() {
    let now: Timestamp = GONE.parse().unwrap();
    let error = ClusterError::from(Status::aborted("ä".repeat(600) + "!"));
    let bare = attachment(json!({}), json!({}));

    let patch = patches::failure(&bare, Undone::Attach, &error, now).unwrap();

    let told = &patch["status"]["attachError"];
    assert_eq!(told["message"].as_str().unwrap().len(), 1024);
    assert_eq!((&told["time"], &told["errorCode"]), (&json!(GONE), &json!(10)));
    let known = attachment(json!({}), patch["status"].clone());
    assert_eq!(patches::failure(&known, Undone::Attach, &error, now), None);
    let mut old_server = patch["status"].clone();
    old_server["attachError"]["errorCode"] = Value::Null;
    let known = attachment(json!({}), old_server);
    assert_eq!(patches::failure(&known, Undone::Attach, &error, now), None);
    assert!(patches::failure(&known, Undone::Detach, &error, now).is_some());
}

#[test]
fn only_what_seems_done_and_is_not_is_astray() {
    let going = |finalizers: Value, attached: bool| {
        attachment(
            json!({ "deletionTimestamp": GONE, "finalizers": finalizers }),
            json!({ "attached": attached }),
        )
    };
    let there = |attached: bool| attachment(json!({}), json!({ "attached": attached }));

    for (attachment, given, astray) in [
        (there(true), false, true),
        (there(true), true, false),
        (there(false), false, false),
        (there(false), true, false),
        (going(json!([HELD]), true), true, false),
        (going(json!([HELD]), true), false, false),
        (going(json!(["other"]), false), true, true),
        (going(json!(["other"]), true), false, true),
        (going(json!(["other"]), false), false, false),
    ] {
        assert_eq!(is_astray(&attachment, given), astray, "{attachment:?} {given}");
    }
}

#[tokio::test]
async fn a_failure_that_is_told_does_not_wake_its_attachment() {
    let rig = Rig::new();
    let heard = |before: Option<&Attachment>, now: Option<&Attachment>| {
        let arc = |it: Option<&Attachment>| it.cloned().map(Arc::new);
        let key = before.or(now).unwrap().key();
        rig.attacher.heard_attachment(&Changed { key, before: arc(before), now: arc(now) });
        rig.attacher.queue.pending().len()
    };
    let new = attachment(json!({ "uid": "1" }), json!({}));
    let failed = attachment(
        json!({ "uid": "1", "finalizers": [HELD] }),
        json!({ "attachError": { "message": "no" } }),
    );
    let done = attachment(json!({ "uid": "1" }), json!({ "attached": true }));

    assert_eq!(heard(Some(&new), Some(&failed)), 0);
    assert_eq!(heard(Some(&failed), Some(&done)), 0);
    assert_eq!(heard(Some(&done), None), 0);
    assert_eq!(heard(None, Some(&new)), 1);
    let again = attachment(json!({ "uid": "2" }), json!({}));
    assert_eq!(heard(Some(&new), Some(&again)), 1);
    assert!(rig.attacher.queue.pending().contains(&Task::Attachment("a".into())));
}
