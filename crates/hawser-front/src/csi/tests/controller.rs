//! Rows 5, 9 to 28 and 57 to 65: volumes from creation to deletion.

use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use hawser_api::csi::v1::*;
use hawser_core::filesystem::FsKind;
use hawser_core::volume::{Access, Sharing};
use hawser_core::{Error, Kind, Outcome};
use tonic::Code;

use super::rig::{GIB, Rig, block, code, map, mount, mount_as, new};

fn range(required_bytes: i64, limit_bytes: i64) -> Option<CapacityRange> {
    Some(CapacityRange { required_bytes, limit_bytes })
}

fn from_snapshot(id: &str) -> Option<VolumeContentSource> {
    let source = SnapshotSource { snapshot_id: id.to_owned() };
    Some(VolumeContentSource { r#type: Some(Type::Snapshot(source)) })
}

fn from_volume(id: &str) -> Option<VolumeContentSource> {
    let source = VolumeSource { volume_id: id.to_owned() };
    Some(VolumeContentSource { r#type: Some(Type::Volume(source)) })
}

async fn create(rig: &Rig, request: CreateVolumeRequest) -> Code {
    code(rig.controller().create_volume(request).await)
}

async fn snapshot_of(rig: &Rig, volume: &str) -> String {
    let request = CreateSnapshotRequest {
        name: format!("snap-of-{volume}"),
        source_volume_id: volume.to_owned(),
        ..CreateSnapshotRequest::default()
    };
    let answer = rig.controller().create_snapshot(request).await.unwrap().into_inner();
    answer.snapshot.unwrap().snapshot_id
}

/// Rows 9 and 10.
#[tokio::test]
async fn what_is_missing_is_asked_for() {
    let rig = Rig::start().await;

    assert_eq!(create(&rig, new("", mount())).await, Code::InvalidArgument);
    let none = CreateVolumeRequest { volume_capabilities: vec![], ..new("data", mount()) };
    assert_eq!(create(&rig, none).await, Code::InvalidArgument);
    let bare = VolumeCapability { access_type: None, ..mount() };
    assert_eq!(create(&rig, new("data", bare)).await, Code::InvalidArgument);
    let source = VolumeContentSource { r#type: None };
    let empty = CreateVolumeRequest { volume_content_source: Some(source), ..new("data", mount()) };
    assert_eq!(create(&rig, empty).await, Code::InvalidArgument);
    assert_eq!(create(&rig, new("a\u{7}b", mount())).await, Code::InvalidArgument);
    assert_eq!(rig.control.count(), 0);
    rig.stop().await;
}

/// Rows 11 to 15.
#[tokio::test]
async fn a_name_leads_to_one_volume() {
    let rig = Rig::start().await;
    let exact = CreateVolumeRequest { capacity_range: range(GIB, GIB), ..new("data", mount()) };

    let first = rig.controller().create_volume(exact.clone()).await.unwrap().into_inner();
    let again = rig.controller().create_volume(exact.clone()).await.unwrap().into_inner();

    assert_eq!(first, again);
    let volume = first.volume.unwrap();
    assert_eq!(volume.capacity_bytes, GIB);
    assert!(!volume.volume_id.is_empty() && volume.volume_id.len() <= 128);
    let other = CreateVolumeRequest { capacity_range: range(2 * GIB, 2 * GIB), ..exact };
    assert_eq!(create(&rig, other).await, Code::AlreadyExists);
    assert_eq!(create(&rig, new("data", block(Mode::SingleNodeWriter))).await, Code::AlreadyExists);
    assert_eq!(create(&rig, new(&"n".repeat(128), mount())).await, Code::Ok);
    assert_eq!(create(&rig, new(&"ü".repeat(64), mount())).await, Code::Ok);
    let none = CreateVolumeRequest { capacity_range: None, ..new("unsized", mount()) };
    assert_eq!(create(&rig, none).await, Code::Ok);
    rig.stop().await;
}

#[tokio::test]
async fn sizes_are_kept_within_their_range() {
    let rig = Rig::start().await;
    let with = |required, limit| CreateVolumeRequest {
        capacity_range: range(required, limit),
        ..new("data", mount())
    };

    assert_eq!(create(&rig, with(-1, 0)).await, Code::InvalidArgument);
    assert_eq!(create(&rig, with(2 * GIB, GIB)).await, Code::OutOfRange);
    // The storage makes whole mebibytes, and the range has none.
    assert_eq!(create(&rig, with(GIB + 1, GIB + 2)).await, Code::OutOfRange);
    assert_eq!(rig.control.count(), 0, "what was too large is gone");
    rig.stop().await;
}

/// Rows 16 to 19.
#[tokio::test]
async fn copies_say_what_they_are_made_from() {
    let rig = Rig::start().await;
    let source = rig.create(new("source", mount())).await;
    let snapshot = snapshot_of(&rig, &source).await;
    let copy = |name: &str, volume_content_source| CreateVolumeRequest {
        volume_content_source,
        ..new(name, mount())
    };

    for (name, content) in
        [("restored", from_snapshot(&snapshot)), ("cloned", from_volume(&source))]
    {
        let answer = rig.controller().create_volume(copy(name, content.clone())).await.unwrap();
        assert_eq!(answer.into_inner().volume.unwrap().content_source, content, "{name}");
    }
    for missing in [
        from_snapshot("non-existing-snapshot-id"),
        from_volume("non-existing-volume-id"),
        from_snapshot("snap-01k5zzzzzzzzzzzzzzzzzzzzzz"),
        from_volume("../../etc"),
    ] {
        assert_eq!(create(&rig, copy("x", missing)).await, Code::NotFound);
    }
    let empty = copy("x", from_snapshot(""));
    assert_eq!(create(&rig, empty).await, Code::InvalidArgument);
    let small = CreateVolumeRequest {
        capacity_range: range(GIB / 2, 0),
        ..copy("x", from_volume(&source))
    };
    assert_eq!(create(&rig, small).await, Code::OutOfRange);
    rig.stop().await;
}

#[tokio::test]
async fn a_raw_device_is_not_copied_into_a_file_system() {
    let rig = Rig::start().await;
    let source = rig.create(new("source", block(Mode::SingleNodeWriter))).await;
    let copy = |capability| CreateVolumeRequest {
        volume_content_source: from_volume(&source),
        ..new("copy", capability)
    };

    assert_eq!(create(&rig, copy(mount())).await, Code::InvalidArgument);
    assert_eq!(
        create(&rig, copy(mount_as("ext4", Mode::SingleNodeWriter))).await,
        Code::InvalidArgument
    );
    assert_eq!(create(&rig, copy(block(Mode::SingleNodeWriter))).await, Code::Ok);
    rig.stop().await;
}

/// Rows 20 and 21.
#[tokio::test]
async fn labels_can_be_set_and_nothing_else() {
    let rig = Rig::start().await;
    let with = |pairs: &[(&str, &str)]| CreateVolumeRequest {
        mutable_parameters: map(pairs),
        ..new("data", mount())
    };

    assert_eq!(create(&rig, with(&[("XXX_FakeKey", "1")])).await, Code::InvalidArgument);
    let id = rig.create(with(&[("label.team", "db")])).await;

    assert_eq!(rig.control.volume_of(&id).unwrap().labels.get("team"), Some("db"));
    rig.stop().await;
}

#[tokio::test]
async fn parameters_choose_the_class_and_reach_the_provider() {
    let rig = Rig::start().await;
    let with = |pairs: &[(&str, &str)]| CreateVolumeRequest {
        parameters: map(pairs),
        ..new("data", mount())
    };

    for bad in [&[("class", "gold")][..], &[("class", "A B")], &[("colour", "red")]] {
        assert_eq!(create(&rig, with(bad)).await, Code::InvalidArgument, "{bad:?}");
    }
    let id = rig
        .create(with(&[
            ("class", "files"),
            ("type", "ssd"),
            ("csi.storage.k8s.io/pvc/name", "claim"),
        ]))
        .await;

    let volume = rig.control.volume_of(&id).unwrap();
    assert_eq!((volume.class.as_str(), volume.access), ("files", Access::Folder));
    assert_eq!(volume.parameters, map(&[("type", "ssd")]));
    assert_eq!(volume.labels.get("csi.storage.k8s.io/pvc.name"), Some("claim"));
    rig.stop().await;
}

#[tokio::test]
async fn capabilities_decide_what_is_made() {
    let rig = Rig::start().await;
    let made = async |name: &str, capability| {
        let id = rig.create(new(name, capability)).await;
        let volume = rig.control.volume_of(&id).unwrap();
        (volume.access, volume.sharing)
    };

    let ext4 = Access::Filesystem(FsKind::Ext4);
    assert_eq!(made("a", mount()).await, (ext4, Sharing::SingleWriter));
    let xfs = mount_as("xfs", Mode::MultiNodeReaderOnly);
    assert_eq!(made("b", xfs).await, (Access::Filesystem(FsKind::Xfs), Sharing::ManyReaders));
    let shared = block(Mode::MultiNodeMultiWriter);
    assert_eq!(made("c", shared).await, (Access::Block, Sharing::ManyWriters));
    // A file system of a device cannot be written by two nodes; a folder can.
    let shared = mount_as("", Mode::MultiNodeMultiWriter);
    assert_eq!(create(&rig, new("d", shared.clone())).await, Code::InvalidArgument);
    let files = CreateVolumeRequest { parameters: map(&[("class", "files")]), ..new("d", shared) };
    assert_eq!(create(&rig, files).await, Code::Ok);
    rig.stop().await;
}

#[tokio::test]
async fn topology_of_others_is_refused() {
    let rig = Rig::start().await;
    let at = |key: &str| {
        let requisite = vec![Topology { segments: map(&[(key, "x")]) }];
        let requirement = TopologyRequirement { requisite, preferred: vec![] };
        CreateVolumeRequest {
            accessibility_requirements: Some(requirement),
            ..new("data", mount())
        }
    };

    assert_eq!(create(&rig, at("topology.kubernetes.io/zone")).await, Code::InvalidArgument);
    assert_eq!(create(&rig, at("topology.hawser.storage/node")).await, Code::Ok);
    rig.stop().await;
}

/// Rows 22 to 24.
#[tokio::test]
async fn deleting_what_is_not_there_is_fine() {
    let rig = Rig::start().await;
    let delete = async |id: &str| {
        let request = DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        code(rig.controller().delete_volume(request).await)
    };
    let id = rig.create(new("data", mount())).await;

    assert_eq!(delete("").await, Code::InvalidArgument);
    for absent in ["fake-vol-id", "vol-01k5zzzzzzzzzzzzzzzzzzzzzz", "../../etc"] {
        assert_eq!(delete(absent).await, Code::Ok, "{absent}");
    }
    assert_eq!(delete(&id).await, Code::Ok);
    assert_eq!(delete(&id).await, Code::Ok);
    assert_eq!(rig.control.count(), 0);
    rig.stop().await;
}

/// Rows 25 to 28.
#[tokio::test]
async fn capabilities_are_confirmed_or_explained() {
    let rig = Rig::start().await;
    let id = rig.create(new("data", mount())).await;
    let validate = async |id: &str, capabilities: Vec<VolumeCapability>| {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: id.to_owned(),
            volume_capabilities: capabilities,
            parameters: map(&[("class", "default")]),
            ..Default::default()
        };
        rig.controller().validate_volume_capabilities(request).await
    };

    assert_eq!(code(validate("", vec![mount()]).await), Code::InvalidArgument);
    assert_eq!(code(validate("fake-vol-id", vec![]).await), Code::InvalidArgument);
    assert_eq!(code(validate("fake-vol-id", vec![mount()]).await), Code::NotFound);
    let fine = validate(&id, vec![mount()]).await.unwrap().into_inner();
    let confirmed = fine.confirmed.unwrap();
    assert_eq!(confirmed.volume_capabilities, [mount()]);
    assert_eq!(confirmed.parameters, map(&[("class", "default")]));
    for other in [
        block(Mode::SingleNodeWriter),
        mount_as("xfs", Mode::SingleNodeWriter),
        mount_as("zfs", Mode::SingleNodeWriter),
        mount_as("", Mode::MultiNodeMultiWriter),
        mount_as("", Mode::MultiNodeReaderOnly),
    ] {
        let answer = validate(&id, vec![mount(), other]).await.unwrap().into_inner();
        assert!(answer.confirmed.is_none() && !answer.message.is_empty(), "{answer:?}");
    }
    let zfs = || mount_as("zfs", Mode::SingleNodeWriter);
    assert_eq!(code(validate("fake-vol-id", vec![zfs()]).await), Code::NotFound);
    let unreadable = mount_as("zfs", Mode::Unknown);
    assert_eq!(code(validate(&id, vec![zfs(), unreadable]).await), Code::InvalidArgument);
    rig.stop().await;
}

/// Row 5, and what the scheduler is told.
#[tokio::test]
async fn room_is_told_for_a_class_and_a_place() {
    let rig = Rig::start().await;
    let capacity = async |class: Option<&str>, node: Option<&str>| {
        let topology =
            node.map(|node| Topology { segments: map(&[("topology.hawser.storage/node", node)]) });
        let request = GetCapacityRequest {
            parameters: class.map(|class| map(&[("class", class)])).unwrap_or_default(),
            accessible_topology: topology,
            ..Default::default()
        };
        rig.controller().get_capacity(request).await.unwrap().into_inner()
    };

    let default = capacity(None, None).await;
    assert_eq!(default.available_capacity, 100 * GIB);
    assert_eq!(default.maximum_volume_size, Some(100 * GIB));
    assert_eq!(capacity(Some("default"), Some("n2")).await, default, "reached from everywhere");
    assert_eq!(capacity(Some("local"), Some("n1")).await.available_capacity, 10 * GIB);
    assert_eq!(capacity(Some("local"), Some("n2")).await.available_capacity, 0);
    assert_eq!(capacity(Some("gold"), None).await.available_capacity, 0);
    assert_eq!(capacity(Some("files"), None).await.available_capacity, i64::MAX, "cannot tell");
    let foreign = Topology { segments: map(&[("topology.kubernetes.io/zone", "a")]) };
    let request = GetCapacityRequest { accessible_topology: Some(foreign), ..Default::default() };
    let answer = rig.controller().get_capacity(request).await.unwrap().into_inner();
    assert_eq!(answer.available_capacity, 0);
    rig.stop().await;
}

/// Rows 57 to 59.
#[tokio::test]
async fn an_expanded_volume_is_as_large_as_was_asked_for() {
    let rig = Rig::start().await;
    let id = rig.create(new("data", mount())).await;
    let expand = async |id: &str, capacity_range| {
        let request = ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range,
            ..Default::default()
        };
        rig.controller().controller_expand_volume(request).await
    };

    assert_eq!(code(expand("", range(GIB, 0)).await), Code::InvalidArgument);
    assert_eq!(code(expand("fake-vol-id", None).await), Code::InvalidArgument);
    assert_eq!(code(expand("fake-vol-id", range(GIB, 0)).await), Code::NotFound);
    assert_eq!(code(expand(&id, range(2 * GIB, GIB)).await), Code::OutOfRange);
    let odd = 2 * GIB + 7;
    let grown = expand(&id, range(odd, 0)).await.unwrap().into_inner();
    assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (odd, true));
    let again = expand(&id, range(odd, 0)).await.unwrap().into_inner();
    assert_eq!(again, grown);
    let smaller = expand(&id, range(GIB / 2, 0)).await.unwrap().into_inner();
    assert!(smaller.capacity_bytes >= odd, "it is large enough already");
    assert_eq!(code(expand(&id, range(0, GIB)).await), Code::OutOfRange);
    rig.stop().await;
}

/// Rows 60 to 65.
#[tokio::test]
async fn only_labels_are_modified_and_all_or_none() {
    let rig = Rig::start().await;
    let id = rig.create(new("data", mount())).await;
    let modify = async |id: &str, pairs: &[(&str, &str)]| {
        let request = ControllerModifyVolumeRequest {
            volume_id: id.to_owned(),
            mutable_parameters: map(pairs),
            ..Default::default()
        };
        code(rig.controller().controller_modify_volume(request).await)
    };

    assert_eq!(modify("", &[("label.a", "1")]).await, Code::InvalidArgument);
    assert_eq!(modify(&id, &[]).await, Code::InvalidArgument);
    assert_eq!(modify("non-existing-volume-id", &[("label.a", "1")]).await, Code::NotFound);
    assert_eq!(modify(&id, &[("label.a", "1"), ("iops", "9")]).await, Code::InvalidArgument);
    assert!(rig.control.volume_of(&id).unwrap().labels.is_empty(), "nothing was changed");
    assert_eq!(
        modify(&id, &[("label.a", "1"), ("csi.storage.k8s.io/pv/name", "p")]).await,
        Code::Ok
    );
    assert_eq!(modify(&id, &[("label.b", "2")]).await, Code::Ok);
    let labels = rig.control.volume_of(&id).unwrap().labels;
    assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    rig.stop().await;
}

#[tokio::test]
async fn an_outcome_that_nobody_knows_is_never_told_as_final() {
    let rig = Rig::start().await;
    let lost = || Error::new(Kind::Internal, "the pool's own words").with_outcome(Outcome::Unknown);

    *rig.control.fail.lock().unwrap() = Some(lost);
    let answer = rig.controller().create_volume(new("data", mount())).await.unwrap_err();

    assert_eq!(answer.code(), Code::Unavailable);
    assert!(!answer.message().contains("own words"), "{answer}");
    *rig.control.fail.lock().unwrap() = Some(|| Error::new(Kind::NoSpace, "the pool is full"));
    let full = rig.controller().create_volume(new("data", mount())).await.unwrap_err();
    assert_eq!((full.code(), full.message()), (Code::ResourceExhausted, "the pool is full"));
    rig.stop().await;
}

#[tokio::test]
async fn work_that_goes_on_is_told_with_its_progress_and_found_later() {
    let rig = Rig::start().await;
    *rig.control.slow.lock().unwrap() = true;

    let answer = rig.controller().create_volume(new("data", mount())).await.unwrap_err();

    assert_eq!(answer.code(), Code::Aborted);
    assert!(answer.message().contains("still copying, 40 %"), "{answer}");
    *rig.control.slow.lock().unwrap() = false;
    assert_eq!(create(&rig, new("data", mount())).await, Code::Ok);
    assert_eq!(rig.control.count(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn health_is_told_where_it_is_asked_for() {
    let rig =
        Rig::with(crate::csi::CsiDriver::Published, |settings, _| settings.health = true).await;
    let id = rig.create(new("data", mount())).await;
    let get = async |id: &str| {
        let request =
            ControllerGetVolumeHealthRequest { volume_id: id.into(), ..Default::default() };
        rig.controller().controller_get_volume_health(request).await
    };
    let list = async || {
        let request = ControllerListVolumeHealthRequest::default();
        rig.controller().controller_list_volume_health(request).await.unwrap().into_inner().entries
    };

    assert_eq!(code(get("").await), Code::InvalidArgument);
    assert_eq!(code(get("fake-vol-id").await), Code::NotFound);
    let well = get(&id).await.unwrap().into_inner().volume_health.unwrap();
    assert!(well.health_statuses.is_empty() && list().await.is_empty());
    *rig.control.sick.lock().unwrap() = true;
    let sick = get(&id).await.unwrap().into_inner().volume_health.unwrap();
    assert_eq!(sick.health_statuses[0].status, VolumeHealthErrorType::Degraded as i32);
    assert_eq!(list().await, [sick]);
    rig.stop().await;
}
