use std::fs;

use hawser_core::Reason;
use hawser_core::connection::Protocol;
use hawser_testkit::contract::connector::{ConnectorRig, ReadOnly};
use hawser_testkit::fake_host::{FakeHost, Remote, Server};
use serde_json::{Value, json};

use super::*;

fn info(path: Value) -> ConnectionInfo {
    let data = json!({ "devicePath": path });
    let data = data.as_object().unwrap().clone();
    ConnectionInfo::new(Protocol::new("gpfs"), data, None)
}

/// A host with a GPFS file system that holds one file and one folder.
fn rig_of(name: &str) -> ConnectorRig {
    let host = FakeHost::new();
    let content = tempfile::tempdir().unwrap();
    fs::write(content.path().join("volume-1"), "data").unwrap();
    fs::create_dir(content.path().join("folder")).unwrap();
    let target = host.dir().join("gpfs");
    fs::create_dir(&target).unwrap();
    let path = target.join(name);
    let (fs_type, source) = ("gpfs".into(), "fs1".into());
    let remote = Remote {
        fs_type,
        source,
        super_options: vec!["rw".into()],
        folder: content.path().to_owned(),
    };
    host.add_boot_mount(&target, remote);
    let file = content.path().join("volume-1");
    let is_file = name == "volume-1";
    let info = info(json!(path));
    let mut rig = ConnectorRig::new(&Gpfs, host, info, content).on_grow(move |_| {
        let size = ByteSize::mib(5);
        fs::File::options().write(true).open(&file).unwrap().set_len(size.get()).unwrap();
        if is_file { size } else { ByteSize::ZERO }
    });
    rig.read_only = ReadOnly::LeftToTheMount;
    rig
}

fn rig() -> ConnectorRig {
    rig_of("volume-1")
}

hawser_testkit::connector_contract!(rig());

#[tokio::test]
async fn a_file_and_a_folder_are_given_as_they_are() {
    let file = rig_of("volume-1").connect().await.unwrap();
    let folder = rig_of("folder").connect().await.unwrap();

    assert!(matches!(file, Change::Already(Attached::File { .. })), "{file:?}");
    assert!(matches!(folder, Change::Already(Attached::Directory { .. })), "{folder:?}");
}

#[tokio::test]
async fn case_24_a_file_below_an_unmounted_file_system_is_refused() {
    let rig = rig();
    let record = rig.intent();
    rig.host.unmount(&rig.host.dir().join("gpfs")).await.unwrap();
    let path = rig.host.dir().join("gpfs/volume-1");
    fs::write(&path, "a file of this host").unwrap();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert!(error.sentence().contains("mounted"), "{error:?}");
    assert!(!Gpfs.health(&rig.host, &record).await.unwrap().healthy);
    assert!(Gpfs.extend(&rig.host, &record).await.is_err());
}

#[tokio::test]
async fn what_is_not_there_or_does_not_answer_is_told() {
    let rig = rig();
    let absent = info(json!(rig.host.dir().join("gpfs/volume-2")));
    let error = Gpfs.connect(&rig.host, &absent, &Attach::default()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::LunNotFound), "{error:?}");

    rig.host.set_server("fs1", Server::Silent);
    assert!(!Gpfs.health(&rig.host, &rig.intent()).await.unwrap().healthy);
    for path in [json!(null), json!("relative"), json!("/a/../b"), json!(7)] {
        let error = Gpfs.connect(&rig.host, &info(path.clone()), &Attach::default()).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{path}");
        assert!(error.sentence().contains("device_path"), "{error:?}");
    }
}
