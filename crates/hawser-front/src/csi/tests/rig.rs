//! A driver on a Unix socket in a folder of its own, and clients of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hawser_api::csi::v1::controller_client::ControllerClient;
use hawser_api::csi::v1::group_controller_client::GroupControllerClient;
use hawser_api::csi::v1::identity_client::IdentityClient;
use hawser_api::csi::v1::node_client::NodeClient;
use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use hawser_api::csi::v1::*;
use hawser_core::Result;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint as Target};
use tonic::{Code, Response, Status};

use super::fake::{FakeControl, FakeNode, FakeUpstream, Storage, abilities};
use crate::csi::{CsiDriver, CsiParts, CsiSettings, Metrics, Services, serve};

pub(super) const GIB: i64 = 1 << 30;

pub(super) struct Rig {
    pub(super) control: Arc<FakeControl>,
    pub(super) node: Arc<FakeNode>,
    pub(super) upstream: Arc<FakeUpstream>,
    pub(super) metrics: Metrics,
    pub(super) channel: Channel,
    pub(super) socket: PathBuf,
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<()>>,
}

/// A channel to a socket, as soon as somebody listens there.
pub(super) async fn dial(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    for _ in 0..500 {
        let target = Target::from_static("http://localhost");
        if let Ok(channel) = target.connect_with_connector(connector.clone()).await {
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody listens");
}

impl Rig {
    pub(super) async fn start() -> Self {
        Self::with(CsiDriver::Published, |_, _| {}).await
    }

    /// A driver that is set up otherwise, or has fewer parts.
    pub(super) async fn with(
        driver: CsiDriver,
        change: impl FnOnce(&mut CsiSettings, &mut CsiParts),
    ) -> Self {
        crate::logged::keep();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let socket = root.join("csi.sock");
        let storage = Storage::default();
        let control = Arc::new(FakeControl::new(storage.clone()));
        let node = Arc::new(FakeNode::new(storage));
        let upstream = Arc::new(FakeUpstream::new(control.clone()));
        let metrics = Metrics::new("1.2.3");
        let endpoint = socket.to_str().unwrap().parse().unwrap();
        let mut settings = CsiSettings::new(driver, endpoint, "n1".parse().unwrap());
        settings.grace = Duration::from_secs(2);
        let mut parts = CsiParts {
            abilities: abilities(),
            control: Some(control.clone()),
            node: Some(node.clone()),
            upstream: upstream.clone(),
            metrics: metrics.clone(),
        };
        change(&mut settings, &mut parts);
        let (stop, stopped) = oneshot::channel::<()>();
        let server =
            tokio::spawn(serve(Services::new(parts, settings), async move { drop(stopped.await) }));
        let channel = dial(&socket).await;
        let stop = Some(stop);
        Self { control, node, upstream, metrics, channel, socket, folder, stop, server }
    }

    pub(super) fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone())
    }

    pub(super) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    pub(super) fn groups(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel.clone())
    }

    pub(super) fn nodes(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    /// A path in the rig's folder.
    pub(super) fn path(&self, name: &str) -> String {
        let root = self.folder.path().canonicalize().unwrap();
        root.join(name).to_str().unwrap().to_owned()
    }

    /// The staging folder, which the orchestrator has made.
    pub(super) fn staging(&self) -> String {
        let path = self.path("staging");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Stops the driver, with all its clients gone.
    pub(super) async fn stop(self) -> TempDir {
        drop(self.stop);
        drop(self.channel);
        self.server.await.unwrap().unwrap();
        self.folder
    }

    /// Tells the driver to stop.
    pub(super) fn end(&mut self) {
        drop(self.stop.take());
    }

    /// Makes a volume and answers its id.
    pub(super) async fn create(&self, request: CreateVolumeRequest) -> String {
        let answer = self.controller().create_volume(request).await.unwrap().into_inner();
        answer.volume.unwrap().volume_id
    }

    /// Makes a volume and publishes it to this node.
    pub(super) async fn published(&self, capability: VolumeCapability) -> Staging {
        let id = self.create(new("data", capability.clone())).await;
        let request = publish(&id, capability.clone());
        let answer = self.controller().controller_publish_volume(request).await.unwrap();
        Staging { id, capability, context: answer.into_inner().publish_context }
    }

    /// Makes, publishes and stages a volume.
    pub(super) async fn staged(&self, capability: VolumeCapability) -> Staging {
        let there = self.published(capability).await;
        self.nodes().node_stage_volume(there.stage(&self.staging())).await.unwrap();
        there
    }
}

/// A volume on its way to a pod.
#[derive(Clone)]
pub(super) struct Staging {
    pub(super) id: String,
    pub(super) capability: VolumeCapability,
    pub(super) context: BTreeMap<String, String>,
}

impl Staging {
    pub(super) fn stage(&self, staging: &str) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: self.context.clone(),
            staging_target_path: staging.to_owned(),
            volume_capability: Some(self.capability.clone()),
            ..NodeStageVolumeRequest::default()
        }
    }

    pub(super) fn unstage(&self, staging: &str) -> NodeUnstageVolumeRequest {
        NodeUnstageVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: staging.to_owned(),
        }
    }

    pub(super) fn publish(&self, staging: &str, target: &str) -> NodePublishVolumeRequest {
        NodePublishVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: self.context.clone(),
            staging_target_path: staging.to_owned(),
            target_path: target.to_owned(),
            volume_capability: Some(self.capability.clone()),
            ..NodePublishVolumeRequest::default()
        }
    }

    pub(super) fn unpublish(&self, target: &str) -> NodeUnpublishVolumeRequest {
        NodeUnpublishVolumeRequest { volume_id: self.id.clone(), target_path: target.to_owned() }
    }
}

pub(super) fn new(name: &str, capability: VolumeCapability) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability],
        ..CreateVolumeRequest::default()
    }
}

pub(super) fn publish(id: &str, capability: VolumeCapability) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: "n1".to_owned(),
        volume_capability: Some(capability),
        ..ControllerPublishVolumeRequest::default()
    }
}

pub(super) fn block(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode as i32 }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}

pub(super) fn mount_as(fs: &str, mode: Mode) -> VolumeCapability {
    let mount = MountVolume { fs_type: fs.to_owned(), ..MountVolume::default() };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode as i32 }),
        access_type: Some(AccessType::Mount(mount)),
    }
}

/// What Kubernetes asks for most: ReadWriteOnce, with a file system.
pub(super) fn mount() -> VolumeCapability {
    mount_as("", Mode::SingleNodeMultiWriter)
}

/// The code of a refusal, which carries a message and no details.
#[track_caller]
pub(super) fn code<T>(answer: Result<Response<T>, Status>) -> Code {
    let Err(status) = answer else { return Code::Ok };
    assert!(!status.message().is_empty(), "{status:?} says nothing");
    assert!(status.details().is_empty(), "{status:?} has details");
    status.code()
}

pub(super) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
