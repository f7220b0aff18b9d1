//! Which node is asked, and what becomes of nodes that are away or answer nonsense.

use std::sync::Arc;

use hawser_core::class::Ability;
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::node::NodeRecord;
use hawser_core::place::Place;
use hawser_core::port::pools::PoolAnswer;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::{Blank, Provision, ProvisionSource, VolumeAtProvider};
use hawser_core::port::{Node, Nodes};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Error, Kind, Outcome};
use hawser_testkit::contract::provider::ProviderRig;
use hawser_testkit::fake_host::FakeHost;
use serde_json::{Value, json};

use super::rig::{Cluster, TestNodes, at, cluster};
use crate::Deps;

fn wanted(node: &str) -> Provision {
    Provision {
        id: VolumeId::generate(),
        size: ByteSize::mib(4),
        access: Access::Block,
        source: None,
        parameters: Default::default(),
        place: Some(at(node)),
    }
}

fn volume(wanted: &Provision) -> VolumeAtProvider {
    VolumeAtProvider {
        id: wanted.id.clone(),
        handle: wanted.id.to_string(),
        size: wanted.size,
        access: wanted.access,
        parameters: Default::default(),
        place: wanted.place.clone(),
        in_use: false,
    }
}

async fn two() -> Cluster {
    cluster(&[("a", "east"), ("b", "west")]).await
}

async fn record(cluster: &Cluster, name: &str) -> NodeRecord {
    cluster.node(name).describe().await.unwrap()
}

#[tokio::test]
async fn a_volume_lives_on_the_node_of_its_place_alone() {
    let cluster = two().await;
    let (provider, wanted) = (&cluster.provider, wanted("b"));

    provider.create(&wanted, &Silent).await.unwrap();
    provider.publish(&volume(&wanted), &record(&cluster, "b").await, false).await.unwrap();

    assert_eq!(*cluster.node("b").asked.lock().unwrap(), ["create", "publish"]);
    assert!(cluster.node("a").asked.lock().unwrap().is_empty());
    let held = cluster.pools["a"].0.provider().inventory().unwrap().list().await.unwrap();
    assert!(held.volumes.is_empty());
    let held = cluster.pools["b"].0.provider().inventory().unwrap().list().await.unwrap();
    assert_eq!(held.volumes, [wanted.id.to_string()]);
}

#[tokio::test]
async fn a_volume_is_not_published_to_a_node_that_cannot_reach_it() {
    let cluster = two().await;
    let wanted = wanted("b");
    cluster.provider.create(&wanted, &Silent).await.unwrap();
    let other = record(&cluster, "a").await;

    let error = cluster.provider.publish(&volume(&wanted), &other, false).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition);
    assert!(error.to_string().contains("on node b"), "{error}");
}

#[tokio::test]
async fn without_its_node_nothing_is_done_and_the_volume_is_not_healthy() {
    let cluster = two().await;
    let (provider, wanted) = (&cluster.provider, wanted("b"));
    provider.create(&wanted, &Silent).await.unwrap();
    let volume = volume(&wanted);
    let away = record(&cluster, "b").await;
    cluster.nodes.remove("b");

    let expand = provider.expand().unwrap();
    let snapshots = provider.snapshots().unwrap();
    for error in [
        provider.create(&wanted, &Silent).await.map(drop).unwrap_err(),
        provider.delete(&volume).await.map(drop).unwrap_err(),
        provider.unpublish(&volume, &away).await.map(drop).unwrap_err(),
        expand.expand(&volume, ByteSize::mib(8)).await.map(drop).unwrap_err(),
        snapshots.snapshot(&volume, &SnapshotId::generate(), &Silent).await.map(drop).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Nothing));
        assert!(error.sentence().contains("node b"), "{error:?}");
    }
    let health = provider.health(&volume).await.unwrap();
    assert!(!health.healthy && health.message.contains("node b"), "{health:?}");
}

#[tokio::test]
async fn an_answer_to_something_else_leaves_changes_unknown_and_reads_unchanged() {
    let cluster = two().await;
    let wanted = wanted("a");
    let odd = || Some(Ok(PoolAnswer::Size(ByteSize::ZERO)));

    *cluster.node("a").instead.lock().unwrap() = odd();
    let changed = cluster.provider.create(&wanted, &Silent).await.map(drop).unwrap_err();
    *cluster.node("a").instead.lock().unwrap() = odd();
    let read = cluster.provider.health(&volume(&wanted)).await.map(drop).unwrap_err();

    assert_eq!((changed.kind(), changed.outcome()), (Kind::Internal, Outcome::Unknown));
    assert_eq!((read.kind(), read.outcome()), (Kind::Internal, Outcome::Nothing));
}

#[tokio::test]
async fn an_outcome_that_is_unknown_on_the_node_is_unknown_here() {
    let cluster = two().await;
    let lost = Error::new(Kind::Unavailable, "the link was lost").with_outcome(Outcome::Unknown);
    *cluster.node("a").instead.lock().unwrap() = Some(Err(lost));

    let error = cluster.provider.create(&wanted("a"), &Silent).await.map(drop).unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Unknown));
}

#[tokio::test]
async fn before_a_place_is_chosen_any_node_of_the_class_checks() {
    let cluster = two().await;
    *cluster.node("a").pool.lock().unwrap() = None;
    let mut anywhere = Provision { place: None, ..wanted("a") };

    let size = cluster.provider.check(&anywhere).await.unwrap();
    assert_eq!(size, ByteSize::mib(4));
    assert_eq!(*cluster.node("b").asked.lock().unwrap(), ["check"]);
    anywhere.access = Access::Folder;
    let error = cluster.provider.check(&anywhere).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "a refusal is not taken for an absent class");

    cluster.nodes.remove("b");
    let error = cluster.provider.check(&anywhere).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
}

#[tokio::test]
async fn a_copy_stays_on_the_node_of_its_source() {
    let cluster = two().await;
    let origin = wanted("a");
    cluster.provider.create(&origin, &Silent).await.unwrap();
    let source = Some(ProvisionSource::Volume(volume(&origin)));
    let moved = Provision { source: source.clone(), ..wanted("b") };
    let beside = Provision { source, ..wanted("a") };

    let error = cluster.provider.create(&moved, &Silent).await.map(drop).unwrap_err();
    cluster.provider.create(&beside, &Silent).await.unwrap();

    assert_eq!((error.kind(), error.outcome()), (Kind::Precondition, Outcome::Nothing));
    assert!(cluster.node("b").asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_has_no_node_is_refused_by_name() {
    let cluster = two().await;
    for place in [None, Some(Place::new([("zone".into(), "east".into())].into()))] {
        let lost = Provision { place, ..wanted("a") };

        let error = cluster.provider.create(&lost, &Silent).await.map(drop).unwrap_err();

        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains(lost.id.as_str()), "{error}");
    }
}

#[tokio::test]
async fn the_inventory_is_that_of_all_nodes_that_have_the_class() {
    let cluster = cluster(&[("a", "east"), ("b", "west"), ("c", "west")]).await;
    *cluster.node("c").pool.lock().unwrap() = None;
    let (one, two) = (wanted("a"), wanted("b"));
    cluster.provider.create(&one, &Silent).await.unwrap();
    cluster.provider.create(&two, &Silent).await.unwrap();
    cluster.pools["b"].0.plant_leftover(&VolumeId::generate());
    let inventory = cluster.provider.inventory().unwrap();

    let mut made = [one.id.to_string(), two.id.to_string()];
    made.sort();
    assert_eq!(inventory.list().await.unwrap().volumes, made);
    let found = inventory.survey(false).await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].subject.starts_with("b: "), "{found:?}");

    *cluster.node("a").instead.lock().unwrap() = Some(Err(Error::new(Kind::Unavailable, "away")));
    let error = inventory.list().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "a list with a hole would look like lost volumes");
}

#[tokio::test]
async fn the_abilities_are_those_of_the_storage_without_asking_a_node() {
    let cluster = two().await;
    let mut expected = cluster.pools["a"].0.provider().abilities();
    expected.push(Ability::Placement);
    cluster.nodes.remove("a");
    cluster.nodes.remove("b");

    assert_eq!(cluster.provider.abilities(), expected);
    assert_eq!(cluster.provider.default_access(), cluster.pools["a"].0.provider().default_access());
}

async fn refused(settings: Value, nodes: bool) -> Error {
    let deps = Deps::new("fast".parse().unwrap(), Arc::new(FakeHost::new()));
    let connected: Arc<dyn Nodes> = Arc::new(TestNodes::default());
    let deps = Deps { nodes: nodes.then_some(connected), ..deps };
    let settings = settings.as_object().unwrap().clone();
    crate::find("on_nodes").unwrap().open(settings, &deps).await.err().expect("refused")
}

#[tokio::test]
async fn settings_that_no_node_could_use_are_refused_at_once() {
    for (settings, word) in [
        (json!({ "path": "/pool" }), "of"),
        (json!({ "of": "tape" }), "tape"),
        (json!({ "of": "null" }), "null"),
        (json!({ "of": "on_nodes", "path": "/pool" }), "on_nodes"),
        (json!({ "of": "local", "path": "pool" }), "absolute"),
        (json!({ "of": "local", "path": "/pool", "pathh": 1 }), "pathh"),
    ] {
        let error = refused(settings.clone(), true).await;
        assert_eq!(error.kind(), Kind::Invalid, "{settings}");
        assert!(error.sentence().contains(word), "{settings}: {error:?}");
    }
    let error = refused(json!({ "of": "local", "path": "/pool" }), false).await;
    assert!(error.to_string().contains("no nodes"), "{error}");
}

#[tokio::test]
async fn blank_volumes_are_those_of_the_nodes_that_can_tell() {
    let cluster = cluster(&[("a", "east"), ("b", "west"), ("c", "west"), ("d", "west")]).await;
    *cluster.node("c").pool.lock().unwrap() = None;
    let (one, two) = (wanted("a"), wanted("b"));
    cluster.provider.create(&one, &Silent).await.unwrap();
    cluster.provider.create(&two, &Silent).await.unwrap();
    let blanks = cluster.provider.blanks().unwrap();
    // What a node of an earlier version says of a call that it does not know, and one that is away.
    for (node, kind) in [("b", Kind::Invalid), ("d", Kind::Unavailable)] {
        *cluster.node(node).instead.lock().unwrap() = Some(Err(Error::new(kind, "no")));
    }

    let found = blanks.blanks(None).await.unwrap();
    let at_b = blanks.blanks(Some(&at("b"))).await.unwrap();
    blanks.delete_blank(&at_b[0]).await.unwrap();

    assert_eq!(found, [Blank { id: one.id, place: Some(at("a")) }]);
    assert_eq!(at_b, [Blank { id: two.id, place: Some(at("b")) }]);
    assert_eq!(cluster.node("a").asked.lock().unwrap()[1..], ["blanks"], "b's volume is b's");
    assert_eq!(blanks.blanks(Some(&at("b"))).await.unwrap(), []);
}
