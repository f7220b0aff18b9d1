//! Pools on a node, and what is known of them without one.

use hawser_core::class::Ability;
use hawser_core::port::progress::Silent;
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Kind};
use hawser_testkit::contract::provider::ProviderRig;
use serde_json::{Value, json};

use super::super::PoolKind;
use super::rig::{fake, on_node};
use super::volumes::{at_provider, wanted};
use crate::ProviderType;

fn outline(settings: Value) -> hawser_core::Result<crate::Outline> {
    let settings = settings.as_object().expect("an object").clone();
    Ok(super::super::Local.outline(&settings)?.expect("a pool is on a node"))
}

#[tokio::test]
async fn the_outline_says_what_an_open_pool_says() {
    for kind in [PoolKind::Image, PoolKind::Folder] {
        let rig = fake(kind).await.expect("always there");
        let opened = rig.provider();

        let outline = outline(rig.settings.clone()).expect("the settings are right");

        assert_eq!(outline.abilities, opened.abilities());
        assert_eq!(outline.default_access, opened.default_access());
        let volume = wanted(ByteSize::mib(1), Access::Block);
        assert_eq!((outline.handle)(&volume.id), opened.handle(&volume.id));
        let snapshot = hawser_core::id::SnapshotId::generate();
        let snapshots = opened.snapshots().expect("pools have snapshots");
        assert_eq!((outline.snapshot_handle)(&snapshot), snapshots.snapshot_handle(&snapshot));
    }
}

#[tokio::test]
async fn wrong_settings_have_no_outline() {
    for settings in [json!({}), json!({ "path": "pool" }), json!({ "path": "/p", "pathh": 1 })] {
        let error = outline(settings.clone()).expect_err("wrong settings");
        assert_eq!(error.kind(), Kind::Invalid, "{settings}");
    }
}

#[tokio::test]
async fn only_a_pool_that_knows_its_node_has_places() {
    let (plain, placed) = (fake(PoolKind::Image).await, on_node(PoolKind::Image).await);
    let (plain, placed) = (plain.expect("always there"), placed.expect("always there"));

    assert!(!plain.provider().abilities().contains(&Ability::Placement));
    assert!(placed.provider().abilities().contains(&Ability::Placement));
}

#[tokio::test]
async fn a_volume_is_not_handed_to_another_node() {
    let rig = on_node(PoolKind::Image).await.expect("always there");
    let wanted = wanted(ByteSize::mib(1), Access::Block);
    rig.provider().create(&wanted, &Silent).await.expect("there is room");
    let mut node = hawser_core::node::NodeRecord {
        id: "node-1".parse().expect("a legal name"),
        properties: Default::default(),
        topology: Default::default(),
        boot_id: "boot".into(),
        privileged: true,
        last_seen: hawser_core::Timestamp::UNIX_EPOCH,
    };
    let volume = at_provider(&wanted);

    rig.provider().publish(&volume, &node, false).await.expect("its own node");
    node.id = "node-2".parse().expect("a legal name");
    let error = rig.provider().publish(&volume, &node, false).await.expect_err("another node");

    assert_eq!(error.kind(), Kind::Precondition);
    assert!(error.sentence().contains("node-1") && error.sentence().contains("node-2"), "{error}");
}
