//! Runs a driver on its socket until it is told to stop.

use std::pin::pin;

use hawser_api::csi::v1::controller_server::ControllerServer;
use hawser_api::csi::v1::group_controller_server::GroupControllerServer;
use hawser_api::csi::v1::identity_server::IdentityServer;
use hawser_api::csi::v1::node_server::NodeServer;
use hawser_core::{Error, Result};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tracing::{info, warn};

use super::error::CsiError;
use super::identity::IdentityService;
use super::inside::Services;
use super::listen::Socket;
use super::node::NodeService;
use super::registration;

/// Far above any honest request: names, ids, and maps of 4 KiB each.
const LARGEST_MESSAGE: usize = 4 << 20;
/// Far above any honest head: a path, a deadline, a user agent.
const LARGEST_HEAD: u32 = 64 << 10;
/// Sidecars work on up to 200 volumes at a time.
const MOST_CALLS: u32 = 1024;

/// Serves until `stop` is done, then takes no more calls and lets those at work come to their end
/// within [`super::CsiSettings::grace`]. What is cut off then is recovered at the next start.
///
/// `Kind::Busy` when another process listens on the socket, `Kind::Unavailable` when it cannot be
/// made.
pub async fn serve(services: Services, stop: impl Future<Output = ()> + Send) -> Result<()> {
    let driver = services.driver.clone();
    if driver.parts.control.is_none() && driver.parts.node.is_none() {
        return Err(CsiError::NothingToServe.into());
    }
    let grace = driver.settings.grace;
    let socket = Socket::bind(driver.settings.endpoint.path())?;
    let (name, path) = (driver.settings.driver.name(), driver.settings.endpoint.path());
    info!(csi.driver = name, path = %path.display(), "serving");
    let token = CancellationToken::new();
    let served = async {
        router(&services)
            .serve_with_incoming_shutdown(socket.callers(), token.clone().cancelled_owned())
            .await
            .map_err(|source| Error::from(CsiError::Serve { path: path.to_owned(), source }))
    };
    let registered = registration::run(&driver, token.clone());
    let mut work = pin!(async { tokio::try_join!(served, registered).map(drop) });
    tokio::select! {
        ended = work.as_mut() => return ended,
        () = stop => token.cancel(),
    }
    let end = Instant::now() + grace;
    if tokio::time::timeout_at(end, work).await.is_err() {
        warn!("callers were still connected at the end of the grace period");
    }
    if !driver.tasks.finish(end.saturating_duration_since(Instant::now())).await {
        warn!("calls were still at work at the end of the grace period");
    }
    Ok(())
}

fn router(services: &Services) -> Router {
    let driver = &services.driver;
    let identity = IdentityServer::new(IdentityService(driver.clone()));
    let controller = services
        .controller()
        .map(|service| ControllerServer::new(service).max_decoding_message_size(LARGEST_MESSAGE));
    let groups = services.groups().map(|service| {
        GroupControllerServer::new(service).max_decoding_message_size(LARGEST_MESSAGE)
    });
    let node = driver.parts.node.clone().map(|node| {
        let service = NodeService { driver: driver.clone(), node };
        NodeServer::new(service).max_decoding_message_size(LARGEST_MESSAGE)
    });
    Server::builder()
        .max_concurrent_streams(MOST_CALLS)
        .http2_max_header_list_size(LARGEST_HEAD)
        .add_service(identity.max_decoding_message_size(LARGEST_MESSAGE))
        .add_optional_service(controller)
        .add_optional_service(groups)
        .add_optional_service(node)
}
