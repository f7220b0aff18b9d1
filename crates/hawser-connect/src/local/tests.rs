use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::attach::{AttachState, Identity};
use hawser_core::connection::Protocol;
use hawser_core::{Error, Outcome, Reason};
use hawser_testkit::contract::connector::{ConnectorRig, FlushedBy, ReadOnly};
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::Flush;
use hawser_testkit::fake_host::kernel::errno::EIO;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

const ID: &str = "vol-01k5zzzzzzzzzzzzzzzzzzzzzz";

fn info(data: Value) -> ConnectionInfo {
    let Value::Object(data) = data else { panic!("data is an object") };
    ConnectionInfo::new(Protocol::new("local"), data, None)
}

fn image_rig() -> ConnectorRig {
    let host = FakeHost::new();
    let path = host.add_image("volume.img", ByteSize::mib(8));
    let mut info = info(json!({ "path": path, "kind": "file", "volume_id": ID }));
    info.identity = Some(Identity::new("image", ID));
    let mut rig = ConnectorRig::new(&Local, host, info, ()).on_grow(|host| {
        let image = fs::OpenOptions::new().write(true).open(host.dir().join("volume.img"));
        image.unwrap().set_len(ByteSize::mib(16).get()).unwrap();
        ByteSize::mib(16)
    });
    rig.flush = FlushedBy::Detach("the loop driver writes out before it lets go of its file");
    rig
}

fn folder_rig() -> ConnectorRig {
    let host = FakeHost::new();
    let path = host.dir().join("volume");
    fs::create_dir(&path).unwrap();
    let mut info = info(json!({ "path": path, "kind": "directory", "volume_id": ID }));
    info.identity = Some(Identity::new("folder", ID));
    let mut rig = ConnectorRig::new(&Local, host, info, ());
    rig.read_only = ReadOnly::LeftToTheMount;
    rig
}

fn device_rig() -> ConnectorRig {
    let host = FakeHost::new();
    let path = host.add_disk("sdx", ByteSize::mib(8));
    let info = info(json!({ "device_path": path }));
    let mut rig = ConnectorRig::new(&Local, host, info, ());
    rig.read_only = ReadOnly::Refused;
    rig
}

hawser_testkit::connector_contract!(image_contract, image_rig());
hawser_testkit::connector_contract!(folder_contract, folder_rig());
hawser_testkit::connector_contract!(device_contract, device_rig());

fn image_path(rig: &ConnectorRig) -> PathBuf {
    rig.host.dir().join("volume.img")
}

async fn connect(rig: &ConnectorRig, attach: &Attach) -> Result<Change<Attached>> {
    Local.connect(&rig.host, &rig.info, attach).await
}

fn read_only() -> Attach {
    Attach { read_only: true, ..Attach::default() }
}

#[tokio::test]
async fn an_image_becomes_a_marked_device_of_its_size() {
    let mut rig = image_rig();
    rig.info.data.insert("sector_size".into(), json!("4096"));

    let change = rig.connect().await.unwrap();

    let device = rig.host.snapshot().loops.remove(0);
    assert_eq!(device.mark.as_deref(), Some(ID));
    assert_eq!((device.read_only, device.sector_size), (false, 4096));
    let identity = Some(Identity::new("image", ID));
    let expected = Attached::Block { device: device.device, identity, size: ByteSize::mib(8) };
    assert_eq!(change, Change::Made(expected));
}

#[tokio::test]
async fn read_only_is_honoured_and_the_other_mode_is_refused_with_advice() {
    let rig = image_rig();
    connect(&rig, &read_only()).await.unwrap();
    assert!(rig.host.snapshot().loops[0].read_only);
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition);
    let said = error.sentence();
    assert!(said.contains("read-only, and was asked for read-write"), "{said}");
    assert!(said.contains("disconnect it first"), "{said}");
    assert_eq!(rig.host.snapshot(), before);
}

#[tokio::test]
async fn the_publications_own_access_mode_is_honoured() {
    let mut rig = image_rig();
    rig.info.data.insert("accessMode".into(), json!("ro"));

    rig.connect().await.unwrap();

    assert!(rig.host.snapshot().loops[0].read_only);
}

#[tokio::test]
async fn other_sectors_than_asked_for_are_refused() {
    let mut rig = image_rig();
    rig.connect().await.unwrap();
    rig.info.data.insert("sector_size".into(), json!(4096));

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
}

#[tokio::test]
async fn an_image_that_somebody_else_attached_is_refused_and_left_alone() {
    let rig = image_rig();
    rig.host.add_foreign_loop(&image_path(&rig), None);
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition);
    assert!(error.sentence().contains("somebody else"), "{error:?}");
    assert!(connect(&rig, &read_only()).await.is_err(), "the other one writes below us");
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Already(()));
    assert_eq!(rig.host.snapshot(), before);
}

#[tokio::test]
async fn a_deleted_image_is_detached_and_a_new_one_in_its_place_is_not_mixed_up() {
    let rig = image_rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let record = rig.record(&attached);
    fs::remove_file(image_path(&rig)).unwrap();
    assert!(!Local.health(&rig.host, &record).await.unwrap().healthy);
    assert_eq!(Local.lookup(&rig.host, &rig.info).await.unwrap(), Some(attached));
    rig.host.add_image("volume.img", ByteSize::mib(8));

    let refused = rig.connect().await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Precondition, "{refused:?}");
    let health = Local.health(&rig.host, &record).await.unwrap();
    assert!(health.message.contains("replaced"), "{health:?}");
    assert_eq!(rig.disconnect(&record).await.unwrap(), Change::Made(()));

    assert!(rig.host.snapshot().loops.is_empty());
    assert!(rig.connect().await.unwrap().is_made());
}

#[tokio::test]
async fn a_file_whose_name_ends_in_deleted_is_an_image_like_any() {
    let mut rig = image_rig();
    let path = rig.host.add_image("volume.img (deleted)", ByteSize::mib(1));
    rig.connect().await.unwrap();
    let first = rig.intent();
    rig.info.data.insert("path".into(), json!(path));

    let other = rig.connect().await.unwrap().into_inner();
    Local.disconnect(&rig.host, &rig.intent(), &Detach::default()).await.unwrap();

    assert_eq!(rig.host.snapshot().loops.len(), 1);
    assert_ne!(rig.host.snapshot().loops[0].device, other.path());
    assert_eq!(rig.disconnect(&first).await.unwrap(), Change::Made(()));
}

#[tokio::test]
async fn a_pool_behind_a_symlink_is_found_again() {
    let mut rig = image_rig();
    let link = rig.host.dir().join("pool");
    symlink(rig.host.dir(), &link).unwrap();
    rig.info.data.insert("path".into(), json!(link.join("volume.img")));

    let first = rig.connect().await.unwrap();

    assert_eq!(rig.connect().await.unwrap(), Change::Already(first.get().clone()));
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Made(()));
}

#[tokio::test]
async fn a_busy_device_stays_and_says_so() {
    let rig = image_rig();
    let attached = rig.connect().await.unwrap().into_inner();
    rig.host.set_busy(attached.path(), true);
    let before = rig.host.snapshot();

    for detach in [
        Detach::default(),
        Detach { force: true, ..Detach::default() },
        Detach { force: true, ignore_errors: true, ..Detach::default() },
    ] {
        let error = Local.disconnect(&rig.host, &rig.intent(), &detach).await.unwrap_err();

        assert_eq!(error.kind(), Kind::Busy);
        assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
        assert!(error.sentence().contains(&attached.path().display().to_string()), "{error:?}");
        assert_eq!(rig.host.snapshot(), before, "what answers success would be forgotten");
    }
}

#[tokio::test]
async fn a_failed_write_out_keeps_the_image_and_force_tells_of_the_loss() {
    let rig = image_rig();
    let second = rig.host.add_foreign_loop(&image_path(&rig), Some(ID));
    let attached = rig.connect().await.unwrap().into_inner();
    let record = rig.record(&attached);
    rig.host.kernel().set_flush(&second.device, Flush::Fails(EIO));
    let forced = Detach { force: true, ..Detach::default() };

    let kept = rig.disconnect(&record).await.unwrap_err();
    assert_eq!(kept.reason(), Some(Reason::FlushFailed), "{kept:?}");
    assert!(rig.host.snapshot().loops.contains(&second));
    let lost = Local.disconnect(&rig.host, &record, &forced).await.unwrap_err();

    assert_eq!(lost.reason(), Some(Reason::DataLost), "{lost:?}");
    assert!(rig.host.snapshot().loops.is_empty());
    let again = Local.disconnect(&rig.host, &record, &forced).await.unwrap();
    assert_eq!(again, Change::Already(()));
}

#[tokio::test]
async fn every_device_over_the_image_with_our_mark_goes() {
    let rig = image_rig();
    rig.host.add_foreign_loop(&image_path(&rig), Some(ID));
    let busy = rig.host.add_foreign_loop(&image_path(&rig), Some(ID));
    let bystander = rig.host.add_foreign_loop(&image_path(&rig), Some("other"));
    rig.host.set_busy(&rig.host.snapshot().loops[0].device, true);
    rig.host.set_busy(&busy.device, true);

    let forced = Detach { force: true, ..Detach::default() };
    let error = Local.disconnect(&rig.host, &rig.intent(), &forced).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error:?}");
    assert_eq!(rig.host.snapshot().loops.len(), 3);
    for device in rig.host.snapshot().loops {
        rig.host.set_busy(&device.device, false);
    }
    rig.disconnect(&rig.intent()).await.unwrap();

    assert_eq!(rig.host.snapshot().loops, [bystander]);
}

#[tokio::test]
async fn extend_follows_the_image_and_never_shrinks() {
    let rig = image_rig();
    let record = rig.record(rig.connect().await.unwrap().get());
    let image = fs::OpenOptions::new().write(true).open(image_path(&rig)).unwrap();

    image.set_len(ByteSize::mib(16).get()).unwrap();
    assert_eq!(Local.extend(&rig.host, &record).await.unwrap(), ByteSize::mib(16));
    image.set_len(ByteSize::mib(4).get()).unwrap();
    let error = Local.extend(&rig.host, &record).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    let found = Local.lookup(&rig.host, &rig.info).await.unwrap().unwrap();
    assert!(matches!(found, Attached::Block { size, .. } if size == ByteSize::mib(16)));
    rig.disconnect(&record).await.unwrap();
    let error = Local.extend(&rig.host, &record).await.unwrap_err();
    assert!(error.sentence().contains("not attached"), "{error:?}");
}

#[tokio::test]
async fn health_notices_another_number_than_the_recorded_one() {
    let rig = image_rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let mut record = rig.record(&attached);
    record.attached = Some(Attached::Block {
        device: "/dev/loop99".into(),
        identity: None,
        size: ByteSize::ZERO,
    });

    let health = Local.health(&rig.host, &record).await.unwrap();

    assert!(!health.healthy && health.message.contains("/dev/loop99"), "{health:?}");
    record.state = AttachState::Intent;
    record.attached = None;
    assert!(Local.health(&rig.host, &record).await.unwrap().healthy);
}

#[tokio::test]
async fn an_ordinary_user_is_told_and_nothing_is_left() {
    let rig = image_rig();
    rig.host.set_privileged(false);
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Denied, Outcome::Nothing));
    assert_eq!(rig.host.snapshot(), before);
}

#[tokio::test]
async fn a_deadline_that_passes_is_an_unknown_outcome() {
    let rig = image_rig();
    let hasty = Attach { deadline: Duration::from_millis(20), ..Attach::default() };
    rig.host.hang_always("attach_loop");

    let error = connect(&rig, &hasty).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Unknown));
    rig.host.heal();
    rig.connect().await.unwrap();
}

#[tokio::test]
async fn options_that_a_folder_cannot_have_are_refused_and_not_lost() {
    let rig = folder_rig();
    let before = rig.host.snapshot();
    for (flag, named) in [("context=\"a:b:s0:c1,c2\"", "context"), ("nfsvers=4.1", "nfsvers")] {
        let attach = Attach { mount_flags: vec![flag.into()], ..Attach::default() };

        let error = connect(&rig, &attach).await.unwrap_err();

        assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
        let said = error.sentence();
        assert!(said.contains(&format!("option {named} ")) && !said.contains("c1"), "{said}");
        assert_eq!(rig.host.snapshot(), before);
    }
    connect(&rig, &Attach::default()).await.unwrap();
}

#[tokio::test]
async fn an_image_must_be_a_plain_file_and_a_folder_a_folder() {
    let mut image = image_rig();
    let mut folder = folder_rig();
    for rig in [&mut image, &mut folder] {
        let dir = rig.host.dir().to_path_buf();
        let (link, pipe) = (dir.join("link"), dir.join("pipe"));
        let real = PathBuf::from(rig.info.data["path"].as_str().unwrap());
        symlink(real, &link).unwrap();
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
        let wrong = if rig.info.data["kind"] == "file" {
            dir.clone()
        } else {
            rig.host.add_image("plain", ByteSize::mib(1))
        };
        for (path, kind) in [
            (link, Kind::Precondition),
            (pipe, Kind::Precondition),
            (wrong, Kind::Precondition),
            (dir.join("absent"), Kind::NotFound),
            (dir.join("absent/below"), Kind::NotFound),
        ] {
            rig.info.data.insert("path".into(), json!(path));
            let before = rig.host.snapshot();
            let error = rig.connect().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{path:?}: {error:?}");
            assert!(error.sentence().contains(&path.display().to_string()), "{error:?}");
            assert_eq!(rig.host.snapshot(), before);
        }
    }
}

#[tokio::test]
async fn a_device_must_be_one_and_cannot_be_made_read_only() {
    let mut rig = device_rig();

    let refused = connect(&rig, &read_only()).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unsupported, "{refused:?}");
    let file = rig.host.add_image("plain", ByteSize::mib(1));
    let looped = rig.host.add_foreign_loop(&file, None);
    for path in [file.as_path(), rig.host.dir(), Path::new("/dev/null"), &looped.device] {
        rig.info = info(json!({ "path": path, "kind": "device" }));
        let error = rig.connect().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
        let lookup = Local.lookup(&rig.host, &rig.info).await.unwrap_err();
        assert_eq!(lookup.kind(), Kind::Precondition, "{lookup:?}");
        let health = Local.health(&rig.host, &rig.intent()).await.unwrap();
        assert!(!health.healthy, "{path:?}");
    }
    rig.info = info(json!({ "device_path": "/dev/hawser-no-such-device" }));
    assert_eq!(rig.connect().await.unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn both_forms_and_both_spellings_are_read() {
    let path = "/pool/v.img";
    let device = Target { path: "/dev/sdb".into(), form: Form::Device, read_only: false };
    for data in [
        json!({ "device_path": "/dev/sdb" }),
        json!({ "devicePath": "/dev/sdb", "qosSpecs": null }),
        json!({ "path": "/dev/sdb", "kind": "device" }),
        json!({ "device_path": "/dev/sdb", "kind": "device" }),
    ] {
        assert_eq!(data::parse(&info(data)).unwrap(), device);
    }
    let echoed =
        json!({ "path": path, "kind": "file", "volumeId": ID, "device_path": "/dev/loop9" });
    let read = data::parse(&info(echoed)).unwrap();
    assert_eq!(read.path, Path::new(path), "what callers echo back is no second path");
    assert_eq!(read.form, Form::Image { mark: ID.into(), sector_size: None });
}

#[test]
fn what_cannot_be_used_is_refused_as_invalid() {
    let file = |path: Value| json!({ "path": path, "kind": "file", "volume_id": ID });
    let with = |key: &str, value: Value| {
        let mut data = file(json!("/p"));
        data[key] = value;
        data
    };
    for data in [
        json!({}),
        json!({ "path": "/p" }),
        json!({ "kind": "file", "device_path": "/dev/sdb", "volume_id": ID }),
        json!({ "path": "/p", "kind": "floppy" }),
        json!({ "path": "/p", "kind": "file" }),
        json!({ "device_path": 7 }),
        file(json!("relative")),
        file(json!("")),
        file(json!("/a/../b")),
        file(json!("/a/..")),
        file(json!("/a\0b")),
        with("volume_id", json!("")),
        with("volume_id", json!("v".repeat(56))),
        with("volume_id", json!("a b")),
        with("volume_id", json!("a\nb")),
        with("sector_size", json!(0)),
        with("sector_size", json!(1024)),
        with("sector_size", json!("many")),
        with("sector_size", json!(-1)),
        with("access_mode", json!("maybe")),
        with("Path", json!("/other")),
    ] {
        let error = Error::from(data::parse(&info(data.clone())).unwrap_err());
        assert_eq!(error.kind(), Kind::Invalid, "{data}: {error:?}");
    }
}

proptest! {
    #[test]
    fn no_data_makes_it_panic_and_every_path_is_plain(
        path in "(/|\\.\\.|\\.|[a-z]|\\PC|\0){0,12}",
        kind in "(file|directory|device|x)",
        id in "\\PC{0,60}",
        size in any::<i64>(),
    ) {
        let data = json!({ "path": path, "kind": kind, "volume_id": id, "sector_size": size });
        if let Ok(target) = data::parse(&info(data)) {
            let text = target.path.to_str().unwrap();
            prop_assert!(target.path.is_absolute() && !text.contains('\0'));
            prop_assert!(!text.split('/').any(|part| part == ".."));
        }
    }

    #[test]
    fn values_of_any_type_are_read_or_refused(
        keys in prop::collection::vec("(path|kind|device_path|volume_id|volumeId|sector_size)", 0..6),
        pick in prop::collection::vec(0..7_usize, 6),
    ) {
        let values = [json!(null), json!(1), json!("/a"), json!("file"), json!([]), json!({}),
                      json!(1e300)];
        let data: Map<_, _> =
            keys.into_iter().zip(pick).map(|(key, value)| (key, values[value].clone())).collect();
        let _ = data::parse(&info(Value::Object(data)));
    }
}
