//! A process that dies while a file system is unmounted to be grown leaves it unmounted.

use hawser_core::port::Host;
use hawser_live::rig::Rig;
use hawser_live::steps::Step;
use hawser_testkit::fault::Faults;

#[tokio::test]
async fn a_volume_that_was_left_unmounted_by_a_growth_is_mounted_again_by_its_repetition() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path("mnt")).expect("the host's folder can be written");
    let life = rig.boot(&Faults::counting()).await.expect("the process starts");
    for step in [Step::Create("data", "default", 64), Step::Mount("data")] {
        step.perform(&rig, &life).await.expect("there is room");
    }
    let target = rig.path("mnt/data");
    rig.host.unmount(&target).await.expect("nobody uses it");

    Step::Expand("data", 128).perform(&rig, &life).await.expect("there is room");

    let mounts = rig.host.mounts().await.expect("the table can be read");
    assert!(mounts.iter().any(|mount| mount.target == target), "{mounts:?}");
    assert_eq!(life.control.doctor(false).await.expect("the doctor looks"), []);
}
