//! On which of several nodes a volume is made.

use hawser_core::class::Capacity;
use hawser_core::id::VolumeId;
use hawser_core::place::Place;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::{Placement, Provision, ProvisionSource, SnapshotAtProvider};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Kind};

use super::rig::{Cluster, at, cluster};

fn wanted(mib: u64) -> Provision {
    Provision {
        id: VolumeId::generate(),
        size: ByteSize::mib(mib),
        access: Access::Block,
        source: None,
        parameters: Default::default(),
        place: None,
    }
}

fn zone(name: &str) -> Place {
    Place::new([("zone".into(), name.into())].into())
}

/// a and b in the east, c in the west; b has the most room and c the least.
async fn three() -> Cluster {
    let cluster = cluster(&[("a", "east"), ("b", "east"), ("c", "west")]).await;
    cluster.leave("a", 500);
    cluster.leave("b", 900);
    cluster.leave("c", 100);
    cluster
}

fn placement(cluster: &Cluster) -> &dyn Placement {
    cluster.provider.placement().expect("it is on the nodes")
}

#[tokio::test]
async fn anywhere_is_the_node_with_the_most_room() {
    let cluster = three().await;

    assert_eq!(placement(&cluster).place(&wanted(10), &[]).await.unwrap(), at("b"));
    cluster.leave("b", 400);
    assert_eq!(placement(&cluster).place(&wanted(10), &[]).await.unwrap(), at("a"));
}

#[tokio::test]
async fn wanted_places_come_in_their_order_as_long_as_there_is_room() {
    let cluster = three().await;
    let placement = placement(&cluster);
    let place = |size, places: &[&str]| {
        let places: Vec<_> = places.iter().map(|name| at(name)).collect();
        async move { placement.place(&wanted(size), &places).await }
    };

    assert_eq!(place(10, &["c", "a", "b"]).await.unwrap(), at("c"));
    assert_eq!(place(200, &["c", "a", "b"]).await.unwrap(), at("a"));
    assert_eq!(place(600, &["c", "a", "b"]).await.unwrap(), at("b"));
    for (size, places) in [(200, &["c"][..]), (2000, &["a", "b", "c"]), (10, &["d"])] {
        let error = place(size, places).await.unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "{places:?}: {error}");
    }
    assert_eq!(place(10, &["d", "a"]).await.unwrap(), at("a"), "d is not there");
}

#[tokio::test]
async fn a_zone_is_all_nodes_that_say_they_are_in_it() {
    let cluster = three().await;
    let placement = placement(&cluster);

    assert_eq!(placement.place(&wanted(10), &[zone("east")]).await.unwrap(), at("b"));
    assert_eq!(placement.place(&wanted(10), &[zone("west"), zone("east")]).await.unwrap(), at("c"));
    assert_eq!(
        placement.place(&wanted(300), &[zone("west"), zone("east")]).await.unwrap(),
        at("b")
    );
    let error = placement.place(&wanted(10), &[zone("north")]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
}

#[tokio::test]
async fn nodes_without_the_class_are_not_chosen() {
    let cluster = three().await;
    *cluster.node("b").pool.lock().unwrap() = None;

    assert_eq!(placement(&cluster).place(&wanted(10), &[]).await.unwrap(), at("a"));
    let error = placement(&cluster).place(&wanted(10), &[at("b")]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
}

#[tokio::test]
async fn without_any_node_it_is_too_early_and_not_too_full() {
    let cluster = three().await;
    for name in ["a", "b", "c"] {
        cluster.nodes.remove(name);
    }

    for places in [vec![], vec![at("a")]] {
        let error = placement(&cluster).place(&wanted(10), &places).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn a_copy_is_placed_with_its_source_or_not_at_all() {
    let cluster = three().await;
    let origin = Provision { place: Some(at("c")), ..wanted(10) };
    cluster.provider.create(&origin, &Silent).await.unwrap();
    let id = hawser_core::id::SnapshotId::generate();
    let snapshot = SnapshotAtProvider {
        handle: id.to_string(),
        id,
        size: ByteSize::mib(10),
        place: origin.place.clone(),
    };
    let copy = Provision { source: Some(ProvisionSource::Snapshot(snapshot)), ..wanted(10) };
    let placement = placement(&cluster);

    assert_eq!(placement.place(&copy, &[]).await.unwrap(), at("c"));
    assert_eq!(placement.place(&copy, &[at("a"), at("c")]).await.unwrap(), at("c"));
    assert_eq!(placement.place(&copy, &[zone("west")]).await.unwrap(), at("c"));
    let error = placement.place(&copy, &[at("a"), zone("east")]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
    cluster.nodes.remove("c");
    assert_eq!(
        placement.place(&copy, &[at("c")]).await.unwrap(),
        at("c"),
        "where it will be again"
    );
}

#[tokio::test]
async fn room_is_the_sum_of_the_nodes_and_the_largest_volume_that_of_one() {
    let cluster = three().await;
    let all = cluster.provider.capacity().unwrap().capacity().await.unwrap();
    let placement = placement(&cluster);
    let of = |place: Place| async move { placement.capacity_at(&place).await.unwrap() };

    let (a, b, c) = (of(at("a")).await, of(at("b")).await, of(at("c")).await);

    assert_eq!(all, a.with(b).with(c));
    assert_eq!(all.largest_volume, b.largest_volume);
    assert_eq!(of(zone("east")).await, a.with(b));
    assert_eq!(of(Place::default()).await, all);
    assert_eq!(of(at("d")).await, Capacity::NONE);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_is_not_waited_for() {
    let cluster = three().await;
    cluster.nodes.add_silent("z");

    let began = tokio::time::Instant::now();
    let chosen = placement(&cluster).place(&wanted(10), &[]).await.unwrap();

    assert_eq!(chosen, at("b"));
    assert!(began.elapsed() <= std::time::Duration::from_secs(11), "{:?}", began.elapsed());
}
