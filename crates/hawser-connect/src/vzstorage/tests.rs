use std::fs;

use hawser_core::attach::Attached;
use hawser_core::port::Connector;
use hawser_core::{ByteSize, Kind, Reason};
use hawser_testkit::contract::connector::{ConnectorRig, ReadOnly};
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::sim;
use serde_json::{Value, json};

use super::*;
use crate::shared::remote_fs::Remote;
use crate::shared::remote_fs::data::digest;

static VZSTORAGE: Remote<Vzstorage> = Remote(Vzstorage);

const LIST: &str = "/etc/pstorage/clusters/c1/bs_list";

fn info(host: &FakeHost, more: &Value) -> ConnectionInfo {
    let mut data = json!({
        "export": "mds1,mds2:2510:/c1:hunter2", "name": "volume-1",
        "mount_point_base": host.dir().join("base"),
    });
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    serde_json::from_value(json!({ "driver_volume_type": "vzstorage", "data": data })).unwrap()
}

fn rig() -> ConnectorRig {
    let host = FakeHost::new();
    host.kernel().folder("/run/hawser/mounts");
    fs::create_dir(host.dir().join("base")).unwrap();
    let content = tempfile::tempdir().unwrap();
    fs::write(content.path().join("volume-1"), "data").unwrap();
    let cluster = sim::vzstorage::Cluster {
        name: "c1".into(),
        servers: vec!["mds1".into()],
        password: Some("hunter2".into()),
    };
    sim::vzstorage::install(&host, &cluster, content.path());
    let info = info(&host, &json!({}));
    let file = content.path().join("volume-1");
    let mut rig = ConnectorRig::new(&VZSTORAGE, host, info, content).on_grow(move |_| {
        let size = ByteSize::mib(5);
        fs::File::options().write(true).open(&file).unwrap().set_len(size.get()).unwrap();
        size
    });
    rig.read_only = ReadOnly::Refused;
    rig
}

hawser_testkit::connector_contract!(rig());

#[tokio::test]
async fn servers_are_listed_the_node_is_let_in_and_the_cluster_mounted() {
    let rig = rig();

    let attached = rig.connect().await.unwrap().into_inner();

    let path = rig.host.dir().join("base").join(digest("mds1,mds2:2510:/c1")).join("volume-1");
    assert_eq!(attached, Attached::File { path });
    let list = rig.host.kernel().edit(|tree| tree.read(LIST).map(<[u8]>::to_vec));
    assert_eq!(list.as_deref(), Some(&b"mds1\nmds2:2510\n"[..]));
}

#[tokio::test]
async fn a_list_that_was_there_is_replaced_kept_and_restored_after_a_failure() {
    let rig = rig();
    rig.host.kernel().file(LIST, "old\n");
    let read = || rig.host.kernel().edit(|tree| tree.read(LIST).map(<[u8]>::to_vec)).unwrap();

    let wrong = info(&rig.host, &json!({ "export": "mds9:/c1:hunter2" }));
    let error = VZSTORAGE.connect(&rig.host, &wrong, &Attach::default()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TargetNotFound), "{error:?}");
    assert_eq!(read(), b"old\n");

    rig.connect().await.unwrap();
    rig.disconnect(&rig.intent()).await.unwrap();
    assert_eq!(read(), b"mds1\nmds2:2510\n");
}

#[tokio::test]
async fn what_is_wrong_is_told_apart_and_leaves_nothing() {
    let rig = rig();
    let before = rig.host.snapshot();
    for (more, reason) in [
        (json!({ "export": "mds1:/c1:wrong" }), Reason::AuthFailed),
        (json!({ "export": "mds1:/c1" }), Reason::AuthFailed),
        (json!({ "export": "mds9:/c1:hunter2" }), Reason::TargetNotFound),
        (json!({ "options": "-l /etc/passwd" }), Reason::InvalidParameters),
        (json!({ "name": "volume-2" }), Reason::LunNotFound),
    ] {
        let info = info(&rig.host, &more);
        let error = VZSTORAGE.connect(&rig.host, &info, &Attach::default()).await.unwrap_err();
        assert_eq!(error.reason(), Some(reason), "{more}: {error:?}");
        assert_ne!(error.kind(), Kind::Internal);
        assert_eq!(rig.host.snapshot(), before, "{more}");
    }
}

#[tokio::test]
async fn the_password_is_in_no_argument_and_no_record() {
    let rig = rig();

    rig.connect().await.unwrap();

    let shown = format!("{:?} {}", rig.host.calls(), serde_json::to_string(&rig.intent()).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
}
