//! Rows 36 and 94: the whole life of a volume, from a claim to its end.

use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::*;

use super::rig::{Rig, block, mount, mount_as};

#[tokio::test]
async fn a_volume_lives_and_leaves_nothing_behind() {
    for capability in
        [mount(), mount_as("xfs", Mode::SingleNodeWriter), block(Mode::SingleNodeWriter)]
    {
        let rig = Rig::start().await;
        let there = rig.staged(capability).await;
        let (staging, target) = (rig.staging(), rig.path("target"));
        let mut node = rig.nodes();

        node.node_publish_volume(there.publish(&staging, &target)).await.unwrap();
        node.node_unpublish_volume(there.unpublish(&target)).await.unwrap();
        node.node_unstage_volume(there.unstage(&staging)).await.unwrap();
        let unpublish = ControllerUnpublishVolumeRequest {
            volume_id: there.id.clone(),
            node_id: "n1".into(),
            ..Default::default()
        };
        rig.controller().controller_unpublish_volume(unpublish).await.unwrap();
        let delete = DeleteVolumeRequest { volume_id: there.id.clone(), ..Default::default() };
        rig.controller().delete_volume(delete).await.unwrap();

        assert_eq!(rig.control.count(), 0);
        assert!(rig.node.records().is_empty());
        let left: Vec<_> = std::fs::read_dir(rig.path("")).unwrap().flatten().collect();
        let names: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
        assert_eq!(names.len(), 2, "the socket and the staging folder: {names:?}");
        std::fs::remove_dir(&staging).expect("the orchestrator can remove its own folder");
        rig.stop().await;
    }
}

/// The kubelet restarts, and so does the driver: what is known is in the records of the host.
#[tokio::test]
async fn a_restarted_driver_takes_volumes_away_that_it_never_saw() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let (staging, target) = (rig.staging(), rig.path("target"));
    rig.nodes().node_publish_volume(there.publish(&staging, &target)).await.unwrap();
    let (node, control) = (rig.node.clone(), rig.control.clone());

    let other = Rig::with(crate::csi::CsiDriver::Published, |_, parts| {
        parts.node = Some(node.clone());
        parts.control = Some(control.clone());
    })
    .await;
    other.nodes().node_unpublish_volume(there.unpublish(&target)).await.unwrap();
    other.nodes().node_unstage_volume(there.unstage(&staging)).await.unwrap();

    assert!(node.records().is_empty());
    other.stop().await;
    rig.stop().await;
}
