//! How the kubelet of this host gets to know the driver: it watches a folder for sockets and asks
//! whoever it finds there. Done by the driver itself, so that no second container is needed, and the
//! answer is in its log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hawser_api::csi::registration::registration_server::{
    Registration as Registrar, RegistrationServer,
};
use hawser_api::csi::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use hawser_core::Result;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tracing::{error, info};

use super::driver::Driver;
use super::error::{CsiError, cut};
use super::listen::{Socket, make_room};
use super::settings::Registration;

/// The version of the protocol between a kubelet and its drivers; not that of CSI.
const VERSION: &str = "1.0.0";
const KIND: &str = "CSIPlugin";

/// What the kubelet answered when the driver registered itself; shared by its copies.
#[derive(Clone, Debug, Default)]
pub struct KubeletAnswer(Arc<Mutex<Option<Result<(), String>>>>);

impl KubeletAnswer {
    /// The last answer; `None` before the first, `Err` with the kubelet's words when it refused.
    pub fn last(&self) -> Option<Result<(), String>> {
        self.get().clone()
    }

    fn get(&self) -> MutexGuard<'_, Option<Result<(), String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the kubelet until it is told to stop; at once done without a registration.
pub(super) async fn run(driver: &Arc<Driver>, stop: CancellationToken) -> Result<()> {
    let Some(registration) = &driver.settings.registration else { return Ok(()) };
    let path = registration.folder.join(socket_name(driver.settings.driver.name()));
    make_room(&registration.folder.join(name_of_others(driver.settings.driver.name())))?;
    let socket = Socket::bind(&path)?;
    let service = RegistrarService { driver: driver.clone(), registration: registration.clone() };
    Server::builder()
        .add_service(RegistrationServer::new(service))
        .serve_with_incoming_shutdown(socket.callers(), stop.cancelled_owned())
        .await
        .map_err(|source| CsiError::Serve { path, source }.into())
}

/// What the socket is called. The kubelet calls by the path of the socket and says that path, with its
/// slashes as %2F, as the name of the host. Of such a name HTTP allows only what stands before an @.
fn socket_name(driver: &str) -> String {
    format!("{driver}@reg.sock")
}

/// The name by which node-driver-registrar listens for a driver. One that was killed leaves it, and the
/// kubelet keeps to it: two sockets of one driver are one too many for it.
fn name_of_others(driver: &str) -> String {
    format!("{driver}-reg.sock")
}

struct RegistrarService {
    driver: Arc<Driver>,
    registration: Registration,
}

#[async_trait]
impl Registrar for RegistrarService {
    async fn get_info(
        &self,
        request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        let answer = PluginInfo {
            r#type: KIND.to_owned(),
            name: self.driver.settings.driver.name().to_owned(),
            endpoint: self.registration.endpoint.to_string_lossy().into_owned(),
            supported_versions: vec![VERSION.to_owned()],
        };
        self.driver.read("GetInfo", request, |_, _| async { Ok(answer) }).await
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let work = |told: RegistrationStatus, _| async move {
            self.remember(&told);
            Ok(RegistrationStatusResponse {})
        };
        self.driver.read("NotifyRegistrationStatus", request, work).await
    }
}

impl RegistrarService {
    fn remember(&self, told: &RegistrationStatus) {
        let answer = if told.plugin_registered {
            info!("the kubelet has registered the driver");
            Ok(())
        } else {
            error!(reason = cut(&told.error), "the kubelet does not take the driver");
            Err(told.error.clone())
        };
        *self.registration.answer.get() = Some(answer);
    }
}

#[cfg(test)]
mod tests {
    use http::uri::Authority;

    use super::*;

    #[test]
    fn what_the_kubelet_calls_the_host_is_a_name_of_a_host() {
        let folder = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2F";
        let called = |name: &str| format!("{folder}{name}").parse::<Authority>();

        assert!(called(&socket_name("csi.hawser.storage")).is_ok());
        assert!(called("csi.hawser.storage-reg.sock").is_err());
    }
}
