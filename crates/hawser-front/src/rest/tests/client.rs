//! The client of `hawser-api` against this server: every method of the port.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt;
use hawser_core::event::EventKind;
use hawser_core::group::{GroupRef, GroupRequest};
use hawser_core::name::{Alias, Labels, Scope};
use hawser_core::operation::OperationState;
use hawser_core::page::PageRequest;
use hawser_core::place::Place;
use hawser_core::port::Control;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter};
use hawser_core::publication::{MountRequest, PublishRequest};
use hawser_core::snapshot::{SnapshotRef, SnapshotRequest};
use hawser_core::volume::{Access, Sharing, SourceRef, VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome};

use super::rig::Rig;
use crate::rest::Limits;

const WAIT: Duration = Duration::from_secs(5);

fn named(name: &str) -> VolumeRequest {
    VolumeRequest::new(Alias::native(name).unwrap(), ByteSize::gib(1))
}

fn done<T>(reply: Reply<T>) -> Change<T> {
    match reply {
        Reply::Done(change) => change,
        Reply::Pending(operation) => panic!("still at work: {operation:?}"),
    }
}

#[tokio::test]
async fn volumes_and_snapshots_survive_the_round_trip() {
    let rig = Rig::start();
    let (client, near) = (rig.client(), rig.control.clone());
    let csi = Alias::new(Scope::Csi, "pvc/1 % ü?#").unwrap();
    let mut request = VolumeRequest::new(csi.clone(), ByteSize::bytes(12345));
    request.access = Some(Access::Block);
    request.sharing = Sharing::ManyReaders;
    request.labels = Labels::try_from(BTreeMap::from([("a/b".into(), "c=d & e".into())])).unwrap();
    let volume = VolumeRef::Alias(csi.clone());

    let made = done(client.create_volume(request.clone(), WAIT).await.unwrap());
    let again = done(client.create_volume(request.clone(), WAIT).await.unwrap());

    assert!(made.is_made() && !again.is_made());
    assert_eq!(made.get(), &near.get_volume(&volume).await.unwrap());
    assert_eq!(&client.get_volume(&volume).await.unwrap(), made.get());
    let filter = VolumeFilter { class: None, labels: request.labels.clone() };
    done(client.create_volume(named("other"), WAIT).await.unwrap());
    let page = client.list_volumes(&filter, &PageRequest::default()).await.unwrap();
    assert_eq!(page.items, [made.get().clone()]);
    let (all, one) = (VolumeFilter::default(), PageRequest { limit: 1, token: None });
    let token = client.list_volumes(&all, &one).await.unwrap().next;
    let rest = PageRequest { limit: 1, token };
    let rest = client.list_volumes(&VolumeFilter::default(), &rest).await.unwrap();
    assert_eq!((rest.items[0].display_name().as_str(), rest.next), ("other", None));
    let grown = done(client.expand_volume(&volume, ByteSize::gib(3), WAIT).await.unwrap());
    assert_eq!(grown.get().size, ByteSize::gib(3));
    let same = done(client.expand_volume(&volume, ByteSize::gib(3), WAIT).await.unwrap());
    assert!(!same.is_made());
    let patch = BTreeMap::from([("a/b".to_owned(), None), ("x".to_owned(), Some("y".to_owned()))]);
    let labelled = done(client.label_volume(&volume, patch, WAIT).await.unwrap());
    assert_eq!(labelled.get().labels.get("x"), Some("y"));
    assert!(client.volume_health(&volume).await.unwrap().healthy);

    let alias = Alias::native("s1").unwrap();
    let request =
        SnapshotRequest { alias: alias.clone(), volume: volume.clone(), labels: Labels::default() };
    let taken = done(client.create_snapshot(request.clone(), WAIT).await.unwrap());
    assert!(taken.is_made());
    assert!(!done(client.create_snapshot(request, WAIT).await.unwrap()).is_made());
    let snapshot = SnapshotRef::Alias(alias);
    assert_eq!(&client.get_snapshot(&snapshot).await.unwrap(), taken.get());
    let page = client.list_snapshots(Some(&volume), &PageRequest::largest()).await.unwrap();
    assert_eq!(page.items, [taken.get().clone()]);
    let mut copy = named("copy");
    copy.source = Some(SourceRef::Snapshot(snapshot.clone()));
    let copy = done(client.create_volume(copy, WAIT).await.unwrap()).into_inner();
    assert_eq!(copy, near.get_volume(&VolumeRef::Id(copy.id.clone())).await.unwrap());
    assert!(done(client.delete_snapshot(&snapshot, WAIT).await.unwrap()).is_made());
    assert!(!done(client.delete_snapshot(&snapshot, WAIT).await.unwrap()).is_made());
    assert!(done(client.delete_volume(&volume, WAIT).await.unwrap()).is_made());
    assert!(!done(client.delete_volume(&volume, WAIT).await.unwrap()).is_made());
    rig.stop().await;
}

#[tokio::test]
async fn groups_survive_the_round_trip() {
    let rig = Rig::start();
    let (client, near) = (rig.client(), rig.control.clone());
    for name in ["data", "logs"] {
        done(client.create_volume(named(name), WAIT).await.unwrap());
    }
    let volumes = ["data", "logs"].map(|name| VolumeRef::parse(name).unwrap()).to_vec();
    let alias = Alias::new(Scope::Csi, "group/1 % ü?#").unwrap();
    let labels = Labels::try_from(BTreeMap::from([("a/b".into(), "c".into())])).unwrap();
    let request = GroupRequest { alias: alias.clone(), volumes, labels };
    let by_name = GroupRef::Alias(alias);

    let made = done(client.create_group(request.clone(), WAIT).await.unwrap());
    let again = done(client.create_group(request, WAIT).await.unwrap());

    assert!(made.is_made() && !again.is_made());
    assert_eq!(made.get(), &near.get_group(&by_name).await.unwrap());
    assert_eq!(&client.get_group(&by_name).await.unwrap(), made.get());
    let member = &made.get().snapshots[1];
    assert_eq!(
        (member.group.as_ref(), member.labels.get("a/b")),
        (Some(&made.get().id), Some("c"))
    );
    let listed = client.list_snapshots(None, &PageRequest::largest()).await.unwrap().items;
    assert_eq!(listed, made.get().snapshots);
    assert!(done(client.delete_group(&by_name, WAIT).await.unwrap()).is_made());
    assert!(!done(client.delete_group(&by_name, WAIT).await.unwrap()).is_made());
    assert_eq!(client.get_group(&by_name).await.unwrap_err().kind(), Kind::NotFound);
    rig.stop().await;
}

#[tokio::test]
async fn publications_and_operations_survive_the_round_trip() {
    let rig = Rig::start();
    let (client, near) = (rig.client(), rig.control.clone());
    done(client.create_volume(named("data"), WAIT).await.unwrap());
    let volume = VolumeRef::parse("data").unwrap();
    let node: hawser_core::name::NodeId = "n1".parse().unwrap();
    let publish = PublishRequest::new(node.clone(), true);

    let made = done(client.publish(&volume, publish.clone(), WAIT).await.unwrap());

    assert!(made.is_made());
    let kept = near.get_volume(&volume).await.unwrap().publications.remove(0);
    let public = kept.info.clone().map(|info| info.without_secrets());
    assert_eq!(made.get().info, public);
    assert_eq!(made.get().id, kept.id);
    assert!(!done(client.publish(&volume, publish.clone(), WAIT).await.unwrap()).is_made());
    assert!(done(client.unpublish(&volume, &node, WAIT).await.unwrap()).is_made());
    assert!(!done(client.unpublish(&volume, &node, WAIT).await.unwrap()).is_made());
    let attached = done(client.attach(&volume, publish, WAIT).await.unwrap());
    assert_eq!(attached.get().path(), "/dev/loop3");
    assert!(done(client.detach(&volume, &node, WAIT).await.unwrap()).is_made());
    let target = PathBuf::from("/srv/with space & ü");
    let mount = MountRequest {
        node: node.clone(),
        target: target.clone(),
        read_only: false,
        flags: vec!["noatime".into()],
    };
    let mounted = done(client.mount(&volume, mount, WAIT).await.unwrap()).into_inner();
    assert_eq!((&mounted.mounts[0].target, mounted.mounts[0].flags.len()), (&target, 1));
    let other = Some(PathBuf::from("/elsewhere"));
    assert!(!done(client.unmount(&volume, &node, other, WAIT).await.unwrap()).is_made());
    assert!(done(client.unmount(&volume, &node, Some(target), WAIT).await.unwrap()).is_made());
    assert!(!done(client.unmount(&volume, &node, None, WAIT).await.unwrap()).is_made());

    let Reply::Pending(operation) = client.delete_volume(&volume, Duration::ZERO).await.unwrap()
    else {
        let text = client.delete_volume(&volume, Duration::ZERO).await;
        panic!("a change that nobody waits for was answered as done: {text:?}")
    };
    assert_eq!(client.get_operation(&operation.id, WAIT).await.unwrap(), operation);
    let filter = OperationFilter {
        state: Some(OperationState::Running),
        subject: Some(operation.subject.clone()),
    };
    let page = client.list_operations(&filter, &PageRequest::default()).await.unwrap();
    assert_eq!(page.items, std::slice::from_ref(&operation));
    let cancelled = client.cancel_operation(&operation.id).await.unwrap();
    let kept = near.get_operation(&operation.id, WAIT).await.unwrap();
    assert_eq!((cancelled.state, cancelled.finished), (kept.state, kept.finished));
    assert_eq!(cancelled.error.unwrap().outcome, Outcome::RolledBack);
    rig.stop().await;
}

#[tokio::test]
async fn classes_nodes_findings_and_readiness_survive_the_round_trip() {
    let rig = Rig::start();
    let (client, near) = (rig.client(), rig.control.clone());

    let classes = client.list_classes().await.unwrap();

    assert_eq!(classes, near.list_classes().await.unwrap());
    let class = &classes[0].name;
    let at =
        Place::new(BTreeMap::from([("node".into(), "n1".into()), ("zone".into(), "b=ü".into())]));
    for place in [None, Some(&at)] {
        let far = client.capacity(class, place).await.unwrap();
        assert_eq!(far, near.capacity(class, place).await.unwrap(), "{place:?}");
    }
    assert_eq!(client.list_nodes().await.unwrap()[0].properties.len(), 1);
    for fix in [false, true] {
        assert_eq!(client.doctor(fix).await.unwrap(), near.doctor(fix).await.unwrap());
    }
    assert!(client.ready().await.unwrap());
    near.set_ready(false);
    assert!(!client.ready().await.unwrap());
    rig.stop().await;
}

#[tokio::test]
async fn events_are_followed_and_end_with_the_server() {
    let rig = Rig::with(Limits { grace: Duration::from_secs(120), ..Limits::default() });
    let client = rig.client();
    let mut live = client.events(None).await.unwrap();

    let made = done(client.create_volume(named("data"), WAIT).await.unwrap()).into_inner();
    let event = live.next().await.unwrap();

    assert_eq!((event.kind, event.subject.as_str()), (EventKind::VolumeChanged, made.id.as_str()));
    assert_eq!(event.message, "two\nlines\r\n");
    let mut later = client.events(Some(1)).await.unwrap();
    assert_eq!(later.next().await.unwrap().sequence, 2);
    let before = std::time::Instant::now();
    rig.stop().await;
    assert!(before.elapsed() < Duration::from_secs(60), "the server waited for listeners");
    assert!(live.map(|_| ()).collect::<Vec<_>>().await.len() < 5);
}

#[tokio::test]
async fn errors_keep_kind_outcome_and_lines() {
    let rig = Rig::start();
    let client = rig.client();
    let fails = async |name: &str| -> Error {
        client.create_volume(named(name), WAIT).await.expect_err("must fail")
    };

    let full = fails("full").await;

    assert_eq!((full.kind(), full.outcome()), (Kind::NoSpace, Outcome::RolledBack));
    assert_eq!(full.chain(), ["creating volume full", "the pool is full"]);
    for name in ["internal", "unknown", "panic"] {
        let error = fails(name).await;
        assert_eq!(error.kind(), Kind::Internal);
        assert!(!error.sentence().contains("secret"), "{error:?}");
        assert!(error.sentence().contains("the server's log has the details under"), "{error:?}");
        assert_eq!(error.is_unknown(), name == "unknown");
    }
    let missing = client.get_volume(&VolumeRef::parse("none").unwrap()).await.unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
    let zero = VolumeRequest::new(Alias::native("zero").unwrap(), ByteSize::ZERO);
    let zero = client.create_volume(zero, WAIT).await.unwrap_err();
    assert_eq!(zero.kind(), Kind::OutOfRange);
    rig.stop().await;
}
