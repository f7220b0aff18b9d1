use hawser_core::attach::Attached;
use hawser_core::error::Kind;
use hawser_core::filesystem::FsKind;
use hawser_core::id::{GroupId, PublicationId, SnapshotId, VolumeId};
use hawser_core::name::Alias;
use hawser_core::port::provider::SnapshotAtProvider;
use hawser_core::publication::{MountPoint, Publication, PublicationState};
use hawser_core::size::ByteSize;
use hawser_core::volume::{Access, Volume};

use super::super::freeze::check_can_be_still;
use super::super::record::{Cut, GroupHead, GroupRecord, Member, Work};
use super::records::record;

fn publication() -> Publication {
    Publication {
        id: PublicationId::generate(),
        node: "host-a".parse().unwrap(),
        read_only: false,
        node_led: false,
        claimed: false,
        single_node: false,
        needs_secrets: false,
        state: PublicationState::Published,
        info: None,
        attached: None,
        mounts: Vec::new(),
    }
}

fn attached() -> Publication {
    let attached = Attached::Directory { path: "/dev/x".into() };
    Publication { attached: Some(attached), ..publication() }
}

fn mounted() -> Publication {
    let mount =
        MountPoint { target: "/mnt".into(), read_only: false, flags: Vec::new(), ready: true };
    Publication { mounts: vec![mount], ..attached() }
}

fn volume(access: Access, publication: Publication) -> Volume {
    Volume { access, publications: vec![publication], ..record().volume }
}

#[test]
fn only_what_a_file_system_stands_before_can_be_held_still() {
    let ext4 = Access::Filesystem(FsKind::Ext4);
    let led = Publication { node_led: true, ..publication() };
    let read_only = |publication| Publication { read_only: true, ..publication };
    for (access, publication, can) in [
        (ext4, mounted(), true),
        (ext4, publication(), true),
        (ext4, attached(), false),
        // What a node that leads has mounted is known to that node alone, which freezes it.
        (ext4, led.clone(), true),
        (ext4, Publication { node_led: true, ..attached() }, true),
        (Access::Block, publication(), true),
        (Access::Block, attached(), false),
        (Access::Block, led.clone(), false),
        (Access::Block, read_only(attached()), true),
        (Access::Block, read_only(led.clone()), true),
        (Access::Folder, publication(), true),
        (Access::Folder, mounted(), false),
        (Access::Folder, read_only(mounted()), true),
        (Access::Folder, led, false),
    ] {
        let volume = volume(access, publication);

        let checked = check_can_be_still(&volume);

        let case = format!("{access}: {:?}", volume.publications);
        match checked {
            Ok(()) => assert!(can, "{case}"),
            Err(error) => {
                assert!(!can, "{case}");
                assert_eq!(error.kind(), Kind::Precondition);
                let said = error.sentence();
                assert!(said.contains("volume v") && said.contains("host-a"), "{said}");
            }
        }
    }
}

#[test]
fn a_group_reads_back_as_it_was_written() {
    let snapshot = SnapshotId::generate();
    let taken = SnapshotAtProvider {
        id: snapshot.clone(),
        handle: "h".into(),
        size: ByteSize::mib(1),
        place: None,
    };
    for cut in [Cut::Never, Cut::Started, Cut::Done(vec![taken])] {
        let alias = Alias::native("g.v").unwrap();
        let member = Member { volume: VolumeId::generate(), snapshot: snapshot.clone(), alias };
        let group = GroupHead {
            id: GroupId::generate(),
            alias: Alias::native("g").unwrap(),
            labels: Default::default(),
            members: vec![member],
            cut,
            created: hawser_core::Timestamp::UNIX_EPOCH,
        };
        let mut journal = record().journal;
        if let Some(journal) = &mut journal {
            journal.work = Work::CreateGroup;
        }
        let record = GroupRecord { group, journal };

        let text = serde_json::to_string(&record).unwrap();
        let back: GroupRecord = serde_json::from_str(&text).unwrap();

        assert_eq!((back.group, back.journal), (record.group, record.journal));
    }
}

#[test]
fn loans_are_told_from_work_that_somebody_drives() {
    assert!(Work::LendVolume { to: VolumeId::generate() }.is_loan());
    assert!(Work::SnapshotInGroup { group: GroupId::generate() }.is_loan());
    assert!(!Work::CreateGroup.is_loan() && !Work::DeleteGroup.is_loan());
}
