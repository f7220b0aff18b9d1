use std::collections::BTreeMap;

use hawser_api::csi::v1::{Snapshot, VolumeGroupSnapshot};
use serde_json::{Value, json};

use super::super::secrets::{self, Keys, Variables};
use super::super::step::{Step, is_news, step};
use super::super::{content as contents, group, parameters, patch, time};
use super::rig::{DELETED, FINALIZER, MARK, content};
use crate::kubernetes::objects::{Content, ObjectRef};

fn read(value: Value) -> Content {
    serde_json::from_value(value).unwrap()
}

/// A content with changes.
fn with(changes: Value) -> Content {
    let mut value = content("u-1", "vol-1");
    json_patch::merge(&mut value, &changes);
    read(value)
}

const HANDLE: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";

#[test]
fn each_state_of_a_content_has_its_step() {
    let going = "2026-01-01T00:00:00Z";
    let gone = json!({ "deletionTimestamp": going, "annotations": { DELETED: "yes" } });
    let marked =
        json!({ "deletionTimestamp": going, "annotations": { DELETED: "yes", MARK: "yes" } });
    let cut = json!({ "snapshotHandle": "s", "readyToUse": false });
    let ready = json!({ "snapshotHandle": "s", "readyToUse": true });
    let member = json!({ "snapshotHandle": "s", "volumeGroupSnapshotHandle": "g" });
    let given = json!({ "source": { "snapshotHandle": "s", "volumeHandle": null } });
    for (name, changes, wanted) in [
        ("new", json!({}), Step::Take),
        ("not ready", json!({ "status": cut }), Step::Take),
        ("ready", json!({ "status": ready }), Step::Rest),
        (
            "ready and marked",
            json!({ "status": ready, "metadata": { "annotations": { MARK: "" } } }),
            Step::Unmark,
        ),
        ("given", json!({ "spec": given }), Step::Look),
        ("given and seen", json!({ "spec": given, "status": ready }), Step::Rest),
        ("a member", json!({ "metadata": { "annotations": { HANDLE: "g" } } }), Step::Rest),
        (
            "a member that is told",
            json!({ "metadata": { "annotations": { HANDLE: "g" } }, "status": member }),
            Step::Look,
        ),
        ("deleted", json!({ "metadata": gone, "status": ready }), Step::Remove),
        ("deleted when not ready", json!({ "metadata": gone, "status": cut }), Step::Remove),
        ("deleted before it was taken", json!({ "metadata": gone }), Step::Release),
        ("deleted while it is taken", json!({ "metadata": marked }), Step::Take),
        ("a deleted member", json!({ "metadata": gone, "status": member }), Step::Release),
        (
            "deleted and kept",
            json!({ "metadata": gone, "status": ready, "spec": { "deletionPolicy": "Retain" } }),
            Step::Release,
        ),
        (
            "deleted alone",
            json!({ "metadata": { "deletionTimestamp": going }, "status": ready }),
            Step::Rest,
        ),
        (
            "let go",
            json!({ "metadata": { "deletionTimestamp": going, "annotations": { DELETED: "yes" },
                "finalizers": ["other"] } }),
            Step::Rest,
        ),
    ] {
        assert_eq!(step(&with(changes)), wanted, "{name}");
    }
}

#[test]
fn own_writes_are_not_news() {
    let plain = with(json!({}));
    let error = json!({ "readyToUse": false, "error": { "message": "no" } });
    for own in [
        json!({ "metadata": { "annotations": { MARK: "yes" } } }),
        json!({ "status": error }),
        json!({ "metadata": { "finalizers": [] } }),
        json!({ "metadata": { "resourceVersion": "77" } }),
    ] {
        assert!(!is_news(&plain, &with(own.clone())), "{own}");
        assert!(!is_news(&with(own.clone()), &plain), "{own}");
    }
    for news in [
        json!({ "metadata": { "annotations": { DELETED: "yes" } } }),
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        json!({ "metadata": { "uid": "another" } }),
        json!({ "spec": { "deletionPolicy": "Retain" } }),
        json!({ "status": { "readyToUse": true } }),
        json!({ "status": { "snapshotHandle": "s", "volumeGroupSnapshotHandle": "g" } }),
    ] {
        assert!(is_news(&plain, &with(news.clone())), "{news}");
    }
}

#[test]
fn a_content_is_let_go_with_what_else_holds_it_and_only_as_it_was_seen() {
    let held = with(json!({ "metadata": { "finalizers": ["a", FINALIZER, "b"],
        "resourceVersion": "77" } }));

    let patch = patch::release(&held);

    let wanted = json!({ "metadata": { "finalizers": ["a", "b"], "resourceVersion": "77" } });
    assert_eq!(patch, wanted);
}

#[test]
fn what_was_told_once_stays_and_readiness_clears_the_error() {
    let at = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 5 };
    let snapshot = Snapshot {
        snapshot_id: "s".into(),
        size_bytes: 7,
        creation_time: Some(at),
        ready_to_use: true,
        ..Snapshot::default()
    };
    let first = contents::news(None, "s", &snapshot);
    let nanoseconds = 1_700_000_000_000_000_005_i64;
    assert_eq!(
        first,
        json!({ "snapshotHandle": "s", "readyToUse": true, "creationTime": nanoseconds,
            "restoreSize": 7 })
    );
    let known = with(json!({ "status": first })).status;
    let later = Snapshot { size_bytes: 9, creation_time: None, ..snapshot.clone() };
    assert_eq!(contents::news(known.as_ref(), "other", &later), json!({}));
    let failed = with(json!({ "status": patch::failed("no") })).status;
    let healed = contents::news(failed.as_ref(), "s", &snapshot);
    assert_eq!((&healed["error"], &healed["readyToUse"]), (&Value::Null, &json!(true)));
    assert!(healed.as_object().unwrap().contains_key("error"));
}

#[test]
fn a_group_without_members_tells_none() {
    let given = VolumeGroupSnapshot { ready_to_use: true, ..VolumeGroupSnapshot::default() };

    let news = group::news(None, "g", &given);

    assert_eq!(news["volumeGroupSnapshotHandle"], "g");
    assert!(!news.as_object().unwrap().contains_key("volumeSnapshotInfoList"));
}

#[test]
fn moments_are_written_as_the_objects_have_them() {
    let at = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 999_999_999 };
    assert_eq!(time::instant(Some(&at)), "2023-11-14T22:13:20Z");
    let never = prost_types::Timestamp { seconds: i64::MAX, nanos: 0 };
    assert_eq!(time::exact(&never), None);
    assert!(time::nanoseconds(Some(&never)) > 1_700_000_000_000_000_000);
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_driver_hears_its_own_parameters_and_the_names_of_the_objects() {
    let class = map(&[("a", "b"), ("csi.storage.k8s.io/snapshotter-secret-name", "key")]);

    let heard = parameters::for_driver(&class, [("x/name", "n"), ("x/namespace", "s"), ("y", "z")]);

    let wanted = [
        ("a", "b"),
        ("csi.storage.k8s.io/x/name", "n"),
        ("csi.storage.k8s.io/x/namespace", "s"),
        ("csi.storage.k8s.io/y", "z"),
    ];
    assert_eq!(heard.unwrap(), map(&wanted));
    let unknown = map(&[("csi.storage.k8s.io/fstype", "ext4")]);
    assert!(parameters::for_driver(&unknown, [("x", ""), ("y", ""), ("z", "")]).is_err());
}

const KEYS: Keys =
    Keys { name: "snapshotter-secret-name", namespace: "snapshotter-secret-namespace" };

fn secret(name: &str, namespace: &str, wish: Option<&ObjectRef>) -> Option<(String, String)> {
    let parameters = map(&[
        ("csi.storage.k8s.io/snapshotter-secret-name", name),
        ("csi.storage.k8s.io/snapshotter-secret-namespace", namespace),
    ]);
    let variables = Variables { kind: "volumesnapshot", content: "snapcontent-1", wish };
    let found = secrets::of_class(&parameters, KEYS, variables).ok()??;
    Some((found.namespace, found.name))
}

#[test]
fn secrets_of_a_class_may_hold_the_names_of_the_objects() {
    let wish = ObjectRef { namespace: "shop".into(), name: "nightly".into(), uid: "u".into() };
    let found = secret("key-${volumesnapshot.name}", "${volumesnapshot.namespace}", Some(&wish));
    assert_eq!(found, Some(("shop".into(), "key-nightly".into())));
    let found = secret("${volumesnapshotcontent.name}", "vault", None);
    assert_eq!(found, Some(("vault".into(), "snapcontent-1".into())));
}

#[test]
fn users_cannot_choose_a_namespace_nor_leave_the_path() {
    let wish = ObjectRef { namespace: "shop".into(), name: "../x".into(), uid: "u".into() };
    for (name, namespace) in [
        ("a", "${volumesnapshot.name}"),
        ("a", "${pvc.namespace}"),
        ("${volumesnapshot.name}", "vault"),
        ("$volumesnapshot.name", "vault"),
        ("${volumesnapshotcontent.name", "vault"),
        ("", "vault"),
        ("a", ""),
        ("a", "v.w"),
        ("a..b", "vault"),
    ] {
        assert_eq!(secret(name, namespace, Some(&wish)), None, "{name:?} {namespace:?}");
    }
    // Who looks at what others took has no wish to ask.
    assert_eq!(secret("a", "${volumesnapshot.namespace}", None), None);
    let half = map(&[("csi.storage.k8s.io/snapshotter-secret-name", "a")]);
    let variables = Variables { kind: "volumesnapshot", content: "c", wish: None };
    assert!(secrets::of_class(&half, KEYS, variables).is_err());
}

#[test]
fn a_secret_that_a_content_names_must_be_one() {
    let keys = Keys { name: "n", namespace: "ns" };
    let named = |name: &str, namespace: &str| {
        let annotations = json!({ "annotations": { "n": name, "ns": namespace } });
        secrets::of_object(&with(json!({ "metadata": annotations })), keys)
    };
    assert_eq!(named("key", "vault").unwrap().unwrap().name, "key");
    assert!(named("../../pods", "vault").is_err() && named("", "vault").is_err());
    assert_eq!(secrets::of_object(&with(json!({})), keys).unwrap(), None);
}
