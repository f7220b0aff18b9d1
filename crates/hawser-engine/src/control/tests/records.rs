use hawser_core::Timestamp;
use hawser_core::id::{InstanceId, OperationId, SnapshotId, VolumeId};
use hawser_core::name::Alias;
use hawser_core::publication::{MountRequest, PublishRequest};
use hawser_core::volume::{Access, Sharing, Volume, VolumeState};
use proptest::prelude::*;

use super::super::access_begin::add_publication;
use super::super::record::{Journal, NameRecord, SnapshotRecord, VolumeRecord, Work};

pub(super) fn record() -> VolumeRecord {
    let id = VolumeId::generate();
    VolumeRecord {
        volume: Volume {
            handle: id.to_string(),
            id,
            aliases: vec![Alias::native("v").unwrap()],
            class: "default".parse().unwrap(),
            size: hawser_core::ByteSize::mib(1),
            access: Access::Block,
            sharing: Sharing::SingleWriter,
            source: None,
            labels: Default::default(),
            parameters: Default::default(),
            place: None,
            state: VolumeState::Ready,
            filesystem: None,
            identity: None,
            publications: Vec::new(),
            untouched: false,
            operation: None,
            created: Timestamp::UNIX_EPOCH,
        },
        journal: Some(Journal {
            id: OperationId::generate(),
            work: Work::MountVolume {
                request: MountRequest {
                    node: "here".parse().unwrap(),
                    target: "/mnt/v".into(),
                    read_only: false,
                    flags: Vec::new(),
                },
                new_publication: true,
                new_attachment: true,
                new_mount: true,
            },
            holder: InstanceId::generate(),
            expires: Timestamp::UNIX_EPOCH,
            started: Timestamp::UNIX_EPOCH,
            undoing: false,
        }),
    }
}

/// Whoever had the right to write may have written.
#[test]
fn a_volume_that_a_node_had_the_right_to_use_is_never_untouched_again() {
    let mut volume = Volume { untouched: true, ..record().volume };
    let request = PublishRequest::new("n1".parse().unwrap(), true);

    assert!(add_publication(&mut volume, &request).unwrap());
    volume.publications.clear();

    assert!(!volume.untouched);
}

#[test]
fn a_volume_of_a_record_that_does_not_say_may_have_been_used() {
    let mut older = serde_json::to_value(record().volume).unwrap();
    older.as_object_mut().unwrap().remove("untouched");

    let volume: Volume = serde_json::from_value(older).unwrap();

    assert!(!volume.untouched);
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let record = record();

    let text = serde_json::to_string(&record).unwrap();
    let back: VolumeRecord = serde_json::from_str(&text).unwrap();

    assert_eq!(back.volume, record.volume);
    assert_eq!(back.journal, record.journal);
}

#[test]
fn a_repeated_request_is_recognised_whatever_the_engine_put_in() {
    let snapshot = |name: &str| Work::CreateSnapshot {
        snapshot: SnapshotId::generate(),
        alias: Alias::native(name).unwrap(),
        labels: Default::default(),
    };

    assert!(snapshot("s").same_request(&snapshot("s")));
    assert!(!snapshot("s").same_request(&snapshot("t")));
    assert!(!snapshot("s").same_request(&Work::DeleteVolume));
}

proptest! {
    /// Records come from a disk or another machine: whatever they hold, reading answers or refuses.
    #[test]
    fn damaged_records_are_refused_not_trusted(at in 0_usize..600, byte in any::<u8>()) {
        let mut bytes = serde_json::to_vec(&record()).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;

        if let Ok(read) = serde_json::from_slice::<VolumeRecord>(&bytes) {
            prop_assert!(read.volume.id.as_str().parse::<VolumeId>().is_ok());
        }
        let _ = serde_json::from_slice::<SnapshotRecord>(&bytes);
        let _ = serde_json::from_slice::<NameRecord>(&bytes);
    }
}
