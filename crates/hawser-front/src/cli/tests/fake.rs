//! A control with fixed objects, and a way to run a command line against it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use clap::{CommandFactory, Parser};
use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use hawser_core::attach::{Attached, Health};
use hawser_core::class::{Ability, Capacity, Class};
use hawser_core::doctor::{Finding, FindingCode, Repair};
use hawser_core::event::{Event, EventKind};
use hawser_core::filesystem::FsKind;
use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::id::OperationId;
use hawser_core::name::{Alias, ClassName, Labels, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::operation::{Failure, Operation, OperationKind, OperationState, ProgressReport};
use hawser_core::page::{Page, PageRequest};
use hawser_core::place::Place;
use hawser_core::port::Control;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter, Wait};
use hawser_core::publication::{
    MountPoint, MountRequest, Publication, PublicationState, PublishRequest,
};
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest, SnapshotState};
use hawser_core::volume::{Access, Sharing, Volume, VolumeRef, VolumeRequest, VolumeState};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Result, Timestamp};

use crate::cli::context::{Interrupt, Underway};
use crate::cli::{Backend, Command, Context, Exit, Global, Terminal, run};

/// Brings volumes to hosts.
#[derive(Parser)]
#[command(name = "hawser", version)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

pub(super) fn parser() -> clap::Command {
    Cli::command()
}

/// What a command printed, and how it ended.
pub(super) struct Ran {
    pub(super) out: String,
    pub(super) err: String,
    pub(super) exit: Exit,
}

#[derive(Clone, Default)]
struct Buffer(Rc<RefCell<Vec<u8>>>);

impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct FakeBackend(Arc<FakeControl>);

#[async_trait]
impl Backend for FakeBackend {
    async fn control(&self) -> Result<Arc<dyn Control>> {
        Ok(self.0.clone())
    }
}

pub(super) fn never() -> Interrupt {
    Box::pin(std::future::pending())
}

/// Runs one command line.
pub(super) async fn hawser(control: &Arc<FakeControl>, line: &str) -> Ran {
    hawser_with(control, line, never).await
}

pub(super) async fn hawser_with(
    control: &Arc<FakeControl>,
    line: &str,
    interrupt: fn() -> Interrupt,
) -> Ran {
    let cli =
        Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|e| panic!("{line}: {e}"));
    let backend = FakeBackend(control.clone());
    let (out, err) = (Buffer::default(), Buffer::default());
    let context = Context {
        backend: &backend,
        format: cli.global.output,
        wait: cli.global.wait_for(),
        quiet: cli.global.quiet,
        terminal: Terminal::default(),
        now: "2026-01-02T00:00:00Z".parse().unwrap(),
        current_dir: PathBuf::from("/users/me"),
        this_node: None,
        out: RefCell::new(Box::new(out.clone())),
        err: RefCell::new(Box::new(err.clone())),
        interrupt,
        underway: RefCell::new(Underway::Nothing),
    };
    let exit = run(cli.command, &context).await;
    drop(context);
    let text = |buffer: Buffer| String::from_utf8(buffer.0.take()).unwrap();
    Ran { out: text(out), err: text(err), exit }
}

/// Answers fixed objects; remembers changes; can answer that a change is not done yet.
#[derive(Default)]
pub(super) struct FakeControl {
    pub(super) asked: Mutex<Vec<String>>,
    pub(super) nodes: Mutex<Vec<NodeId>>,
    pub(super) fail: Mutex<Option<fn() -> Error>>,
    /// Every state the operation of a change goes through; empty means done at once.
    pub(super) steps: Mutex<VecDeque<Operation>>,
    pub(super) missing: bool,
    pub(super) findings: Mutex<Vec<Finding>>,
    pub(super) empty: bool,
}

impl FakeControl {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { nodes: Mutex::new(vec!["host-a".parse().unwrap()]), ..Self::default() })
    }

    fn answer<T>(&self, what: String, value: T) -> Result<Reply<T>> {
        self.asked.lock().unwrap().push(what);
        if let Some(make) = *self.fail.lock().unwrap() {
            return Err(make());
        }
        Ok(match self.steps.lock().unwrap().pop_front() {
            Some(operation) => Reply::Pending(operation),
            None if self.missing => Reply::Done(Change::Already(value)),
            None => Reply::Done(Change::Made(value)),
        })
    }
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(super) fn operation(state: OperationState, step: &str, done: u64, total: u64) -> Operation {
    Operation {
        id: "op-01k5zzzzzzzzzzzzzzzzzzzzzz".parse::<OperationId>().unwrap(),
        kind: OperationKind::CreateVolume,
        subject: "vol-01k5zzzzzzzzzzzzzzzzzzzzzz".into(),
        subject_name: "data".into(),
        state,
        progress: ProgressReport { step: step.into(), done, total },
        started: time("2026-01-01T23:59:30Z"),
        finished: None,
        error: None,
    }
}

pub(super) fn failed(failure: Failure) -> Operation {
    Operation { error: Some(failure), ..operation(OperationState::Failed, "", 0, 0) }
}

pub(super) fn volume() -> Volume {
    Volume {
        id: "vol-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap(),
        aliases: vec![Alias::native("data").unwrap()],
        class: "default".parse().unwrap(),
        size: ByteSize::gib(2),
        access: Access::Filesystem(FsKind::Ext4),
        sharing: Sharing::SingleWriter,
        source: None,
        labels: Labels::try_from(BTreeMap::from([("team".into(), "db".into())])).unwrap(),
        parameters: BTreeMap::new(),
        handle: "h1".into(),
        place: None,
        state: VolumeState::Ready,
        filesystem: None,
        identity: None,
        publications: vec![publication()],
        untouched: false,
        operation: None,
        created: time("2026-01-01T21:00:00Z"),
    }
}

fn other_volume() -> Volume {
    Volume {
        id: "vol-01k5zzzzzzzzzzzzzzzzzzzzz0".parse().unwrap(),
        aliases: vec![Alias::native("a-longer-name").unwrap()],
        size: ByteSize::bytes(1_500_000_000),
        access: Access::Block,
        labels: Labels::default(),
        publications: vec![],
        untouched: false,
        created: time("2025-12-01T00:00:00Z"),
        ..volume()
    }
}

fn publication() -> Publication {
    Publication {
        id: "pub-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap(),
        node: "host-a".parse().unwrap(),
        read_only: false,
        node_led: false,
        claimed: false,
        single_node: false,
        needs_secrets: false,
        state: PublicationState::Published,
        info: None,
        attached: Some(Attached::Directory { path: "/pool/v".into() }),
        mounts: vec![MountPoint {
            target: "/srv/data".into(),
            read_only: false,
            flags: vec![],
            ready: true,
        }],
    }
}

fn snapshot() -> Snapshot {
    Snapshot {
        id: "snap-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap(),
        alias: Alias::native("s1").unwrap(),
        volume: volume().id,
        class: "default".parse().unwrap(),
        size: ByteSize::gib(2),
        access: Access::Filesystem(FsKind::Ext4),
        filesystem: None,
        handle: "s".into(),
        labels: Labels::default(),
        place: None,
        group: None,
        state: SnapshotState::Ready,
        created: time("2026-01-01T23:00:00Z"),
    }
}

pub(super) fn group() -> Group {
    let member = |name: &str, id: &str| Snapshot {
        id: id.parse().unwrap(),
        alias: Alias::native(name).unwrap(),
        group: Some("grp-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap()),
        ..snapshot()
    };
    Group {
        id: "grp-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap(),
        alias: Alias::native("nightly").unwrap(),
        snapshots: vec![
            member("nightly.data", "snap-01k5zzzzzzzzzzzzzzzzzzzzz0"),
            member("nightly.logs", "snap-01k5zzzzzzzzzzzzzzzzzzzzz1"),
        ],
        created: time("2026-01-01T23:00:00Z"),
    }
}

pub(super) fn finding(repair: Option<Repair>) -> Finding {
    Finding {
        code: FindingCode::LoopWithoutRecord,
        subject: "/dev/loop7".into(),
        explanation: "carries our mark, and no attachment names it".into(),
        advice: "--fix detaches it".into(),
        fixable: true,
        repair,
    }
}

#[async_trait]
impl Control for FakeControl {
    async fn create_volume(&self, request: VolumeRequest, _: Wait) -> Result<Reply<Volume>> {
        self.answer(format!("create {request:?}"), volume())
    }
    async fn delete_volume(&self, volume: &VolumeRef, _: Wait) -> Result<Reply<()>> {
        self.answer(format!("delete {volume}"), ())
    }
    async fn expand_volume(
        &self,
        name: &VolumeRef,
        size: ByteSize,
        _: Wait,
    ) -> Result<Reply<Volume>> {
        self.answer(format!("expand {name} {size}"), Volume { size, ..volume() })
    }
    async fn label_volume(
        &self,
        name: &VolumeRef,
        patch: BTreeMap<String, Option<String>>,
        _: Wait,
    ) -> Result<Reply<Volume>> {
        self.answer(format!("label {name} {patch:?}"), volume())
    }
    async fn get_volume(&self, name: &VolumeRef) -> Result<Volume> {
        match name.to_string().as_str() {
            "nothing" => Err(Error::new(Kind::NotFound, "there is no volume nothing")),
            _ => Ok(volume()),
        }
    }
    async fn list_volumes(&self, _: &VolumeFilter, page: &PageRequest) -> Result<Page<Volume>> {
        Ok(match page.token.as_deref() {
            _ if self.empty => Page { items: vec![], next: None },
            None => Page { items: vec![other_volume()], next: Some("2".into()) },
            Some(_) => Page { items: vec![volume()], next: None },
        })
    }
    async fn volume_health(&self, name: &VolumeRef) -> Result<Health> {
        Ok(if name.to_string() == "sick" { Health::bad("a path is down") } else { Health::good() })
    }
    async fn create_snapshot(&self, request: SnapshotRequest, _: Wait) -> Result<Reply<Snapshot>> {
        self.answer(format!("snapshot {request:?}"), snapshot())
    }
    async fn delete_snapshot(&self, snapshot: &SnapshotRef, _: Wait) -> Result<Reply<()>> {
        self.answer(format!("delete snapshot {snapshot}"), ())
    }
    async fn get_snapshot(&self, _: &SnapshotRef) -> Result<Snapshot> {
        Ok(snapshot())
    }
    async fn list_snapshots(
        &self,
        _: Option<&VolumeRef>,
        _: &PageRequest,
    ) -> Result<Page<Snapshot>> {
        Ok(Page { items: vec![snapshot()], next: None })
    }
    async fn create_group(&self, request: GroupRequest, _: Wait) -> Result<Reply<Group>> {
        self.answer(format!("group {request:?}"), group())
    }
    async fn delete_group(&self, group: &GroupRef, _: Wait) -> Result<Reply<()>> {
        self.answer(format!("delete group {group}"), ())
    }
    async fn get_group(&self, _: &GroupRef) -> Result<Group> {
        Ok(group())
    }
    async fn publish(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        _: Wait,
    ) -> Result<Reply<Publication>> {
        self.answer(
            format!("publish {volume} {} {}", request.node, request.read_only),
            publication(),
        )
    }
    async fn unpublish(&self, volume: &VolumeRef, node: &NodeId, _: Wait) -> Result<Reply<()>> {
        self.answer(format!("unpublish {volume} {node}"), ())
    }
    async fn attach(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        _: Wait,
    ) -> Result<Reply<Attached>> {
        let attached = Attached::Directory { path: "/pool/v".into() };
        self.answer(format!("attach {volume} {} {}", request.node, request.read_only), attached)
    }
    async fn detach(&self, volume: &VolumeRef, node: &NodeId, _: Wait) -> Result<Reply<()>> {
        self.answer(format!("detach {volume} {node}"), ())
    }
    async fn mount(
        &self,
        volume: &VolumeRef,
        request: MountRequest,
        _: Wait,
    ) -> Result<Reply<Publication>> {
        self.answer(format!("mount {volume} {request:?}"), publication())
    }
    async fn unmount(
        &self,
        volume: &VolumeRef,
        node: &NodeId,
        target: Option<PathBuf>,
        _: Wait,
    ) -> Result<Reply<()>> {
        self.answer(format!("unmount {volume} {node} {target:?}"), ())
    }
    async fn get_operation(&self, _: &OperationId, wait: Wait) -> Result<Operation> {
        let step = self.steps.lock().unwrap().pop_front();
        match step {
            Some(operation) => Ok(operation),
            None if wait.is_zero() => Ok(operation(OperationState::Running, "copying", 45, 100)),
            None => std::future::pending().await,
        }
    }
    async fn list_operations(
        &self,
        _: &OperationFilter,
        _: &PageRequest,
    ) -> Result<Page<Operation>> {
        let items = vec![operation(OperationState::Running, "copying", 45, 100)];
        Ok(Page { items, next: None })
    }
    async fn cancel_operation(&self, _: &OperationId) -> Result<Operation> {
        Ok(operation(OperationState::Running, "taking back", 0, 0))
    }
    async fn list_classes(&self) -> Result<Vec<Class>> {
        Ok(vec![Class {
            name: "default".parse().unwrap(),
            provider: "local".into(),
            settings: BTreeMap::from([("path".into(), "/pool".into())]),
            abilities: vec![Ability::Snapshots, Ability::Capacity],
            default: true,
        }])
    }
    async fn capacity(&self, _: &ClassName, place: Option<&Place>) -> Result<Capacity> {
        if let Some(place) = place {
            self.asked.lock().unwrap().push(format!("room at {place}"));
        }
        Ok(Capacity {
            total: ByteSize::gib(100),
            available: ByteSize::gib(98),
            promised: ByteSize::gib(2),
            used: ByteSize::mib(5),
            largest_volume: ByteSize::gib(98),
        })
    }
    async fn list_nodes(&self) -> Result<Vec<NodeRecord>> {
        let ids = self.nodes.lock().unwrap().clone();
        Ok(ids
            .into_iter()
            .map(|id| NodeRecord {
                id,
                properties: BTreeMap::from([("ip".into(), "10.0.0.1".into())]),
                topology: BTreeMap::new(),
                boot_id: "b".into(),
                privileged: true,
                last_seen: time("2026-01-01T23:59:55Z"),
            })
            .collect())
    }
    async fn events(&self, _: Option<u64>) -> Result<BoxStream<'static, Event>> {
        let event = Event {
            sequence: 7,
            at: time("2026-01-01T23:59:55Z"),
            kind: EventKind::VolumeChanged,
            subject: "vol-01k5zzzzzzzzzzzzzzzzzzzzzz".into(),
            message: "created\u{1b}[2J".into(),
        };
        let none_for_now = futures_util::stream::pending();
        Ok(futures_util::stream::iter([event]).chain(none_for_now).boxed())
    }
    async fn doctor(&self, fix: bool) -> Result<Vec<Finding>> {
        self.asked.lock().unwrap().push(format!("doctor {fix}"));
        Ok(self.findings.lock().unwrap().clone())
    }
    async fn ready(&self) -> Result<bool> {
        Ok(true)
    }
}

pub(super) fn full() -> Error {
    Error::new(Kind::NoSpace, "the pool has 1GiB left").context("creating volume data")
}

pub(super) fn lost() -> Error {
    Error::new(Kind::Unavailable, "the connection was lost").with_outcome(Outcome::Unknown)
}
