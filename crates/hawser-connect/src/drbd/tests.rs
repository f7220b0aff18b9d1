use std::collections::BTreeMap;
use std::path::Path;

use hawser_core::attach::Identity;
use hawser_core::connection::Protocol;
use hawser_core::secret::Secret;
use hawser_core::{Error, Kind, Outcome, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::kernel::{DiskSpec, Lun, Tree};
use hawser_testkit::fake_host::{FakeHost, Node, Ran, ToolCall};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

const SECRET: &str = "s3cret-of-the-cluster";
const CONFIG: &str = "resource vol1 {\n net { shared-secret \"%(shared-secret)s\"; }\n \
                      on host { device /dev/drbd100; }\n}\n";

fn info(data: Value) -> ConnectionInfo {
    let Value::Object(data) = data else { panic!("data is an object") };
    ConnectionInfo::new(Protocol::new("drbd"), data, None)
}

/// The cluster as the fake programs see it.
struct Cluster {
    lun: Lun,
    peer_answers: bool,
    peer_primary: bool,
    split: bool,
    up_to_date: bool,
    metadata: bool,
    up: BTreeMap<String, State>,
}

#[derive(Clone)]
struct State {
    minor: u32,
    primary: bool,
    connection: &'static str,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            lun: Lun::new(ByteSize::mib(8)),
            peer_answers: true,
            peer_primary: false,
            split: false,
            up_to_date: true,
            metadata: true,
            up: BTreeMap::new(),
        }
    }
}

impl Cluster {
    fn events(&self) -> String {
        let mut text = String::new();
        let disk = if self.up_to_date { "UpToDate" } else { "Inconsistent" };
        for (name, state) in &self.up {
            let role = if state.primary { "Primary" } else { "Secondary" };
            let (minor, connection) = (state.minor, state.connection);
            text.push_str(&format!(
                "exists resource name:{name} role:{role} suspended:no\n\
                 exists connection name:{name} conn-name:peer connection:{connection}\n\
                 exists device name:{name} volume:0 minor:{minor} disk:{disk}\n"
            ));
        }
        text + "exists -\n"
    }

    fn adjust(&mut self, tree: &mut Tree, name: &str, config: &str) -> Ran {
        if !config.contains(&format!("resource {name} ")) {
            return Ran::failed(
                10,
                format!("'{name}' not defined in your config (for this host)."),
            );
        }
        let minor = config.split("/dev/drbd").nth(1).unwrap().split(';').next().unwrap();
        let minor: u32 = minor.parse().unwrap();
        let connection = match (self.peer_answers, self.split || !config.contains(SECRET)) {
            (false, _) => "Connecting",
            (true, true) => "StandAlone",
            (true, false) => "Connected",
        };
        let state = State { minor, primary: false, connection };
        let lun = self.lun.clone();
        self.up.entry(name.into()).or_insert(state).connection = connection;
        if !self.metadata {
            return Ran::failed(1, "No valid meta data found");
        }
        if !tree.exists(format!("/sys/block/drbd{minor}")) {
            tree.add_disk(DiskSpec::new(format!("drbd{minor}"), &lun));
        }
        Ran::ok("")
    }

    fn set_role(&mut self, tree: &Tree, name: &str, primary: bool) -> Ran {
        let Some(state) = self.up.get_mut(name) else {
            return Ran::failed(10, "0: Failure: (127) Device minor not allocated");
        };
        if primary && self.peer_primary {
            return Ran::failed(11, "(-1) Multiple primaries not allowed by config");
        }
        if primary && !self.up_to_date {
            return Ran::failed(17, "(-2) Need access to UpToDate data");
        }
        if !primary && tree.is_claimed(&format!("drbd{}", state.minor)) {
            return Ran::failed(11, "(-12) Device is held open by someone");
        }
        state.primary = primary;
        Ran::ok("")
    }
}

fn drbdadm(tree: &mut Tree, call: &ToolCall) -> Ran {
    let [_, file, command, name] = call.args.as_slice() else { panic!("{call:?}") };
    let Some(Node::File(config, mode)) = tree.node(file).cloned() else {
        return Ran::failed(10, format!("Can not open '{file}'."));
    };
    assert_eq!(mode, 0o600, "for root alone");
    let config = String::from_utf8(config).unwrap();
    assert_eq!(command, "adjust");
    tree.with::<Cluster, _>(|cluster, tree| cluster.adjust(tree, name, &config))
}

fn drbdsetup(tree: &mut Tree, call: &ToolCall) -> Ran {
    let words: Vec<&str> = call.args.iter().map(String::as_str).collect();
    tree.with::<Cluster, _>(|cluster, tree| match words.as_slice() {
        ["events2", "--now"] => Ran::ok(cluster.events()),
        ["down", name] => {
            if let Some(state) = cluster.up.remove(*name) {
                tree.remove_disk(&format!("drbd{}", state.minor));
            }
            Ran::ok("")
        }
        ["primary", "100"] => cluster.set_role(tree, "vol1", true),
        ["secondary", "100"] => cluster.set_role(tree, "vol1", false),
        ["resize", "100"] => {
            tree.set_size("drbd100", cluster.lun.size());
            Ran::ok("")
        }
        other => panic!("drbdsetup {other:?}"),
    })
}

fn cluster<R>(rig: &ConnectorRig, act: impl FnOnce(&mut Cluster) -> R) -> R {
    rig.host.kernel().edit(|tree| tree.with::<Cluster, _>(|cluster, _| act(cluster)))
}

fn rig() -> ConnectorRig {
    let host = FakeHost::new();
    host.kernel().file("/proc/drbd", "version: 8.4.11 (api:1/proto:86-101)\n");
    host.kernel().module("drbd").on_reboot(|tree| {
        tree.with::<Cluster, _>(|cluster, _| cluster.up.clear());
    });
    host.tool("drbdadm", drbdadm);
    host.tool("drbdsetup", drbdsetup);
    host.only_looks(|call| call.method == "run" && call.detail.contains("events2"));
    let data = json!({ "name": "vol1", "device": "/dev/drbd100", "config": CONFIG });
    let mut info = info(data);
    info.identity = Some(Identity::new("drbd", "vol1"));
    info.secrets.insert("provider_auth".into(), Secret::new(SECRET));
    ConnectorRig::new(&Drbd, host, info, ()).on_grow(|host| {
        host.kernel().edit(|tree| {
            tree.with::<Cluster, _>(|cluster, _| cluster.lun.resize(ByteSize::mib(16)));
        });
        ByteSize::mib(16)
    })
}

hawser_testkit::connector_contract!(rig());

#[tokio::test(start_paused = true)]
async fn a_resource_is_brought_up_and_promoted_and_its_secret_removed() {
    let rig = rig();

    let attached = rig.connect().await.unwrap().into_inner();

    assert_eq!(attached.path(), Path::new("/dev/drbd100"));
    assert_eq!(attached.identity(), Some(&Identity::new("drbd", "vol1")));
    assert!(cluster(&rig, |cluster| cluster.up["vol1"].primary));
    let left = rig.host.kernel().edit(|tree| tree.list("/run/hawser"));
    assert_eq!(left, ["drbd-vol1.json", "drbd-vol1.res"]);
    let config = rig.host.kernel().edit(|tree| tree.text("/run/hawser/drbd-vol1.res"));
    assert!(config.contains("resource vol1") && !config.contains(SECRET), "{config}");
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_was_up_before_goes_on_mirroring_after_the_detach() {
    let rig = rig();
    rig.connect().await.unwrap();
    rig.host.kernel().edit(|tree| {
        tree.remove("/run/hawser/drbd-vol1.json");
        tree.remove("/run/hawser/drbd-vol1.res");
        tree.with::<Cluster, _>(|cluster, _| cluster.up.get_mut("vol1").unwrap().primary = false);
    });
    assert_eq!(Drbd.lookup(&rig.host, &rig.info).await.unwrap(), None, "merely up");
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Already(()));

    assert!(rig.connect().await.unwrap().is_made());
    assert!(rig.disconnect(&rig.intent()).await.unwrap().is_made());

    assert!(!cluster(&rig, |cluster| cluster.up["vol1"].primary), "up, and Secondary");
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Already(()));
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_refusal_is_told_and_taken_back() {
    type Change = fn(&mut Cluster);
    let cases: [(Change, Reason); 5] = [
        (|cluster| cluster.split = true, Reason::PathsDown),
        (|cluster| cluster.peer_answers = false, Reason::TargetUnreachable),
        (|cluster| cluster.peer_primary = true, Reason::Reserved),
        (|cluster| cluster.up_to_date = false, Reason::LunNotFound),
        (|cluster| cluster.metadata = false, Reason::LunNotFound),
    ];
    for (change, reason) in cases {
        let rig = rig();
        let before = rig.host.snapshot();
        cluster(&rig, change);

        let error = rig.connect().await.unwrap_err();

        assert_eq!(error.reason(), Some(reason), "{error:?}");
        assert_eq!(error.outcome(), Outcome::RolledBack, "{error:?}");
        assert!(cluster(&rig, |cluster| cluster.up.is_empty()));
        assert_eq!(rig.host.snapshot(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_secret_is_not_told_from_a_split_brain_and_never_shown() {
    let mut rig = rig();
    rig.info.secrets.insert("provider_auth".into(), Secret::new("wrong"));

    let error = rig.connect().await.unwrap_err();

    assert!(error.sentence().contains("stands alone"), "{error:?}");
    assert!(error.sentence().contains("nothing was discarded"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_peer_it_is_used_only_when_that_was_asked_for() {
    let mut rig = rig();
    rig.info.data.insert("allowDegraded".into(), json!(true));
    cluster(&rig, |cluster| cluster.peer_answers = false);

    let attached = rig.connect().await.unwrap().into_inner();

    let health = Drbd.health(&rig.host, &rig.record(&attached)).await.unwrap();
    assert!(health.message.contains("peer is Connecting"), "{health:?}");
}

#[tokio::test(start_paused = true)]
async fn a_device_of_another_resource_is_refused() {
    let rig = rig();
    cluster(&rig, |cluster| {
        let state = State { minor: 100, primary: false, connection: "Connected" };
        cluster.up.insert("other".into(), state);
    });

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert!(error.sentence().contains("other"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_split_brain_during_use_is_told_by_health_and_by_the_next_attach() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    cluster(&rig, |cluster| cluster.up.get_mut("vol1").unwrap().connection = "StandAlone");

    let health = Drbd.health(&rig.host, &rig.record(&attached)).await.unwrap();
    let error = rig.connect().await.unwrap_err();

    assert!(health.message.contains("stands alone"), "{health:?}");
    assert!(error.sentence().contains("stands alone"), "{error:?}");
    assert!(cluster(&rig, |cluster| cluster.up["vol1"].primary), "left as it is");
}

/// EMEDIUMTYPE: what a killed detach left secondary lets nobody open it, also to ask who has it.
#[tokio::test(start_paused = true)]
async fn a_secondary_that_cannot_be_opened_is_taken_down() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    cluster(&rig, |cluster| cluster.up.get_mut("vol1").unwrap().primary = false);
    rig.host.kernel().fail_next("Disks::is_claimed", 124);

    let gone = Drbd.disconnect(&rig.host, &rig.record(&attached), &Detach::default()).await;

    assert_eq!(gone.unwrap(), Change::Made(()));
    assert!(cluster(&rig, |cluster| cluster.up.is_empty()));
}

fn refusal(data: Value) -> Error {
    data::read(&info(data)).map(|target| panic!("{target:?}")).unwrap_err().into()
}

#[test]
fn bad_data_is_refused_by_the_name_of_its_field() {
    let good = json!({ "name": "r", "device": "/dev/drbd0", "config": "resource r {}" });
    assert!(data::read(&info(good.clone())).is_ok());
    for (field, value) in [
        ("name", json!(null)),
        ("name", json!("all")),
        ("name", json!("-h")),
        ("name", json!("../x")),
        ("name", json!("a b")),
        ("device", json!("/dev/sda")),
        ("device", json!("/dev/drbd")),
        ("device", json!("/dev/drbd+1")),
        ("device", json!("/dev/drbd1048576")),
        ("config", json!(null)),
        ("config", json!(7)),
        ("config", json!("a\u{0}b")),
        ("config", json!("resource r { handlers { x \"y\"; } }")),
        ("allow_degraded", json!("maybe")),
        ("access_mode", json!("r")),
    ] {
        let mut data = good.clone();
        data[field] = value.clone();
        let error = refusal(data);
        assert_eq!(error.kind(), Kind::Invalid, "{field} {value}");
        assert!(error.sentence().contains(field), "{}", error.sentence());
    }
}

#[tokio::test(start_paused = true)]
async fn a_gap_without_a_secret_and_a_configuration_of_another_are_bad_data() {
    let mut rig = rig();
    rig.info.data.insert("config".into(), json!("resource other { device /dev/drbd100; }"));
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
    rig.info.data.insert("config".into(), json!(CONFIG));
    rig.info.secrets.clear();

    let error = rig.connect().await.unwrap_err();

    assert!(error.sentence().contains("provider_auth"), "{error:?}");
}

proptest! {
    #[test]
    fn any_data_is_a_target_or_refused(
        key in "(name|device|config|allow_degraded|wwn)",
        text in "\\PC{0,30}",
        number: u64,
    ) {
        for value in [json!(text), json!(number), json!([text])] {
            let mut data = Map::new();
            data.insert("name".into(), json!("r"));
            data.insert("device".into(), json!("/dev/drbd1"));
            data.insert("config".into(), json!("resource r {}"));
            data.insert(key.clone(), value);
            let _ = data::read(&info(Value::Object(data)));
        }
    }
}
