//! What becomes of a volume whose node goes away in the middle, over the fake host.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use hawser_api::link::Hub;
use hawser_connect::FileRegistry;
use hawser_connect::node::{NodeHalf, NodeParts};
use hawser_core::class::Class;
use hawser_core::error::{Kind, Result};
use hawser_core::id::InstanceId;
use hawser_core::name::NodeId;
use hawser_core::port::control::Reply;
use hawser_core::port::{Connector, Control, Host, Node, Nodes, Provider};
use hawser_core::publication::{MountRequest, PublishRequest};
use hawser_core::size::ByteSize;
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::{SourceRef, Volume, VolumeRequest};
use hawser_engine::control::{ClassEntry, Engine, EngineParts};
use hawser_live::stage::{
    SHORT, WAIT, alias, by_name, done, group_named, group_of, request, snapshot_of,
};
use hawser_provider::Deps;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::mem_store::MemStore;
use serde_json::{Value, json};

/// A server whose node can go away: class `default` stays with the server, class `there` is on the node.
struct Stage {
    host: Arc<FakeHost>,
    hub: Arc<Hub>,
    node: NodeId,
    half: Arc<dyn Node>,
    classes: Vec<ClassEntry>,
    store: Arc<MemStore>,
    instance: InstanceId,
    engine: Engine,
}

async fn class(
    name: &str,
    provider: &str,
    settings: Value,
    deps: impl FnOnce(Deps) -> Deps,
    host: &Arc<FakeHost>,
) -> ClassEntry {
    let host: Arc<dyn Host> = host.clone();
    let deps = deps(Deps::new(name.parse().unwrap(), host));
    let settings = settings.as_object().unwrap().clone();
    let provider = hawser_provider::find(provider).unwrap().open(settings, &deps).await.unwrap();
    let class = Class {
        name: name.parse().unwrap(),
        provider: provider.info().name.into(),
        settings: Default::default(),
        abilities: provider.abilities(),
        default: name == "default",
    };
    ClassEntry { class, provider }
}

impl Stage {
    async fn new() -> Self {
        let (host, hub) = (Arc::new(FakeHost::new()), Arc::new(Hub::default()));
        let node: NodeId = "n1".parse().unwrap();
        let settings = |name| json!({ "path": host.dir().join(name), "kind": "image" });
        let here = class("default", "local", settings("here"), |deps| deps, &host).await;
        let on_node = |deps| Deps { node: Some(node.clone()), ..deps };
        let pool = class("there", "local", settings("there"), on_node, &host).await.provider;
        let nodes: Arc<dyn Nodes> = hub.clone();
        let of = json!({ "of": "local", "path": "/there", "kind": "image" });
        let deps = |deps| Deps { nodes: Some(nodes), ..deps };
        let there = class("there", "on_nodes", of, deps, &host).await;
        let half = half(&host, &node, pool).await;
        hub.add_local(node.clone(), half.clone());
        let (store, instance) = (Arc::new(MemStore::new()), InstanceId::generate());
        let classes = vec![here, there];
        let engine = engine(&store, &instance, &classes, &hub).await;
        Self { host, hub, node, half, classes, store, instance, engine }
    }

    /// The node's link is lost; the node itself goes on.
    fn node_goes(&self) {
        self.hub.remove_local(&self.node);
    }

    fn node_comes(&self) {
        self.hub.add_local(self.node.clone(), self.half.clone());
    }

    async fn mounted(&self, name: &str) -> Volume {
        self.engine.create_volume(request(name, 16), WAIT).await.unwrap();
        let target = self.host.dir().join(format!("mnt-{name}"));
        let node = self.node.clone();
        let request = MountRequest { node, target, read_only: false, flags: Vec::new() };
        self.engine.mount(&by_name(name), request, WAIT).await.unwrap();
        self.host.forget_calls();
        self.get(name).await
    }

    async fn get(&self, name: &str) -> Volume {
        self.engine.get_volume(&by_name(name)).await.unwrap()
    }

    /// The node goes as soon as something is copied.
    async fn node_goes_with_the_copy(&self) {
        while !self.copies() {
            tokio::task::yield_now().await;
        }
        self.node_goes();
    }

    fn copies(&self) -> bool {
        self.host.calls().iter().any(|call| call.method == "copy_file")
    }

    fn is_frozen(&self) -> bool {
        !self.host.snapshot().frozen.is_empty()
    }

    async fn soon_free(&self, name: &str) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
        while self.get(name).await.operation.is_some() {
            assert!(tokio::time::Instant::now() < deadline, "{name} is held for ever");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn half(host: &Arc<FakeHost>, node: &NodeId, pool: Arc<dyn Provider>) -> Arc<dyn Node> {
    let registry = FileRegistry::open(&host.dir().join("run"), &host.dir().join("lock")).unwrap();
    let local: Arc<dyn Connector> = Arc::new(hawser_connect::Local);
    Arc::new(NodeHalf::new(NodeParts {
        id: node.clone(),
        instance: InstanceId::generate(),
        host: host.clone(),
        connectors: vec![local].into(),
        registry: Arc::new(registry),
        pools: vec![("there".parse().unwrap(), pool)],
    }))
}

async fn engine(
    store: &Arc<MemStore>,
    instance: &InstanceId,
    classes: &[ClassEntry],
    hub: &Arc<Hub>,
) -> Engine {
    let engine = Engine::new(EngineParts {
        instance: instance.clone(),
        store: store.clone(),
        classes: classes.to_vec(),
        nodes: hub.clone(),
        history: false,
        drafts: None,
    });
    engine.start().await.unwrap();
    engine
}

fn clone_of(name: &str, of: &str) -> VolumeRequest {
    VolumeRequest { size: None, source: Some(SourceRef::Volume(by_name(of))), ..request(name, 16) }
}

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{}", error.sentence());
}

#[tokio::test]
async fn a_node_that_goes_during_a_snapshot_keeps_nobody_from_its_volume() {
    let stage = Stage::new().await;
    stage.mounted("v").await;

    let taken = stage.engine.create_snapshot(snapshot_of("v"), WAIT);
    let (taken, ()) = tokio::join!(taken, stage.node_goes_with_the_copy());

    assert_unavailable(taken);
    assert_eq!(stage.get("v").await.operation, None);
    let by_alias = SnapshotRef::Alias(alias("v-s"));
    let gone = stage.engine.get_snapshot(&by_alias).await.unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound, "nobody knows whether it was held still");
}

#[tokio::test]
async fn a_node_that_goes_during_a_clone_or_a_group_keeps_nobody_from_its_volume() {
    let stage = Stage::new().await;
    stage.mounted("v").await;

    let made = stage.engine.create_volume(clone_of("copy", "v"), WAIT);
    let (made, ()) = tokio::join!(made, stage.node_goes_with_the_copy());
    assert_unavailable(made);
    assert_eq!(stage.get("v").await.operation, None);
    stage.engine.get_volume(&by_name("copy")).await.unwrap_err();

    stage.node_comes();
    stage.host.forget_calls();
    let taken = stage.engine.create_group(group_of("g", &["v"]), WAIT);
    let (taken, ()) = tokio::join!(taken, stage.node_goes_with_the_copy());
    assert_unavailable(taken);
    assert_eq!(stage.get("v").await.operation, None);
    stage.engine.get_group(&group_named("g")).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_a_restart_cut_off_waits_for_its_node_only_for_a_while() {
    let mut stage = Stage::new().await;
    stage.mounted("v").await;
    stage.host.hang_always("freeze");
    let begun = stage.engine.create_snapshot(snapshot_of("v"), SHORT).await.unwrap();
    assert!(matches!(begun, Reply::Pending(_)));
    stage.engine.stop(Duration::ZERO).await;
    stage.host.heal();
    stage.node_goes();

    stage.engine = engine(&stage.store, &stage.instance, &stage.classes, &stage.hub).await;

    assert!(stage.get("v").await.operation.is_some(), "it may come back");
    stage.soon_free("v").await;
    stage.engine.get_snapshot(&SnapshotRef::Alias(alias("v-s"))).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_long_copy_is_held_still_to_its_end_and_not_without_its_server() {
    let stage = Stage::new().await;
    stage.mounted("v").await;
    stage.host.hang_always("copy_file");
    let begun = stage.engine.create_snapshot(snapshot_of("v"), SHORT).await.unwrap();
    assert!(matches!(begun, Reply::Pending(_)));

    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(stage.is_frozen(), "let go of while it is copied");

    stage.node_goes();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(!stage.is_frozen(), "frozen for a server that cannot be reached");

    stage.node_comes();
    stage.soon_free("v").await;
    assert!(!stage.is_frozen());
    stage.engine.get_snapshot(&SnapshotRef::Alias(alias("v-s"))).await.unwrap_err();
}

#[tokio::test]
async fn a_file_system_that_was_let_go_of_while_it_was_copied_fails_the_snapshot() {
    let stage = Stage::new().await;
    stage.mounted("v").await;
    let target = stage.host.dir().join("mnt-v");
    // As a node does that was killed and started anew.
    let let_go = async {
        while !stage.copies() {
            tokio::task::yield_now().await;
        }
        stage.host.thaw(&target).await.unwrap();
    };

    let (taken, ()) = tokio::join!(stage.engine.create_snapshot(snapshot_of("v"), WAIT), let_go);

    assert_unavailable(taken);
    assert!(!stage.is_frozen());
    done(stage.engine.create_snapshot(snapshot_of("v"), WAIT).await.expect("taken again"));
}

#[tokio::test]
async fn what_is_published_to_a_node_that_is_away_is_told_so_and_let_go() {
    let stage = Stage::new().await;
    let class = Some("there".parse().unwrap());
    let wanted = VolumeRequest { class, ..request("v", 16) };
    done(stage.engine.create_volume(wanted, WAIT).await.unwrap());
    let right = PublishRequest { node_led: true, ..PublishRequest::new(stage.node.clone(), false) };
    // The server has heard of the node.
    done(stage.engine.publish(&by_name("v"), right.clone(), WAIT).await.unwrap());
    done(stage.engine.unpublish(&by_name("v"), &stage.node, WAIT).await.unwrap());
    stage.node_goes();

    assert_unavailable(stage.engine.publish(&by_name("v"), right.clone(), WAIT).await);

    let volume = stage.get("v").await;
    assert_eq!((volume.operation, volume.publications), (None, Vec::new()));
    stage.node_comes();
    done(stage.engine.publish(&by_name("v"), right, WAIT).await.expect("published"));
}

#[tokio::test]
async fn a_repetition_is_not_refused_because_nobody_can_be_asked_about_its_size() {
    let stage = Stage::new().await;
    let class = Some("there".parse().unwrap());
    let size = Some(ByteSize::bytes((16 << 20) + 1));
    let wanted = VolumeRequest { class, size, ..request("v", 16) };
    let made = done(stage.engine.create_volume(wanted.clone(), WAIT).await.unwrap()).into_inner();
    stage.node_goes();

    assert_unavailable(stage.engine.create_volume(wanted.clone(), WAIT).await);
    let other = VolumeRequest { class: Some("default".parse().unwrap()), ..wanted.clone() };
    let other = stage.engine.create_volume(other, WAIT).await.unwrap_err();
    assert_eq!(other.kind(), Kind::Exists, "{}", other.sentence());

    stage.node_comes();
    let again = done(stage.engine.create_volume(wanted, WAIT).await.unwrap());
    assert_eq!((again.is_made(), &again.get().id), (false, &made.id));
}

#[tokio::test]
async fn a_repetition_of_a_copy_is_answered_when_its_source_is_gone() {
    let stage = Stage::new().await;
    done(stage.engine.create_volume(request("v", 16), WAIT).await.unwrap());
    let size = Some(ByteSize::bytes((16 << 20) + 1));
    let wanted = VolumeRequest { size, ..clone_of("copy", "v") };
    let made = done(stage.engine.create_volume(wanted.clone(), WAIT).await.unwrap()).into_inner();
    done(stage.engine.delete_volume(&by_name("v"), WAIT).await.unwrap());

    let again = done(stage.engine.create_volume(wanted.clone(), WAIT).await.unwrap());

    assert_eq!((again.is_made(), &again.get().id), (false, &made.id));
    let larger = VolumeRequest { size: Some(ByteSize::mib(64)), ..wanted };
    let refused = stage.engine.create_volume(larger, WAIT).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Exists, "{}", refused.sentence());
}
