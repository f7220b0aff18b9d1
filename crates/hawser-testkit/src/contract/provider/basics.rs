//! Rules that every provider keeps.

use hawser_core::doctor::{FindingCode, Repair};
use hawser_core::id::VolumeId;
use hawser_core::port::progress::Silent;
use hawser_core::{Change, Kind};

use super::{Asks, ProviderRig, node};

/// The same id twice is the same volume, and the second call says that it found it.
pub async fn creating_twice_answers_the_same_volume(rig: impl ProviderRig) {
    let wanted = rig.wanted();
    let first = rig.provider().create(&wanted, &Silent).await.expect("first create");
    let held = rig.holds();

    let second = rig.provider().create(&wanted, &Silent).await.expect("second create");

    assert!(first.is_made());
    assert_eq!(second.get(), first.get());
    if rig.remembers() {
        assert!(!second.is_made(), "it was there already");
    }
    assert_eq!(rig.holds(), held, "the second create made something");
}

/// A journal names what will be made before it is made.
pub async fn the_handle_is_known_before_the_volume(rig: impl ProviderRig) {
    let (one, other) = (rig.wanted(), rig.wanted());
    let before = rig.provider().handle(&one.id);

    let made = rig.create(&one).await.expect("create");

    assert_eq!(made.handle, before);
    assert_ne!(rig.provider().handle(&other.id), before);
}

/// What `check` promises is what `create` gives: at least what was asked for.
pub async fn check_answers_the_size_that_create_gives(rig: impl ProviderRig) {
    let mut wanted = rig.wanted();
    wanted.size = hawser_core::ByteSize::bytes(rig.size().get() - 1);
    let held = rig.holds();

    let checked = rig.provider().check(&wanted).await.expect("check");
    assert_eq!(rig.holds(), held, "check made something");
    let made = rig.create(&wanted).await.expect("create");

    assert_eq!(made.size, checked);
    assert!(made.size >= wanted.size, "{} is less than {}", made.size, wanted.size);
}

/// Deleting what is not there is no error, the first time and every time.
pub async fn deleting_something_absent_answers_already(rig: impl ProviderRig) {
    let absent = rig.volume(&rig.wanted());
    let deleted = rig.provider().delete(&absent).await.expect("delete of something absent");
    assert_eq!(deleted, Change::Already(()));

    let volume = rig.new_volume().await;
    let first = rig.provider().delete(&volume).await.expect("delete");
    let second = rig.provider().delete(&volume).await.expect("second delete");

    assert_eq!(first.is_made(), rig.remembers());
    assert_eq!(second, Change::Already(()));
}

/// The storage is as it was before.
pub async fn deleting_leaves_nothing(rig: impl ProviderRig) {
    let before = rig.holds();
    let volume = rig.new_volume().await;
    rig.fill(&volume, b"some content").await;

    rig.provider().delete(&volume).await.expect("delete");

    assert_eq!(rig.holds(), before);
}

/// A typing error in a parameter is told, by `check` and by `create`.
pub async fn unknown_parameters_are_refused(rig: impl ProviderRig) {
    let mut wanted = rig.wanted();
    wanted.parameters.insert("no_such_parameter".into(), "x".into());
    let held = rig.holds();

    let checked = rig.provider().check(&wanted).await.expect_err("an unknown parameter");
    let created = rig.provider().create(&wanted, &Silent).await.expect_err("the same");

    for error in [checked, created] {
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.sentence().contains("no_such_parameter"), "{error:?}");
    }
    assert_eq!(rig.holds(), held);
}

/// A record that names another handle than the id's is never acted on.
pub async fn another_handle_is_refused(rig: impl ProviderRig) {
    let kept = rig.new_volume().await;
    let mut strange = rig.volume(&rig.wanted());
    for handle in [kept.handle.clone(), "../../etc".into(), String::new()] {
        strange.handle = handle;

        let error = rig.provider().delete(&strange).await.expect_err("a handle of another volume");

        assert!(matches!(error.kind(), Kind::Invalid | Kind::NotFound), "{error:?}");
    }
    let again = rig.provider().publish(&kept, &node(), false).await;
    assert!(again.is_ok(), "the other volume was touched: {again:?}");
}

/// Publishing is idempotent; taking the right back is safe whether or not it was given.
pub async fn publishing_twice_answers_the_same_and_unpublishing_is_safe(rig: impl ProviderRig) {
    let volume = rig.new_volume().await;

    let first = rig.published(&volume).await;
    let second = rig.published(&volume).await;
    assert_eq!(first, second);

    for _ in 0..2 {
        rig.provider().unpublish(&volume, &node()).await.expect("unpublish");
    }
    if rig.remembers() {
        rig.provider().delete(&volume).await.expect("delete");
        let gone = rig.provider().publish(&volume, &node(), false).await;
        assert_eq!(gone.expect_err("it is gone").kind(), Kind::NotFound);
    }
}

/// A new volume is healthy; one that is gone is not, and that is an answer, not an error.
pub async fn health_follows_the_volume(rig: impl ProviderRig) {
    let volume = rig.new_volume().await;
    let health = rig.provider().health(&volume).await.expect("health");
    assert!(health.healthy, "{}", health.message);

    rig.provider().delete(&volume).await.expect("delete");

    if rig.remembers() {
        let health = rig.provider().health(&volume).await.expect("health of something absent");
        assert!(!health.healthy);
    }
}

/// A restart loses nothing and makes nothing.
pub async fn the_storage_survives_a_reopen(mut rig: impl ProviderRig) {
    let wanted = rig.wanted();
    let volume = rig.create(&wanted).await.expect("create");
    let filled = rig.fill(&volume, b"kept").await;
    let held = rig.holds();

    rig.reopen().await;

    assert_eq!(rig.holds(), held);
    let again = rig.provider().create(&wanted, &Silent).await.expect("create after a restart");
    assert_eq!(again.get().size, volume.size);
    if rig.remembers() {
        assert!(!again.is_made(), "the volume was lost");
    }
    if filled {
        rig.assert_content(&volume, b"kept", "after a restart").await;
    }
}

/// The list is what was made and is not yet removed.
pub async fn the_inventory_lists_what_was_made(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(inventory) = provider.inventory() else { return };
    let (kept, removed) = (rig.new_volume().await, rig.new_volume().await);
    let snapshots = match provider.snapshots() {
        Some(_) => vec![rig.take_snapshot(&kept).await.handle],
        None => Vec::new(),
    };

    provider.delete(&removed).await.expect("delete");
    let held = inventory.list().await.expect("list");

    assert_eq!(held.volumes, [kept.handle]);
    assert_eq!(held.snapshots, snapshots);
}

/// What a crash left is found, told, and removed only when that is asked for.
pub async fn a_survey_finds_leftovers_and_removes_them(rig: impl ProviderRig) {
    let provider = rig.provider();
    let Some(inventory) = provider.inventory() else { return };
    rig.new_volume().await;
    assert_eq!(inventory.survey(false).await.expect("survey"), [], "of a sound storage");
    let before = rig.holds();
    if !rig.plant_leftover(&VolumeId::generate()) {
        return;
    }
    let planted = rig.holds();

    let found = inventory.survey(false).await.expect("survey");
    assert_eq!(rig.holds(), planted, "a survey that was not asked to repair changed something");
    let fixed = inventory.survey(true).await.expect("survey with repair");

    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].code, found[0].fixable), (FindingCode::StagingLeftover, true));
    assert_eq!(found[0].repair, None);
    assert_eq!(fixed.len(), 1, "{fixed:?}");
    assert_eq!(fixed[0].repair, Some(Repair::Done));
    assert_eq!(rig.holds(), before);
    assert_eq!(inventory.survey(false).await.expect("survey"), [], "after the repair");
}
