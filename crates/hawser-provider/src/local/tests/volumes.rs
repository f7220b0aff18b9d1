//! What volumes and snapshots of a pool are.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use hawser_core::attach::Identity;
use hawser_core::filesystem::FsKind;
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::{Provision, ProvisionSource, VolumeAtProvider};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Error, Kind};
use hawser_testkit::contract::provider::ProviderRig;
use serde_json::json;

use super::super::PoolKind;
use super::rig::{PoolRig, fake, room};

pub(super) fn wanted(size: ByteSize, access: Access) -> Provision {
    Provision {
        id: VolumeId::generate(),
        size,
        access,
        source: None,
        parameters: Default::default(),
        place: None,
    }
}

pub(super) fn at_provider(wanted: &Provision) -> VolumeAtProvider {
    VolumeAtProvider {
        id: wanted.id.clone(),
        handle: wanted.id.to_string(),
        size: wanted.size,
        access: wanted.access,
        parameters: Default::default(),
        place: None,
        in_use: false,
    }
}

async fn rig(kind: PoolKind) -> PoolRig {
    fake(kind).await.expect("always there")
}

async fn image(rig: &PoolRig, mib: u64) -> VolumeAtProvider {
    let wanted = wanted(ByteSize::mib(mib), Access::Block);
    rig.provider().create(&wanted, &Silent).await.expect("there is room");
    at_provider(&wanted)
}

#[tokio::test]
async fn sizes_are_rounded_up_and_the_impossible_is_refused() {
    let rig = rig(PoolKind::Image).await;
    let check = |bytes, access| {
        let provider = rig.provider();
        async move { provider.check(&wanted(ByteSize::bytes(bytes), access)).await }
    };

    assert_eq!(check(1, Access::Block).await.unwrap(), ByteSize::mib(1));
    assert_eq!(check((1 << 20) + 1, Access::Block).await.unwrap(), ByteSize::mib(2));
    for impossible in [0, i64::MAX as u64, u64::MAX] {
        let error = check(impossible, Access::Block).await.unwrap_err();
        assert_eq!(error.kind(), Kind::OutOfRange, "{impossible}");
    }
    let error = check(200 << 20, Access::Filesystem(FsKind::Xfs)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::OutOfRange);
    let said = error.to_string();
    assert!(said.contains("200MiB") && said.contains("300MiB"), "{said}");
}

#[tokio::test]
async fn each_kind_of_pool_serves_its_own_access() {
    let (images, folders) = (rig(PoolKind::Image).await, rig(PoolKind::Folder).await);
    for (rig, access, can) in [
        (&images, Access::Block, true),
        (&images, Access::Filesystem(FsKind::Btrfs), true),
        (&images, Access::Folder, false),
        (&folders, Access::Folder, true),
        (&folders, Access::Block, false),
        (&folders, Access::Filesystem(FsKind::Ext4), false),
    ] {
        let checked = rig.provider().check(&wanted(ByteSize::mib(512), access)).await;
        assert_eq!(
            checked.err().map(|e| e.kind()),
            (!can).then_some(Kind::Unsupported),
            "{access}"
        );
    }
}

#[tokio::test]
async fn an_image_is_sparse_private_and_published_by_its_real_path() {
    let mut rig = rig(PoolKind::Image).await;
    rig.settings["sector_size"] = json!(4096);
    rig.reopen().await;
    let volume = image(&rig, 16).await;

    let info = publish(&rig, &volume).await;

    let path = rig.path.join(format!("volumes/{}.img", volume.id));
    let meta = path.metadata().unwrap();
    assert_eq!((meta.len(), meta.blocks(), meta.mode() & 0o777), (16 << 20, 0, 0o600));
    assert_eq!(info.protocol.as_str(), "LOCAL");
    assert_eq!(
        serde_json::Value::Object(info.data),
        json!({ "path": path, "kind": "file", "volume_id": volume.id, "sector_size": 4096 })
    );
    assert_eq!(info.identity, Some(Identity::new("image", volume.id.as_str())));
}

#[tokio::test]
async fn a_folder_volume_publishes_its_data_and_no_identity() {
    let rig = rig(PoolKind::Folder).await;
    let wanted = wanted(ByteSize::mib(3), Access::Folder);
    rig.provider().create(&wanted, &Silent).await.unwrap();

    let info = publish(&rig, &at_provider(&wanted)).await;

    let path = rig.path.join(format!("volumes/{}/data", wanted.id));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(
        serde_json::Value::Object(info.data),
        json!({ "path": path, "kind": "directory", "volume_id": wanted.id })
    );
    assert_eq!(info.identity, None);
}

async fn publish(
    rig: &PoolRig,
    volume: &VolumeAtProvider,
) -> hawser_core::connection::ConnectionInfo {
    let node = hawser_core::node::NodeRecord {
        id: "n1".parse().expect("a legal name"),
        properties: Default::default(),
        topology: Default::default(),
        boot_id: "b".into(),
        privileged: true,
        last_seen: hawser_core::Timestamp::UNIX_EPOCH,
    };
    rig.provider().publish(volume, &node, false).await.expect("it can be published")
}

#[tokio::test]
async fn snapshots_of_images_are_read_only_and_copies_of_them_are_not() {
    let rig = rig(PoolKind::Image).await;
    let volume = image(&rig, 1).await;
    let provider = rig.provider();
    let id = SnapshotId::generate();
    let taken = provider.snapshots().unwrap().snapshot(&volume, &id, &Silent).await.unwrap();

    let mut copy = wanted(ByteSize::mib(2), Access::Block);
    copy.source = Some(ProvisionSource::Snapshot(taken.into_inner()));
    provider.create(&copy, &Silent).await.unwrap();

    let mode = |name: String| rig.path.join(name).metadata().unwrap().mode() & 0o777;
    assert_eq!(mode(format!("snapshots/{id}.img")), 0o400);
    assert_eq!(mode(format!("volumes/{}.img", copy.id)), 0o600);
    assert_eq!(
        rig.path.join(format!("volumes/{}.img", copy.id)).metadata().unwrap().len(),
        2 << 20
    );
}

#[tokio::test]
async fn a_larger_volume_under_the_same_id_is_refused_with_both_sizes() {
    let rig = rig(PoolKind::Image).await;
    let volume = image(&rig, 1).await;
    let mut other = wanted(ByteSize::mib(2), Access::Block);
    other.id = volume.id;

    let error = rig.provider().create(&other, &Silent).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Exists);
    assert!(error.sentence().contains("1MiB") && error.sentence().contains("2MiB"), "{error:?}");
}

#[tokio::test]
async fn an_image_with_a_device_on_it_is_not_deleted() {
    let rig = rig(PoolKind::Image).await;
    let volume = image(&rig, 1).await;
    let file = rig.path.join(format!("volumes/{}.img", volume.id));
    rig.fake().add_foreign_loop(&file, None);

    let error = rig.provider().delete(&volume).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Busy, "{error:?}");
    assert!(file.exists());
}

#[tokio::test]
async fn what_has_our_name_but_is_not_ours_is_left_alone() {
    let rig = rig(PoolKind::Image).await;
    let outside = rig.fake().dir().join("outside");
    std::fs::write(&outside, b"precious").unwrap();
    let wanted = wanted(ByteSize::mib(1), Access::Block);
    std::os::unix::fs::symlink(&outside, rig.path.join(format!("volumes/{}.img", wanted.id)))
        .unwrap();
    let (provider, volume) = (rig.provider(), at_provider(&wanted));

    let created = provider.create(&wanted, &Silent).await.unwrap_err();
    let grown = provider.expand().unwrap().expand(&volume, ByteSize::mib(2)).await.unwrap_err();
    let deleted = provider.delete(&volume).await.unwrap_err();

    for error in [created, grown, deleted] {
        assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    }
    assert_eq!(std::fs::read(&outside).unwrap(), b"precious");
}

#[tokio::test]
async fn a_folder_keeps_its_new_size_over_a_restart() {
    let mut rig = rig(PoolKind::Folder).await;
    let wanted = wanted(ByteSize::mib(1), Access::Folder);
    rig.provider().create(&wanted, &Silent).await.unwrap();
    let volume = at_provider(&wanted);
    rig.provider().expand().unwrap().expand(&volume, ByteSize::mib(5)).await.unwrap();

    rig.reopen().await;

    let provider = rig.provider();
    let found = provider.expand().unwrap().expand(&volume, ByteSize::mib(2)).await.unwrap();
    assert_eq!(found, hawser_core::Change::Already(ByteSize::mib(5)));
    assert_eq!(provider.capacity().unwrap().capacity().await.unwrap().promised, ByteSize::mib(5));
}

#[tokio::test]
async fn a_copy_that_the_medium_cannot_take_is_refused_unless_blocks_are_shared() {
    let mut rig = rig(PoolKind::Image).await;
    rig.settings["overcommit"] = json!(100);
    rig.settings["reserve"] = json!(0);
    rig.reopen().await;
    let volume = image(&rig, 16).await;
    let path = rig.path.join(format!("volumes/{}.img", volume.id));
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(16 << 20).unwrap();
    rig.fake().set_usage(room(4));
    let id = SnapshotId::generate();

    let full = rig.provider();
    let refused = full.snapshots().unwrap().snapshot(&volume, &id, &Silent).await.unwrap_err();
    drop(full);
    assert_eq!(refused.kind(), Kind::NoSpace, "{refused:?}");
    assert!(refused.sentence().contains("4MiB"), "{refused:?}");

    rig.fake().set_shares_blocks(true);
    rig.reopen().await;
    let provider = rig.provider();
    provider.snapshots().unwrap().snapshot(&volume, &id, &Silent).await.expect("shared blocks");
    let capacity = provider.capacity().unwrap().capacity().await.unwrap();
    assert_eq!(capacity.promised, ByteSize::mib(16 + 8), "a snapshot counts with what it takes");
}

#[tokio::test]
async fn what_volumes_have_written_is_measured_before_a_refusal() {
    let rig = rig(PoolKind::Folder).await;
    let first = wanted(ByteSize::mib(600), Access::Folder);
    rig.provider().create(&first, &Silent).await.unwrap();
    // The volume fills up: the file system loses what the volume was promised anyway.
    let data = rig.path.join(format!("volumes/{}/data/file", first.id));
    std::fs::write(data, vec![7; 32 << 20]).unwrap();
    rig.fake().set_usage(room(1024 - 32));

    // 1024 less the reserve of 1 % and the 600 promised leave 413.
    let second = wanted(ByteSize::mib(400), Access::Folder);
    rig.provider().create(&second, &Silent).await.expect("there is room");

    let third = wanted(ByteSize::mib(20), Access::Folder);
    let error = rig.provider().create(&third, &Silent).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace, "{error:?}");
}

/// Asks for a snapshot and a clone of a volume, and answers what came of each.
async fn copies(rig: &PoolRig, of: &VolumeAtProvider) -> [Result<(), Error>; 2] {
    let provider = rig.provider();
    let id = SnapshotId::generate();
    let taken = provider.snapshots().unwrap().snapshot(of, &id, &Silent).await;
    let source = Some(ProvisionSource::Volume(of.clone()));
    let clone = Provision { source, ..wanted(of.size, of.access) };
    [taken.map(drop), provider.create(&clone, &Silent).await.map(drop)]
}

#[tokio::test]
async fn what_is_being_written_is_copied_at_one_instant_or_not_at_all() {
    let mut rig = rig(PoolKind::Image).await;
    let volume = VolumeAtProvider { in_use: true, ..image(&rig, 16).await };
    let before = rig.holds();

    for refused in copies(&rig, &volume).await {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
        assert!(error.sentence().contains("xfs"), "{error:?}");
    }
    assert_eq!(rig.holds(), before);

    rig.fake().set_shares_blocks(true);
    rig.reopen().await;
    for copied in copies(&rig, &volume).await {
        copied.expect("shared in one call");
    }
    let before = rig.holds();
    rig.fake().set_shares_blocks(false);
    for refused in copies(&rig, &volume).await {
        assert_eq!(refused.unwrap_err().kind(), Kind::Precondition, "this file was not shared");
    }
    assert_eq!(rig.holds(), before);
}

#[tokio::test]
async fn a_folder_that_is_being_written_is_not_copied() {
    let mut rig = rig(PoolKind::Folder).await;
    rig.fake().set_shares_blocks(true);
    rig.reopen().await;
    let wanted = wanted(ByteSize::mib(16), Access::Folder);
    rig.provider().create(&wanted, &Silent).await.unwrap();
    let before = rig.holds();

    let volume = VolumeAtProvider { in_use: true, ..at_provider(&wanted) };
    for refused in copies(&rig, &volume).await {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    }
    assert_eq!(rig.holds(), before);
}
