//! Rules about room and size.

use hawser_core::class::Capacity;
use hawser_core::port::Provider;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::Provision;
use hawser_core::{ByteSize, Change, Kind};

use super::{Asks, ProviderRig};

async fn room(provider: &dyn Provider) -> Option<Capacity> {
    Some(provider.capacity()?.capacity().await.expect("capacity"))
}

/// The next size that does not fit; `None` where every size does.
fn too_much(capacity: &Capacity) -> Option<ByteSize> {
    let next = capacity.largest_volume.get().checked_add(1)?;
    (next <= i64::MAX as u64).then(|| ByteSize::bytes(next))
}

/// A volume that does not fit is refused as that, before anything is made.
pub async fn a_full_pool_refuses_and_makes_nothing(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(before) = room(&*provider).await else { return };
    let Some(size) = too_much(&before) else { return };
    let held = rig.holds();
    let wanted = Provision { size, ..rig.wanted() };

    let error = provider.create(&wanted, &Silent).await.expect_err("more than there is");

    assert_eq!(error.kind(), Kind::NoSpace, "{error:?}");
    assert!(!error.is_unknown());
    assert_eq!(rig.holds(), held);
    assert_eq!(room(&*provider).await.map(|c| c.promised), Some(before.promised));
    assert!(provider.create(&rig.wanted(), &Silent).await.is_ok(), "a smaller one still fits");
}

/// Two callers at the same time cannot both have it.
pub async fn the_last_room_is_given_once(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(before) = room(&*provider).await else { return };
    if !rig.remembers() {
        return;
    }
    let size = ByteSize::bytes(before.largest_volume.get() / 5 * 3);
    let wanted: Vec<Provision> = (0..4).map(|_| Provision { size, ..rig.wanted() }).collect();

    let (a, b, c, d) = tokio::join!(
        provider.create(&wanted[0], &Silent),
        provider.create(&wanted[1], &Silent),
        provider.create(&wanted[2], &Silent),
        provider.create(&wanted[3], &Silent),
    );

    let answers = [a, b, c, d];
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    for error in answers.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), Kind::NoSpace, "{error:?}");
    }
}

/// What is promised goes up and down with the volumes, and a restart counts the same.
pub async fn capacity_adds_up(mut rig: impl ProviderRig) {
    let Some(empty) = room(&*rig.provider()).await else { return };
    if !rig.remembers() {
        return;
    }
    let volume = rig.new_volume().await;
    rig.new_volume().await;

    let two = room(&*rig.provider()).await.expect("it has capacity");
    assert_eq!(two.promised.get() - empty.promised.get(), 2 * volume.size.get());
    assert_eq!(two.available, two.total.saturating_sub(two.promised));
    assert!(two.largest_volume <= two.available);

    rig.reopen().await;
    let counted = room(&*rig.provider()).await.expect("it has capacity");
    assert_eq!(counted.promised, two.promised, "counted anew");

    rig.provider().delete(&volume).await.expect("delete");
    let one = room(&*rig.provider()).await.expect("it has capacity");
    assert_eq!(one.promised.get(), two.promised.get() - volume.size.get());
}

/// Larger on request, and never smaller.
pub async fn expanding_grows_and_never_shrinks(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(expand) = provider.expand() else { return };
    let mut volume = rig.new_volume().await;
    let filled = rig.fill(&volume, b"stays").await;
    let (small, large) = (volume.size, ByteSize::bytes(volume.size.get() * 2));

    let grown = expand.expand(&volume, large).await.expect("expand");
    assert!(grown.is_made());
    assert!(*grown.get() >= large);
    volume.size = grown.into_inner();
    let again = expand.expand(&volume, large).await.expect("the same again");
    assert_eq!(again, Change::Already(volume.size));
    let smaller = expand.expand(&volume, small).await.expect("less than it has");

    assert_eq!(smaller, Change::Already(volume.size));
    if filled {
        rig.assert_content(&volume, b"stays", "after it grew").await;
    }
}

/// No room to grow is told before anything changes.
pub async fn expanding_a_full_pool_changes_nothing(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(expand) = provider.expand() else { return };
    let volume = rig.new_volume().await;
    let Some(before) = room(&*provider).await else { return };
    let Some(more) = too_much(&before) else { return };
    let size = volume.size.saturating_add(more);

    let error = expand.expand(&volume, size).await.expect_err("more than there is");

    assert_eq!(error.kind(), Kind::NoSpace, "{error:?}");
    assert!(!error.is_unknown());
    assert_eq!(room(&*provider).await.map(|c| c.promised), Some(before.promised));
    let found = expand.expand(&volume, volume.size).await.expect("its own size");
    assert_eq!(found, Change::Already(volume.size), "it was changed");
}
