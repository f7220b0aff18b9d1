//! The Controller service: parse, one call of the control port, answer.

mod capacity;
mod create;
mod delete;
mod expand;
mod health;
mod list;
mod modify;
mod publish;
mod snapshot;
mod validate;

use std::sync::Arc;

use async_trait::async_trait;
use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::*;
use hawser_core::Result;
use hawser_core::class::{Ability, Class};
use hawser_core::id::VolumeId;
use hawser_core::port::Control;
use hawser_core::volume::{Volume as Known, VolumeRef};
use tonic::{Request, Response, Status};

use super::driver::Driver;
use super::error::{CsiError, cut};
use super::settings::CsiDriver;

/// The controller of one driver.
#[derive(Clone)]
pub(crate) struct ControllerService {
    pub(super) driver: Arc<Driver>,
    pub(super) control: Arc<dyn Control>,
}

impl ControllerService {
    /// A volume that must exist, by the text of its id.
    async fn known(&self, id: &str) -> Result<Known> {
        let id = super::wire::volume_id(id)?;
        self.control.get_volume(&VolumeRef::Id(id)).await
    }

    fn is_local(&self) -> bool {
        self.driver.settings.driver == CsiDriver::Local
    }

    /// The class of this name, or the default one; `None` when it is not there.
    async fn class(&self, name: Option<&str>) -> Result<Result<Class, CsiError>> {
        let classes = self.control.list_classes().await?;
        let known = || {
            let names: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
            names.join(", ")
        };
        let found = classes.iter().find(|class| match name {
            Some(name) => class.name.as_str() == name,
            None => class.default,
        });
        Ok(found.cloned().ok_or_else(|| match name {
            Some(name) => CsiError::UnknownClass { class: cut(name), known: known() },
            None => CsiError::NoDefaultClass { known: known() },
        }))
    }

    /// Refuses a class that the other driver is for.
    fn check_driver(&self, class: &Class) -> Result<(), CsiError> {
        if self.is_local() && !class.abilities.contains(&Ability::Placement) {
            let (class, driver) = (class.name.clone(), CsiDriver::Published.name());
            return Err(CsiError::OtherDriver { class, driver });
        }
        Ok(())
    }
}

/// A reference by id.
fn by_id(id: &VolumeId) -> VolumeRef {
    VolumeRef::Id(id.clone())
}

/// A call that this driver does not have.
fn unimplemented<T>(call: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("this driver has no {call}")))
}

#[async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, deadline| create::create(this, request, deadline);
        self.driver.change("CreateVolume", request, work).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, deadline| delete::delete(this, request, deadline);
        self.driver.change("DeleteVolume", request, work).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        if self.is_local() {
            return unimplemented("ControllerPublishVolume");
        }
        let this = self.clone();
        let work = move |request, deadline| publish::publish(this, request, deadline);
        self.driver.change("ControllerPublishVolume", request, work).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        if self.is_local() {
            return unimplemented("ControllerUnpublishVolume");
        }
        let this = self.clone();
        let work = move |request, deadline| publish::unpublish(this, request, deadline);
        self.driver.change("ControllerUnpublishVolume", request, work).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let work = |request, _| validate::validate(self, request);
        self.driver.read("ValidateVolumeCapabilities", request, work).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        self.driver.read("ListVolumes", request, |request, _| list::list(self, request)).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        self.driver
            .read("ControllerGetVolume", request, |request, _| list::get(self, request))
            .await
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<ControllerListVolumeHealthRequest>,
    ) -> Result<Response<ControllerListVolumeHealthResponse>, Status> {
        if !self.driver.settings.health {
            return unimplemented("ControllerListVolumeHealth");
        }
        let work = |request, _| health::list(self, request);
        self.driver.read("ControllerListVolumeHealth", request, work).await
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<ControllerGetVolumeHealthResponse>, Status> {
        if !self.driver.settings.health {
            return unimplemented("ControllerGetVolumeHealth");
        }
        let work = |request, _| health::get(self, request);
        self.driver.read("ControllerGetVolumeHealth", request, work).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        self.driver.read("GetCapacity", request, |request, _| capacity::get(self, request)).await
    }

    async fn controller_get_capabilities(
        &self,
        request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = self.driver.controller_capabilities();
        let answer = ControllerGetCapabilitiesResponse { capabilities };
        let work = |_, _| async { Ok(answer) };
        self.driver.read("ControllerGetCapabilities", request, work).await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let this = self.clone();
        let work = move |request, deadline| snapshot::create(this, request, deadline);
        self.driver.change("CreateSnapshot", request, work).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let this = self.clone();
        let work = move |request, deadline| snapshot::delete(this, request, deadline);
        self.driver.change("DeleteSnapshot", request, work).await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        self.driver.read("ListSnapshots", request, |request, _| snapshot::list(self, request)).await
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        self.driver.read("GetSnapshot", request, |request, _| snapshot::get(self, request)).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, deadline| expand::expand(this, request, deadline);
        self.driver.change("ControllerExpandVolume", request, work).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, deadline| modify::modify(this, request, deadline);
        self.driver.change("ControllerModifyVolume", request, work).await
    }
}
