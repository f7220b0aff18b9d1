use std::fs;

use hawser_core::attach::Attached;
use hawser_core::connection::Protocol;
use hawser_core::port::Connector;
use hawser_core::{ByteSize, Kind, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::sim;
use serde_json::{Value, json};

use super::*;
use crate::shared::remote_fs::Remote;
use crate::shared::remote_fs::data::digest;

static QUOBYTE: Remote<Quobyte> = Remote(Quobyte);

const EXPORT: &str = "registry.example.com/vols";

fn info(host: &FakeHost, more: &Value) -> ConnectionInfo {
    let mut data = json!({
        "export": EXPORT, "name": "volume-1", "mount_point_base": host.dir().join("base"),
    });
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    let data = data.as_object().unwrap().clone();
    ConnectionInfo::new(Protocol::new("quobyte"), data, None)
}

fn rig() -> ConnectorRig {
    let host = FakeHost::new();
    host.kernel().folder("/run/hawser/mounts");
    fs::create_dir(host.dir().join("base")).unwrap();
    let volume = tempfile::tempdir().unwrap();
    fs::write(volume.path().join("volume-1"), "data").unwrap();
    sim::quobyte::install(&host, EXPORT, volume.path());
    let info = info(&host, &json!({}));
    let file = volume.path().join("volume-1");
    ConnectorRig::new(&QUOBYTE, host, info, volume).on_grow(move |_| {
        let size = ByteSize::mib(5);
        fs::File::options().write(true).open(&file).unwrap().set_len(size.get()).unwrap();
        size
    })
}

hawser_testkit::connector_contract!(rig());

#[tokio::test]
async fn a_volume_is_mounted_where_os_brick_mounts_it() {
    let rig = rig();

    let attached = rig.connect().await.unwrap().into_inner();

    let path = rig.host.dir().join("base").join(digest(EXPORT)).join("volume-1");
    assert_eq!(attached, Attached::File { path });
}

#[tokio::test]
async fn what_is_wrong_is_told_apart() {
    let rig = rig();
    for (more, kind, reason) in [
        (json!({ "export": "r/other" }), Kind::NotFound, Reason::TargetNotFound),
        (json!({ "export": "vols" }), Kind::Invalid, Reason::InvalidParameters),
        (json!({ "export": "r/../x" }), Kind::Invalid, Reason::InvalidParameters),
        (json!({ "name": "volume-2" }), Kind::NotFound, Reason::LunNotFound),
    ] {
        let info = info(&rig.host, &more);
        let error = QUOBYTE.connect(&rig.host, &info, &Attach::default()).await.unwrap_err();
        assert_eq!((error.kind(), error.reason()), (kind, Some(reason)), "{more}: {error:?}");
    }
}

#[tokio::test]
async fn a_host_without_the_client_is_told_so() {
    let host = FakeHost::new();
    host.kernel().folder("/run/hawser/mounts");
    let before = host.snapshot();

    let info = info(&host, &json!({}));
    let error = QUOBYTE.connect(&host, &info, &Attach::default()).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unsupported, "{error:?}");
    assert_eq!(host.snapshot(), before);
}
