//! A driver for callers in the same process: the same services that its socket has.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::class::Ability;
use hawser_core::port::Control;
use tonic::Request;

use super::controller::ControllerService;
use super::driver::Driver;
use super::group::GroupService;
use super::settings::{CsiDriver, CsiParts, CsiSettings};

/// One driver of this process.
#[derive(Clone)]
pub struct Services {
    pub(super) driver: Arc<Driver>,
}

impl Services {
    /// A driver that does nothing yet.
    pub fn new(parts: CsiParts, settings: CsiSettings) -> Self {
        Self { driver: Driver::new(parts, settings) }
    }

    /// The name of the driver.
    pub fn name(&self) -> &'static str {
        self.driver.settings.driver.name()
    }

    /// True for the driver whose volumes nobody publishes to nodes.
    pub fn is_local(&self) -> bool {
        self.driver.settings.driver == CsiDriver::Local
    }

    /// The control half behind the driver.
    pub fn control(&self) -> Option<Arc<dyn Control>> {
        self.driver.parts.control.clone()
    }

    /// The Controller service; `None` in a process that serves one node alone.
    pub(crate) fn controller(&self) -> Option<ControllerService> {
        let control = self.driver.parts.control.clone()?;
        Some(ControllerService { driver: self.driver.clone(), control })
    }

    /// The GroupController service, where a class has groups.
    pub(crate) fn groups(&self) -> Option<GroupService> {
        let control = self.driver.parts.control.clone()?;
        let service = GroupService { driver: self.driver.clone(), control };
        self.driver.can(Ability::Groups).then_some(service)
    }
}

/// A request that is answered within this time, at the latest as still at work.
pub fn within<T>(limit: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}
