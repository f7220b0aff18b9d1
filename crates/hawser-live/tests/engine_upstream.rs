//! What a node can rely on that acts by itself, because an orchestrator on its host says so.

use hawser_core::attach::{Attached, Identity};
use hawser_core::error::Kind;
use hawser_core::filesystem::FormatState;
use hawser_core::name::{Alias, NodeId, Scope};
use hawser_core::port::store::{Prefix, Store};
use hawser_core::port::upstream::{Claim, Fact, Grant, Report};
use hawser_core::publication::PublishRequest;
use hawser_core::size::ByteSize;
use hawser_core::volume::{Volume, VolumeRequest};
use hawser_live::stage::{Machine, Stage, WAIT, by_name, done};

fn claim(stage: &Stage, volume: &Volume, publish: bool) -> Claim {
    let node = stage.life.node.clone();
    Claim { volume: volume.id.clone(), node, read_only: false, publish }
}

fn report(stage: &Stage, grant: &Grant, fact: Fact) -> Report {
    Report {
        volume: grant.volume.clone(),
        publication: grant.publication.clone(),
        node: stage.life.node.clone(),
        fact,
    }
}

fn device(identity: &str) -> Fact {
    Fact::Attached(Attached::Block {
        device: "/dev/loop7".into(),
        identity: Some(Identity::new("image", identity)),
        size: ByteSize::mib(16),
    })
}

async fn publish(stage: &Stage, name: &str) {
    let request =
        PublishRequest { node_led: true, ..PublishRequest::new(stage.life.node.clone(), false) };
    done(stage.life.control.publish(&by_name(name), request, WAIT).await.expect("published"));
}

#[tokio::test]
async fn a_volume_that_nobody_published_is_not_granted_unless_the_claim_publishes_it() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;

    let refused = stage.life.upstream.grant(&claim(&stage, &volume, false)).await.unwrap_err();

    assert_eq!(refused.kind(), Kind::Precondition, "{}", refused.sentence());
    assert!(stage.get("v").await.publications.is_empty());
}

/// A node that was taken over could help itself to every volume of the network otherwise.
#[tokio::test]
async fn a_volume_that_other_nodes_reach_is_not_published_by_a_claim() {
    let stage = Machine::new().of_the_network().start().await;
    let volume = stage.volume("v").await;

    let refused = stage.life.upstream.grant(&claim(&stage, &volume, true)).await.unwrap_err();

    assert_eq!(refused.kind(), Kind::Precondition, "{}", refused.sentence());
    assert!(stage.get("v").await.publications.is_empty());
}

/// CVE-2019-11255, the side of the node: what is told of a volume needs the right that was given.
#[tokio::test]
async fn a_right_to_another_volume_tells_nothing_of_this_one() {
    let stage = Stage::new().await;
    let (own, other) = (stage.volume("own").await, stage.volume("other").await);
    let grant = stage.life.upstream.grant(&claim(&stage, &own, true)).await.unwrap();
    stage.life.upstream.grant(&claim(&stage, &other, true)).await.unwrap();
    let mut foreign = report(&stage, &grant, device("mine"));
    foreign.volume = other.id.clone();

    let refused = stage.life.upstream.report(&foreign).await.unwrap_err();

    assert_eq!(refused.kind(), Kind::Precondition, "{}", refused.sentence());
    assert!(stage.get("other").await.publications[0].attached.is_none());
}

#[tokio::test]
async fn a_claim_publishes_once_and_a_release_takes_it_back() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    let claim = claim(&stage, &volume, true);

    let first = stage.life.upstream.grant(&claim).await.unwrap();
    let second = stage.life.upstream.grant(&claim).await.unwrap();

    assert_eq!(first.publication, second.publication);
    assert_eq!(first.info, second.info);
    assert_eq!(stage.get("v").await.publications.len(), 1);
    for _ in 0..2 {
        stage.life.upstream.release(&volume.id, &stage.life.node).await.unwrap();
        assert!(stage.get("v").await.publications.is_empty());
    }
}

#[tokio::test]
async fn a_release_leaves_a_right_that_the_control_half_gave() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    publish(&stage, "v").await;
    stage.life.upstream.grant(&claim(&stage, &volume, true)).await.unwrap();

    stage.life.upstream.release(&volume.id, &stage.life.node).await.unwrap();

    assert_eq!(stage.get("v").await.publications.len(), 1);
}

#[tokio::test]
async fn a_volume_that_the_server_uses_on_the_node_is_not_granted_beside_it() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    stage.mount("v").await;

    let refused = stage.life.upstream.grant(&claim(&stage, &volume, true)).await.unwrap_err();

    assert_eq!(refused.kind(), Kind::Precondition, "{}", refused.sentence());
}

#[tokio::test]
async fn making_a_file_system_is_recorded_step_by_step_and_never_begins_again() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    let grant = stage.life.upstream.grant(&claim(&stage, &volume, true)).await.unwrap();
    let upstream = &stage.life.upstream;
    let state = async || stage.get("v").await.filesystem.unwrap().state;

    let early = upstream.report(&report(&stage, &grant, Fact::Formatted)).await.unwrap_err();
    assert_eq!(early.kind(), Kind::Precondition);
    for _ in 0..2 {
        upstream.report(&report(&stage, &grant, Fact::FormatBegins)).await.unwrap();
        assert_eq!(state().await, FormatState::Started);
    }
    for _ in 0..2 {
        upstream.report(&report(&stage, &grant, Fact::Formatted)).await.unwrap();
        assert_eq!(state().await, FormatState::Done);
    }
    let again = upstream.report(&report(&stage, &grant, Fact::FormatBegins)).await.unwrap_err();

    assert_eq!(again.kind(), Kind::Precondition, "{}", again.sentence());
    assert_eq!(state().await, FormatState::Done);
}

#[tokio::test]
async fn the_first_identity_that_is_reported_binds_from_then_on() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    let grant = stage.life.upstream.grant(&claim(&stage, &volume, true)).await.unwrap();
    // The local provider knows it beforehand; this one is as if it did not.
    let known = stage.get("v").await.identity;
    let name = known.as_ref().map_or("seen-first".to_owned(), |identity| identity.value.clone());
    stage.life.upstream.report(&report(&stage, &grant, device(&name))).await.unwrap();

    let other = stage.life.upstream.report(&report(&stage, &grant, device("another"))).await;

    assert_eq!(other.unwrap_err().kind(), Kind::Precondition);
    let volume = stage.get("v").await;
    assert_eq!(volume.identity.unwrap().value, name);
    assert_eq!(volume.publications[0].attached.as_ref().unwrap().identity().unwrap().value, name);
}

#[tokio::test]
async fn the_right_of_a_node_that_leads_is_taken_back_although_it_is_attached() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    publish(&stage, "v").await;
    let grant = stage.life.upstream.grant(&claim(&stage, &volume, false)).await.unwrap();
    let value = volume.identity.map_or("x".to_owned(), |identity| identity.value);
    stage.life.upstream.report(&report(&stage, &grant, device(&value))).await.unwrap();

    let node = &stage.life.node;
    done(stage.life.control.unpublish(&by_name("v"), node, WAIT).await.unwrap());

    assert!(stage.get("v").await.publications.is_empty());
    // What the dead node says later changes nothing.
    stage.life.upstream.report(&report(&stage, &grant, Fact::Detached)).await.unwrap();
    let late = stage.life.upstream.report(&report(&stage, &grant, Fact::FormatBegins)).await;
    assert_eq!(late.unwrap_err().kind(), Kind::Precondition);
}

#[test]
fn after_a_restart_the_records_say_what_the_node_has_and_nothing_is_brought_back() {
    let machine = Machine::new();
    machine.life(async |stage| {
        for name in ["published", "claimed"] {
            let volume = stage.volume(name).await;
            if name == "published" {
                publish(&stage, name).await;
            }
            let grant = stage.life.upstream.grant(&claim(&stage, &volume, true)).await.unwrap();
            let value = volume.identity.map_or("x".to_owned(), |identity| identity.value);
            stage.life.upstream.report(&report(&stage, &grant, device(&value))).await.unwrap();
        }
    });
    machine.life(async |stage| {
        // The node never really had them.
        let published = stage.get("published").await;
        assert_eq!(published.publications.len(), 1, "the orchestrator takes it back, not we");
        assert_eq!(published.publications[0].attached, None);
        assert!(stage.get("claimed").await.publications.is_empty(), "claimed and not used");
        assert!(stage.mounted().is_empty());
    });
}

#[tokio::test]
async fn a_node_speaks_only_of_its_own_publication() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    let grant = stage.life.upstream.grant(&claim(&stage, &volume, true)).await.unwrap();
    let other: NodeId = "other".parse().unwrap();

    let lie = Report { node: other, ..report(&stage, &grant, Fact::FormatBegins) };

    assert_eq!(stage.life.upstream.report(&lie).await.unwrap_err().kind(), Kind::Precondition);
}

#[tokio::test]
async fn a_csi_name_is_kept_by_the_volume_s_own_record() {
    let stage = Stage::new().await;
    let alias = Alias::new(Scope::Csi, "pvc-7").unwrap();
    let request = || VolumeRequest::new(alias.clone(), ByteSize::mib(16));

    let first = done(stage.life.control.create_volume(request(), WAIT).await.unwrap());
    let second = done(stage.life.control.create_volume(request(), WAIT).await.unwrap());

    assert!(first.is_made() && !second.is_made());
    assert_eq!(first.get().id, second.get().id);
    let names = stage.rig.store.list(&Prefix::below(&["name"]), None, 10).await.unwrap();
    assert!(names.items.is_empty(), "{:?}", names.items);
    let other = VolumeRequest::new(alias, ByteSize::mib(32));
    let refused = stage.life.control.create_volume(other, WAIT).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Exists);
}

#[tokio::test]
async fn a_right_that_is_there_outlives_storage_that_does_not_answer_about_it() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    publish(&stage, "v").await;
    // Secrets are asked for at every use.
    stage
        .rewrite(&volume, |record| {
            record["volume"]["publications"][0]["needs_secrets"] = true.into();
        })
        .await;
    let image = stage.rig.path("pool-default/volumes").join(format!("{}.img", volume.id));
    let away = image.with_extension("away");
    std::fs::rename(&image, &away).unwrap();

    stage.life.upstream.grant(&claim(&stage, &volume, false)).await.unwrap_err();

    assert_eq!(stage.get("v").await.publications.len(), 1, "taken away");
    std::fs::rename(&away, &image).unwrap();
    stage.life.upstream.grant(&claim(&stage, &volume, false)).await.expect("granted");
}
