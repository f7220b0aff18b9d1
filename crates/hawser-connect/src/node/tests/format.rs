use hawser_core::filesystem::{FormatState, FsKind};
use hawser_core::port::Node;
use hawser_core::port::host::Content;
use hawser_core::{ByteSize, Error, Kind};
use hawser_testkit::fake_host::When;
use uuid::Uuid;

use super::rig::{Rig, refused, text};

fn never_made(rig: &Rig) -> bool {
    rig.host.calls().iter().all(|call| call.method != "make_filesystem")
}

#[tokio::test]
async fn a_blank_device_is_formatted_with_the_chosen_uuid() {
    let rig = Rig::new().formatted().await;

    let content = hawser_core::port::Host::probe(rig.host.as_ref(), &rig.device()).await.unwrap();

    assert_eq!(content, Content::Filesystem { fs: FsKind::Ext4, uuid: Some(rig.uuid) });
}

#[tokio::test]
async fn a_volume_that_was_never_formatted_is_only_looked_at() {
    let rig = Rig::new().attached().await;

    let looked = rig.node.format(&rig.format_work(FormatState::Never)).await.unwrap();

    assert_eq!(looked, hawser_core::Change::Already(()));
    assert!(never_made(&rig), "before the record says that it began");
}

#[tokio::test]
async fn a_failed_probe_is_never_taken_for_blank() {
    for state in [FormatState::Never, FormatState::Started] {
        let rig = Rig::new().attached().await;
        rig.host.fail_next("probe", Error::new(Kind::Timeout, "probe timed out"));

        let result = rig.node.format(&rig.format_work(state)).await;

        refused(result, Kind::Timeout, &["probe timed out"]);
        assert!(never_made(&rig));
    }
}

#[tokio::test]
async fn what_was_never_formatted_must_be_blank() {
    let ours = Content::Filesystem { fs: FsKind::Ext4, uuid: None };
    for content in [Content::Data, Content::Other("LVM2_member".into()), ours] {
        let rig = Rig::new().attached().await;
        rig.host.set_content(&rig.image, &content);

        let result = rig.node.format(&rig.format_work(FormatState::Never)).await;

        refused(result, Kind::Precondition, &[text(&rig.device()), "never formatted"]);
        assert!(never_made(&rig), "{content:?}");
    }
}

#[tokio::test]
async fn even_our_own_uuid_is_refused_when_the_record_says_never() {
    let rig = Rig::new().attached().await;
    let ours = Content::Filesystem { fs: FsKind::Ext4, uuid: Some(rig.uuid) };
    rig.host.set_content(&rig.image, &ours);

    let result = rig.node.format(&rig.format_work(FormatState::Never)).await;

    refused(result, Kind::Precondition, &[&rig.uuid.to_string()]);
    assert!(never_made(&rig));
}

#[tokio::test]
async fn an_unfinished_format_is_made_again_over_what_it_left() {
    for content in [None, Some(Content::Data), Some(Content::Blank)] {
        let rig = Rig::new().attached().await;
        let ours = Content::Filesystem { fs: FsKind::Ext4, uuid: Some(rig.uuid) };
        rig.host.set_content(&rig.image, &content.unwrap_or(ours));

        rig.node.format(&rig.format_work(FormatState::Started)).await.unwrap();

        assert!(!never_made(&rig));
    }
}

#[tokio::test]
async fn an_unfinished_format_never_overwrites_what_others_made() {
    let foreign = Content::Filesystem { fs: FsKind::Xfs, uuid: Some(Uuid::new_v4()) };
    for (content, words) in [(foreign, "xfs"), (Content::Other("gpt".into()), "gpt")] {
        let rig = Rig::new().attached().await;
        rig.host.set_content(&rig.image, &content);

        let result = rig.node.format(&rig.format_work(FormatState::Started)).await;

        refused(result, Kind::Precondition, &[words, text(&rig.device())]);
        assert!(never_made(&rig));
    }
}

#[tokio::test]
async fn what_was_formatted_is_never_formatted_again() {
    let rig = Rig::new().attached().await;

    let result = rig.node.format(&rig.format_work(FormatState::Done)).await;

    refused(result, Kind::Precondition, &["never made again"]);
    assert!(never_made(&rig));
}

#[tokio::test]
async fn another_device_is_not_formatted() {
    let rig = Rig::new().attached().await;
    rig.change_identity();

    let result = rig.node.format(&rig.format_work(FormatState::Never)).await;

    refused(result, Kind::Precondition, &["somebody-else", text(&rig.device())]);
    assert!(never_made(&rig));
}

#[tokio::test]
async fn a_device_that_moved_or_went_is_not_formatted() {
    let rig = Rig::new().attached().await;
    let disk = rig.host.add_disk("other", ByteSize::mib(16));
    let device = rig.host.snapshot().loops.remove(0);
    rig.registry.edit(&rig.publication, |record| {
        let Some(hawser_core::attach::Attached::Block { device, .. }) = &mut record.attached else {
            panic!("not a device");
        };
        *device = disk.clone();
    });

    let result = rig.node.format(&rig.format_work(FormatState::Never)).await;
    refused(result, Kind::Precondition, &[text(&disk), text(&device.device)]);

    hawser_core::port::Host::detach_loop(rig.host.as_ref(), &device, false).await.unwrap();
    let result = rig.node.format(&rig.format_work(FormatState::Never)).await;
    refused(result, Kind::Precondition, &[text(&disk), "gone"]);
    assert!(never_made(&rig));
}

#[tokio::test]
async fn a_read_only_a_mounted_and_an_unattached_device_are_not_formatted() {
    let rig = Rig::new();
    let mut work = rig.attach_work();
    work.attach.read_only = true;
    rig.node.attach(&work).await.unwrap();
    let result = rig.node.format(&rig.format_work(FormatState::Never)).await;
    refused(result, Kind::Precondition, &["without the right to write"]);

    let rig = Rig::new().mounted().await;
    rig.host.forget_calls();
    let result = rig.node.format(&rig.format_work(FormatState::Started)).await;
    refused(result, Kind::Busy, &[text(&rig.target())]);
    assert!(never_made(&rig));

    let rig = Rig::new();
    let result = rig.node.format(&rig.format_work(FormatState::Never)).await;
    refused(result, Kind::NotFound, &["attach it first"]);
}

#[tokio::test]
async fn a_folder_is_not_formatted() {
    let rig = Rig::new();
    let (work, path) = rig.folder_work();
    rig.node.attach(&work).await.unwrap();

    let result = rig.node.format(&rig.format_work(FormatState::Never)).await;

    refused(result, Kind::Precondition, &[text(&path)]);
}

#[tokio::test]
async fn a_format_whose_result_cannot_be_read_is_of_unknown_outcome() {
    let rig = Rig::new().attached().await;
    rig.host.forget_calls();
    rig.node.format(&rig.format_work(FormatState::Started)).await.unwrap();
    let last_probe = rig.host.calls().iter().rposition(|call| call.method == "probe").unwrap();
    rig.host.fail_call(last_probe, When::Before);

    let result = rig.node.format(&rig.format_work(FormatState::Started)).await;

    assert!(refused(result, Kind::Unavailable, &["probe"]).is_unknown());
    rig.node.format(&rig.format_work(FormatState::Started)).await.unwrap();
}
