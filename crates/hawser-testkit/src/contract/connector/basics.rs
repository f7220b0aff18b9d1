//! What every connector does in plain weather.

use hawser_core::attach::Attached;
use hawser_core::connection::Protocol;
use hawser_core::{ByteSize, Change};

use super::ConnectorRig;
use crate::fake_host::kernel::{DiskSpec, Lun};

/// Names are the canonical ones, so that the table finds them.
pub async fn its_names_are_canonical(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let info = rig.connector.info();

    assert!(info.protocols.contains(&rig.info.protocol.as_str()));
    assert!(!info.note.is_empty());
    for name in info.protocols {
        assert_eq!(Protocol::new(name).as_str(), *name);
    }
}

/// Asking twice gives the same path, says so, and changes nothing.
pub async fn connecting_twice_answers_already(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let fresh = rig.makes_something().await;
    let first = rig.connect().await.expect("first connect");
    let (state, changes) = (rig.host.snapshot(), rig.host.changes());

    let second = rig.connect().await.expect("second connect");

    assert_eq!(first.is_made(), fresh, "the first connect says what it did");
    assert_eq!(second, Change::Already(first.into_inner()));
    assert_eq!(rig.host.changes(), changes, "second connect changed the host");
    rig.is_as(&state, "second connect");
}

/// Taking away what is not there is no error, and changes nothing.
pub async fn disconnecting_something_absent_answers_already(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let before = rig.host.snapshot();

    let change = rig.disconnect(&rig.intent()).await.expect("disconnect");

    assert_eq!(change, Change::Already(()));
    rig.is_as(&before, "afterwards");
}

/// Connect and disconnect, with the record or only its intent, leave the host as it was.
pub async fn disconnecting_takes_everything_away(rig: impl Fn() -> ConnectorRig) {
    for only_intent in [false, true] {
        let rig = rig();
        let before = rig.host.snapshot();
        let connected = rig.connect().await.expect("connect");
        let record = if only_intent { rig.intent() } else { rig.record(connected.get()) };

        let first = rig.disconnect(&record).await.expect("disconnect");
        let second = rig.disconnect(&record).await.expect("disconnect again");

        assert_eq!(first.is_made(), connected.is_made());
        assert_eq!(second, Change::Already(()));
        rig.is_as(&before, "afterwards");
    }
}

/// What a device says of itself is kept in its record, where the caller gave no identity: what was
/// attached without one is found again and taken away with it.
pub async fn an_identity_that_was_learnt_leaves_nothing_behind(rig: impl Fn() -> ConnectorRig) {
    let mut rig = rig();
    rig.info.identity = None;
    let before = rig.host.snapshot();
    let connected = rig.connect().await.expect("connect");
    let mut record = rig.record(connected.get());
    record.info.identity = connected.get().identity().cloned();

    let found = rig.connector.lookup(&rig.host, &record.info).await.expect("lookup");
    let health = rig.connector.health(&rig.host, &record).await.expect("health");
    let gone = rig.disconnect(&record).await.expect("disconnect");

    assert_eq!(found.as_ref(), Some(connected.get()));
    assert!(health.healthy, "{health:?}");
    assert_eq!(gone.is_made(), connected.is_made());
    rig.is_as(&before, "afterwards");
}

/// A number in the record may be another's by now: only the volume itself is taken away.
pub async fn a_stale_record_never_detaches_another_device(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let image = rig.host.add_image("bystander.img", ByteSize::mib(1));
    let looped = rig.host.add_foreign_loop(&image, Some("bystander"));
    let lun = Lun::scsi("60014050000000000000000bad0bad00", ByteSize::mib(1));
    rig.host.kernel().disk(DiskSpec::new("sdzz", &lun));
    let before = rig.host.snapshot();

    for device in [looped.device, "/dev/sdzz".into()] {
        let stale =
            Attached::Block { device, identity: rig.info.identity.clone(), size: ByteSize::mib(1) };
        for connected in [false, true] {
            if connected {
                rig.connect().await.expect("connect");
            }
            rig.disconnect(&rig.record(&stale)).await.expect("disconnect");
            rig.is_as(&before, format!("connected: {connected}"));
        }
    }
}

/// After a reboot only settings are there to take away, and connecting works again.
pub async fn a_reboot_is_survived(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let fresh = rig.makes_something().await;
    let before = rig.host.snapshot();
    let attached = rig.connect().await.expect("connect").into_inner();
    rig.host.reboot();
    let left = !before.difference(&rig.host.snapshot()).is_empty();

    let change = rig.disconnect(&rig.record(&attached)).await.expect("disconnect");
    assert!(left || change == Change::Already(()), "took away what was not there");
    rig.is_as(&before, "after a reboot");
    let again = rig.connect().await.expect("connect");

    assert_eq!(again.is_made(), fresh);
}

/// Two who ask at the same time get the same device, and one detach takes it away.
pub async fn two_connects_at_once_end_with_one_device(rig: impl Fn() -> ConnectorRig) {
    let one = rig();
    if let Some(why) = one.alone {
        crate::skip(why);
        return;
    }
    let before = one.host.snapshot();
    one.connect().await.expect("one connect");
    let alone = one.host.snapshot();
    drop(one);
    let rig = rig();
    let fresh = rig.makes_something().await;
    let mine = rig.host.snapshot();

    let (first, second) = tokio::join!(rig.connect(), rig.connect());

    let (first, second) = (first.expect("first"), second.expect("second"));
    assert_eq!(first.get(), second.get());
    assert!(!fresh || first.is_made() != second.is_made(), "one of them made it");
    let (tree, now) = (alone.tree.len() - before.tree.len(), rig.host.snapshot());
    assert_eq!(now.tree.len() - mine.tree.len(), tree, "{}", mine.difference(&now));
    assert_eq!(now.loops.len(), alone.loops.len());
    assert_eq!(now.mounts.len(), alone.mounts.len());
    rig.disconnect(&rig.record(first.get())).await.expect("disconnect");
    rig.is_as(&mine, "after both");
}

/// Looking agrees with what was connected and changes nothing.
pub async fn looking_up_changes_nothing(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let fresh = rig.makes_something().await;
    let attached = rig.connect().await.expect("connect").into_inner();
    rig.host.forget_calls();

    let found = rig.connector.lookup(&rig.host, &rig.info).await.expect("lookup");

    assert_eq!(found.as_ref(), Some(&attached));
    assert!(rig.host.changes().is_empty(), "{:?}", rig.host.changes());
    rig.disconnect(&rig.record(&attached)).await.expect("disconnect");
    let gone = rig.connector.lookup(&rig.host, &rig.info).await.expect("lookup");
    assert_eq!(gone.is_none(), fresh);
}

/// Health is good while it is attached, says what is wrong when it is not, and changes nothing.
pub async fn health_tells_attached_from_gone(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let fresh = rig.makes_something().await;
    let attached = rig.connect().await.expect("connect").into_inner();
    let record = rig.record(&attached);
    rig.host.forget_calls();

    let good = rig.connector.health(&rig.host, &record).await.expect("health");
    assert!(good.healthy, "{good:?}");
    rig.host.reboot();
    let gone = rig.connector.health(&rig.host, &record).await.expect("health");

    assert_eq!(gone.healthy, !fresh, "{gone:?}");
    assert!(!gone.message.is_empty());
    assert!(rig.host.changes().is_empty(), "{:?}", rig.host.changes());
}

/// Extending what has not grown answers its size as it is.
pub async fn extending_something_unchanged_answers_its_size(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let attached = rig.connect().await.expect("connect").into_inner();

    let size = rig.connector.extend(&rig.host, &rig.record(&attached)).await;

    match (attached, size) {
        (Attached::Block { size: before, .. }, Ok(size)) => assert_eq!(size, before),
        (Attached::Directory { .. } | Attached::File { .. }, Ok(_)) => {}
        (_, Err(error)) => {
            assert!(!rig.connector.info().abilities.extend, "{error:?}");
            assert_eq!(error.kind(), hawser_core::Kind::Unsupported, "{error:?}");
        }
    }
}

/// A volume that grew at the storage system grows on the host, and asking again changes nothing.
pub async fn a_grown_volume_is_seen_by_extending(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let can = rig.connector.info().abilities.extend;
    let Some(grow) = &rig.grow else {
        let change = rig.connect().await.expect("connect");
        let ours = change.is_made() && matches!(change.get(), Attached::Block { .. });
        assert!(!can || !ours, "it says that it can extend: stage that with on_grow");
        return;
    };
    let mut before = rig.host.snapshot();
    let attached = rig.connect().await.expect("connect").into_inner();
    let record = rig.record(&attached);
    let connected = rig.host.snapshot();
    let wanted = grow(&rig.host);
    // What plays the storage system may be a file, and is larger now.
    for (path, length) in rig.host.snapshot().files {
        if connected.files.get(&path) == before.files.get(&path) {
            before.files.entry(path).and_modify(|old| *old = length);
        }
    }

    let size = rig.connector.extend(&rig.host, &record).await.expect("extend");
    let again = rig.connector.extend(&rig.host, &record).await.expect("extend again");

    assert_eq!((size, again), (wanted, wanted));
    let found = rig.connector.lookup(&rig.host, &rig.info).await.expect("lookup").expect("there");
    if let Attached::Block { size, .. } = found {
        assert_eq!(size, wanted, "looking it up tells the new size");
    }
    rig.disconnect(&record).await.expect("disconnect");
    rig.is_as(&before, "after extending");
}
