//! The Identity service: who the driver is. Answered from memory, because sidecars end when it is
//! slow, and a restart cures no storage system.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hawser_api::csi::v1::identity_server::Identity;
use hawser_api::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, ProbeRequest, ProbeResponse,
};
use hawser_core::Result;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::driver::Driver;
use super::error::CsiError;

/// Probes are given a second by default.
const PROBE: Duration = Duration::from_millis(500);

pub(super) struct IdentityService(pub(super) Arc<Driver>);

#[async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let settings = &self.0.settings;
        let answer = GetPluginInfoResponse {
            name: settings.driver.name().to_owned(),
            vendor_version: settings.version.clone(),
            manifest: BTreeMap::new(),
        };
        self.0.read("GetPluginInfo", request, |_, _| async { Ok(answer) }).await
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let capabilities = self.0.plugin_capabilities();
        let answer = GetPluginCapabilitiesResponse { capabilities };
        self.0.read("GetPluginCapabilities", request, |_, _| async { Ok(answer) }).await
    }

    async fn probe(
        &self,
        request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        self.0.read("Probe", request, |_, _| probe(&self.0)).await
    }
}

/// Says whether the driver takes calls. Storage that cannot be reached is no fault of the driver.
async fn probe(driver: &Driver) -> Result<ProbeResponse> {
    if let Some(node) = &driver.parts.node
        && let Ok(Ok(record)) = timeout(PROBE / 2, node.describe()).await
        && !record.privileged
    {
        return Err(CsiError::NotPrivileged.into());
    }
    let ready = match &driver.parts.control {
        None => true,
        Some(control) => matches!(timeout(PROBE / 2, control.ready()).await, Ok(Ok(true))),
    };
    Ok(ProbeResponse { ready: Some(ready) })
}
