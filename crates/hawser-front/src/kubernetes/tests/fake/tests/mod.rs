//! The fake, seen through the client that its callers use.

mod watching;

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{FakeApi, Fault, NAMESPACE, Seen};

const PV: &str = "persistentvolumes/pv-1";

fn volume() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": "pv-1", "labels": { "app": "a" }, "finalizers": ["hawser/held"] },
        "spec": { "capacity": { "storage": "1Gi" } },
        "status": { "phase": "Bound" },
    })
}

fn volumes(fake: &FakeApi) -> Api<PersistentVolume> {
    Api::all(fake.client())
}

async fn created(fake: &FakeApi) -> PersistentVolume {
    let volume = serde_json::from_value(volume()).unwrap();
    volumes(fake).create(&PostParams::default(), &volume).await.unwrap()
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    let error = result.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    (status.code, status.reason)
}

fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

#[tokio::test]
async fn a_new_object_gets_what_the_server_owns() {
    let fake = FakeApi::new();
    let made = created(&fake).await;

    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    assert!(made.resource_version().is_some());
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));

    let again: PersistentVolume = serde_json::from_value(volume()).unwrap();
    let api = volumes(&fake);
    let refused = api.create(&PostParams::default(), &again).await;
    assert_eq!(code(refused), (409, "AlreadyExists".into()));
    assert_eq!(fake.writes(), ["POST /api/v1/persistentvolumes"; 2]);
    assert_eq!(api.get_opt("pv-2").await.unwrap().map(|found| found.name_any()), None);
}

#[tokio::test]
async fn names_are_generated_and_namespaces_kept_apart() {
    let fake = FakeApi::new();
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(fake.client());
    let claim = json!({ "metadata": { "generateName": "claim-" }, "spec": {} });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();

    let one = claims.create(&PostParams::default(), &claim).await.unwrap();
    let two = claims.create(&PostParams::default(), &claim).await.unwrap();

    assert_ne!(one.name_any(), two.name_any());
    let path = format!("persistentvolumeclaims/{NAMESPACE}/{}", one.name_any());
    assert_eq!(fake.object(&path).unwrap()["metadata"]["namespace"], NAMESPACE);
    let elsewhere: Api<PersistentVolumeClaim> = Api::namespaced(fake.client(), "other");
    assert!(elsewhere.list(&ListParams::default()).await.unwrap().items.is_empty());
    let everywhere: Api<PersistentVolumeClaim> = Api::all(fake.client());
    let paged = everywhere.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!(paged.items.len(), 1);
    let rest = ListParams::default().continue_token(&paged.metadata.continue_.unwrap());
    assert_eq!(everywhere.list(&rest).await.unwrap().items.len(), 1);
    assert_eq!(fake.objects("persistentvolumeclaims").len(), 2);
}

#[tokio::test]
async fn status_and_the_rest_are_written_apart() {
    let fake = FakeApi::new();
    created(&fake).await;
    let (api, with) = (volumes(&fake), PatchParams::default());
    let both = json!({
        "metadata": { "annotations": { "a": "b" } },
        "spec": { "storageClassName": "fast" },
        "status": { "phase": "Available" },
    });

    let main = api.patch("pv-1", &with, &merge(both.clone())).await.unwrap();
    assert_eq!(main.spec.unwrap().storage_class_name.as_deref(), Some("fast"));
    assert_eq!(main.status.unwrap().phase.as_deref(), Some("Pending"));

    fake.update(PV, |pv| pv["spec"]["storageClassName"] = json!("slow"));
    let part = api.patch_status("pv-1", &with, &merge(both.clone())).await.unwrap();
    assert_eq!(part.spec.unwrap().storage_class_name.as_deref(), Some("slow"));
    assert_eq!(part.status.unwrap().phase.as_deref(), Some("Available"));

    fake.put(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": { "name": "va" },
        "spec": { "attacher": "x", "nodeName": "n", "source": {} },
        "status": { "attached": false },
    }));
    let attachments: Api<VolumeAttachment> = Api::all(fake.client());
    let patch =
        json!({ "metadata": { "annotations": { "a": "b" } }, "status": { "attached": true } });
    let attached = attachments.patch_status("va", &with, &merge(patch)).await.unwrap();
    assert!(attached.status.unwrap().attached && attached.metadata.annotations.is_none());
}

#[tokio::test]
async fn a_write_on_an_old_revision_conflicts() {
    let fake = FakeApi::new();
    let old = created(&fake).await;
    let (api, with) = (volumes(&fake), PatchParams::default());
    fake.update(PV, |pv| pv["spec"]["storageClassName"] = json!("slow"));

    let replaced = api.replace("pv-1", &PostParams::default(), &old).await;
    assert_eq!(code(replaced), (409, "Conflict".into()));
    let patch = json!({ "metadata": { "resourceVersion": old.resource_version() } });
    assert_eq!(code(api.patch("pv-1", &with, &merge(patch)).await), (409, "Conflict".into()));
    let wanted = Preconditions { uid: Some("another".into()), resource_version: None };
    let removed = api.delete("pv-1", &DeleteParams::default().preconditions(wanted)).await;
    assert_eq!(code(removed), (409, "Conflict".into()));

    let steps = |value: &str| {
        let steps = json!([
            { "op": "test", "path": "/spec/storageClassName", "value": value },
            { "op": "remove", "path": "/metadata/labels/app" },
        ]);
        Patch::<Value>::Json(serde_json::from_value(steps).unwrap())
    };
    assert_eq!(code(api.patch("pv-1", &with, &steps("fast")).await), (422, "Invalid".into()));
    assert!(api.patch("pv-1", &with, &steps("slow")).await.unwrap().labels().is_empty());
}

#[tokio::test]
async fn an_object_with_finalizers_outlives_its_removal() {
    let fake = FakeApi::new();
    created(&fake).await;
    let (api, with) = (volumes(&fake), PatchParams::default());

    let deleting = api.delete("pv-1", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(deleting.metadata.deletion_timestamp.is_some());
    let more = json!({ "metadata": { "finalizers": ["hawser/held", "another"] } });
    assert_eq!(code(api.patch("pv-1", &with, &merge(more)).await), (422, "Invalid".into()));

    let none = json!({ "metadata": { "finalizers": null } });
    api.patch("pv-1", &with, &merge(none)).await.unwrap();
    fake.wait_gone(PV).await;

    fake.put(volume());
    fake.delete(PV);
    fake.wait(PV, |pv| pv["metadata"]["deletionTimestamp"].is_string()).await;
    fake.update(PV, |pv| pv["metadata"]["finalizers"] = json!([]));
    assert!(fake.object("/api/v1/persistentvolumes/pv-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn requests_fail_as_they_are_told_to() {
    let fake = FakeApi::new();
    let api = volumes(&fake);
    let volume: PersistentVolume = serde_json::from_value(volume()).unwrap();
    let create = || async { api.create(&PostParams::default(), &volume).await };
    let post = |times, fault| fake.fail(times, Method::POST, "persistentvolumes", fault);

    post(2, Fault::Refused(503));
    post(1, Fault::Reset);
    assert_eq!(code(create().await), (503, "ServiceUnavailable".into()));
    assert_eq!(code(create().await), (503, "ServiceUnavailable".into()));
    assert!(matches!(create().await, Err(kube::Error::Service(_))));
    assert!(fake.object(PV).is_none());

    post(1, Fault::Lost);
    assert!(matches!(create().await, Err(kube::Error::Service(_))));
    assert!(fake.object(PV).is_some());
    assert_eq!(fake.requests().len(), 4);
    fake.forget();

    fake.update(PV, |pv| pv["metadata"]["finalizers"] = json!([]));
    fake.delete(PV);
    post(1, Fault::DoneBut(504));
    assert_eq!(code(create().await), (504, "Timeout".into()));
    let Seen { method, path, query, body, metadata_only } = fake.requests().remove(0);
    assert_eq!((method, path.as_str()), (Method::POST, "/api/v1/persistentvolumes"));
    assert!(!metadata_only);
    assert_eq!((query.as_str(), &body["metadata"]["name"]), ("", &json!("pv-1")));

    let begun = tokio::time::Instant::now();
    fake.fail(1, Method::GET, "/pv-1", Fault::Slow(Duration::from_secs(5)));
    fake.fail(1, Method::GET, "/pv-1", Fault::Late(Duration::from_secs(5)));
    api.get("pv-1").await.unwrap();
    api.get("pv-1").await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 10);
    fake.fail(1, Method::GET, "/pv-1", Fault::Hang);
    assert!(tokio::time::timeout(Duration::from_secs(60), api.get("pv-1")).await.is_err());
    fake.fail(1, Method::GET, "/pv-1", Fault::Refused(500));
    fake.heal();
    api.get("pv-1").await.unwrap();
    assert!(!fake.until(|fake| fake.object("persistentvolumes/pv-2").is_some()).await);
}

#[tokio::test]
async fn a_group_may_be_absent_or_old() {
    let fake = FakeApi::new();
    let kind = GroupVersionKind::gvk("groupsnapshot.storage.k8s.io", "v1", "VolumeGroupSnapshot");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::all_with(fake.client(), &resource);
    fake.put(json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1beta1",
        "kind": "VolumeGroupSnapshot",
        "metadata": { "name": "group", "namespace": NAMESPACE },
    }));

    let found = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(found.items[0].types.as_ref().unwrap().api_version, resource.api_version);

    fake.serve("groupsnapshot.storage.k8s.io", &["v1beta1"]);
    fake.serve("snapshot.storage.k8s.io", &[]);
    let groups = fake.client().list_api_groups().await.unwrap().groups;
    let names: Vec<_> = groups.iter().map(|group| group.name.as_str()).collect();
    let served =
        ["coordination.k8s.io", "groupsnapshot.storage.k8s.io", "hawser.storage", "storage.k8s.io"];
    assert_eq!(names, served);
    assert_eq!(groups[1].versions[0].version, "v1beta1");
    assert_eq!(code(api.list(&ListParams::default()).await).0, 404);
    let of = |version: &'static str| {
        let client = fake.client();
        async move { client.list_api_group_resources(version).await }
    };
    let resources = of("groupsnapshot.storage.k8s.io/v1beta1").await.unwrap().resources;
    assert!(resources.iter().any(|resource| resource.name == "volumegroupsnapshots/status"));
    assert_eq!(code(of("snapshot.storage.k8s.io/v1").await).0, 404);
}

#[tokio::test]
async fn what_the_real_server_would_not_take_is_refused() {
    let fake = FakeApi::new();
    let kind = GroupVersionKind::gvk("hawser.storage", "v1", "Record");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::default_namespaced_with(fake.client(), &resource);
    let applied = PatchParams::apply("test");
    let record = json!({ "apiVersion": "hawser.storage/v1", "kind": "Record", "spec": { "a": 1 } });

    let made = api.patch("one", &applied, &Patch::Apply(&record)).await.unwrap();
    assert_eq!((made.metadata.generation, &made.data["spec"]["a"]), (Some(1), &json!(1)));
    let more = api.patch("one", &applied, &merge(json!({ "spec": { "a": 2 } }))).await.unwrap();
    assert_eq!(more.metadata.generation, Some(2));
    let same = api.patch("one", &applied, &merge(json!({ "spec": { "a": 2 } }))).await.unwrap();
    assert_eq!(same.resource_version(), more.resource_version());

    let strategic = api.patch("one", &applied, &Patch::Strategic(json!({}))).await;
    assert_eq!(code(strategic), (415, "UnsupportedMediaType".into()));
    let nameless = api.patch("one", &PatchParams::default(), &Patch::Apply(&record)).await;
    assert_eq!(code(nameless), (422, "Invalid".into()));
    let mut unread = more.clone();
    unread.metadata.resource_version = None;
    let unread = api.replace("one", &PostParams::default(), &unread).await;
    assert_eq!(code(unread), (422, "Invalid".into()));
    assert_eq!(code(api.create(&PostParams::default(), &more).await).0, 500);
    assert_eq!(code(api.patch_status("one", &applied, &merge(record)).await).0, 404);
    let unknown = volumes(&fake).list(&ListParams::default().fields("spec.csi=x")).await;
    assert_eq!(code(unknown), (400, "BadRequest".into()));
}
