//! Which folders are taken as pools.

use hawser_core::Kind;
use hawser_core::doctor::FindingCode;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::Provision;
use hawser_core::{ByteSize, id::VolumeId};
use hawser_testkit::contract::provider::ProviderRig;
use serde_json::json;

use super::super::PoolKind;
use super::rig::{PoolRig, fake};

async fn closed(kind: PoolKind) -> PoolRig {
    let mut rig = fake(kind).await.expect("always there");
    rig.close();
    rig
}

async fn refused(rig: &PoolRig) -> hawser_core::Error {
    rig.try_open().await.err().expect("it is refused")
}

#[tokio::test]
async fn a_folder_of_others_is_refused_and_left_alone() {
    let mut rig = closed(PoolKind::Image).await;
    let folder = rig.fake().dir().join("home");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("letter"), b"dear").unwrap();
    rig.settings["path"] = json!(folder);

    let error = refused(&rig).await;

    assert_eq!(error.kind(), Kind::Precondition);
    let names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["letter"]);
}

#[tokio::test]
async fn a_fresh_file_system_and_a_cut_off_beginning_are_taken() {
    let mut rig = closed(PoolKind::Image).await;
    let folder = rig.fake().dir().join("disk");
    std::fs::create_dir_all(folder.join("lost+found")).unwrap();
    std::fs::write(folder.join("pool.json.new"), b"{\"for").unwrap();
    rig.settings["path"] = json!(folder);

    rig.reopen().await;

    assert!(folder.join("pool.json").exists());
    assert!(!folder.join("pool.json.new").exists());
}

#[tokio::test]
async fn a_missing_parent_is_not_made() {
    let mut rig = closed(PoolKind::Image).await;
    rig.settings["path"] = json!(rig.fake().dir().join("unmounted/pool"));

    refused(&rig).await;

    assert!(!rig.fake().dir().join("unmounted").exists());
}

#[tokio::test]
async fn a_newer_format_is_refused_in_plain_words() {
    let rig = closed(PoolKind::Image).await;
    std::fs::write(rig.path.join("pool.json"), br#"{"format":2,"id":7,"shape":"round"}"#).unwrap();

    let error = refused(&rig).await;

    assert_eq!(error.kind(), Kind::Precondition);
    assert!(error.to_string().contains("format 2"), "{error}");
    assert!(error.to_string().contains("newer"), "{error}");
}

#[tokio::test]
async fn a_pool_of_the_other_kind_is_refused() {
    let mut rig = closed(PoolKind::Image).await;
    rig.settings["kind"] = json!("folder");

    let error = refused(&rig).await;

    assert_eq!(error.kind(), Kind::Precondition);
    assert!(error.to_string().contains("image") && error.to_string().contains("folder"), "{error}");
}

#[tokio::test]
async fn a_pool_is_open_once() {
    let rig = fake(PoolKind::Image).await.expect("always there");

    let error = refused(&rig).await;

    assert_eq!(error.kind(), Kind::Busy);
}

#[tokio::test]
async fn a_pool_without_its_folders_gets_them_back() {
    let mut rig = closed(PoolKind::Image).await;
    std::fs::remove_dir(rig.path.join("snapshots")).unwrap();

    rig.reopen().await;

    assert!(rig.path.join("snapshots").is_dir());
}

#[tokio::test]
async fn empty_attempts_of_a_power_cut_are_swept_and_others_kept() {
    let mut rig = closed(PoolKind::Image).await;
    let (empty, half) = (VolumeId::generate(), VolumeId::generate());
    std::fs::create_dir(rig.path.join(format!("staging/{empty}.0"))).unwrap();
    rig.plant_leftover(&half);
    std::fs::write(rig.path.join("staging/foreign"), b"x").unwrap();

    rig.reopen().await;

    assert!(!rig.path.join(format!("staging/{empty}.0")).exists());
    assert!(rig.path.join(format!("staging/{half}.7")).exists());
    assert!(rig.path.join("staging/foreign").exists());
}

#[tokio::test]
async fn foreign_files_are_told_and_never_touched() {
    let rig = fake(PoolKind::Image).await.expect("always there");
    let names = ["notes", "volumes/vol-1.img", "snapshots/x", "staging/vol-x.1", "staging/y.z"];
    for name in names {
        std::fs::write(rig.path.join(name), b"x").unwrap();
    }

    let provider = rig.provider();
    let found = provider.inventory().unwrap().survey(true).await.unwrap();

    assert_eq!(found.len(), names.len(), "{found:?}");
    assert!(found.iter().all(|f| f.code == FindingCode::StorageWithoutRecord && !f.fixable));
    assert!(names.iter().all(|name| rig.path.join(name).exists()));
}

#[tokio::test]
async fn an_unreadable_record_harms_only_its_volume() {
    let mut rig = fake(PoolKind::Folder).await.expect("always there");
    let wanted = Provision {
        id: VolumeId::generate(),
        size: ByteSize::mib(1),
        access: rig.provider().default_access(),
        source: None,
        parameters: Default::default(),
        place: None,
    };
    rig.provider().create(&wanted, &Silent).await.unwrap();
    std::fs::write(rig.path.join(format!("volumes/{}/meta.json", wanted.id)), b"{").unwrap();

    rig.reopen().await;
    let provider = rig.provider();
    let found = provider.inventory().unwrap().survey(false).await.unwrap();
    let volume = super::volumes::at_provider(&wanted);

    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].code, FindingCode::UnreadableRecord);
    assert!(!provider.health(&volume).await.unwrap().healthy);
    assert!(provider.delete(&volume).await.unwrap().is_made());
}
