//! Rules about volumes that only some nodes can reach.

use hawser_core::class::Capacity;
use hawser_core::place::Place;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::Provision;
use hawser_core::{ByteSize, Kind};

use super::{Asks, ProviderRig};

/// A node that no storage of these tests is on.
fn nowhere() -> Place {
    Place::node(&"no-such-node".parse().expect("a legal name"))
}

/// Where it is wanted, the better places first; nowhere else.
pub async fn a_volume_is_placed_where_it_is_wanted(rig: impl ProviderRig) {
    let provider = rig.provider();
    assert_eq!(provider.placement().is_some(), rig.place().is_some(), "the rig says otherwise");
    let (Some(placement), Some(here)) = (provider.placement(), rig.place()) else { return };
    let wanted = Provision { place: None, ..rig.wanted() };
    let held = rig.holds();

    let anywhere = placement.place(&wanted, &[]).await.expect("there is room");
    assert_eq!(anywhere, here);
    let better = [vec![here.clone()], vec![nowhere(), here.clone()], vec![here.clone(), nowhere()]];
    for places in better {
        let chosen = placement.place(&wanted, &places).await.expect("there is room");
        assert_eq!(chosen, here, "of {places:?}");
    }
    let error = placement.place(&wanted, &[nowhere()]).await.expect_err("there is no storage");

    assert_eq!(error.kind(), Kind::NoSpace, "{error:?}");
    assert_eq!(rig.holds(), held, "choosing a place made something");
}

/// What does not fit is not placed anywhere.
pub async fn a_place_without_room_is_not_chosen(rig: impl ProviderRig) {
    let provider = rig.provider();
    let (Some(placement), Some(here)) = (provider.placement(), rig.place()) else { return };
    let largest = placement.capacity_at(&here).await.expect("capacity").largest_volume;
    let size = ByteSize::bytes(largest.get() + 1);
    let wanted = Provision { place: None, size, ..rig.wanted() };

    for places in [vec![], vec![here.clone()], vec![here, nowhere()]] {
        let error = placement.place(&wanted, &places).await.expect_err("there is no room");
        assert_eq!(error.kind(), Kind::NoSpace, "{error:?}");
    }
    let fits = Provision { size: largest, ..wanted };
    placement.place(&fits, &[]).await.expect("the largest volume fits");
}

/// The room of a place is that of the storage there, and there is none where no storage is.
pub async fn room_is_told_by_place(rig: impl ProviderRig) {
    let provider = rig.provider();
    let (Some(placement), Some(here)) = (provider.placement(), rig.place()) else { return };
    rig.new_volume().await;

    let there = placement.capacity_at(&here).await.expect("capacity");
    let elsewhere = placement.capacity_at(&nowhere()).await.expect("capacity of another place");

    assert!(there.largest_volume > ByteSize::ZERO && there.promised > ByteSize::ZERO, "{there:?}");
    assert_eq!(elsewhere, Capacity::NONE);
    if let Some(all) = provider.capacity() {
        assert_eq!(all.capacity().await.expect("capacity"), there, "there is no other place");
    }
}

/// A snapshot is where its volume is; a volume that is recorded elsewhere is not found here by
/// mistake, nor taken for one that is gone.
pub async fn what_is_made_keeps_its_place(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(here) = rig.place() else { return };
    let volume = rig.new_volume().await;
    if provider.snapshots().is_some() {
        assert_eq!(rig.take_snapshot(&volume).await.place, Some(here));
    }
    let mut moved = volume.clone();
    moved.place = Some(nowhere());

    let deleted = provider.delete(&moved).await.expect_err("it is not there");
    let created = Provision { place: Some(nowhere()), ..rig.wanted() };
    let created = provider.create(&created, &Silent).await.expect_err("nor can it be made there");

    for error in [deleted, created] {
        assert!(matches!(error.kind(), Kind::Precondition | Kind::Unavailable), "{error:?}");
    }
    provider.delete(&volume).await.expect("it is where it was");
}
