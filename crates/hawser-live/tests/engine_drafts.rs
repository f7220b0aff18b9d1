//! Volumes of an orchestrator where writes are dear: recorded once, when they are made; whatever is cut
//! off is asked for again or swept, and nothing that holds anything is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::change::Change;
use hawser_core::error::{Error, Kind, Outcome};
use hawser_core::id::VolumeId;
use hawser_core::name::{Alias, Scope};
use hawser_core::operation::OperationState;
use hawser_core::page::PageRequest;
use hawser_core::port::control::{OperationFilter, Reply};
use hawser_core::port::store::{Key, Store};
use hawser_core::size::ByteSize;
use hawser_core::volume::{SourceRef, Volume, VolumeRef, VolumeRequest, VolumeState};
use hawser_live::rig::Rig;
use hawser_live::stage::{Machine, SHORT, Stage, Strike, WAIT, done, is_volume, says};
use hawser_testkit::fault::Faults;

/// Longer than any of these tests: what is left is not swept.
const NEVER: Duration = Duration::from_secs(600);
/// What is left is swept at once.
const SOON: Duration = Duration::from_millis(20);

fn alias(name: &str) -> Alias {
    Alias::new(Scope::Csi, name).expect("a legal name")
}

fn by_name(name: &str) -> VolumeRef {
    VolumeRef::Alias(alias(name))
}

fn claim(name: &str) -> VolumeRequest {
    VolumeRequest::new(alias(name), ByteSize::mib(16))
}

async fn create(stage: &Stage, name: &str) -> Change<Volume> {
    done(stage.life.control.create_volume(claim(name), WAIT).await.expect("created"))
}

/// The ids of the images in the pool.
fn images(rig: &Rig) -> Vec<String> {
    let volumes = std::fs::read_dir(rig.path("pool-default/volumes")).expect("listable");
    let names = volumes.flatten().map(|entry| entry.file_name().into_string().expect("ours"));
    let mut ids: Vec<_> = names.map(|name| name.trim_end_matches(".img").to_owned()).collect();
    ids.sort();
    ids
}

fn writes_of_volumes(stage: &Stage) -> Vec<String> {
    let writes = stage.store.writes().into_iter().filter(|write| write.contains(" volume/"));
    writes.map(|write| write.split('/').next().expect("never empty").to_owned()).collect()
}

/// The volume is there, once, and so is its storage.
async fn assert_one(stage: &Stage, name: &str, id: &VolumeId) {
    let volume = stage.life.control.get_volume(&by_name(name)).await.expect("there");
    assert_eq!((&volume.id, volume.state), (id, VolumeState::Ready));
    assert_eq!(volume.operation, None);
    assert_eq!(stage.names().await.len(), 1);
    assert_eq!(images(&stage.rig), [id.to_string()]);
    stage.assert_healthy().await;
}

/// Neither record nor draft nor storage.
async fn assert_nothing(stage: &Stage, name: &str) {
    let error = stage.life.control.get_volume(&by_name(name)).await.expect_err("it is not there");
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(stage.names().await.is_empty());
    assert!(images(&stage.rig).is_empty(), "{:?}", images(&stage.rig));
    stage.assert_healthy().await;
}

/// The write that records a volume which is made.
fn records(method: &str, key: &Key, value: &[u8]) -> bool {
    method == "create" && is_volume(key) && says(value, "\"journal\":null")
}

/// A creation that is cut off between the storage and the record.
fn cut_off(machine: &Machine, name: &str) {
    machine.life(async |stage| {
        stage.store.strike_once(|method, key, value| {
            records(method, key, value).then_some(Strike::Swallowed)
        });
        let reply =
            stage.life.control.create_volume(claim(name), WAIT / 100).await.expect("answered");
        assert!(matches!(reply, Reply::Pending(_)));
        stage.until_struck().await;
    });
    assert_eq!(images(&machine.rig).len(), 1, "the storage was made");
}

#[tokio::test]
async fn a_volume_takes_one_write() {
    let stage = Machine::dear(NEVER).start().await;

    let made = create(&stage, "pvc-1").await;

    assert!(made.is_made());
    assert_eq!(made.get().state, VolumeState::Ready);
    assert_eq!(writes_of_volumes(&stage), ["create volume"]);
    assert_one(&stage, "pvc-1", &made.get().id).await;
    assert_eq!(create(&stage, "pvc-1").await, Change::Already(made.into_inner()));
    assert_eq!(writes_of_volumes(&stage).len(), 1);
}

#[tokio::test]
async fn what_has_another_name_or_a_source_is_recorded_first() {
    let stage = Machine::dear(NEVER).start().await;
    let origin = stage.volume("by-hand").await;
    assert_eq!(writes_of_volumes(&stage), ["create volume", "put volume"]);
    let mut copy = claim("pvc-2");
    copy.source = Some(SourceRef::Volume(VolumeRef::Id(origin.id)));

    done(stage.life.control.create_volume(copy, WAIT).await.unwrap());

    let begun = |write: &&String| *write == "create volume";
    assert_eq!(writes_of_volumes(&stage).iter().filter(begun).count(), 2);
    assert!(writes_of_volumes(&stage).len() > 4, "{:?}", writes_of_volumes(&stage));
    stage.assert_healthy().await;
}

#[tokio::test]
async fn where_writes_are_cheap_the_intent_is_written_first() {
    let stage = Stage::new().await;

    let made = create(&stage, "pvc-1").await;

    assert_eq!(writes_of_volumes(&stage), ["create volume", "put volume"]);
    assert_one(&stage, "pvc-1", &made.get().id).await;
}

#[tokio::test]
async fn requests_meet_a_creation_that_is_not_recorded() {
    // Of one node it would be asked for room before anything begins.
    let stage = Machine::dear(NEVER).of_the_network().start().await;
    let control = &stage.life.control;
    stage.rig.host.hang_always("usage");

    let first = control.create_volume(claim("pvc-1"), SHORT).await.unwrap();
    let second = control.create_volume(claim("pvc-1"), SHORT).await.unwrap();

    let (Reply::Pending(first), Reply::Pending(second)) = (first, second) else {
        panic!("answered while the storage hangs")
    };
    assert_eq!(first.id, second.id, "the second did not join the first");
    let volume = control.get_volume(&by_name("pvc-1")).await.unwrap();
    assert_eq!((volume.state, volume.operation), (VolumeState::Creating, Some(first.id.clone())));
    assert!(stage.names().await.is_empty(), "what is not made is nobody's yet");
    let larger = VolumeRequest::new(alias("pvc-1"), ByteSize::mib(32));
    let error = control.create_volume(larger, SHORT).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Exists);
    let error = control.delete_volume(&by_name("pvc-1"), SHORT).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    assert!(writes_of_volumes(&stage).is_empty());

    stage.rig.host.heal();
    let cancelled = control.cancel_operation(&first.id).await.unwrap();

    assert_eq!(cancelled.state, OperationState::Failed, "{cancelled:?}");
    assert_nothing(&stage, "pvc-1").await;
    assert!(create(&stage, "pvc-1").await.is_made());
}

#[tokio::test]
async fn a_creation_that_fails_leaves_nothing() {
    let stage = Machine::dear(NEVER).start().await;
    stage.rig.host.fail_next("usage", Error::new(Kind::NoSpace, "the disk is full"));

    let error = stage.life.control.create_volume(claim("pvc-1"), WAIT).await.unwrap_err();

    assert_eq!((error.kind(), error.is_unknown()), (Kind::NoSpace, false));
    assert_nothing(&stage, "pvc-1").await;
    assert!(create(&stage, "pvc-1").await.is_made());
}

#[tokio::test]
async fn a_record_that_is_refused_takes_the_volume_back() {
    let stage = Machine::dear(NEVER).start().await;
    stage
        .store
        .strike_once(|method, key, value| records(method, key, value).then_some(Strike::Refused));

    let error = stage.life.control.create_volume(claim("pvc-1"), WAIT).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable);
    assert_nothing(&stage, "pvc-1").await;
}

#[tokio::test]
async fn a_record_that_got_no_answer_comes_to_one_volume() {
    for strike in [Strike::AnswerLost, Strike::Lost] {
        let stage = Machine::dear(NEVER).start().await;
        stage
            .store
            .strike_once(move |method, key, value| records(method, key, value).then_some(strike));

        let error = stage.life.control.create_volume(claim("pvc-1"), WAIT).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Unknown, "{strike:?}");
        let second = create(&stage, "pvc-1").await;

        assert_one(&stage, "pvc-1", &second.get().id).await;
        let all = (OperationFilter::default(), PageRequest::largest());
        let operations = stage.life.control.list_operations(&all.0, &all.1).await.unwrap();
        for operation in operations.items {
            let ended = stage.life.control.get_operation(&operation.id, WAIT).await.unwrap();
            assert_eq!(ended.state, OperationState::Succeeded, "{strike:?}: {ended:?}");
        }
        assert_one(&stage, "pvc-1", &second.get().id).await;
    }
}

#[tokio::test]
async fn a_cancel_that_comes_after_the_record_does_not_call_it_failed() {
    let stage = Machine::dear(NEVER).start().await;
    stage
        .store
        .strike_once(|method, key, value| records(method, key, value).then_some(Strike::Silent));
    let reply = stage.life.control.create_volume(claim("pvc-1"), WAIT / 100).await.unwrap();
    let Reply::Pending(operation) = reply else { panic!("answered without an answer") };
    stage.until_struck().await;

    let cancelled = stage.life.control.cancel_operation(&operation.id).await.unwrap();

    assert_eq!(cancelled.state, OperationState::Succeeded, "{cancelled:?}");
    let volume = create(&stage, "pvc-1").await;
    assert!(!volume.is_made());
    assert_one(&stage, "pvc-1", &volume.get().id).await;
}

#[test]
fn what_was_cut_off_is_given_to_whoever_asks_again() {
    let machine = Machine::dear(NEVER);
    cut_off(&machine, "pvc-1");
    let left = images(&machine.rig);

    machine.life(async |stage| {
        let findings = stage.life.control.doctor(false).await.unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].advice.contains("removed by itself"), "{findings:?}");
        let volume = create(&stage, "pvc-1").await.into_inner();

        assert_eq!(left, [volume.id.to_string()]);
        assert_one(&stage, "pvc-1", &volume.id).await;
    });
}

#[test]
fn what_was_cut_off_and_nobody_asks_for_is_swept() {
    let machine = Machine::dear(SOON);
    cut_off(&machine, "pvc-1");

    machine.life(async |stage| {
        stage.until("it is swept", async || images(&stage.rig).is_empty()).await;
        stage.until("nothing is recorded", async || stage.names().await.is_empty()).await;
        assert_nothing(&stage, "pvc-1").await;
        let volume = create(&stage, "pvc-1").await;
        assert!(volume.is_made());
        assert_one(&stage, "pvc-1", &volume.get().id).await;
    });
}

#[test]
fn a_volume_that_holds_something_is_not_swept_whoever_lost_its_record() {
    let machine = Machine::dear(SOON);
    let mut written = String::new();
    machine.life(async |stage| {
        for name in ["pvc-1", "pvc-2"] {
            let volume = create(&stage, name).await.into_inner();
            let key = Key::join(&["volume", volume.id.as_str()]);
            let found = stage.rig.store.get(&key).await.unwrap().expect("recorded");
            let _ = stage.rig.store.delete(&key, found.revision).await.unwrap();
            written = volume.id.to_string();
        }
    });
    let image = machine.rig.path(&format!("pool-default/volumes/{written}.img"));
    write_at(&image, 5 << 20, b"x");

    machine.life(async |stage| {
        stage.until("the other is swept", async || images(&stage.rig).len() == 1).await;
        stage.until("nothing is recorded", async || stage.names().await.is_empty()).await;
        tokio::time::sleep(SOON * 5).await;
        assert_eq!(images(&stage.rig), [written.clone()]);
        let findings = stage.life.control.doctor(true).await.unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].advice.contains("look at it"), "{findings:?}");
    });
    assert_eq!(images(&machine.rig), [written]);
}

fn write_at(path: &Path, at: u64, content: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the image is there");
    file.write_all_at(content, at).expect("there is room");
}

#[test]
fn what_cannot_be_removed_now_is_removed_the_next_time() {
    let machine = Machine::dear(SOON * 20);
    cut_off(&machine, "pvc-1");
    machine.life(async |stage| {
        stage.rig.host.fail_always("loop_devices");
        stage.rig.host.forget_calls();
        let tried = async || {
            let calls = stage.rig.host.calls();
            calls.iter().any(|call| call.method == "loop_devices")
        };
        stage.until("it is tried", tried).await;
        stage.until("it is let go", async || stage.names().await.is_empty()).await;
        assert_eq!(images(&stage.rig).len(), 1);
    });

    machine.life(async |stage| {
        stage.until("it is swept", async || images(&stage.rig).is_empty()).await;
        stage.until("nothing is recorded", async || stage.names().await.is_empty()).await;
        stage.assert_healthy().await;
    });
}

/// Lives until the point with this number; true when it came to it.
fn dies_at(machine: &Machine, point: u64, live: impl AsyncFnOnce(Stage)) -> bool {
    let faults = Faults::crash_at(point);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let (rig, store) = (machine.rig.clone(), machine.store.clone());
        let living = async {
            let life = rig.boot_over(store.clone(), &faults).await.expect("it starts");
            live(Stage { rig: rig.clone(), store, life }).await;
        };
        tokio::select! {
            () = living => {}
            () = faults.dead() => {}
        }
    });
    runtime.shutdown_timeout(WAIT);
    faults.died_at().is_some()
}

#[test]
fn a_creation_cut_off_anywhere_comes_to_one_volume_when_it_is_repeated() {
    for point in 0.. {
        let machine = Machine::dear(NEVER);
        let died = dies_at(&machine, point, async |stage| {
            create(&stage, "pvc-1").await;
        });

        machine.life(async |stage| {
            let volume = create(&stage, "pvc-1").await;
            assert_one(&stage, "pvc-1", &volume.get().id).await;
        });
        if !died {
            return assert!(point > 20, "only {point} points");
        }
    }
}

#[test]
fn a_creation_cut_off_anywhere_leaves_a_volume_or_nothing() {
    for point in 0.. {
        let machine = Machine::dear(SOON);
        let died = dies_at(&machine, point, async |stage| {
            create(&stage, "pvc-1").await;
        });

        machine.life(async |stage| {
            let settled = async || {
                let volume = stage.life.control.get_volume(&by_name("pvc-1")).await;
                match volume {
                    Ok(volume) => volume.state == VolumeState::Ready,
                    Err(_) => images(&stage.rig).is_empty(),
                }
            };
            stage.until(&format!("settled after point {point}"), settled).await;
            match stage.life.control.get_volume(&by_name("pvc-1")).await {
                Ok(volume) => assert_one(&stage, "pvc-1", &volume.id).await,
                Err(_) => assert_nothing(&stage, "pvc-1").await,
            }
        });
        if !died {
            assert_eq!(images(&machine.rig).len(), 1, "what was acknowledged is gone");
            return;
        }
    }
}

#[test]
fn a_sweep_cut_off_anywhere_comes_to_its_end() {
    for point in 0.. {
        let machine = Machine::dear(SOON);
        cut_off(&machine, "pvc-1");
        let swept = async |stage: Stage| {
            let gone = async || images(&stage.rig).is_empty() && stage.names().await.is_empty();
            stage.until(&format!("swept after point {point}"), gone).await;
            assert_nothing(&stage, "pvc-1").await;
        };

        let died = dies_at(&machine, point, swept);

        machine.life(swept);
        if !died {
            return assert!(point > 20, "only {point} points");
        }
    }
}

mod servers {
    //! Several servers on one store, and storage on several nodes.

    use hawser_api::link::Hub;
    use hawser_connect::FileRegistry;
    use hawser_connect::node::{NodeHalf, NodeParts};
    use hawser_core::class::Class;
    use hawser_core::id::InstanceId;
    use hawser_core::name::NodeId;
    use hawser_core::place::Place;
    use hawser_core::port::store::Prefix;
    use hawser_core::port::{Control, Host, Nodes, Provider};
    use hawser_engine::control::{ClassEntry, Engine, EngineParts};
    use hawser_provider::Deps;
    use hawser_testkit::fake_host::FakeHost;
    use hawser_testkit::mem_store::MemStore;
    use serde_json::json;

    use super::*;

    async fn pool(host: &Arc<FakeHost>, node: Option<&NodeId>) -> Arc<dyn Provider> {
        let settings = json!({ "path": host.dir().join("pool"), "kind": "image" });
        open("local", settings, host.clone(), node, None).await
    }

    async fn open(
        provider: &str,
        settings: serde_json::Value,
        host: Arc<FakeHost>,
        node: Option<&NodeId>,
        nodes: Option<Arc<dyn Nodes>>,
    ) -> Arc<dyn Provider> {
        let host: Arc<dyn Host> = host;
        let deps = Deps::new("default".parse().expect("a legal name"), host);
        let deps = Deps { node: node.cloned(), nodes, ..deps };
        let settings = settings.as_object().expect("an object").clone();
        hawser_provider::find(provider)
            .expect("in the table")
            .open(settings, &deps)
            .await
            .expect("opened")
    }

    async fn server(
        store: &Arc<MemStore>,
        provider: &Arc<dyn Provider>,
        nodes: Arc<dyn Nodes>,
        patience: Duration,
    ) -> Engine {
        let class = Class {
            name: "default".parse().expect("a legal name"),
            provider: provider.info().name.into(),
            settings: Default::default(),
            abilities: provider.abilities(),
            default: true,
        };
        let engine = Engine::new(EngineParts {
            instance: InstanceId::generate(),
            store: store.clone(),
            classes: vec![ClassEntry { class, provider: provider.clone() }],
            nodes,
            history: false,
            drafts: Some(patience),
        });
        engine.start().await.expect("started");
        engine
    }

    fn held(host: &FakeHost) -> usize {
        std::fs::read_dir(host.dir().join("pool/volumes")).expect("listable").count()
    }

    async fn recorded(store: &MemStore) -> usize {
        store.list(&Prefix::below(&["volume"]), None, 100).await.expect("answered").items.len()
    }

    async fn soon(what: &str, mut so: impl AsyncFnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + WAIT;
        while !so().await {
            assert!(tokio::time::Instant::now() < deadline, "never: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn two_servers_that_are_asked_for_the_same_make_it_once() {
        let (host, store) = (Arc::new(FakeHost::new()), Arc::new(MemStore::new()));
        let pool = pool(&host, None).await;
        let hub = Arc::new(Hub::default());
        let one = server(&store, &pool, hub.clone(), NEVER).await;
        let two = server(&store, &pool, hub, NEVER).await;
        for round in 0..20 {
            let name = format!("pvc-{round}");

            let (first, second) = tokio::join!(
                one.create_volume(claim(&name), WAIT),
                two.create_volume(claim(&name), WAIT)
            );

            for answer in [&first, &second] {
                // Whoever gave way says so, and is asked again.
                assert!(answer.as_ref().err().is_none_or(Error::is_unknown), "{answer:?}");
            }
            let mut ids = Vec::new();
            for engine in [&one, &two] {
                let again = async || engine.create_volume(claim(&name), WAIT).await;
                soon("it is told", async || again().await.is_ok()).await;
                ids.push(done(again().await.unwrap()).into_inner().id);
            }
            assert_eq!(ids[0], ids[1]);
            assert_eq!((held(&host), recorded(&store).await), (round + 1, round + 1));
        }
        assert_eq!(one.doctor(false).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_server_that_gives_up_removes_nothing_that_another_has_made() {
        let (host, store) = (Arc::new(FakeHost::new()), Arc::new(MemStore::new()));
        let pool = pool(&host, None).await;
        let hub = Arc::new(Hub::default());
        let one = server(&store, &pool, hub.clone(), NEVER).await;
        let two = server(&store, &pool, hub, NEVER).await;
        host.hang_always("usage");
        let Reply::Pending(begun) = one.create_volume(claim("pvc-1"), SHORT).await.unwrap() else {
            panic!("answered while the storage hangs")
        };
        host.heal();
        let made = done(two.create_volume(claim("pvc-1"), WAIT).await.unwrap());
        assert!(made.is_made());

        let ended = one.cancel_operation(&begun.id).await.unwrap();

        assert_eq!(ended.state, OperationState::Failed);
        assert_eq!((held(&host), recorded(&store).await), (1, 1));
        let again = done(one.create_volume(claim("pvc-1"), WAIT).await.unwrap());
        assert_eq!(again, Change::Already(made.into_inner()));
        assert_eq!(one.doctor(false).await.unwrap(), []);
    }

    /// A node with a pool of its own.
    async fn node(hub: &Hub, id: &str) -> (NodeId, Arc<FakeHost>) {
        let (id, host) = (id.parse::<NodeId>().expect("a legal name"), Arc::new(FakeHost::new()));
        let registry = FileRegistry::open(&host.dir().join("run"), &host.dir().join("lock"));
        let half = NodeHalf::new(NodeParts {
            id: id.clone(),
            instance: InstanceId::generate(),
            host: host.clone(),
            connectors: Vec::new().into(),
            registry: Arc::new(registry.expect("writable")),
            pools: vec![("default".parse().expect("a legal name"), pool(&host, Some(&id)).await)],
        });
        hub.add_local(id.clone(), Arc::new(half));
        (id, host)
    }

    struct Cluster {
        store: Arc<MemStore>,
        engine: Engine,
        a: (NodeId, Arc<FakeHost>),
        b: (NodeId, Arc<FakeHost>),
    }

    /// Two nodes, a volume on `b`, and what an attempt that was cut off left of it on `a`.
    async fn twice_placed() -> (Cluster, VolumeId) {
        let (hub, store) = (Arc::new(Hub::default()), Arc::new(MemStore::new()));
        let (a, b) = (node(&hub, "a").await, node(&hub, "b").await);
        let settings = json!({ "of": "local", "path": "/pool", "kind": "image" });
        let nodes: Arc<dyn Nodes> = hub.clone();
        let class = open("on_nodes", settings, a.1.clone(), None, Some(nodes)).await;
        let engine = server(&store, &class, hub, SOON).await;
        let at = async |node: &NodeId| {
            let request = VolumeRequest { places: vec![Place::node(node)], ..claim("pvc-1") };
            done(engine.create_volume(request, WAIT).await.expect("answered")).into_inner()
        };
        let first = at(&a.0).await;
        let key = Key::join(&["volume", first.id.as_str()]);
        let found = store.get(&key).await.expect("answered").expect("recorded");
        let _ = store.delete(&key, found.revision).await.expect("answered");
        let second = at(&b.0).await;
        assert_eq!((first.id, second.place), (second.id.clone(), Some(Place::node(&b.0))));
        assert_eq!((held(&a.1), held(&b.1)), (1, 1));
        (Cluster { store, engine, a, b }, second.id)
    }

    #[tokio::test]
    async fn a_node_that_dials_in_is_swept_of_what_is_recorded_elsewhere() {
        let (Cluster { store, engine, a, b }, id) = twice_placed().await;

        engine.node_came(&b.0).await.unwrap();
        engine.node_came(&a.0).await.unwrap();

        soon("it is swept", async || held(&a.1) == 0).await;
        let free = async || engine.get_volume(&VolumeRef::Id(id.clone())).await.unwrap();
        soon("it is let go", async || free().await.operation.is_none()).await;
        assert_eq!(free().await.state, VolumeState::Ready);
        assert_eq!((held(&b.1), recorded(&store).await), (1, 1));
        assert_eq!(engine.doctor(false).await.unwrap(), []);
    }

    #[tokio::test]
    async fn the_last_there_is_of_a_volume_is_not_swept_wherever_it_is() {
        let (Cluster { store, engine, a, b }, id) = twice_placed().await;
        std::fs::remove_file(b.1.dir().join(format!("pool/volumes/{id}.img"))).unwrap();

        engine.node_came(&a.0).await.unwrap();
        tokio::time::sleep(SOON * 10).await;

        assert_eq!((held(&a.1), recorded(&store).await), (1, 1));
    }
}
