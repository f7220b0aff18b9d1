//! What must never happen to a device: handed out for another, detached in use, lost in silence.

use std::time::Duration;

use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Identity, Multipath};
use hawser_core::port::Host;
use hawser_core::{Change, Kind, Reason};

use super::{ConnectorRig, FlushedBy, ReadOnly};
use crate::fake_host::HostState;
use crate::fake_host::kernel::Flush;
use crate::fake_host::kernel::errno::EIO;

/// A volume that is not the one the publication means is refused by name and left alone:
/// CVE-2023-2088, where an address that was used before shows the data of another tenant.
pub async fn another_identity_is_refused(rig: impl Fn() -> ConnectorRig) {
    for connected in [false, true] {
        let mut rig = rig();
        if connected {
            rig.connect().await.expect("connect");
        }
        let before = rig.host.snapshot();
        let scheme =
            rig.info.identity.as_ref().map_or("image", |identity| &identity.scheme).to_owned();
        rig.info.identity = Some(Identity::new(scheme, "somebody-elses-volume"));

        let error = rig.connect().await.expect_err("another volume");

        assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
        let reason = error.reason().unwrap_or(Reason::IdentityMismatch);
        assert_eq!(reason, Reason::IdentityMismatch, "{error:?}");
        assert!(error.sentence().contains("somebody-elses-volume"), "{error:?}");
        rig.is_as(&before, "after another identity was refused");
        let taken = rig.disconnect(&rig.intent()).await;
        assert!(!matches!(taken, Ok(Change::Made(()))), "took another's volume away");
        rig.is_as(&before, "after a detach for another identity");
    }
}

/// The storage system shows another volume where this one was: before the attach nothing is made,
/// after it nobody is told that all is well. CVE-2023-2088, as it happens.
pub async fn another_volume_in_its_place_is_refused(rig: impl Fn() -> ConnectorRig) {
    for connected in [false, true] {
        let rig = rig();
        let before = rig.host.snapshot();
        let Some(swap) = &rig.swap else {
            // Folders and files have no identity of their own, and what is there already was not
            // chosen by the connector.
            if device(&rig).await.is_some() {
                crate::skip("this rig has no way to show another volume (on_swap)");
            }
            return;
        };
        if connected {
            rig.connect().await.expect("connect");
        }
        swap(&rig.host);

        let error = rig.connect().await.expect_err("another volume is there");

        assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
        let found = rig.connector.lookup(&rig.host, &rig.info).await;
        assert!(!matches!(found, Ok(Some(_))), "found another volume: {found:?}");
        if !connected {
            rig.is_as(&before, "after another volume was refused");
        }
    }
}

/// A wish for a device that refuses writes is heard, or refused.
pub async fn read_only_is_honoured_or_refused(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let before = rig.host.snapshot();
    let attach = Attach { read_only: true, ..rig.attach.clone() };

    let result = rig.connect_as(&attach).await;

    match (rig.read_only, result) {
        (ReadOnly::Refused, result) => {
            let error = result.expect_err("it cannot be honoured");
            assert_eq!(error.kind(), Kind::Unsupported, "{error:?}");
        }
        (ReadOnly::LeftToTheMount, result) => {
            let attached = result.expect("connect").into_inner();
            assert!(!matches!(attached, Attached::Block { .. }), "a device has a mode");
            rig.disconnect(&rig.record(&attached)).await.expect("disconnect");
        }
        (ReadOnly::Honoured, result) => {
            let attached = result.expect("connect").into_inner();
            assert!(rig.host.refuses_writes(attached.path()), "{attached:?} takes writes");
            let record = AttachRecord { attach, ..rig.record(&attached) };
            rig.disconnect(&record).await.expect("disconnect");
        }
    }
    rig.is_as(&before, "afterwards");
    rig.connect().await.expect("connect for writing");
}

/// A connected rig whose device was made by it, and its record; `None` when there is nothing to
/// detach, after making sure that nothing is.
async fn device(rig: &ConnectorRig) -> Option<(AttachRecord, Attached)> {
    let change = rig.connect().await.expect("connect");
    let record = rig.record(change.get());
    if change.is_made() && matches!(change.get(), Attached::Block { .. }) {
        return Some((record, change.into_inner()));
    }
    if !change.is_made() {
        assert_eq!(rig.disconnect(&record).await.expect("disconnect"), Change::Already(()));
    }
    None
}

/// A device that somebody uses is not detached; when he lets go, it is.
pub async fn a_busy_device_is_not_detached_without_force(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let before = rig.host.snapshot();
    let Some((record, attached)) = device(&rig).await else { return };
    let connected = rig.host.snapshot();
    rig.host.set_busy(attached.path(), true);

    let error = rig.disconnect(&record).await.expect_err("it is in use");

    assert_eq!(error.kind(), Kind::Busy, "{error:?}");
    rig.is_as(&connected, "a detach that was refused");
    rig.host.set_busy(attached.path(), false);
    assert!(rig.disconnect(&record).await.expect("disconnect").is_made());
    rig.is_as(&before, "afterwards");
}

/// A rig whose device does not flush, with the states before and after the attach.
async fn unflushable(
    rig: &ConnectorRig,
    flush: Flush,
) -> Option<(AttachRecord, HostState, HostState)> {
    let before = rig.host.snapshot();
    let (record, attached) = device(rig).await?;
    if let (FlushedBy::Detach(why), Flush::Hangs) = (rig.flush, flush) {
        crate::skip(why);
        return None;
    }
    let connected = rig.host.snapshot();
    rig.host.kernel().set_flush(attached.path(), flush);
    Some((record, before, connected))
}

/// What cannot be written out is not thrown away: nothing is detached, and a later try works.
pub async fn a_failed_flush_stops_a_detach_and_everything_stays(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let Some((record, before, connected)) = unflushable(&rig, Flush::Fails(EIO)).await else {
        return;
    };

    let error = rig.disconnect(&record).await.expect_err("the flush fails");

    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    rig.is_as(&connected, "after a failed flush");
    let path = record.attached.as_ref().expect("a record").path();
    rig.host.kernel().set_flush(path, Flush::Works);
    assert!(rig.disconnect(&record).await.expect("disconnect").is_made());
    rig.is_as(&before, "afterwards");
}

/// A flush that does not end is given up at the deadline, and nothing is detached.
pub async fn a_flush_that_hangs_is_given_up_and_everything_stays(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let Some((record, before, connected)) = unflushable(&rig, Flush::Hangs).await else { return };
    let detach = Detach { deadline: Duration::from_secs(20), ..Detach::default() };
    let begun = tokio::time::Instant::now();

    let error = rig.disconnect_as(&record, &detach).await.expect_err("the flush hangs");

    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    let took = begun.elapsed();
    assert!(took <= detach.deadline + Duration::from_secs(5), "gave up after {took:?}");
    rig.is_as(&connected, "after a flush that hangs");
    let path = record.attached.as_ref().expect("a record").path();
    rig.host.kernel().set_flush(path, Flush::Works);
    rig.disconnect(&record).await.expect("disconnect");
    rig.is_as(&before, "afterwards");
}

/// With force everything goes although the flush fails or hangs, and the caller is told of the loss.
pub async fn force_goes_on_past_a_failed_flush_and_reports_the_loss(
    rig: impl Fn() -> ConnectorRig,
) {
    for flush in [Flush::Fails(EIO), Flush::Hangs] {
        let rig = rig();
        let Some((record, before, _)) = unflushable(&rig, flush).await else { return };
        let detach = Detach { force: true, ..Detach::default() };

        let error = rig.disconnect_as(&record, &detach).await.expect_err("data is lost");

        let said = [Some(Reason::DataLost), Some(Reason::Several)];
        assert!(said.contains(&error.reason()), "{flush:?}: {error:?}");
        rig.is_as(&before, format!("by force past {flush:?}"));
        let again = rig.disconnect_as(&record, &detach).await.expect("nothing is left");
        assert_eq!(again, Change::Already(()));
    }
}

/// With force, and with errors ignored, the answer is success and everything is gone.
pub async fn force_without_errors_answers_success(rig: impl Fn() -> ConnectorRig) {
    for flush in [Flush::Works, Flush::Fails(EIO), Flush::Hangs] {
        let rig = rig();
        let before = rig.host.snapshot();
        let change = rig.connect().await.expect("connect");
        let record = rig.record(change.get());
        let block = matches!(change.get(), Attached::Block { .. });
        let hangs_elsewhere = rig.flush != FlushedBy::Connector && flush == Flush::Hangs;
        if block && change.is_made() && !hangs_elsewhere {
            rig.host.kernel().set_flush(change.get().path(), flush);
        }
        let detach = Detach { force: true, ignore_errors: true, ..Detach::default() };

        let gone = rig.disconnect_as(&record, &detach).await.expect("errors are ignored");

        assert_eq!(gone.is_made(), change.is_made());
        rig.is_as(&before, format!("by force past {flush:?}"));
    }
}

/// What is there is found in the kernel, not in a setting: whatever a record says about paths, and
/// whether multipathd still runs or not, everything goes.
pub async fn another_multipath_setting_at_detach_removes_everything(
    rig: impl Fn() -> ConnectorRig,
) {
    for (wanted, recorded) in [
        (Multipath::Off, Multipath::Wanted),
        (Multipath::Wanted, Multipath::Off),
        (Multipath::Wanted, Multipath::Wanted),
    ] {
        for stopped in [false, true] {
            let rig = rig();
            let find = rig.host.kernel().edit(|tree| tree.multipathd_mode());
            let before = rig.host.snapshot();
            let attach = Attach { multipath: wanted, ..rig.attach.clone() };
            let attached = rig.connect_as(&attach).await.expect("connect").into_inner();
            let attach = Attach { multipath: recorded, ..rig.attach.clone() };
            let record = AttachRecord { attach, ..rig.record(&attached) };
            let stopped = stopped && find.is_some();
            if stopped {
                rig.host.kernel().edit(|tree| tree.stop_multipathd());
            }

            rig.disconnect(&record).await.expect("disconnect");

            if let Some(find) = find.filter(|_| stopped) {
                rig.host.kernel().edit(|tree| tree.start_multipathd(find));
            }
            rig.is_as(&before, format!("{wanted:?}, recorded as {recorded:?}, {stopped}"));
        }
    }
}

/// The device is really there: it can be opened and has the size that was told.
pub async fn what_is_answered_can_be_opened(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();

    let attached = rig.connect().await.expect("connect").into_inner();

    if let Attached::Block { device, size, .. } = attached {
        assert_eq!(rig.host.device_size(&device).await.expect("it has a size"), size);
        rig.host.disks().open(&device).await.map(drop).expect("it can be opened");
    }
}
