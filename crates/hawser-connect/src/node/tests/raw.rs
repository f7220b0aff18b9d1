//! Devices shown in files: who may read, who may write, and what is left of it.

use std::path::PathBuf;

use hawser_core::attach::Detach;
use hawser_core::doctor::{FindingCode, Repair};
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{Content, HostMount, MountSource};
use hawser_core::port::node::MountWork;
use hawser_core::port::{Host, Node};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome};

use super::rig::{Rig, refused, text};

const READ: bool = true;
const WRITE: bool = false;

impl Rig {
    fn second(&self) -> PathBuf {
        self.host.dir().join("second")
    }

    fn at_second(&self, work: MountWork) -> MountWork {
        MountWork { target: self.second(), ..work }
    }

    fn refuses_writes(&self) -> bool {
        self.host.refuses_writes(&self.device())
    }

    fn marks_set(&self) -> usize {
        let calls = self.host.calls();
        calls.iter().filter(|call| call.method == "Disks::set_read_only").count()
    }

    async fn shown(self, read_only: bool) -> Self {
        let rig = self.attached().await;
        rig.node.mount(&rig.raw_work(read_only)).await.unwrap();
        rig
    }
}

#[tokio::test]
async fn a_device_is_shown_in_a_file_and_taken_out_without_a_trace() {
    let rig = Rig::new().attached().await;
    let (before, record) = (rig.host.snapshot(), rig.record());

    let first = rig.node.mount(&rig.raw_work(WRITE)).await.unwrap();
    let second = rig.node.mount(&rig.raw_work(WRITE)).await.unwrap();
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    let mount = rig.record().unwrap().mounts.remove(0);
    assert!(mount.raw && mount.ready && mount.made_target && !rig.refuses_writes());
    assert!(rig.target().is_file());
    let detach = Detach::default();
    let target = rig.target();
    refused(rig.node.detach(&rig.publication, &detach).await, Kind::Busy, &[text(&target)]);

    let first = rig.node.unmount(&rig.publication, &target).await.unwrap();
    let second = rig.node.unmount(&rig.publication, &target).await.unwrap();
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert_eq!((rig.host.snapshot(), rig.record()), (before, record));
}

#[tokio::test]
async fn a_file_of_the_user_stays() {
    let rig = Rig::new().attached().await;
    std::fs::write(rig.target(), "").unwrap();

    rig.node.mount(&rig.raw_work(WRITE)).await.unwrap();
    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    assert!(rig.target().is_file());
}

#[tokio::test]
async fn a_device_has_neither_a_file_system_nor_a_group() {
    let rig = Rig::new().formatted().await;
    rig.host.forget_calls();
    let with_files = MountWork { raw: true, ..rig.mount_work() };
    let with_group = MountWork { group: Some(7), ..rig.raw_work(WRITE) };

    for work in [with_files, with_group] {
        refused(rig.node.mount(&work).await, Kind::Invalid, &["neither"]);
    }
    assert!(rig.host.calls().is_empty());
}

#[tokio::test]
async fn a_folder_has_no_device_to_show() {
    let rig = Rig::new();
    let (work, folder) = rig.folder_work();
    rig.node.attach(&work).await.unwrap();

    let result = rig.node.mount(&rig.raw_work(WRITE)).await;

    refused(result, Kind::Precondition, &[text(&folder)]);
    assert!(!rig.target().exists());
}

#[tokio::test]
async fn another_device_is_not_shown() {
    let rig = Rig::new().attached().await;
    rig.change_identity();

    let result = rig.node.mount(&rig.raw_work(READ)).await;

    refused(result, Kind::Precondition, &["somebody-else", text(&rig.device())]);
    assert!(!rig.is_mounted() && rig.record().unwrap().mounts.is_empty());
    assert_eq!(rig.marks_set(), 0);
}

#[tokio::test]
async fn readers_keep_everybody_from_writing_until_the_last_is_gone() {
    let rig = Rig::new().shown(READ).await;
    assert!(rig.refuses_writes());
    rig.node.mount(&rig.at_second(rig.raw_work(READ))).await.unwrap();

    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();
    assert!(rig.refuses_writes());
    rig.node.unmount(&rig.publication, &rig.second()).await.unwrap();

    assert!(!rig.refuses_writes());
    rig.node.mount(&rig.raw_work(WRITE)).await.unwrap();
}

#[tokio::test]
async fn several_may_write_to_a_device() {
    let rig = Rig::new().shown(WRITE).await;

    rig.node.mount(&rig.at_second(rig.raw_work(WRITE))).await.unwrap();

    assert_eq!(rig.record().unwrap().mounts.len(), 2);
    assert_eq!(rig.marks_set(), 0);
}

#[tokio::test]
async fn nobody_reads_beside_a_writer_nor_writes_beside_a_reader() {
    let both = ["as a writable device", "as a read-only device"];
    for (there, wanted) in [(WRITE, READ), (READ, WRITE)] {
        let rig = Rig::new().shown(there).await;
        let before = (rig.host.snapshot(), rig.record());

        let result = rig.node.mount(&rig.at_second(rig.raw_work(wanted))).await;

        let error = refused(result, Kind::Precondition, &both);
        assert!(error.sentence().contains(text(&rig.target())), "{error:?}");
        assert_eq!((rig.host.snapshot(), rig.record()), before);
    }
}

#[tokio::test]
async fn a_device_below_a_mounted_file_system_is_not_written_to() {
    let rig = Rig::new().mounted().await;
    for read_only in [READ, WRITE] {
        let result = rig.node.mount(&rig.at_second(rig.raw_work(read_only))).await;
        refused(result, Kind::Precondition, &["as a writable file system"]);
    }
    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();
    rig.node.mount(&rig.raw_work(WRITE)).await.unwrap();

    let result = rig.node.mount(&rig.at_second(rig.mount_work())).await;

    refused(result, Kind::Precondition, &["as a writable device"]);
    assert!(!rig.second().exists());
}

#[tokio::test]
async fn what_others_show_of_the_device_counts_too() {
    let rig = Rig::new().attached().await;
    rig.host.make_target_file(&rig.second()).await.unwrap();
    let source = MountSource::Raw { device: rig.device() };
    let theirs = HostMount { source, target: rig.second(), read_only: false, flags: Vec::new() };
    rig.host.mount(&theirs).await.unwrap();

    let result = rig.node.mount(&rig.raw_work(READ)).await;

    refused(result, Kind::Precondition, &[text(&rig.second())]);
    refused(
        rig.node.detach(&rig.publication, &Detach::default()).await,
        Kind::Busy,
        &[text(&rig.second())],
    );
    let findings = rig.node.survey(true).await.unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].code, FindingCode::MountWithoutRecord);
}

#[tokio::test]
async fn a_device_that_was_attached_for_reading_is_left_as_it_is() {
    let rig = Rig::new();
    let mut attach = rig.attach_work();
    attach.attach.read_only = true;
    rig.node.attach(&attach).await.unwrap();

    refused(rig.node.mount(&rig.raw_work(WRITE)).await, Kind::Precondition, &["right to write"]);
    rig.node.mount(&rig.raw_work(READ)).await.unwrap();
    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    assert_eq!(rig.marks_set(), 0);
    assert!(rig.refuses_writes());
}

#[tokio::test]
async fn the_same_target_in_another_way_is_refused_with_what_differs() {
    let rig = Rig::new().shown(WRITE).await;

    refused(rig.node.mount(&rig.raw_work(READ)).await, Kind::Exists, &["the right to write"]);

    let rig = Rig::new().mounted().await;
    refused(rig.node.mount(&rig.raw_work(WRITE)).await, Kind::Exists, &["as a device"]);
}

#[tokio::test]
async fn what_was_taken_off_by_hand_is_shown_in_another_way_at_the_same_place() {
    let rig = Rig::new().shown(READ).await;
    rig.host.unmount(&rig.target()).await.unwrap();
    let elsewhere = rig.node.mount(&rig.at_second(rig.raw_work(WRITE))).await;
    refused(elsewhere, Kind::Precondition, &[text(&rig.target())]);

    rig.node.mount(&rig.raw_work(WRITE)).await.unwrap();

    assert!(!rig.refuses_writes());
    assert_eq!(rig.record().unwrap().mounts.len(), 1);
    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();
    assert!(!rig.target().exists());
}

#[tokio::test]
async fn a_file_where_a_folder_was_is_made_anew() {
    let rig = Rig::new().mounted().await;
    rig.host.unmount(&rig.target()).await.unwrap();

    rig.node.mount(&rig.raw_work(WRITE)).await.unwrap();

    assert!(rig.target().is_file());
    assert!(rig.record().unwrap().mounts[0].made_target);
}

#[tokio::test]
async fn detach_takes_the_mark_off_that_a_lost_reader_left() {
    let rig = Rig::new().shown(READ).await;
    rig.host.unmount(&rig.target()).await.unwrap();

    rig.node.detach(&rig.publication, &Detach::default()).await.unwrap();

    let state = rig.host.snapshot();
    assert!(state.marked.is_empty() && state.loops.is_empty());
    assert!(!rig.target().exists() && rig.record().is_none());
}

#[tokio::test]
async fn the_mark_of_another_device_is_left_alone() {
    let rig = Rig::new().shown(READ).await;
    rig.change_identity();
    rig.host.forget_calls();

    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    assert_eq!(rig.marks_set(), 0);
    assert!(rig.record().unwrap().mounts.is_empty());
}

#[tokio::test]
async fn a_mark_that_cannot_be_taken_off_stays_in_the_record() {
    let rig = Rig::new().shown(READ).await;
    rig.host.fail_always("Disks::set_read_only");

    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap_err();
    assert!(!rig.is_mounted() && rig.refuses_writes());
    assert_eq!(rig.record().unwrap().mounts.len(), 1);
    rig.host.heal();
    let change = rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    assert_eq!(change, Change::Already(()));
    assert!(!rig.refuses_writes() && !rig.target().exists());
}

#[tokio::test]
async fn a_device_that_cannot_be_protected_is_not_shown() {
    let rig = Rig::new().attached().await;
    let before = rig.host.snapshot();
    rig.host.fail_next("Disks::set_read_only", Error::new(Kind::Denied, "no"));

    let error = rig.node.mount(&rig.raw_work(READ)).await.unwrap_err();

    assert_eq!(error.outcome(), Outcome::RolledBack, "{error:?}");
    assert_eq!(rig.host.snapshot(), before);
}

#[tokio::test]
async fn a_device_that_was_brought_back_is_protected_again() {
    let rig = Rig::new().shown(READ).await;
    *rig.connector.sick.lock().unwrap() = Some("the session ended".into());
    rig.host.disks().set_read_only(&rig.device(), false).await.unwrap();

    rig.node.attach(&rig.attach_work()).await.unwrap();

    assert!(rig.refuses_writes());
}

#[tokio::test]
async fn a_shown_device_grows_without_a_look_at_what_is_on_it() {
    for read_only in [READ, WRITE] {
        let rig = Rig::new().shown(read_only).await;
        rig.grow_image(ByteSize::mib(64));
        rig.host.forget_calls();

        let size = rig.node.extend(&rig.publication, ByteSize::mib(64)).await.unwrap();

        assert_eq!(size, ByteSize::mib(64));
        for method in ["probe", "check_filesystem", "grow_filesystem"] {
            assert!(rig.host.calls().iter().all(|call| call.method != method), "{method}");
        }
        let usage = rig.node.usage(&rig.publication, &rig.target()).await.unwrap();
        assert_eq!((usage.total, rig.refuses_writes()), (size, read_only));
    }
}

#[tokio::test]
async fn a_device_that_was_taken_off_by_hand_is_shown_again_when_it_grows() {
    let rig = Rig::new().shown(READ).await;
    rig.host.unmount(&rig.target()).await.unwrap();
    rig.host.remove_target(&rig.target()).await.unwrap();
    rig.host.disks().set_read_only(&rig.device(), false).await.unwrap();
    // What its user has put on it is no business of ours.
    rig.host.set_content(&rig.image, &Content::Filesystem { fs: FsKind::Ext4, uuid: None });

    rig.node.extend(&rig.publication, super::rig::SIZE).await.unwrap();

    let record = rig.record().unwrap();
    assert!(rig.is_mounted() && record.mounts[0].ready && rig.refuses_writes());
}

#[tokio::test]
async fn a_shown_device_is_not_frozen() {
    let rig = Rig::new().shown(WRITE).await;

    assert_eq!(rig.node.freeze(&rig.publication).await.unwrap(), Change::Already(()));

    assert!(rig.host.snapshot().frozen.is_empty() && rig.record().unwrap().frozen.is_none());
    assert_eq!(rig.node.thaw(&rig.publication).await.unwrap(), Change::Already(()));
}

#[tokio::test]
async fn a_shown_device_is_healthy_and_in_order() {
    let rig = Rig::new().shown(WRITE).await;
    let before = (rig.host.snapshot(), rig.record());

    assert!(rig.node.health(&rig.publication).await.unwrap().healthy);
    assert_eq!(rig.node.survey(true).await.unwrap(), []);
    rig.restarted().recover().await.unwrap();

    assert_eq!((rig.host.snapshot(), rig.record()), before);
}

#[tokio::test]
async fn a_shown_device_is_not_formatted() {
    let rig = Rig::new().shown(WRITE).await;

    let work = rig.format_work(hawser_core::filesystem::FormatState::Started);

    refused(rig.node.format(&work).await, Kind::Busy, &[text(&rig.target())]);
}

#[tokio::test]
async fn the_doctor_takes_away_what_a_lost_reader_left() {
    let rig = Rig::new().shown(READ).await;
    rig.host.unmount(&rig.target()).await.unwrap();

    let found = rig.node.survey(true).await.unwrap().remove(0);

    assert_eq!(found.code, FindingCode::RecordWithoutMount);
    assert_eq!(found.repair, Some(Repair::Done));
    assert!(!rig.refuses_writes() && !rig.target().exists());
    assert_eq!(rig.node.survey(false).await.unwrap(), []);
}

#[tokio::test]
async fn after_a_reboot_the_file_is_gone_and_the_device_takes_writes() {
    let rig = Rig::new().shown(READ).await;
    rig.host.reboot();
    let node = rig.restarted();

    node.recover().await.unwrap();

    assert!(!rig.target().exists() && rig.record().unwrap().mounts.is_empty());
    node.attach(&rig.attach_work()).await.unwrap();
    node.mount(&rig.raw_work(WRITE)).await.unwrap();
    assert!(!rig.refuses_writes());
}
