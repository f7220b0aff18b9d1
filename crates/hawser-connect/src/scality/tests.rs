use std::fs;

use hawser_core::attach::{Attached, Detach};
use hawser_core::connection::Protocol;
use hawser_core::port::Connector;
use hawser_core::{ByteSize, Change, Kind};
use hawser_testkit::contract::connector::{ConnectorRig, ReadOnly};
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::sim;
use serde_json::{Value, json};

use super::*;
use crate::shared::remote_fs::Remote;

static SCALITY: Remote<Scality> = Remote(Scality);

fn info(host: &FakeHost, more: &Value) -> ConnectionInfo {
    let mut data = json!({
        "export": "cinder", "name": "volume-1", "mount_point_base": host.dir().join("sofs"),
    });
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    let data = data.as_object().unwrap().clone();
    ConnectionInfo::new(Protocol::new("scality"), data, None)
}

fn rig() -> ConnectorRig {
    let host = FakeHost::new();
    host.kernel().folder("/run/hawser/mounts");
    let content = tempfile::tempdir().unwrap();
    for export in ["cinder", "other"] {
        let folder = content.path().join(export).join("00");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("volume-1"), "data").unwrap();
    }
    sim::scality::install(&host, content.path());
    let info = info(&host, &json!({}));
    let file = content.path().join("cinder/00/volume-1");
    let mut rig = ConnectorRig::new(&SCALITY, host, info, content).on_grow(move |_| {
        let size = ByteSize::mib(5);
        fs::File::options().write(true).open(&file).unwrap().set_len(size.get()).unwrap();
        size
    });
    rig.read_only = ReadOnly::Refused;
    rig
}

hawser_testkit::connector_contract!(rig());

#[tokio::test]
async fn all_exports_of_a_host_share_one_mount() {
    let rig = rig();
    let before = rig.host.snapshot();
    let other = info(&rig.host, &json!({ "export": "other" }));

    let first = rig.connect().await.unwrap().into_inner();
    let second = SCALITY.connect(&rig.host, &other, &Attach::default()).await.unwrap();

    let base = rig.host.dir().join("sofs");
    assert_eq!(first, Attached::File { path: base.join("cinder/00/volume-1") });
    assert_eq!(second, Change::Made(Attached::File { path: base.join("other/00/volume-1") }));
    assert_eq!(rig.host.snapshot().mounts.len(), 1);
    rig.disconnect(&rig.intent()).await.unwrap();
    assert_eq!(rig.host.snapshot().mounts.len(), 1, "the other one uses it");
    let mut record = rig.intent();
    record.info = other;
    SCALITY.disconnect(&rig.host, &record, &Detach::default()).await.unwrap();
    assert_eq!(rig.host.snapshot(), before);
}

#[tokio::test]
async fn what_does_not_fit_one_mount_for_all_is_refused() {
    let rig = rig();
    for (field, value) in [
        ("options", json!("-o noatime")),
        ("mount_point_base", json!(null)),
        ("export", json!("a/b")),
        ("export", json!("..")),
    ] {
        let info = info(&rig.host, &json!({ field: value }));
        let error = SCALITY.connect(&rig.host, &info, &Attach::default()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{field}: {error:?}");
        assert!(error.sentence().contains(field), "{error:?}");
    }
}
