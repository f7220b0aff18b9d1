//! Rows 29 to 38: who may use a volume.

use std::collections::BTreeMap;

use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::*;
use hawser_core::id::VolumeId;
use hawser_core::volume::VolumeRef;
use hawser_core::{Error, Kind};
use tonic::Code;

use super::fake::PASSWORD;
use super::rig::{Rig, block, code, mount, mount_as, new, publish};
use crate::csi::CsiDriver;

async fn try_publish(rig: &Rig, request: ControllerPublishVolumeRequest) -> Code {
    code(rig.controller().controller_publish_volume(request).await)
}

async fn unpublish(rig: &Rig, volume: &str, node: &str) -> Code {
    let request = ControllerUnpublishVolumeRequest {
        volume_id: volume.to_owned(),
        node_id: node.to_owned(),
        ..Default::default()
    };
    code(rig.controller().controller_unpublish_volume(request).await)
}

/// Rows 29 to 31, 33 and 34: what is missing is told before what does not exist.
#[tokio::test]
async fn what_is_missing_comes_before_what_does_not_exist() {
    let rig = Rig::start().await;
    let id = rig.create(new("data", mount())).await;
    let fake = || publish("fake-vol-id", mount());

    let no_volume = ControllerPublishVolumeRequest { volume_id: String::new(), ..fake() };
    assert_eq!(try_publish(&rig, no_volume).await, Code::InvalidArgument);
    let no_node = ControllerPublishVolumeRequest { node_id: String::new(), ..fake() };
    assert_eq!(try_publish(&rig, no_node).await, Code::InvalidArgument);
    let no_capability = ControllerPublishVolumeRequest {
        volume_capability: None,
        node_id: "fake-node-id".into(),
        ..fake()
    };
    assert_eq!(try_publish(&rig, no_capability).await, Code::InvalidArgument);
    assert_eq!(try_publish(&rig, fake()).await, Code::NotFound);
    for node in ["fake-node-id", "A B", "../../etc"] {
        let request =
            ControllerPublishVolumeRequest { node_id: node.into(), ..publish(&id, mount()) };
        assert_eq!(try_publish(&rig, request).await, Code::NotFound, "{node}");
    }
    rig.stop().await;
}

/// Rows 35 to 37.
#[tokio::test]
async fn a_right_is_given_once_and_not_to_two_writers() {
    let rig = Rig::start().await;
    let id = rig.create(new("data", mount())).await;
    let first = rig.controller().controller_publish_volume(publish(&id, mount())).await.unwrap();
    for _ in 0..10 {
        let again = rig.controller().controller_publish_volume(publish(&id, mount())).await;
        assert_eq!(again.unwrap().into_inner(), *first.get_ref());
    }

    let flipped = ControllerPublishVolumeRequest { readonly: true, ..publish(&id, mount()) };
    assert_eq!(try_publish(&rig, flipped).await, Code::AlreadyExists);
    let other = ControllerPublishVolumeRequest { node_id: "n2".into(), ..publish(&id, mount()) };
    let refused = rig.controller().controller_publish_volume(other.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("n1"), "{refused}");
    let wrong = publish(&id, block(Mode::SingleNodeWriter));
    assert_eq!(try_publish(&rig, wrong).await, Code::InvalidArgument);

    assert_eq!(unpublish(&rig, &id, "n1").await, Code::Ok);
    assert_eq!(try_publish(&rig, other).await, Code::Ok);
    rig.stop().await;
}

#[tokio::test]
async fn a_right_that_was_not_taken_back_is_not_told_as_gone() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let not_found = || Error::new(Kind::NotFound, "class fast does not exist");
    *rig.control.fail.lock().unwrap() = Some(not_found);

    for node in ["n1", ""] {
        assert_eq!(unpublish(&rig, &there.id, node).await, Code::FailedPrecondition, "{node:?}");
    }
    let volume = rig.control.volume_of(&there.id).unwrap();
    assert_eq!(volume.publications.len(), 1);

    let gone = VolumeId::generate();
    assert_eq!(unpublish(&rig, gone.as_str(), "n1").await, Code::Ok, "no volume, no right");
    rig.stop().await;
}

/// CVE-2020-10755: what the storage system is reached with is handed to whoever reads the context.
#[tokio::test]
async fn the_context_names_the_device_and_keeps_secrets_to_itself() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    for key in ["publication", "access", "filesystem", "identity", "info"] {
        assert!(there.context.contains_key(key), "no {key}");
    }
    assert_eq!(there.context["readOnly"], "false");
    assert_eq!(there.context["identity"], format!("serial:{}", there.id));
    assert!(there.context["filesystem"].ends_with("/never"));
    assert!(rig.upstream.take_heard().is_empty(), "nobody was asked for it");
    let told = |context: &BTreeMap<String, String>| {
        let held = rig.control.volume_of(&there.id).unwrap().publications.remove(0).info.unwrap();
        assert_eq!(held.secrets["auth_password"].expose(), PASSWORD, "there is one to be told");
        context.values().any(|value| value.contains(PASSWORD))
    };
    assert!(!told(&there.context), "{:?}", there.context);

    *rig.control.needs_secrets.lock().unwrap() = true;
    let id = rig.create(new("secret", mount())).await;
    let answer = rig.controller().controller_publish_volume(publish(&id, mount())).await.unwrap();
    let context = answer.into_inner().publish_context;
    assert!(!context.contains_key("info") && context.contains_key("identity"), "{context:?}");
    assert!(!told(&context), "{context:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_for_many_nodes_is_not_given_to_two_that_each_want_it_alone() {
    let rig = Rig::start().await;
    let shared = block(Mode::MultiNodeMultiWriter);
    let id = rig.create(new("data", shared.clone())).await;
    let to = |node: &str, mode| ControllerPublishVolumeRequest {
        node_id: node.into(),
        ..publish(&id, block(mode))
    };

    assert_eq!(try_publish(&rig, to("n1", Mode::SingleNodeWriter)).await, Code::Ok);
    let second = try_publish(&rig, to("n2", Mode::SingleNodeWriter)).await;
    assert_eq!(second, Code::FailedPrecondition);

    assert_eq!(unpublish(&rig, &id, "n1").await, Code::Ok);
    for node in ["n1", "n2"] {
        assert_eq!(try_publish(&rig, to(node, Mode::MultiNodeMultiWriter)).await, Code::Ok);
    }
    rig.stop().await;
}

#[tokio::test]
async fn readers_of_many_nodes_get_no_right_to_write() {
    let rig = Rig::start().await;
    let readers = mount_as("", Mode::MultiNodeReaderOnly);
    let id = rig.create(new("data", readers.clone())).await;

    for node in ["n1", "n2"] {
        let request = publish(&id, readers.clone());
        let request = ControllerPublishVolumeRequest { node_id: node.into(), ..request };
        assert_eq!(try_publish(&rig, request).await, Code::Ok, "{node}");
    }

    let volume = rig.control.volume_of(&id).unwrap();
    assert!(volume.publications.iter().all(|publication| publication.read_only));
    assert!(volume.publications.iter().all(|publication| publication.node_led));
    assert_eq!(try_publish(&rig, publish(&id, mount())).await, Code::InvalidArgument);
    rig.stop().await;
}

/// Row 32.
#[tokio::test]
async fn a_full_node_takes_no_more() {
    let rig =
        Rig::with(CsiDriver::Published, |settings, _| settings.max_volumes_per_node = 2).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(rig.create(new(&format!("v{n}"), mount())).await);
    }
    for id in &ids[..2] {
        assert_eq!(try_publish(&rig, publish(id, mount())).await, Code::Ok);
    }

    let full = rig.controller().controller_publish_volume(publish(&ids[2], mount())).await;
    let full = full.unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(full.message().contains("n1 has 2 volumes"), "{full}");
    assert_eq!(try_publish(&rig, publish(&ids[0], mount())).await, Code::Ok, "it is there");
    let other =
        ControllerPublishVolumeRequest { node_id: "n2".into(), ..publish(&ids[2], mount()) };
    assert_eq!(try_publish(&rig, other).await, Code::Ok, "another node has room");

    assert_eq!(unpublish(&rig, &ids[0], "n1").await, Code::Ok);
    assert_eq!(try_publish(&rig, publish(&ids[3], mount())).await, Code::Ok);
    // Somebody else takes one away: counted again before the node is told to be full.
    let by_id = VolumeRef::Id(ids[1].parse().unwrap());
    let node = "n1".parse().unwrap();
    let control: &dyn hawser_core::port::Control = rig.control.as_ref();
    control.unpublish(&by_id, &node, std::time::Duration::ZERO).await.unwrap();
    assert_eq!(try_publish(&rig, publish(&ids[0], mount())).await, Code::Ok);
    rig.stop().await;
}

#[tokio::test]
async fn a_refused_publish_takes_no_place_on_the_node() {
    let rig =
        Rig::with(CsiDriver::Published, |settings, _| settings.max_volumes_per_node = 1).await;
    let (first, second) =
        (rig.create(new("a", mount())).await, rig.create(new("b", mount())).await);

    let fail = || hawser_core::Error::new(hawser_core::Kind::Denied, "not today");
    *rig.control.fail.lock().unwrap() = Some(fail);
    assert_eq!(try_publish(&rig, publish(&first, mount())).await, Code::PermissionDenied);
    *rig.control.fail.lock().unwrap() = None;

    assert_eq!(try_publish(&rig, publish(&second, mount())).await, Code::Ok);
    rig.stop().await;
}

/// Row 38, and what row 38 does not ask: what is gone has no right.
#[tokio::test]
async fn taking_back_what_is_gone_is_fine() {
    let rig = Rig::start().await;
    let shared = block(Mode::MultiNodeMultiWriter);
    let id = rig.create(new("data", shared.clone())).await;
    for node in ["n1", "n2"] {
        let request =
            ControllerPublishVolumeRequest { node_id: node.into(), ..publish(&id, shared.clone()) };
        assert_eq!(try_publish(&rig, request).await, Code::Ok);
    }

    assert_eq!(unpublish(&rig, "", "n1").await, Code::InvalidArgument);
    for (volume, node) in [
        ("fake-vol-id", "n1"),
        ("vol-01k5zzzzzzzzzzzzzzzzzzzzzz", "n1"),
        ("vol-01k5zzzzzzzzzzzzzzzzzzzzzz", ""),
        (id.as_str(), "fake-node-id"),
        (id.as_str(), "A B"),
    ] {
        assert_eq!(unpublish(&rig, volume, node).await, Code::Ok, "{volume} {node}");
    }
    assert_eq!(rig.control.volume_of(&id).unwrap().publications.len(), 2);
    assert_eq!(unpublish(&rig, &id, "").await, Code::Ok, "from all nodes");
    assert!(rig.control.volume_of(&id).unwrap().publications.is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_in_use_is_not_deleted() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let request = DeleteVolumeRequest { volume_id: there.id.clone(), ..Default::default() };

    let answer = rig.controller().delete_volume(request).await;

    assert_eq!(code(answer), Code::FailedPrecondition);
    rig.stop().await;
}
