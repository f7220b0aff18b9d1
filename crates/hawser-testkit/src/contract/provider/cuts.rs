//! Rules about callers that go away and hosts that fail, at every point where that can happen.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hawser_core::id::SnapshotId;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::ProvisionSource;
use hawser_core::{ByteSize, Outcome};

use super::{Asks, ProviderRig};
use crate::fake_host::When;

/// More awaits than any call of a provider has; a loop that gets here does not end by itself.
pub(super) const MOST_POLLS: usize = 200;

/// Polls a future so often and no more; `None` when it was not done by then. The future stays with
/// its owner, who drops it or goes on.
struct Polls<'f, F: ?Sized> {
    inner: Pin<&'f mut F>,
    left: usize,
}

impl<F: Future + ?Sized> Future for Polls<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.inner.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Polls `future` at most so often, then drops it; true when it was done.
pub(super) async fn cut_after<F: Future>(polls: usize, future: F) -> bool {
    let mut future = Box::pin(future);
    Polls { inner: future.as_mut(), left: polls }.await.is_some()
}

/// Whatever its caller saw of it, a create can be asked for again.
pub async fn a_create_cut_off_anywhere_can_be_repeated(rig: impl ProviderRig) {
    let before = rig.holds();
    for polls in 1..MOST_POLLS {
        let wanted = rig.wanted();
        let done = cut_after(polls, rig.provider().create(&wanted, &Silent)).await;

        let volume = rig.create(&wanted).await.expect("create after a cut");
        assert_eq!(volume.size, rig.provider().check(&wanted).await.expect("check"));
        rig.fill(&volume, b"usable").await;
        rig.provider().delete(&volume).await.expect("delete");

        assert_eq!(rig.holds(), before, "cut after {polls} polls");
        if done {
            return;
        }
    }
    panic!("create was not done after {MOST_POLLS} polls");
}

/// A create that was cut off is taken back by a delete, which finds all of it.
pub async fn a_create_cut_off_anywhere_can_be_deleted(rig: impl ProviderRig) {
    let before = rig.holds();
    let room = promised(&rig).await;
    for polls in 1..MOST_POLLS {
        let wanted = rig.wanted();
        let done = cut_after(polls, rig.provider().create(&wanted, &Silent)).await;

        rig.provider().delete(&rig.volume(&wanted)).await.expect("delete after a cut");

        assert_eq!(rig.holds(), before, "cut after {polls} polls");
        assert_eq!(promised(&rig).await, room, "room was lost after {polls} polls");
        if done {
            return;
        }
    }
    panic!("create was not done after {MOST_POLLS} polls");
}

/// The same for a volume that is a copy.
pub async fn a_copy_cut_off_anywhere_can_be_repeated_or_deleted(rig: impl ProviderRig) {
    if !rig.provider().clones() {
        return;
    }
    let origin = rig.new_volume().await;
    let filled = rig.fill(&origin, b"origin").await;
    let (before, room) = (rig.holds(), promised(&rig).await);
    for polls in 1..MOST_POLLS {
        let repeated = rig.copy_of(ProvisionSource::Volume(origin.clone()), origin.size);
        let deleted = rig.copy_of(ProvisionSource::Volume(origin.clone()), origin.size);
        let done = cut_after(polls, rig.provider().create(&repeated, &Silent)).await;
        cut_after(polls, rig.provider().create(&deleted, &Silent)).await;

        rig.provider().delete(&rig.volume(&deleted)).await.expect("delete after a cut");
        let copy = rig.create(&repeated).await.expect("copy after a cut");
        if filled {
            rig.assert_content(&copy, b"origin", "of a copy that was cut off before").await;
        }
        rig.provider().delete(&copy).await.expect("delete");

        assert_eq!(rig.holds(), before, "cut after {polls} polls");
        assert_eq!(promised(&rig).await, room, "room was lost after {polls} polls");
        if done {
            return;
        }
    }
    panic!("the copy was not done after {MOST_POLLS} polls");
}

/// The same for a snapshot.
pub async fn a_snapshot_cut_off_anywhere_can_be_repeated_or_deleted(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(snapshots) = provider.snapshots() else { return };
    let volume = rig.new_volume().await;
    rig.fill(&volume, b"origin").await;
    let (before, room) = (rig.holds(), promised(&rig).await);
    for polls in 1..MOST_POLLS {
        let (repeated, deleted) = (SnapshotId::generate(), SnapshotId::generate());
        let done = cut_after(polls, snapshots.snapshot(&volume, &repeated, &Silent)).await;
        cut_after(polls, snapshots.snapshot(&volume, &deleted, &Silent)).await;

        let unfinished = rig.unfinished(&volume, &deleted);
        snapshots.delete_snapshot(&unfinished).await.expect("delete after a cut");
        let taken = snapshots.snapshot(&volume, &repeated, &Silent).await.expect("after a cut");
        snapshots.delete_snapshot(taken.get()).await.expect("delete");

        assert_eq!(rig.holds(), before, "cut after {polls} polls");
        assert_eq!(promised(&rig).await, room, "room was lost after {polls} polls");
        if done {
            return;
        }
    }
    panic!("the snapshot was not done after {MOST_POLLS} polls");
}

/// A delete that was cut off is completed by the next.
pub async fn a_delete_cut_off_anywhere_can_be_repeated(rig: impl ProviderRig) {
    let (before, room) = (rig.holds(), promised(&rig).await);
    for polls in 1..MOST_POLLS {
        let volume = rig.new_volume().await;
        rig.fill(&volume, b"content").await;
        let done = cut_after(polls, rig.provider().delete(&volume)).await;

        rig.provider().delete(&volume).await.expect("delete after a cut");

        assert_eq!(rig.holds(), before, "cut after {polls} polls");
        assert_eq!(promised(&rig).await, room, "room was lost after {polls} polls");
        if done {
            return;
        }
    }
    panic!("delete was not done after {MOST_POLLS} polls");
}

/// An expand that was cut off is completed by the next, and room is counted once.
pub async fn an_expand_cut_off_anywhere_can_be_repeated(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(expand) = provider.expand() else { return };
    for polls in 1..MOST_POLLS {
        let volume = rig.new_volume().await;
        let room = promised(&rig).await;
        let large = ByteSize::bytes(volume.size.get() * 2);
        let done = cut_after(polls, expand.expand(&volume, large)).await;

        let size = expand.expand(&volume, large).await.expect("expand after a cut").into_inner();

        assert!(size >= large);
        if rig.remembers() {
            let more = promised(&rig).await.zip(room).map(|(now, before)| now - before);
            assert_eq!(more, room.map(|_| size.get() - volume.size.get()), "after {polls} polls");
        }
        provider.delete(&volume).await.expect("delete");
        if done {
            return;
        }
    }
    panic!("expand was not done after {MOST_POLLS} polls");
}

/// A survey with repair in the middle of a copy takes nothing away from it.
pub async fn a_survey_leaves_running_work_alone(rig: impl ProviderRig) {
    let provider = rig.provider();
    let (Some(inventory), true) = (provider.inventory(), provider.clones()) else { return };
    let origin = rig.new_volume().await;
    let filled = rig.fill(&origin, b"origin").await;
    for polls in 1..MOST_POLLS {
        let wanted = rig.copy_of(ProvisionSource::Volume(origin.clone()), origin.size);
        let mut copying = Box::pin(provider.create(&wanted, &Silent));
        let early = Polls { inner: copying.as_mut(), left: polls }.await;

        let found = inventory.survey(true).await.expect("survey");
        assert_eq!(found, [], "running work was taken for dead after {polls} polls");

        let done = early.is_some();
        let made = match early {
            Some(made) => made,
            None => copying.await,
        };
        made.expect("the copy goes on");
        let copy = rig.volume(&wanted);
        if filled {
            rig.assert_content(&copy, b"origin", "of a copy with a survey in its middle").await;
        }
        provider.delete(&copy).await.expect("delete");
        if done {
            return;
        }
    }
    panic!("the copy was not done after {MOST_POLLS} polls");
}

/// Each call of the host in turn fails, before it acts or with its answer lost: what the provider
/// says is left is what is left, and the next call works.
pub async fn a_failing_host_leaves_nothing_behind(rig: impl ProviderRig) {
    let Some(host) = rig.host() else { return };
    let provider = rig.provider();
    let origin = rig.new_volume().await;
    rig.fill(&origin, b"origin").await;
    let (before, room) = (rig.holds(), promised(&rig).await);
    let mut struck = 0;
    for when in [When::Before, When::After] {
        for call in 0..MOST_POLLS {
            let wanted = match provider.clones() {
                true => rig.copy_of(ProvisionSource::Volume(origin.clone()), origin.size),
                false => rig.wanted(),
            };
            host.fail_call(call, when);
            let created = provider.create(&wanted, &Silent).await;
            let hit = host.struck() > 0;
            host.heal();

            match created {
                Err(error) => {
                    struck += 1;
                    if error.outcome() != Outcome::Unknown {
                        assert_eq!(rig.holds(), before, "call {call} {when:?}: {error:?}");
                        assert_eq!(promised(&rig).await, room, "call {call} {when:?}");
                    }
                    rig.create(&wanted).await.expect("create after the host recovered");
                }
                Ok(_) => assert!(!hit, "call {call} {when:?} failed and nobody was told"),
            }
            provider.delete(&rig.volume(&wanted)).await.expect("delete");
            assert_eq!(rig.holds(), before, "call {call} {when:?}");
            if !hit {
                break;
            }
        }
    }
    assert!(struck > 0, "the provider never asked its host for anything");
}

pub(super) async fn promised(rig: &impl ProviderRig) -> Option<u64> {
    let provider = rig.provider();
    let capacity = provider.capacity()?.capacity().await.expect("capacity");
    Some(capacity.promised.get())
}
