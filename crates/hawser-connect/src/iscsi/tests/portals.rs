//! Asking a portal for the others: which ways come of it, and who may ask at the same time.

use std::time::Duration;

use hawser_core::port::Host;
use hawser_testkit::sim::scsi;

use super::*;

const THEIRS: &str = "iqn.2020-01.org.example:t2";

/// A storage system that has our target at one of two portals, and another target where `theirs`
/// says, with a volume under the same number.
pub(super) fn beside(
    theirs: &[usize],
    lun: impl Fn(&Storage) -> Lun,
) -> (ConnectorRig, Vec<String>) {
    let host = FakeHost::new();
    iscsi::install(&host);
    multipath::install(&host);
    let volume = Lun::scsi(NAA, ByteSize::mib(64));
    let other = Lun::scsi(OTHER, ByteSize::mib(32));
    let target = Target::new().with(1, &volume);
    let portals: Vec<String> = (0..2).map(|_| iscsi::listen(host.kernel())).collect();
    iscsi::add_portal(host.kernel(), &portals[0], IQN, &target);
    let storage = Storage { host, target, volume, other, portals: portals.clone() };
    let second = Target::new().with(1, &lun(&storage));
    for at in theirs {
        iscsi::add_portal(storage.host.kernel(), &portals[*at], THEIRS, &second);
    }
    iscsi::list_all(storage.host.kernel());
    storage.host.kernel().multipathd(FindMultipaths::Strict);
    let data = one_way(&portals[0]);
    let (target, other) = (storage.target.clone(), storage.other.clone());
    let mut rig = storage.rig(data).on_swap(move |_| {
        target.show(1, &other);
        second.show(1, &other);
    });
    rig.info.identity = None;
    rig.attach = Attach { multipath: Multipath::Wanted, ..Attach::default() };
    (rig, portals)
}

fn names(rig: &ConnectorRig) -> Vec<(String, String)> {
    let sessions = iscsi::sessions(rig.host.kernel()).into_iter();
    sessions.map(|(_, iqn, portal)| (iqn, portal)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_target_that_stands_beside_ours_is_left_alone_at_every_portal() {
    let (rig, portals) = beside(&[0, 1], |storage| storage.other.clone());
    let before = rig.host.snapshot();

    let attached = rig.connect().await.unwrap();

    assert_eq!(names(&rig), [(IQN.to_owned(), portals[0].clone())]);
    assert_eq!(iscsi::counts(rig.host.kernel()).0, 1, "nobody logged in to theirs");
    rig.disconnect(&rig.record(attached.get())).await.unwrap();
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn a_target_with_another_name_per_portal_is_used_under_all() {
    let (rig, portals) = beside(&[1], |storage| storage.volume.clone());
    let before = rig.host.snapshot();

    let attached = rig.connect().await.unwrap();

    let both = [(IQN.to_owned(), portals[0].clone()), (THEIRS.to_owned(), portals[1].clone())];
    assert_eq!(names(&rig), both);
    assert!(attached.get().path().starts_with("/dev/dm-0"), "{attached:?}");
    assert!(!rig.connect().await.unwrap().is_made());
    rig.disconnect(&rig.record(attached.get())).await.unwrap();
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn another_target_at_another_portal_does_not_spoil_the_attach() {
    let (rig, portals) = beside(&[1], |storage| storage.other.clone());
    let before = rig.host.snapshot();

    let attached = rig.connect().await.unwrap();

    assert_eq!(names(&rig), [(IQN.to_owned(), portals[0].clone())], "theirs is left again");
    assert_eq!(scsi::wide_scans(rig.host.kernel()), 0);
    rig.disconnect(&rig.record(attached.get())).await.unwrap();
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

/// The volume that is behind the other name.
fn theirs(portal: &str) -> ConnectionInfo {
    let mut info = info(json!({
        "target_portal": portal, "target_iqn": THEIRS, "target_lun": 1, "volume_id": "v2",
    }));
    info.identity = None;
    info
}

#[tokio::test(start_paused = true)]
async fn a_try_that_finds_the_volume_of_another_attach_leaves_it_its_device() {
    let (rig, portals) = beside(&[1], |storage| storage.other.clone());
    let theirs = theirs(&portals[1]);
    let (host, attach) = (&rig.host, Attach::default());
    let attached = Iscsi.connect(host, &theirs, &attach).await.unwrap().into_inner();
    // An attach of ours, which tries that way too, has not looked yet at what is there.
    let volume = crate::iscsi::data::read(&theirs).unwrap();
    let way = &volume.targets[0];
    let key = notes::Key::of(way);
    let claim = notes::Claim { target: way.clone(), wwid: None };
    Notes::of(host, &key).set_claim("ours", &claim).await.unwrap();
    let deadline = Deadline::after(Duration::from_secs(30));
    let leave = leave::Leave { host, volume: "ours", iface: "default", deadline };

    leave.target(way, &[], &[]).await.unwrap();

    let still = Iscsi.lookup(host, &theirs).await.unwrap();
    assert_eq!(still.as_ref().map(Attached::path), Some(attached.path()));
}

#[tokio::test(start_paused = true)]
async fn a_target_without_the_volume_is_not_waited_for_as_long_as_the_volume() {
    let (rig, portals) = beside(&[1], |storage| storage.other.clone());
    let empty = listen_at(&rig, "iqn.2020-01.org.example:t3");
    let begun = tokio::time::Instant::now();

    let attached = rig.connect().await.unwrap();

    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(names(&rig), [(IQN.to_owned(), portals[0].clone())], "{empty} is left again");
    rig.disconnect(&rig.record(attached.get())).await.unwrap();
}

/// A portal with a target of this name and no volume.
fn listen_at(rig: &ConnectorRig, iqn: &str) -> String {
    let portal = iscsi::listen(rig.host.kernel());
    iscsi::add_portal(rig.host.kernel(), &portal, iqn, &Target::new());
    portal
}

#[tokio::test(start_paused = true)]
async fn a_detach_leaves_the_credentials_of_a_discovery_that_goes_on() {
    let rig = discovered();
    let attached = rig.connect().await.unwrap();
    let volume = crate::iscsi::data::read(&rig.info).unwrap();
    let portal = &volume.targets[0].portal;
    let file = format!("/etc/iscsi/send_targets/{}/st_config", portal.file_name());
    let text = || rig.host.kernel().edit(|tree| tree.text(&file));
    // The other discovery is where it has put its record and iscsiadm is about to read it.
    let soon = Deadline::after(Duration::from_secs(30));
    let alone = discovery::lock(&rig.host, portal, soon).await.unwrap();
    let theirs = format!("{}\ndiscovery.sendtargets.auth.username = b\n", record::MARK);
    rig.host.files().store(file.as_ref(), theirs.as_bytes(), 0o600).await.unwrap();

    let goes_on = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let seen = text();
        // It dies here, without having cleaned up.
        drop(alone);
        seen
    };
    let record = rig.record(attached.get());
    let (detached, seen) = tokio::join!(rig.disconnect(&record), goes_on);

    assert_eq!(seen, theirs.trim());
    detached.unwrap();
    assert_eq!(text(), "", "what the dead one left is gone");
}

#[tokio::test(start_paused = true)]
async fn a_detach_that_waits_in_vain_for_a_discovery_says_that_it_is_not_as_it_was() {
    let rig = discovered();
    let attached = rig.connect().await.unwrap();
    let volume = crate::iscsi::data::read(&rig.info).unwrap();
    let portal = &volume.targets[0].portal;
    let file = format!("/etc/iscsi/send_targets/{}/st_config", portal.file_name());
    let soon = Deadline::after(Duration::from_secs(30));
    let alone = discovery::lock(&rig.host, portal, soon).await.unwrap();
    rig.host.files().store(file.as_ref(), record::MARK.as_bytes(), 0o600).await.unwrap();
    let record = rig.record(attached.get());

    let error = rig.disconnect(&record).await.unwrap_err();
    drop(alone);

    assert_eq!(error.outcome(), hawser_core::Outcome::Unknown, "{error:?}");
    assert!(rig.disconnect(&record).await.unwrap().is_made(), "and the next one cleans up");
    assert!(!rig.disconnect(&record).await.unwrap().is_made());
}
