//! What a node needs to use a volume: from the publish context where that says it all, else from the
//! control half.

use std::collections::BTreeMap;

use hawser_core::filesystem::FormatState;
use hawser_core::id::VolumeId;
use hawser_core::port::upstream::{Claim, Grant};
use hawser_core::secret::{Secret, Secrets};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Result};

use super::{Known, NodeService};
use crate::csi::context::Context;
use crate::csi::error::CsiError;
use crate::csi::wire::{Capability, Use};

/// Secrets of a request, from its first moment on.
pub(super) fn secrets(given: BTreeMap<String, String>) -> Secrets {
    given.into_iter().map(|(key, value)| (key, Secret::new(value))).collect()
}

impl NodeService {
    /// Everything that is needed to stage a volume. A context is enough when it says how to reach the
    /// volume, which it does where no secret is needed, and when nothing is left to be made inside:
    /// what is made there must be recorded first, so the control half must be there anyhow.
    pub(super) async fn grant(
        &self,
        volume: &VolumeId,
        context: Option<Context>,
        read_only: bool,
    ) -> Result<Grant> {
        match context.map(|context| complete(volume, context)) {
            Some(Some(grant)) => Ok(grant),
            Some(None) | None => {
                let publish = self.is_local();
                self.driver.parts.upstream.grant(&self.claim(volume, read_only, publish)).await
            }
        }
    }

    /// Gives back the right that staging claimed; only a local driver claims one.
    pub(super) async fn release(&self, volume: &VolumeId) -> Result<()> {
        if !self.is_local() {
            return Ok(());
        }
        let node = &self.driver.settings.node_id;
        self.driver.parts.upstream.release(volume, node).await
    }

    fn claim(&self, volume: &VolumeId, read_only: bool, publish: bool) -> Claim {
        let node = self.driver.settings.node_id.clone();
        Claim { volume: volume.clone(), node, read_only, publish }
    }

    /// What a volume that is attached is used as: from the context, from the time when it was staged,
    /// else from the control half.
    pub(super) async fn known(
        &self,
        volume: &VolumeId,
        context: Option<&Context>,
    ) -> Result<Known> {
        if let Some(context) = context {
            let filesystem = context.filesystem.as_ref().map(|inside| (inside.kind, inside.uuid));
            return Ok(Known { access: context.access, filesystem });
        }
        if let Some(known) = self.driver.staged.get(volume) {
            return Ok(known);
        }
        let claim = self.claim(volume, false, false);
        let grant = self.driver.parts.upstream.grant(&claim).await?;
        let known = Known::from(&grant);
        self.driver.staged.keep(volume, known);
        Ok(known)
    }
}

/// The grant that a context stands for, where it says it all.
fn complete(volume: &VolumeId, context: Context) -> Option<Grant> {
    let made = match (&context.filesystem, context.access) {
        (Some(inside), _) => inside.state == FormatState::Done,
        (None, Access::Block | Access::Folder) => true,
        (None, Access::Filesystem(_)) => false,
    };
    let info = context.info.filter(|_| made)?;
    Some(Grant {
        volume: volume.clone(),
        publication: context.publication,
        read_only: context.read_only,
        info,
        access: context.access,
        filesystem: context.filesystem,
        size: ByteSize::ZERO,
    })
}

/// Refuses a use that goes beyond what the volume is.
pub(super) fn check_use(
    volume: &VolumeId,
    access: Access,
    wanted: &Capability,
) -> Result<(), CsiError> {
    let refuse = |why: String| Err(CsiError::Exceeds { volume: volume.clone(), why });
    match (&wanted.usage, access) {
        (Use::Block, Access::Block) | (Use::Mount { fs: None, .. }, Access::Folder) => Ok(()),
        (Use::Mount { fs, .. }, Access::Filesystem(there)) => match fs {
            Some(fs) if *fs != there => refuse(format!("it holds {there}, not {fs}")),
            Some(_) | None => Ok(()),
        },
        (Use::Mount { fs: Some(fs), .. }, Access::Folder) => {
            refuse(format!("it is a folder that the storage serves, and not {fs}"))
        }
        (Use::Block, Access::Filesystem(_) | Access::Folder) => {
            refuse(format!("it is used as {access}, not as a device"))
        }
        (Use::Mount { .. }, Access::Block) => {
            refuse("it is a raw device and is not mounted".to_owned())
        }
    }
}
