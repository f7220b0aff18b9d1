use std::time::Duration;

use hawser_core::group::{GroupRef, GroupRequest};
use hawser_core::name::{Alias, Labels, NodeId, Scope};
use hawser_core::operation::OperationKind;
use hawser_core::place::Place;
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::{SourceRef, VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Error, Kind, Outcome};
use proptest::prelude::*;
use serde_json::json;

use super::groups::CreateGroup;
use super::operations::OperationKindView;
use super::problem::{KindView, Problem, is_retryable};
use super::volumes::{AccessView, CreateVolume, ExpandVolume, PatchVolume};
use super::{publications, reference, wait};

#[test]
fn words_of_the_wire_are_the_words_of_the_domain() {
    for kind in Kind::ALL {
        assert_eq!(json!(KindView::from(kind)), json!(kind.as_str()));
    }
    for kind in OperationKind::ALL {
        assert_eq!(json!(OperationKindView::from(kind)), json!(kind.as_str()));
    }
}

#[test]
fn a_request_for_a_volume_survives_the_way_through_json() {
    let mut request =
        VolumeRequest::new(Alias::new(Scope::Csi, "pvc/1 ü").unwrap(), ByteSize::gib(2));
    request.source =
        Some(SourceRef::Snapshot(SnapshotRef::Alias(Alias::new(Scope::Csi, "s:1").unwrap())));
    request.places = vec![Place::node(&"host-a".parse::<NodeId>().unwrap())];

    let text = serde_json::to_string(&CreateVolume::from(request.clone())).unwrap();
    let back: CreateVolume = serde_json::from_str(&text).unwrap();

    assert_eq!(VolumeRequest::try_from(back).unwrap(), request);
}

#[test]
fn a_request_for_a_group_survives_the_way_through_json() {
    let csi = Alias::new(Scope::Csi, "group/1 ü").unwrap();
    let volumes = ["data", "csi:pvc:1/2", "vol-01k5zzzzzzzzzzzzzzzzzzzzzz"];
    let volumes: Vec<_> = volumes.iter().map(|text| reference::volume(text).unwrap()).collect();
    let request = GroupRequest { alias: csi.clone(), volumes, labels: Labels::default() };

    let text = serde_json::to_string(&CreateGroup::from(request.clone())).unwrap();
    let back: CreateGroup = serde_json::from_str(&text).unwrap();

    assert_eq!(GroupRequest::try_from(back).unwrap(), request);
    let by_name = GroupRef::Alias(csi);
    assert_eq!(reference::group(&by_name.to_string()).unwrap(), by_name);
    for bad in [json!({ "name": "a" }), json!({ "name": "a", "volumes": ["b"], "volume": "c" })] {
        assert!(serde_json::from_value::<CreateGroup>(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn request_bodies_take_sizes_as_texts_and_refuse_what_they_do_not_know() {
    let body: CreateVolume =
        serde_json::from_value(json!({ "name": "a", "size": "10GiB" })).unwrap();
    assert_eq!(body.size, Some(ByteSize::gib(10)));
    for bad in [
        json!({ "name": "a", "sise": 1 }),
        json!({ "name": "a", "size": -1 }),
        json!({ "name": "a", "size": 1e30 }),
        json!({ "name": "a", "size": "1e30" }),
        json!({ "name": "a", "access": { "mode": "filesystem", "fs": "ext4", "x": 1 } }),
        json!({ "name": "a", "access": { "mode": "filesystem", "fs": "ntfs" } }),
        json!({ "name": "a", "source": { "volume": "b", "snapshot": "c" } }),
        json!({ "size": 1 }),
    ] {
        assert!(serde_json::from_value::<CreateVolume>(bad.clone()).is_err(), "{bad}");
    }
    assert!(serde_json::from_value::<ExpandVolume>(json!({ "size": 1, "force": true })).is_err());
    assert!(serde_json::from_value::<PatchVolume>(json!({ "size": 1 })).is_err());
}

#[test]
fn access_is_written_as_the_domain_writes_it() {
    let access = hawser_core::volume::Access::Filesystem(hawser_core::filesystem::FsKind::Xfs);
    assert_eq!(json!(AccessView::from(access)), json!(access));
}

#[test]
fn references_are_ids_names_or_names_of_another_world() {
    let csi = VolumeRef::Alias(Alias::new(Scope::Csi, "pvc:1/2").unwrap());
    assert_eq!(reference::volume(&csi.to_string()).unwrap(), csi);
    assert_eq!(reference::volume("data").unwrap(), VolumeRef::parse("data").unwrap());
    for bad in ["", "a/b", "..", "x:y", "heketi:zz", "nul\0", &"x".repeat(300)] {
        assert_eq!(reference::volume(bad).unwrap_err().kind(), Kind::Invalid, "{bad:?}");
    }
}

#[test]
fn waits_are_read_and_bounded() {
    for (text, millis) in [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("3", 3000), ("0", 0)]
    {
        assert_eq!(wait::parse(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for bad in ["", "s", "-1", "1.5", "1h", "601", "11m", "99999999999999999999", "1 s", "٣"] {
        assert!(wait::parse(bad).is_err(), "{bad}");
    }
    let long = Duration::from_secs(5000);
    assert_eq!(wait::parse(&wait::text(long)), Ok(wait::LONGEST_WAIT));
}

#[test]
fn mount_targets_from_outside_are_absolute_and_plain() {
    assert!(publications::target("/srv/data").is_ok());
    for bad in ["", "srv", "/a/../b", "/a\0b", &format!("/{}", "x".repeat(5000))] {
        assert_eq!(publications::target(bad).unwrap_err().kind(), Kind::Invalid, "{bad:?}");
    }
}

#[test]
fn a_problem_keeps_kind_outcome_and_lines() {
    let lines = vec!["creating volume data".to_owned(), "the pool is full".to_owned()];
    let problem = Problem::new(Kind::NoSpace, Outcome::RolledBack, lines.clone(), 507, "t1");

    assert_eq!(problem.detail, "creating volume data: the pool is full");
    let error = Error::from(problem);

    assert_eq!((error.kind(), error.outcome()), (Kind::NoSpace, Outcome::RolledBack));
    assert_eq!(error.chain(), lines);
}

#[test]
fn an_unknown_outcome_is_always_worth_repeating() {
    for kind in Kind::ALL {
        assert!(is_retryable(kind, Outcome::Unknown));
    }
    assert!(!is_retryable(Kind::Invalid, Outcome::Nothing));
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC*") {
        let _ = wait::parse(&text);
        let _ = reference::volume(&text);
        let _ = reference::snapshot(&text);
        let _ = reference::group(&text);
        let _ = publications::target(&text);
        let _ = serde_json::from_str::<CreateVolume>(&text);
        let _ = serde_json::from_str::<CreateGroup>(&text);
        let _ = serde_json::from_str::<Problem>(&text);
    }
}
