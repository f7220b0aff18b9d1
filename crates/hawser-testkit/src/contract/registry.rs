//! The contract of the registry port.
//!
//! `hawser_testkit::registry_contract!(rig());`, where `rig()` gives a fresh [`RegistryRig`].

use std::any::Any;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hawser_core::Change;
use hawser_core::attach::{Attach, AttachRecord, AttachState, Attached, Identity, NodeMount};
use hawser_core::connection::ConnectionInfo;
use hawser_core::id::{InstanceId, PublicationId, VolumeId};
use hawser_core::port::Registry;
use hawser_core::{ByteSize, Timestamp};
use serde_json::json;
use tokio::time::timeout;

/// Long enough for any machine that is not stuck.
const SOON: Duration = Duration::from_secs(20);

/// Long enough for a waiter to get what it must not get.
const A_WHILE: Duration = Duration::from_millis(60);

/// Spoils the stored record of one publication and answers a look at what is there now.
type Spoil = Box<dyn Fn(&PublicationId) -> Box<dyn Fn() -> Option<Vec<u8>> + Send> + Send>;

/// A registry under test.
pub struct RegistryRig {
    /// The registry.
    pub registry: Arc<dyn Registry>,
    /// Another one over the same records and locks, as another process has it.
    pub peer: Arc<dyn Registry>,
    spoil: Spoil,
    _keep: Box<dyn Any + Send>,
}

impl RegistryRig {
    /// A rig. `spoil` overwrites one stored record with garbage, and answers a function that reads
    /// the raw bytes there; `keep` lives as long as the rig and cleans up when it is dropped.
    pub fn new<L>(
        registry: Arc<dyn Registry>,
        peer: Arc<dyn Registry>,
        spoil: impl Fn(&PublicationId) -> L + Send + 'static,
        keep: impl Any + Send,
    ) -> Self
    where
        L: Fn() -> Option<Vec<u8>> + Send + 'static,
    {
        let spoil: Spoil = Box::new(move |publication| Box::new(spoil(publication)));
        Self { registry, peer, spoil, _keep: Box::new(keep) }
    }
}

/// A record with something in every field.
pub fn full_record() -> AttachRecord {
    let info = json!({
        "driverVolumeType": "LOCAL",
        "data": { "path": "/pool/ü \"x\".img", "qosSpecs": { "deep": [1, null] },
                  "authPassword": "hunter2" },
        "identity": { "scheme": "image", "value": "vol-x" },
    });
    AttachRecord {
        publication: PublicationId::generate(),
        volume: VolumeId::generate(),
        info: ConnectionInfo::try_from(info).expect("a connection info"),
        attach: Attach {
            read_only: true,
            mount_flags: vec!["noatime".into()],
            ..Attach::default()
        },
        state: AttachState::Detaching,
        attached: Some(Attached::Block {
            device: "/dev/loop7".into(),
            identity: Some(Identity::new("image", "vol-x")),
            size: ByteSize::gib(3),
        }),
        mounts: vec![NodeMount {
            target: "/mnt/ü".into(),
            read_only: true,
            flags: vec!["nodev".into()],
            ready: true,
            made_target: false,
            raw: true,
        }],
        frozen: Some(PathBuf::from("/mnt/ü")),
        instance: InstanceId::generate(),
        boot_id: "boot".into(),
        created: Timestamp::UNIX_EPOCH,
    }
}

/// What is written reads back whole, also by others, and without the secrets.
pub async fn a_record_reads_back_without_its_secrets(rig: RegistryRig) {
    let record = full_record();
    assert!(!record.info.secrets.is_empty());

    rig.registry.put(&record).await.expect("put");

    let read = rig.peer.get(&record.publication).await.expect("get");
    let expected = AttachRecord { info: record.info.without_secrets(), ..record };
    assert_eq!(read, Some(expected));
}

/// A second write takes the place of the first.
pub async fn a_record_is_replaced_whole(rig: RegistryRig) {
    let record = AttachRecord { info: full_record().info.without_secrets(), ..full_record() };
    let bare = AttachRecord { attached: None, frozen: None, mounts: Vec::new(), ..record.clone() };
    rig.registry.put(&record).await.expect("put");

    rig.peer.put(&bare).await.expect("put again");

    let read = rig.registry.get(&record.publication).await.expect("get");
    assert_eq!(read.as_ref(), Some(&bare));
    let listed = rig.registry.list().await.expect("list");
    assert_eq!((listed.records, listed.unreadable), (vec![bare], vec![]));
}

/// What is not there is `None`, and removing it is `Already`.
pub async fn removing_something_absent_answers_already(rig: RegistryRig) {
    let record = full_record();

    assert_eq!(rig.registry.get(&record.publication).await.expect("get"), None);
    let absent = rig.registry.remove(&record.publication).await.expect("remove");
    rig.registry.put(&record).await.expect("put");
    let first = rig.peer.remove(&record.publication).await.expect("remove");
    let second = rig.registry.remove(&record.publication).await.expect("remove again");

    assert_eq!(absent, Change::Already(()));
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert_eq!(rig.registry.get(&record.publication).await.expect("get"), None);
    assert!(rig.registry.list().await.expect("list").records.is_empty());
}

/// The listing is complete and in the order of the ids.
pub async fn a_listing_is_complete_and_in_order(rig: RegistryRig) {
    let records: Vec<_> = (0..40).map(|_| full_record()).collect();
    for record in records.iter().rev() {
        rig.registry.put(record).await.expect("put");
    }

    let listed = rig.peer.list().await.expect("list").records;

    let ids: Vec<_> = listed.iter().map(|record| record.publication.clone()).collect();
    let expected: BTreeSet<_> = records.iter().map(|record| record.publication.clone()).collect();
    assert_eq!(ids, expected.into_iter().collect::<Vec<_>>());
}

/// Garbage in the place of a record is an error by name, is listed, and stays whatever is asked.
pub async fn an_unreadable_record_is_reported_and_never_removed(rig: RegistryRig) {
    let (bad, good) = (full_record(), full_record());
    rig.registry.put(&bad).await.expect("put");
    rig.registry.put(&good).await.expect("put");
    let look = (rig.spoil)(&bad.publication);
    let garbage = look().expect("garbage is there");

    let error = rig.registry.get(&bad.publication).await.expect_err("unreadable");
    assert!(error.sentence().contains(bad.publication.as_str()), "{error:?}");
    assert!(rig.registry.put(&bad).await.is_err(), "garbage was replaced");
    assert!(rig.registry.remove(&bad.publication).await.is_err(), "garbage was removed");
    let listed = rig.registry.list().await.expect("list");

    assert_eq!(listed.records.len(), 1);
    assert_eq!(listed.unreadable.len(), 1, "{listed:?}");
    assert!(!listed.unreadable[0].1.is_empty());
    assert_eq!(look(), Some(garbage));
}

/// Whoever reads while others write sees one of the records that were written.
pub async fn readers_never_see_half_a_record(rig: RegistryRig) {
    let record = AttachRecord { info: full_record().info.without_secrets(), ..full_record() };
    let long = AttachRecord { boot_id: "b".repeat(60_000), ..record.clone() };
    rig.registry.put(&record).await.expect("put");
    let (writer, a, b) = (Arc::clone(&rig.registry), record.clone(), long.clone());
    let writing = tokio::spawn(async move {
        for _ in 0..60 {
            writer.put(&b).await.expect("put");
            writer.put(&a).await.expect("put");
        }
    });

    while !writing.is_finished() {
        let read = rig.peer.get(&record.publication).await.expect("get").expect("there");
        assert!(read == record || read == long, "half a record");
        let listed = rig.peer.list().await.expect("list");
        assert_eq!((listed.records.len(), listed.unreadable.len()), (1, 0), "{listed:?}");
    }
    writing.await.expect("writer");
}

/// One holder at a time, whoever asks; the runtime goes on meanwhile.
pub async fn a_lock_keeps_others_out_and_blocks_nothing(rig: RegistryRig) {
    for (holder, waiter) in
        [(&rig.registry, &rig.registry), (&rig.registry, &rig.peer), (&rig.peer, &rig.registry)]
    {
        let held = holder.lock("volume/v1").await.expect("lock");
        let waiting = Arc::clone(waiter);
        let waiting = tokio::spawn(async move { waiting.lock("volume/v1").await });

        tokio::time::sleep(A_WHILE).await;
        assert!(!waiting.is_finished(), "two hold one lock");
        let other = timeout(SOON, waiter.lock("volume/v2")).await.expect("another name is free");
        drop(other.expect("lock"));

        drop(held);
        let got = timeout(SOON, waiting).await.expect("released").expect("joined").expect("lock");
        drop(got);
    }
}

/// Many holders of both handles never meet.
pub async fn holders_never_meet(rig: RegistryRig) {
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..24)
        .map(|number| {
            let registry = Arc::clone(if number % 2 == 0 { &rig.registry } else { &rig.peer });
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                for _ in 0..4 {
                    let guard = registry.lock("busy").await.expect("lock");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::task::yield_now().await;
                    tokio::time::sleep(Duration::from_micros(200)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guard);
                }
            })
        })
        .collect();

    for task in tasks {
        timeout(SOON, task).await.expect("nobody starves").expect("no two holders");
    }
}

/// A waiter that gives up, at any moment, neither gets the lock nor keeps it from others.
pub async fn a_dropped_waiter_never_keeps_the_lock(rig: RegistryRig) {
    for pause in [0, 1, 5, 30] {
        for _ in 0..5 {
            let held = rig.peer.lock("v").await.expect("lock");
            let gave_up =
                timeout(Duration::from_millis(pause), rig.registry.lock("v")).await.is_err();
            assert!(gave_up, "two hold one lock");
            drop(held);
            for registry in [&rig.registry, &rig.peer] {
                let got = timeout(SOON, registry.lock("v")).await.expect("kept by a dead waiter");
                drop(got.expect("lock"));
            }
        }
    }
}

/// Those who wait in one process are served in the order in which they came.
pub async fn waiters_of_one_process_are_served_in_order(rig: RegistryRig) {
    let held = rig.registry.lock("v").await.expect("lock");
    let (send, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..8 {
        let (registry, send) = (Arc::clone(&rig.registry), send.clone());
        tokio::spawn(async move {
            let guard = registry.lock("v").await.expect("lock");
            send.send(number).expect("somebody listens");
            drop(guard);
        });
        // Lets the task come to its place in the queue before the next one starts.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    drop(held);

    for number in 0..8 {
        assert_eq!(timeout(SOON, order.recv()).await.expect("served"), Some(number));
    }
}

/// Any text is a name of its own: hostile ones, long ones, and all of them at once.
pub async fn any_text_names_a_lock_of_its_own(rig: RegistryRig) {
    let long = "n".repeat(4000);
    let longer = format!("{long}!");
    let names =
        ["", ".", "..", "../../etc/passwd", "/", "a", "A", "a\0", "a%00", "ü\n", &long, &longer];

    let mut guards = Vec::new();
    for name in names {
        let guard = timeout(SOON, rig.registry.lock(name)).await;
        guards.push(guard.unwrap_or_else(|_| panic!("{name:?} is another's")).expect("lock"));
    }

    for name in names {
        assert!(timeout(A_WHILE / 6, rig.peer.lock(name)).await.is_err(), "{name:?} held twice");
    }
}

/// Runs every rule of the registry port, each as a test of its own, with a fresh rig.
#[macro_export]
macro_rules! registry_contract {
    ($rig:expr) => {
        mod registry_contract {
            use super::*;
            $crate::registry_contract! { @rules $rig;
                a_record_reads_back_without_its_secrets
                a_record_is_replaced_whole
                removing_something_absent_answers_already
                a_listing_is_complete_and_in_order
                an_unreadable_record_is_reported_and_never_removed
                readers_never_see_half_a_record
                a_lock_keeps_others_out_and_blocks_nothing
                holders_never_meet
                a_dropped_waiter_never_keeps_the_lock
                waiters_of_one_process_are_served_in_order
                any_text_names_a_lock_of_its_own
            }
        }
    };
    (@rules $rig:expr; $($rule:ident)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::contract::registry::$rule($rig).await;
            }
        )*
    };
}
