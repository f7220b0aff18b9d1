//! Rules about groups of snapshots.

use hawser_core::id::SnapshotId;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::{ProvisionSource, SnapshotAtProvider, VolumeAtProvider};
use hawser_core::{Change, Kind};

use super::cuts::{MOST_POLLS, cut_after, promised};
use super::{Asks, ProviderRig};

type Members = Vec<(VolumeAtProvider, SnapshotId)>;

/// A new snapshot for each of these volumes.
fn members_of(volumes: &[&VolumeAtProvider]) -> Members {
    volumes.iter().map(|volume| ((*volume).clone(), SnapshotId::generate())).collect()
}

async fn delete_all(rig: &impl ProviderRig, members: &Members) {
    let provider = rig.provider();
    let snapshots = provider.snapshots().expect("who has groups has snapshots");
    for (volume, id) in members {
        let member = rig.unfinished(volume, id);
        snapshots.delete_snapshot(&member).await.expect("delete a member");
    }
}

/// A group is idempotent by its ids and answers one snapshot for each volume, in order.
pub async fn a_group_is_taken_once(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(groups) = provider.groups() else { return };
    let snapshots = provider.snapshots().expect("who has groups has snapshots");
    let members = members_of(&[&rig.new_volume().await, &rig.new_volume().await]);

    let first = groups.snapshot_group(&members, &Silent).await.expect("group");
    let held = rig.holds();
    let second = groups.snapshot_group(&members, &Silent).await.expect("the same again");

    assert!(first.is_made());
    assert_eq!(second.is_made(), !rig.remembers());
    assert_eq!(first.get(), second.get());
    assert_eq!(rig.holds(), held);
    let taken: Vec<_> =
        first.get().iter().map(|s| (s.id.clone(), s.handle.clone(), s.size)).collect();
    let expected =
        members.iter().map(|(volume, id)| (id.clone(), snapshots.snapshot_handle(id), volume.size));
    assert_eq!(taken, expected.collect::<Vec<_>>());
}

/// To the provider a member is a snapshot like any other: it goes alone, and the others stay usable.
pub async fn members_of_a_group_are_removed_one_by_one(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(groups) = provider.groups() else { return };
    let snapshots = provider.snapshots().expect("who has groups has snapshots");
    let (one, two) = (rig.new_volume().await, rig.new_volume().await);
    let filled = rig.fill(&two, b"second").await;
    let before = rig.holds();
    let taken = groups.snapshot_group(&members_of(&[&one, &two]), &Silent).await.expect("group");
    let taken: Vec<SnapshotAtProvider> = taken.into_inner();

    let removed = snapshots.delete_snapshot(&taken[0]).await.expect("delete the first");
    assert_eq!(removed.is_made(), rig.remembers());
    let wanted = rig.copy_of(ProvisionSource::Snapshot(taken[1].clone()), two.size);
    let restored = rig.create(&wanted).await.expect("restore the second");
    if filled {
        rig.assert_content(&restored, b"second", "restored from what is left of a group").await;
    }
    provider.delete(&restored).await.expect("delete the restored volume");
    snapshots.delete_snapshot(&taken[1]).await.expect("delete the second");
    let again = snapshots.delete_snapshot(&taken[1]).await.expect("once more");

    assert_eq!(again, Change::Already(()));
    assert_eq!(rig.holds(), before);
}

/// One volume of a group that is not there fails it whole.
pub async fn a_group_that_fails_leaves_no_member(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(groups) = provider.groups() else { return };
    if !rig.remembers() {
        return;
    }
    let (there, absent) = (rig.new_volume().await, rig.volume(&rig.wanted()));
    rig.fill(&there, b"origin").await;
    let (before, room) = (rig.holds(), promised(&rig).await);
    for volumes in [[&there, &absent], [&absent, &there]] {
        let failed = groups.snapshot_group(&members_of(&volumes), &Silent).await;

        let error = failed.expect_err("no such volume");
        assert_eq!(error.kind(), Kind::NotFound, "{error:?}");
        assert!(!error.is_unknown(), "{error:?}");
        assert_eq!(rig.holds(), before);
        assert_eq!(promised(&rig).await, room, "room was lost");
    }
}

/// What an earlier call left of a group is of an earlier instant, and is not mixed with a later one.
pub async fn a_group_that_was_cut_off_is_taken_anew(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(groups) = provider.groups() else { return };
    let snapshots = provider.snapshots().expect("who has groups has snapshots");
    let (one, two) = (rig.new_volume().await, rig.new_volume().await);
    for (early, late) in [(0, 1), (1, 0)] {
        let members = members_of(&[&one, &two]);
        let filled = rig.fill(&one, b"before").await && rig.fill(&two, b"before").await;
        // As far as an earlier call came.
        let (volume, id) = &members[early];
        snapshots.snapshot(volume, id, &Silent).await.expect("the first of them");
        rig.fill(&one, b"after!").await;
        rig.fill(&two, b"after!").await;

        let taken = groups.snapshot_group(&members, &Silent).await.expect("group").into_inner();

        for member in [early, late] {
            let source = ProvisionSource::Snapshot(taken[member].clone());
            let wanted = rig.copy_of(source, members[member].0.size);
            let restored = rig.create(&wanted).await.expect("restore");
            if filled {
                rig.assert_content(&restored, b"after!", "of a group that was cut off").await;
            }
            provider.delete(&restored).await.expect("delete the restored volume");
        }
        delete_all(&rig, &members).await;
    }
}

/// Whatever its caller saw of it, a group can be asked for again, or removed.
pub async fn a_group_cut_off_anywhere_can_be_repeated_or_deleted(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(groups) = provider.groups() else { return };
    let (one, two) = (rig.new_volume().await, rig.new_volume().await);
    rig.fill(&one, b"origin").await;
    let (before, room) = (rig.holds(), promised(&rig).await);
    for polls in 1..MOST_POLLS {
        let (repeated, deleted) = (members_of(&[&one, &two]), members_of(&[&one, &two]));
        let done = cut_after(polls, groups.snapshot_group(&repeated, &Silent)).await;
        cut_after(polls, groups.snapshot_group(&deleted, &Silent)).await;

        delete_all(&rig, &deleted).await;
        let taken = groups.snapshot_group(&repeated, &Silent).await.expect("after a cut");
        assert_eq!(taken.get().len(), repeated.len());
        delete_all(&rig, &repeated).await;

        assert_eq!(rig.holds(), before, "cut after {polls} polls");
        assert_eq!(promised(&rig).await, room, "room was lost after {polls} polls");
        if done {
            return;
        }
    }
    panic!("the group was not done after {MOST_POLLS} polls");
}
