//! Tells a kubelet of a driver that does not tell it by itself, as `node-driver-registrar` does, which
//! not every module proxy gives.

use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::stream::unfold;
use hawser_api::csi::registration::registration_server::{Registration, RegistrationServer};
use hawser_api::csi::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::hawser::make;
use crate::cluster::{Cluster, node_name, say};

/// Serves the kubelet of the first node until it is dropped.
pub struct Registrar {
    /// Ends what it serves when it is dropped.
    _runtime: Runtime,
    socket: PathBuf,
}

impl Registrar {
    /// Registers a driver whose socket, as programs in the cluster see it, is this.
    #[track_caller]
    pub fn start(cluster: &Cluster, driver: &str, endpoint: &Path) -> Self {
        let registry = format!("{}/kubelet/plugins_registry", node_name(1));
        make(cluster, &registry);
        let socket = cluster.folder().join(registry).join(format!("{driver}@reg.sock"));
        let _ = fs::remove_file(&socket);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let inside = runtime.enter();
        let listener = UnixListener::bind(&socket)
            .unwrap_or_else(|error| panic!("listening on {}: {error}", socket.display()));
        drop(inside);
        let info = Info { driver: driver.to_owned(), endpoint: endpoint.display().to_string() };
        runtime.spawn(serve(listener, info));
        Self { _runtime: runtime, socket }
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        // The kubelet forgets a driver whose socket is gone.
        let _ = fs::remove_file(&self.socket);
    }
}

async fn serve(listener: UnixListener, info: Info) {
    let callers = unfold(listener, |listener| async move {
        let caller = listener.accept().await.map(|(stream, _)| stream);
        Some((caller, listener))
    });
    let served = Server::builder().add_service(RegistrationServer::new(info));
    if let Err(error) = served.serve_with_incoming(callers).await {
        say(&format!("the registrar ended: {error}"));
    }
}

struct Info {
    driver: String,
    endpoint: String,
}

#[async_trait]
impl Registration for Info {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: self.driver.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let answer = request.into_inner();
        if !answer.plugin_registered {
            say(&format!("the kubelet refused {}: {}", self.driver, answer.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
