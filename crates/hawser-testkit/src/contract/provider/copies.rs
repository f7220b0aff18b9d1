//! Rules about snapshots and clones.

use hawser_core::id::SnapshotId;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::ProvisionSource;
use hawser_core::{ByteSize, Change, Kind};

use super::{Asks, ProviderRig};

/// The same id twice is the same snapshot; removing it twice is safe and leaves nothing.
pub async fn a_snapshot_is_taken_once(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(snapshots) = provider.snapshots() else { return };
    let volume = rig.new_volume().await;
    let id = SnapshotId::generate();
    let before = rig.holds();

    let first = snapshots.snapshot(&volume, &id, &Silent).await.expect("snapshot");
    let held = rig.holds();
    let second = snapshots.snapshot(&volume, &id, &Silent).await.expect("the same again");

    let taken = first.get();
    assert!(first.is_made());
    assert_eq!(taken.handle, snapshots.snapshot_handle(&id));
    assert_eq!(taken.size, volume.size);
    assert_eq!(second.get(), taken);
    assert_eq!(second.is_made(), !rig.remembers());
    assert_eq!(rig.holds(), held);

    let removed = snapshots.delete_snapshot(taken).await.expect("delete");
    assert_eq!(removed.is_made(), rig.remembers());
    let again = snapshots.delete_snapshot(taken).await.expect("second delete");
    assert_eq!(again, Change::Already(()));
    assert_eq!(rig.holds(), before);
}

/// Later writes, and even the end of its volume, do not reach a snapshot.
pub async fn a_snapshot_keeps_its_content(rig: impl ProviderRig) {
    let provider = rig.provider();
    if provider.snapshots().is_none() {
        return;
    }
    let volume = rig.new_volume().await;
    let filled = rig.fill(&volume, b"before").await;
    let snapshot = rig.take_snapshot(&volume).await;
    rig.fill(&volume, b"after!").await;

    let restore = rig.copy_of(ProvisionSource::Snapshot(snapshot.clone()), volume.size);
    let restored = rig.create(&restore).await.expect("restore beside the volume");
    provider.delete(&volume).await.expect("delete the volume");
    let restore = rig.copy_of(ProvisionSource::Snapshot(snapshot.clone()), volume.size);
    let later = rig.create(&restore).await.expect("restore without the volume");

    if filled {
        rig.assert_content(&restored, b"before", "restored beside its volume").await;
        rig.assert_content(&later, b"before", "restored after its volume").await;
        rig.fill(&later, b"others").await;
        rig.assert_content(&restored, b"before", "after a write to another copy").await;
        let restore = rig.copy_of(ProvisionSource::Snapshot(snapshot), volume.size);
        let third = rig.create(&restore).await.expect("restore again");
        rig.assert_content(&third, b"before", "the snapshot itself, after writes to copies").await;
    }
}

/// Neither side of a clone sees the other's writes or end.
pub async fn a_clone_goes_its_own_way(rig: impl ProviderRig) {
    if !rig.provider().clones() {
        return;
    }
    let volume = rig.new_volume().await;
    let filled = rig.fill(&volume, b"origin").await;
    let wanted = rig.copy_of(ProvisionSource::Volume(volume.clone()), volume.size);
    let clone = rig.create(&wanted).await.expect("clone");

    if filled {
        rig.fill(&clone, b"cloned").await;
        rig.assert_content(&volume, b"origin", "after a write to its clone").await;
    }
    rig.provider().delete(&volume).await.expect("delete the origin");
    if filled {
        rig.assert_content(&clone, b"cloned", "after the end of its origin").await;
    }
    let again = rig.provider().create(&wanted, &Silent).await.expect("the same again");
    assert_eq!(again.get().handle, clone.handle);
}

/// A copy takes any size from its source's on.
pub async fn a_copy_may_be_larger_and_never_smaller(rig: impl ProviderRig) {
    if !rig.provider().clones() {
        return;
    }
    let large = ByteSize::bytes(rig.size().get() * 2);
    let wanted = super::Provision { size: large, ..rig.wanted() };
    let volume = rig.create(&wanted).await.expect("create");
    let filled = rig.fill(&volume, b"origin").await;
    let held = rig.holds();

    let smaller = rig.copy_of(ProvisionSource::Volume(volume.clone()), rig.size());
    let error = rig.provider().create(&smaller, &Silent).await.expect_err("a smaller copy");
    assert_eq!(error.kind(), Kind::OutOfRange, "{error:?}");
    assert_eq!(rig.holds(), held);

    let larger = ByteSize::bytes(volume.size.get() * 2);
    let wanted = rig.copy_of(ProvisionSource::Volume(volume.clone()), larger);
    let copy = rig.create(&wanted).await.expect("a larger copy");
    assert!(copy.size >= larger);
    if filled {
        rig.assert_content(&copy, b"origin", "in a larger copy").await;
    }
}

/// A source that is gone is told as that, and nothing is made.
pub async fn a_snapshot_of_something_absent_is_not_found(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(snapshots) = provider.snapshots() else { return };
    if !rig.remembers() {
        return;
    }
    let absent = rig.volume(&rig.wanted());
    let id = SnapshotId::generate();
    let held = rig.holds();

    let error = snapshots.snapshot(&absent, &id, &Silent).await.expect_err("no such volume");
    assert_eq!(error.kind(), Kind::NotFound, "{error:?}");

    let gone = rig.unfinished(&absent, &id);
    let wanted = rig.copy_of(ProvisionSource::Snapshot(gone), rig.size());
    let error = provider.create(&wanted, &Silent).await.expect_err("no such snapshot");
    assert_eq!(error.kind(), Kind::NotFound, "{error:?}");
    assert_eq!(rig.holds(), held);
}
