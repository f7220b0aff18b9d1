//! Rules about volumes that hold nothing.

use hawser_core::id::VolumeId;
use hawser_core::place::Place;
use hawser_core::port::provider::{Blank, ProvisionSource, VolumeAtProvider};
use hawser_core::{Change, Kind};

use super::{Asks, ProviderRig};

async fn blank_ids(rig: &impl ProviderRig) -> Option<Vec<VolumeId>> {
    let provider = rig.provider();
    let found = provider.blanks()?.blanks(None).await.expect("blanks");
    for blank in &found {
        assert_eq!(blank.place, rig.place(), "{blank:?} is somewhere else");
    }
    Some(found.into_iter().map(|blank| blank.id).collect())
}

fn as_blank(volume: &VolumeAtProvider) -> Blank {
    Blank { id: volume.id.clone(), place: volume.place.clone() }
}

/// Until somebody writes into it; whoever opens the storage anew finds the same.
pub async fn a_new_volume_is_blank_and_a_written_one_is_not(mut rig: impl ProviderRig) {
    let Some(none) = blank_ids(&rig).await else { return };
    assert_eq!(none, [], "the storage is empty");
    let (written, fresh) = (rig.new_volume().await, rig.new_volume().await);
    let mut both = vec![written.id.clone(), fresh.id.clone()];
    both.sort();
    assert_eq!(blank_ids(&rig).await.as_ref(), Some(&both));

    let filled = rig.fill(&written, b"x").await;

    let expected = if filled { vec![fresh.id] } else { both };
    assert_eq!(blank_ids(&rig).await.as_ref(), Some(&expected));
    rig.reopen().await;
    assert_eq!(blank_ids(&rig).await, Some(expected), "after a restart");
}

/// A copy holds what its source held.
pub async fn a_copy_is_as_blank_as_its_source(rig: impl ProviderRig) {
    if blank_ids(&rig).await.is_none() || !rig.provider().clones() {
        return;
    }
    let origin = rig.new_volume().await;
    if !rig.fill(&origin, b"origin").await {
        return;
    }
    let wanted = rig.copy_of(ProvisionSource::Volume(origin.clone()), origin.size);
    rig.create(&wanted).await.expect("clone");

    assert_eq!(blank_ids(&rig).await, Some(Vec::new()));
}

/// What is gone is not listed, and removing it again is no error.
pub async fn a_blank_volume_is_removed_once(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(blanks) = provider.blanks() else { return };
    let before = rig.holds();
    let (swept, deleted) = (rig.new_volume().await, rig.new_volume().await);
    provider.delete(&deleted).await.expect("delete");

    let first = blanks.delete_blank(&as_blank(&swept)).await.expect("delete of a blank one");
    let second = blanks.delete_blank(&as_blank(&swept)).await.expect("the same again");

    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert_eq!(blank_ids(&rig).await, Some(Vec::new()));
    assert_eq!(rig.holds(), before);
}

/// What holds something is refused, also when it was blank a moment ago.
pub async fn only_a_blank_volume_is_removed_as_one(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(blanks) = provider.blanks() else { return };
    let volume = rig.new_volume().await;
    if !rig.fill(&volume, b"precious").await {
        return;
    }
    let held = rig.holds();

    let error = blanks.delete_blank(&as_blank(&volume)).await.expect_err("it holds something");

    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    assert!(!error.is_unknown(), "{error:?}");
    assert_eq!(rig.holds(), held);
    rig.assert_content(&volume, b"precious", "after it was to be removed as a blank one").await;
}

/// Each place tells its own, and what is elsewhere is not taken for gone.
pub async fn blank_volumes_are_told_by_place(rig: impl ProviderRig) {
    let provider = rig.provider();
    let (Some(blanks), Some(here)) = (provider.blanks(), rig.place()) else { return };
    let volume = rig.new_volume().await;
    let nowhere = Place::node(&"no-such-node".parse().expect("a legal name"));

    let found = blanks.blanks(Some(&here)).await.expect("blanks here");
    let none = blanks.blanks(Some(&nowhere)).await.expect("blanks elsewhere");
    let moved = Blank { place: Some(nowhere), ..as_blank(&volume) };
    let error = blanks.delete_blank(&moved).await.expect_err("it is not there");

    assert_eq!((found, none), (vec![as_blank(&volume)], Vec::new()));
    assert!(matches!(error.kind(), Kind::Precondition | Kind::Unavailable), "{error:?}");
}
