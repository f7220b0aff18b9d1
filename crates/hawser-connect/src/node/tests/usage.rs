use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use hawser_core::id::PublicationId;
use hawser_core::port::host::FsUsage;
use hawser_core::port::{Host, Node};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome};

use super::rig::{Rig, SIZE, refused, text};

#[tokio::test]
async fn a_mounted_volume_tells_bytes_and_files() {
    let rig = Rig::new().mounted().await;

    let usage = rig.node.usage(&rig.publication, &rig.target()).await.unwrap();

    assert_eq!(usage, rig.host.usage(&rig.target()).await.unwrap());
    assert_eq!(usage.total, SIZE);
    assert!(usage.files > 0);
}

#[tokio::test]
async fn a_device_tells_its_size_alone() {
    let rig = Rig::new().attached().await;
    rig.node.mount(&rig.raw_work(false)).await.unwrap();

    let usage = rig.node.usage(&rig.publication, &rig.target()).await.unwrap();

    let (total, used) = (SIZE, ByteSize::ZERO);
    assert_eq!(usage, FsUsage { total, available: total, used, files: 0, files_free: 0 });
}

#[tokio::test]
async fn a_folder_tells_of_the_file_system_it_lies_in() {
    let rig = Rig::new();
    let (work, _) = rig.folder_work();
    rig.node.attach(&work).await.unwrap();
    let mut work = rig.mount_work();
    work.filesystem = None;
    rig.node.mount(&work).await.unwrap();

    let usage = rig.node.usage(&rig.publication, &rig.target()).await.unwrap();

    assert!(usage.total > ByteSize::gib(1), "{usage:?}");
}

#[tokio::test]
async fn what_is_not_mounted_there_is_not_found() {
    let rig = Rig::new().mounted().await;
    let ask = async |publication: &PublicationId, target: &Path| {
        refused(rig.node.usage(publication, target).await, Kind::NotFound, &[])
    };

    ask(&PublicationId::generate(), &rig.target()).await;
    ask(&rig.publication, Path::new("/other")).await;
    ask(&rig.publication, Path::new("some/path")).await;
    rig.host.unmount(&rig.target()).await.unwrap();
    let error = ask(&rig.publication, &rig.target()).await;
    assert!(error.sentence().contains(text(&rig.target())));
    rig.host.reboot();
    ask(&rig.publication, &rig.target()).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_server_answers_as_unavailable_within_seconds_and_waits_for_nobody() {
    let rig = Rig::new().mounted().await;
    let registry = rig.registry.as_ref();
    let _working = rig.node.gates.enter(registry, &rig.publication).await.unwrap();
    rig.host.hang_always("usage");
    let asked = tokio::time::Instant::now();

    let result = rig.node.usage(&rig.publication, &rig.target()).await;

    let error = refused(result, Kind::Unavailable, &["did not answer", text(&rig.target())]);
    assert_eq!(error.outcome(), Outcome::Nothing);
    assert!(asked.elapsed() <= Duration::from_secs(5));
    rig.host.heal();
    let late = Error::new(Kind::Timeout, "no answer").with_outcome(Outcome::Unknown);
    rig.host.fail_next("usage", late);
    let result = rig.node.usage(&rig.publication, &rig.target()).await;
    refused(result, Kind::Unavailable, &["dead server"]);
}

fn own_group(rig: &Rig) -> u32 {
    std::fs::metadata(&rig.image).unwrap().gid()
}

fn given(rig: &Rig) -> usize {
    rig.host.calls().iter().filter(|call| call.method == "give_to_group").count()
}

#[tokio::test]
async fn a_group_has_the_volume_before_the_mount_is_ready() {
    let rig = Rig::new().formatted().await;
    let mut work = rig.mount_work();
    work.group = Some(own_group(&rig));

    rig.node.mount(&work).await.unwrap();

    let mode = std::fs::metadata(rig.target()).unwrap().mode();
    assert_eq!(mode & 0o2070, 0o2070);
    let calls = rig.host.calls();
    let at = |method: &str| calls.iter().rposition(|call| call.method == method).unwrap();
    assert!(at("mount") < at("grow_filesystem") && at("grow_filesystem") < at("give_to_group"));
    assert!(rig.record().unwrap().mounts[0].ready);
    // Whoever asks again asks for the same, or for another group.
    assert_eq!(rig.node.mount(&work).await.unwrap(), Change::Already(()));
    assert_eq!(given(&rig), 2);
}

#[tokio::test]
async fn a_volume_that_cannot_be_given_to_its_group_is_not_mounted() {
    let rig = Rig::new().formatted().await;
    let before = rig.host.snapshot();
    let mut work = rig.mount_work();
    work.group = Some(own_group(&rig));
    rig.host.fail_next("give_to_group", Error::new(Kind::Denied, "not yours"));

    let error = refused(rig.node.mount(&work).await, Kind::Denied, &["not yours"]);

    assert_eq!(error.outcome(), Outcome::RolledBack);
    assert_eq!(rig.host.snapshot(), before);
    assert!(rig.record().unwrap().mounts.is_empty());
}

#[tokio::test]
async fn what_is_mounted_for_reading_is_given_to_nobody() {
    let rig = Rig::new().formatted().await;
    let mut work = rig.mount_work();
    (work.group, work.read_only) = (Some(own_group(&rig)), true);

    rig.node.mount(&work).await.unwrap();
    rig.node.mount(&work).await.unwrap();

    assert_eq!(given(&rig), 0);
}

#[tokio::test]
async fn a_frozen_volume_is_given_to_nobody() {
    let rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();
    let mut work = rig.mount_work();
    work.group = Some(own_group(&rig));

    refused(rig.node.mount(&work).await, Kind::Busy, &["frozen"]);

    assert_eq!(given(&rig), 0);
    assert_eq!(rig.node.mount(&rig.mount_work()).await.unwrap(), Change::Already(()));
}
