//! Rows 6 to 8, and the paging that csi-sanity has switched off: lists of volumes.

use hawser_api::csi::v1::*;
use tonic::Code;

use super::rig::{Rig, code, mount, new};

async fn list(rig: &Rig, max_entries: i32, token: &str) -> ListVolumesResponse {
    let request = ListVolumesRequest { max_entries, starting_token: token.to_owned() };
    rig.controller().list_volumes(request).await.unwrap().into_inner()
}

fn ids(answer: &ListVolumesResponse) -> Vec<String> {
    answer.entries.iter().map(|entry| entry.volume.as_ref().unwrap().volume_id.clone()).collect()
}

#[tokio::test]
async fn a_list_has_what_was_just_made_and_not_what_was_just_deleted() {
    let rig = Rig::start().await;
    assert!(list(&rig, 0, "").await.entries.is_empty());

    let there = rig.published(mount()).await;
    let answer = list(&rig, 0, "").await;
    assert_eq!(ids(&answer), [there.id.as_str()]);
    let status = answer.entries[0].status.as_ref().unwrap();
    assert_eq!(status.published_node_ids, ["n1"]);

    let other = rig.create(new("other", mount())).await;
    let answer = list(&rig, 0, "").await;
    assert_eq!(answer.entries.len(), 2);
    let empty = answer.entries.iter().find(|e| e.volume.as_ref().unwrap().volume_id == other);
    assert!(empty.unwrap().status.as_ref().unwrap().published_node_ids.is_empty());
    let request = DeleteVolumeRequest { volume_id: other, ..Default::default() };
    rig.controller().delete_volume(request).await.unwrap();
    assert_eq!(ids(&list(&rig, 0, "").await), [there.id.as_str()]);
    rig.stop().await;
}

#[tokio::test]
async fn a_bad_token_begins_again() {
    let rig = Rig::start().await;
    rig.create(new("data", mount())).await;
    let with = |max_entries, token: &str| ListVolumesRequest {
        max_entries,
        starting_token: token.to_owned(),
    };

    let answer = rig.controller().list_volumes(with(0, "invalid-token")).await;
    assert_eq!(code(answer), Code::Aborted);
    let answer = rig.controller().list_volumes(with(-1, "")).await;
    assert_eq!(code(answer), Code::InvalidArgument);
    rig.stop().await;
}

#[tokio::test]
async fn pages_bear_that_volumes_come_and_go_between_them() {
    let rig = Rig::start().await;
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(rig.create(new(&format!("v{n}"), mount())).await);
    }
    made.sort();

    let first = list(&rig, 2, "").await;
    assert_eq!(ids(&first), made[..2]);
    assert!(!first.next_token.is_empty());
    let request = DeleteVolumeRequest { volume_id: made[1].clone(), ..Default::default() };
    rig.controller().delete_volume(request).await.unwrap();
    let second = list(&rig, 2, &first.next_token).await;
    assert_eq!(ids(&second), made[2..4]);
    let last = list(&rig, 2, &second.next_token).await;
    assert_eq!(ids(&last), made[4..]);
    assert!(last.next_token.is_empty());
    let exact = list(&rig, 4, "").await;
    assert!(exact.next_token.is_empty(), "nothing is left");
    rig.stop().await;
}

#[tokio::test]
async fn one_volume_is_told_with_its_nodes() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let get = async |id: &str| {
        let request = ControllerGetVolumeRequest { volume_id: id.to_owned() };
        rig.controller().controller_get_volume(request).await
    };

    assert_eq!(code(get("").await), Code::InvalidArgument);
    assert_eq!(code(get("fake-vol-id").await), Code::NotFound);
    let answer = get(&there.id).await.unwrap().into_inner();
    assert_eq!(answer.volume.unwrap().volume_id, there.id);
    assert_eq!(answer.status.unwrap().published_node_ids, ["n1"]);
    rig.stop().await;
}
