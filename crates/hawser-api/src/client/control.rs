//! Every method of the `Control` port as a call.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use hawser_core::attach::{Attached, Health};
use hawser_core::class::{Capacity, Class};
use hawser_core::doctor::Finding;
use hawser_core::event::Event;
use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::id::OperationId;
use hawser_core::name::{ClassName, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::operation::{Operation, OperationState};
use hawser_core::page::{Page, PageRequest};
use hawser_core::place::Place;
use hawser_core::port::Control;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter, Wait};
use hawser_core::publication::{MountRequest, Publication, PublishRequest};
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest};
use hawser_core::volume::{Volume, VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Result};
use http::{Method, StatusCode};

use super::call::Call;
use super::{RestClient, sse};
use crate::rest::classes::{CapacityView, ClassView};
use crate::rest::doctor::{FindingView, ReadyView};
use crate::rest::groups::{CreateGroup, GroupView};
use crate::rest::list::ListView;
use crate::rest::nodes::NodeView;
use crate::rest::operations::OperationView;
use crate::rest::publications::{AttachedView, MountVolume, PublicationView, PublishVolume};
use crate::rest::snapshots::{CreateSnapshot, SnapshotView};
use crate::rest::volumes::{CreateVolume, ExpandVolume, HealthView, PatchVolume, VolumeView};

/// The doctor looks at every record, device and file.
const DOCTOR_LIMIT: Duration = Duration::from_secs(600);

#[async_trait]
impl Control for RestClient {
    async fn create_volume(&self, request: VolumeRequest, wait: Wait) -> Result<Reply<Volume>> {
        let call = Call::change(Method::POST, &["v1", "volumes"], wait);
        self.make::<VolumeView, _>(call.json(&CreateVolume::from(request))).await
    }

    async fn delete_volume(&self, volume: &VolumeRef, wait: Wait) -> Result<Reply<()>> {
        let path = ["v1", "volumes", &volume.to_string()];
        self.remove(Call::change(Method::DELETE, &path, wait)).await
    }

    async fn expand_volume(
        &self,
        volume: &VolumeRef,
        size: ByteSize,
        wait: Wait,
    ) -> Result<Reply<Volume>> {
        let path = ["v1", "volumes", &volume.to_string(), "expand"];
        let call = Call::change(Method::POST, &path, wait).json(&ExpandVolume { size });
        self.make::<VolumeView, _>(call).await
    }

    async fn label_volume(
        &self,
        volume: &VolumeRef,
        patch: BTreeMap<String, Option<String>>,
        wait: Wait,
    ) -> Result<Reply<Volume>> {
        let path = ["v1", "volumes", &volume.to_string()];
        let call = Call::change(Method::PATCH, &path, wait).json(&PatchVolume { labels: patch });
        self.make::<VolumeView, _>(call).await
    }

    async fn get_volume(&self, volume: &VolumeRef) -> Result<Volume> {
        let call = Call::get(&["v1", "volumes", &volume.to_string()]);
        Ok(self.read::<VolumeView>(call).await?.into())
    }

    async fn list_volumes(
        &self,
        filter: &VolumeFilter,
        page: &PageRequest,
    ) -> Result<Page<Volume>> {
        let call = paged(Call::get(&["v1", "volumes"]), page)
            .maybe("class", filter.class.as_ref().map(ClassName::as_str));
        let call = filter
            .labels
            .iter()
            .fold(call, |call, (key, value)| call.query("label", &format!("{key}={value}")));
        Ok(self.read::<ListView<VolumeView>>(call).await?.into_page())
    }

    async fn volume_health(&self, volume: &VolumeRef) -> Result<Health> {
        let call = Call::get(&["v1", "volumes", &volume.to_string(), "health"]);
        Ok(self.read::<HealthView>(call).await?.into())
    }

    async fn create_snapshot(
        &self,
        request: SnapshotRequest,
        wait: Wait,
    ) -> Result<Reply<Snapshot>> {
        let call = Call::change(Method::POST, &["v1", "snapshots"], wait);
        self.make::<SnapshotView, _>(call.json(&CreateSnapshot::from(request))).await
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef, wait: Wait) -> Result<Reply<()>> {
        let path = ["v1", "snapshots", &snapshot.to_string()];
        self.remove(Call::change(Method::DELETE, &path, wait)).await
    }

    async fn get_snapshot(&self, snapshot: &SnapshotRef) -> Result<Snapshot> {
        let call = Call::get(&["v1", "snapshots", &snapshot.to_string()]);
        Ok(self.read::<SnapshotView>(call).await?.into())
    }

    async fn list_snapshots(
        &self,
        volume: Option<&VolumeRef>,
        page: &PageRequest,
    ) -> Result<Page<Snapshot>> {
        let volume = volume.map(ToString::to_string);
        let call = paged(Call::get(&["v1", "snapshots"]), page).maybe("volume", volume.as_deref());
        Ok(self.read::<ListView<SnapshotView>>(call).await?.into_page())
    }

    async fn create_group(&self, request: GroupRequest, wait: Wait) -> Result<Reply<Group>> {
        let call = Call::change(Method::POST, &["v1", "groups"], wait);
        self.make::<GroupView, _>(call.json(&CreateGroup::from(request))).await
    }

    async fn delete_group(&self, group: &GroupRef, wait: Wait) -> Result<Reply<()>> {
        let path = ["v1", "groups", &group.to_string()];
        self.remove(Call::change(Method::DELETE, &path, wait)).await
    }

    async fn get_group(&self, group: &GroupRef) -> Result<Group> {
        let call = Call::get(&["v1", "groups", &group.to_string()]);
        Ok(self.read::<GroupView>(call).await?.into())
    }

    async fn publish(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        wait: Wait,
    ) -> Result<Reply<Publication>> {
        let body = PublishVolume { read_only: request.read_only };
        let call = on_node(Method::PUT, volume, "publications", &request.node, wait).json(&body);
        self.make::<PublicationView, _>(call).await
    }

    async fn unpublish(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>> {
        self.remove(on_node(Method::DELETE, volume, "publications", node, wait)).await
    }

    async fn attach(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        wait: Wait,
    ) -> Result<Reply<Attached>> {
        let body = PublishVolume { read_only: request.read_only };
        let call = on_node(Method::PUT, volume, "attachments", &request.node, wait).json(&body);
        self.make::<AttachedView, _>(call).await
    }

    async fn detach(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>> {
        self.remove(on_node(Method::DELETE, volume, "attachments", node, wait)).await
    }

    async fn mount(
        &self,
        volume: &VolumeRef,
        request: MountRequest,
        wait: Wait,
    ) -> Result<Reply<Publication>> {
        let path = ["v1", "volumes", &volume.to_string(), "mounts"];
        let call = Call::change(Method::POST, &path, wait).json(&MountVolume::from(request));
        self.make::<PublicationView, _>(call).await
    }

    async fn unmount(
        &self,
        volume: &VolumeRef,
        node: &NodeId,
        target: Option<PathBuf>,
        wait: Wait,
    ) -> Result<Reply<()>> {
        let path = ["v1", "volumes", &volume.to_string(), "mounts"];
        let target = target.map(|target| target.to_string_lossy().into_owned());
        let call = Call::change(Method::DELETE, &path, wait)
            .query("node", node.as_str())
            .maybe("target", target.as_deref());
        self.remove(call).await
    }

    async fn get_operation(&self, id: &OperationId, wait: Wait) -> Result<Operation> {
        let call = Call::get(&["v1", "operations", id.as_str()]).waiting(wait);
        Ok(self.read::<OperationView>(call).await?.into())
    }

    async fn list_operations(
        &self,
        filter: &OperationFilter,
        page: &PageRequest,
    ) -> Result<Page<Operation>> {
        let call = paged(Call::get(&["v1", "operations"]), page)
            .maybe("state", filter.state.map(state_word))
            .maybe("subject", filter.subject.as_deref());
        Ok(self.read::<ListView<OperationView>>(call).await?.into_page())
    }

    async fn cancel_operation(&self, id: &OperationId) -> Result<Operation> {
        let path = ["v1", "operations", id.as_str(), "cancel"];
        let call = Call::change(Method::POST, &path, Duration::ZERO);
        Ok(self.read::<OperationView>(call).await?.into())
    }

    async fn list_classes(&self) -> Result<Vec<Class>> {
        let call = Call::get(&["v1", "classes"]);
        Ok(self.read::<ListView<ClassView>>(call).await?.into_items())
    }

    async fn capacity(&self, class: &ClassName, place: Option<&Place>) -> Result<Capacity> {
        let call = Call::get(&["v1", "classes", class.as_str(), "capacity"]);
        let pairs = place.into_iter().flat_map(Place::pairs);
        let call =
            pairs.fold(call, |call, (key, value)| call.query("place", &format!("{key}={value}")));
        Ok(self.read::<CapacityView>(call).await?.into())
    }

    async fn list_nodes(&self) -> Result<Vec<NodeRecord>> {
        let call = Call::get(&["v1", "nodes"]);
        Ok(self.read::<ListView<NodeView>>(call).await?.into_items())
    }

    async fn events(&self, after: Option<u64>) -> Result<BoxStream<'static, Event>> {
        let call = Call::get(&["v1", "events"]).after(after);
        let (connection, response) = self.open_stream(&call).await?;
        if response.status() != StatusCode::OK {
            let answer = self.collect(&call, response).await?;
            return Err(self.refusal(&call, &answer));
        }
        Ok(sse::events(connection, response.into_body()))
    }

    async fn doctor(&self, fix: bool) -> Result<Vec<Finding>> {
        let call = if fix {
            Call::change(Method::POST, &["v1", "doctor"], Duration::ZERO).query("fix", "true")
        } else {
            Call::get(&["v1", "doctor"])
        };
        Ok(self.read::<ListView<FindingView>>(call.within(DOCTOR_LIMIT)).await?.into_items())
    }

    async fn ready(&self) -> Result<bool> {
        let call = Call::get(&["readyz"]);
        let answer = self.send(&call).await?;
        match serde_json::from_slice::<ReadyView>(&answer.body) {
            Ok(view) => Ok(view.ready),
            Err(_) => Err(self.refusal(&call, &answer)),
        }
    }
}

fn paged(call: Call, page: &PageRequest) -> Call {
    let limit = page.limit().to_string();
    call.query("limit", &limit).maybe("page_token", page.token.as_deref())
}

fn on_node(method: Method, volume: &VolumeRef, what: &str, node: &NodeId, wait: Wait) -> Call {
    Call::change(method, &["v1", "volumes", &volume.to_string(), what, node.as_str()], wait)
}

fn state_word(state: OperationState) -> &'static str {
    match state {
        OperationState::Running => "running",
        OperationState::Waiting => "waiting",
        OperationState::Succeeded => "succeeded",
        OperationState::Failed => "failed",
    }
}
