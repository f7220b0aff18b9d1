use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hawser_core::filesystem::FormatState;
use hawser_core::id::VolumeId;
use hawser_core::name::NodeId;
use hawser_core::port::Upstream;
use hawser_core::port::upstream::{Claim, Fact, Grant, Report};
use hawser_core::publication::PublishRequest;
use hawser_core::volume::VolumeRef;
use hawser_core::{Error, Kind, Result};

use super::FakeControl;
use super::control::add;

/// What the storage system sends along; it takes this to reach a volume where it needs secrets.
pub(in crate::csi::tests) const PASSWORD: &str = "planted-by-the-storage";

/// The control half as a node sees it: the link can go down.
pub(in crate::csi::tests) struct FakeUpstream {
    control: Arc<FakeControl>,
    pub(in crate::csi::tests) down: Mutex<bool>,
    /// What was asked and told, in order.
    pub(in crate::csi::tests) heard: Mutex<Vec<String>>,
    /// The next report of an attachment finds another device in the record.
    pub(in crate::csi::tests) other_device: Mutex<bool>,
}

impl FakeUpstream {
    pub(in crate::csi::tests) fn new(control: Arc<FakeControl>) -> Self {
        let (down, other_device) = (Mutex::new(false), Mutex::new(false));
        Self { control, down, heard: Mutex::new(Vec::new()), other_device }
    }

    pub(in crate::csi::tests) fn take_heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }

    fn hear(&self, what: &str) -> Result<()> {
        if *self.down.lock().unwrap() {
            return Err(Error::new(Kind::Unavailable, "there is no link to the control half"));
        }
        self.heard.lock().unwrap().push(what.to_owned());
        Ok(())
    }
}

#[async_trait]
impl Upstream for FakeUpstream {
    async fn grant(&self, claim: &Claim) -> Result<Grant> {
        self.hear("grant")?;
        let mut state = self.control.state();
        let volume = state.volume(&VolumeRef::Id(claim.volume.clone()))?;
        let known = volume.publications.iter().any(|p| p.node == claim.node);
        if !known && !claim.publish {
            return Err(Error::new(Kind::Precondition, "it is not published to this node"));
        }
        let read_only = volume
            .publications
            .iter()
            .find(|p| p.node == claim.node)
            .map_or(claim.read_only, |p| p.read_only);
        let request =
            PublishRequest { node_led: true, ..PublishRequest::new(claim.node.clone(), read_only) };
        let publication = add(volume, &request, *self.control.needs_secrets.lock().unwrap())?;
        let publication = publication.into_inner();
        let mut info = publication.info.unwrap();
        if !publication.needs_secrets {
            info.secrets.clear();
        }
        Ok(Grant {
            volume: volume.id.clone(),
            publication: publication.id,
            read_only: publication.read_only,
            info,
            access: volume.access,
            filesystem: volume.filesystem.clone(),
            size: volume.size,
        })
    }

    async fn report(&self, report: &Report) -> Result<()> {
        let what = match &report.fact {
            Fact::Attached(_) => "attached",
            Fact::FormatBegins => "format begins",
            Fact::Formatted => "formatted",
            Fact::Detached => "detached",
        };
        self.hear(what)?;
        if *self.other_device.lock().unwrap() && matches!(report.fact, Fact::Attached(_)) {
            return Err(Error::new(Kind::Precondition, "the record has another device"));
        }
        let mut state = self.control.state();
        let volume = state.volume(&VolumeRef::Id(report.volume.clone()))?;
        let ours = volume.publications.iter().any(|p| p.id == report.publication);
        if !ours && report.fact != Fact::Detached {
            return Err(Error::new(Kind::Precondition, "there is no such right to this volume"));
        }
        let Some(inside) = &mut volume.filesystem else { return Ok(()) };
        match (&report.fact, inside.state) {
            (Fact::FormatBegins, FormatState::Done) => {
                return Err(Error::new(Kind::Precondition, "it was formatted before"));
            }
            (Fact::FormatBegins, _) => inside.state = FormatState::Started,
            (Fact::Formatted, _) => inside.state = FormatState::Done,
            (Fact::Attached(_) | Fact::Detached, _) => {}
        }
        Ok(())
    }

    async fn release(&self, volume: &VolumeId, node: &NodeId) -> Result<()> {
        self.hear("release")?;
        let mut state = self.control.state();
        if let Ok(volume) = state.volume(&VolumeRef::Id(volume.clone())) {
            volume.publications.retain(|publication| publication.node != *node);
        }
        Ok(())
    }
}
