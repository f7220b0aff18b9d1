//! A volume that is attached is asked for once more: what may differ, and what is done about it.

use std::time::Duration;

use hawser_core::attach::{Attach, Detach, Encryption, EncryptionFormat, Multipath, SingleWriter};
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_core::port::library::VolumeKey;
use hawser_core::port::{Library, Node, Registry};
use hawser_core::{Error, Kind, Outcome, Reason};
use serde_json::{Value, json};

use super::rig::{Rig, refused};
use crate::library::Key;
use crate::node::locks::volume_lock;

fn luks(format: EncryptionFormat) -> Option<Encryption> {
    Some(Encryption {
        format,
        cipher: None,
        key_size: None,
        format_if_blank: false,
        discards: false,
    })
}

fn info(data: Value) -> ConnectionInfo {
    ConnectionInfo::new(Protocol::new("fake"), data.as_object().unwrap().clone(), None)
}

#[tokio::test]
async fn what_is_there_in_the_clear_is_not_handed_out_as_encrypted() {
    let rig = Rig::new().attached().await;
    let mut work = rig.attach_work();
    work.attach.encryption = luks(EncryptionFormat::Luks2);

    let error = refused(rig.node.attach(&work).await, Kind::Exists, &["none", "luks2"]);

    assert_eq!(error.reason(), Some(Reason::InvalidParameters));
    assert_eq!(rig.record().unwrap().attach.encryption, None);
}

#[tokio::test]
async fn encryption_of_another_format_and_another_reservation_are_refused_with_both_values() {
    let rig = Rig::new().attached().await;
    let there = Some(SingleWriter { key: 1, preempt: false });
    rig.registry.edit(&rig.publication, |record| {
        record.attach.encryption = luks(EncryptionFormat::Luks);
        record.attach.reservation = there;
    });
    let ask = |encryption: Option<Encryption>, reservation: Option<SingleWriter>| {
        let mut work = rig.attach_work();
        (work.attach.encryption, work.attach.reservation) = (encryption, reservation);
        let node = &rig.node;
        async move { node.attach(&work).await }
    };
    let same = || luks(EncryptionFormat::Luks);
    let other = Some(SingleWriter { key: 0x2a, preempt: true });

    refused(ask(None, there).await, Kind::Exists, &["luks", "none"]);
    refused(ask(luks(EncryptionFormat::Luks2), there).await, Kind::Exists, &["luks", "luks2"]);
    refused(ask(same(), None).await, Kind::Exists, &["key 0x1", "none"]);
    refused(ask(same(), other).await, Kind::Exists, &["key 0x1", "key 0x2a"]);
}

#[tokio::test]
async fn more_paths_are_asked_of_the_connector_and_fewer_take_none_away() {
    let rig = Rig::new().attached().await;
    let ask = |multipath| {
        let mut work = rig.attach_work();
        work.attach.multipath = multipath;
        let node = &rig.node;
        async move { node.attach(&work).await }
    };
    let last = || *rig.connector.asked.lock().unwrap().last().unwrap();

    *rig.connector.connect.lock().unwrap() = Some(Error::new(Kind::Unsupported, "no multipathd"));
    refused(ask(Multipath::Enforced).await, Kind::Unsupported, &["no multipathd"]);
    assert_eq!(rig.record().unwrap().attach.multipath, Multipath::Off, "it is as it was");

    ask(Multipath::Wanted).await.unwrap();
    assert_eq!(last(), Multipath::Wanted);
    assert_eq!(rig.record().unwrap().attach.multipath, Multipath::Wanted);

    let asked = rig.connector.asked.lock().unwrap().len();
    ask(Multipath::Off).await.unwrap();
    assert_eq!(rig.connector.asked.lock().unwrap().len(), asked, "it works, and that is enough");
    *rig.connector.sick.lock().unwrap() = Some("a path is missing".into());
    ask(Multipath::Off).await.unwrap();
    assert_eq!(last(), Multipath::Wanted, "it is brought back as it was");
    assert_eq!(rig.record().unwrap().attach.multipath, Multipath::Wanted);
}

#[tokio::test]
async fn data_that_enforces_multipath_is_heard_for_every_protocol() {
    for (key, value) in [("enforce_multipath", json!(true)), ("enforceMultipath", json!("True"))] {
        let rig = Rig::new();
        let mut work = rig.attach_work();
        work.info.data.insert(key.into(), value);

        rig.node.attach(&work).await.unwrap();

        assert_eq!(*rig.connector.asked.lock().unwrap(), [Multipath::Enforced]);
        assert_eq!(rig.record().unwrap().attach.multipath, Multipath::Enforced);
    }
    let rig = Rig::new();
    let mut work = rig.attach_work();
    work.info.data.insert("enforce_multipath".into(), json!("perhaps"));
    refused(rig.node.attach(&work).await, Kind::Invalid, &["enforce_multipath"]);
}

#[tokio::test]
async fn one_volume_in_two_spellings_with_hints_is_attached_once_and_detached_by_either() {
    let rig = Rig::new();
    let snake = info(json!({ "file": rig.image, "mark": "1", "target_lun": 1 }));
    let camel = info(json!({ "file": rig.image, "mark": 1, "targetLun": "0x1",
        "devicePath": "/dev/loop0", "multipathId": "3600", "qosSpecs": { "a": 1 } }));
    let first = rig.node.connect(&snake, &Attach::default()).await.unwrap();

    let again = rig.node.connect(&snake, &Attach::default()).await.unwrap();
    assert!(!again.is_made());
    assert_eq!(rig.registry.records.lock().unwrap().len(), 1);
    let key = VolumeKey::Info(camel);
    let looked = Library::lookup(&rig.node, &key).await.unwrap().unwrap();
    assert_eq!(looked.path, first.get().path);

    let gone = rig.node.disconnect(&key, &Detach::default()).await.unwrap();
    assert_eq!(gone.into_inner(), Some(first.into_inner().path));
    assert!(rig.registry.records.lock().unwrap().is_empty());
    assert!(rig.host.snapshot().loops.is_empty());
}

#[tokio::test]
async fn what_was_attached_by_one_spelling_is_there_in_another() {
    let rig = Rig::new();
    let data = json!({ "file": rig.image, "mark": "m", "volume_id": "v1", "target_lun": 1 });
    let other = json!({ "file": rig.image, "mark": "m", "volumeId": "v1", "targetLun": "1",
        "multipath_id": "3600", "discard": null });
    rig.node.connect(&info(data.clone()), &Attach::default()).await.unwrap();

    let again = rig.node.connect(&info(other), &Attach::default()).await.unwrap();

    assert!(!again.is_made());
    let records = rig.registry.records.lock().unwrap();
    let recorded = &records.values().next().unwrap().info.data;
    assert_eq!(Value::Object(recorded.clone()), data, "in the words of the first");
}

#[tokio::test]
async fn a_record_under_the_name_of_earlier_versions_is_found_and_goes() {
    let rig = Rig::new();
    let data = info(json!({ "file": rig.image, "mark": "m", "multipath_id": "3600" }));
    let earlier = Key::of_whole_info(&data).unwrap();
    rig.node.connect(&data, &Attach::default()).await.unwrap();
    let mut record = rig.registry.records.lock().unwrap().pop_first().unwrap().1;
    assert_ne!(record.publication, earlier.publication);
    (record.publication, record.volume) = (earlier.publication.clone(), earlier.volume);
    rig.registry.put(&record).await.unwrap();

    assert!(!rig.node.connect(&data, &Attach::default()).await.unwrap().is_made());
    let gone = rig.node.disconnect(&VolumeKey::Info(data), &Detach::default()).await.unwrap();

    assert!(gone.is_made());
    assert!(rig.registry.records.lock().unwrap().is_empty());
    assert!(rig.host.snapshot().loops.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_other_work_ends_with_the_deadline_and_names_it() {
    let rig = Rig::new().attached().await;
    let registry = rig.registry.as_ref();
    let working = rig.restarted().gates.enter(registry, &rig.publication).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut work = rig.attach_work();
    work.attach.deadline = Duration::from_secs(7);
    let detach = Detach { deadline: Duration::from_secs(5), ..Detach::default() };

    let words = [rig.publication.as_str()];
    let error = refused(rig.node.attach(&work).await, Kind::Busy, &words);
    assert_eq!(error.outcome(), Outcome::Nothing);
    refused(rig.node.detach(&rig.publication, &detach).await, Kind::Busy, &words);
    assert_eq!(begun.elapsed().as_secs(), 12);
    drop(working);
    rig.node.detach(&rig.publication, &detach).await.unwrap();

    let _volume = registry.lock(&volume_lock(&rig.volume)).await.unwrap();
    refused(rig.node.attach(&work).await, Kind::Busy, &[rig.volume.as_str()]);
    assert_eq!(begun.elapsed().as_secs(), 19);
    assert!(rig.record().is_none() && rig.host.snapshot().loops.is_empty());
}
