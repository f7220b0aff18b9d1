//! Access modes of Kubernetes as capabilities of CSI. Our drivers tell one writer on a node from
//! several, so every mode has one of its own.

use hawser_api::csi::v1::VolumeCapability;
use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::error::ClusterError;
use super::objects::Volume;

/// How a volume is used, access modes aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) block: bool,
    pub(super) fs_type: String,
    pub(super) mount_flags: Vec<String>,
}

impl Use {
    /// One capability for each access mode: what a volume is made for.
    pub(super) fn each(&self, modes: &[String]) -> Result<Vec<VolumeCapability>, ClusterError> {
        if modes.is_empty() {
            return Err(ClusterError::Wrong("no access mode is asked for".into()));
        }
        modes.iter().map(|mode| Ok(self.with(single(mode)?))).collect()
    }

    /// The one capability that stands for all access modes: what a volume is attached with.
    pub(super) fn together(&self, modes: &[String]) -> Result<VolumeCapability, ClusterError> {
        let has = |mode: &str| modes.iter().any(|there| there == mode);
        let mode = if has("ReadWriteMany") {
            Mode::MultiNodeMultiWriter
        } else if has("ReadOnlyMany") && has("ReadWriteOnce") {
            let why = "the access modes ReadOnlyMany and ReadWriteOnce cannot be had together";
            return Err(ClusterError::Wrong(why.into()));
        } else {
            let only = modes.first().map(String::as_str).unwrap_or_default();
            if has("ReadWriteOncePod") && modes.len() > 1 {
                let why = "the access mode ReadWriteOncePod cannot be had with others";
                return Err(ClusterError::Wrong(why.into()));
            }
            single(only)?
        };
        Ok(self.with(mode))
    }

    fn with(&self, mode: Mode) -> VolumeCapability {
        let access_type = if self.block {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume {
                fs_type: self.fs_type.clone(),
                mount_flags: self.mount_flags.clone(),
                volume_mount_group: String::new(),
            })
        };
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type: Some(access_type),
        }
    }
}

/// The capability that a volume of the cluster is attached and grown with.
pub(super) fn of_volume(volume: &Volume) -> Result<VolumeCapability, ClusterError> {
    let csi = volume.csi();
    let used = Use {
        block: volume.spec.volume_mode.as_deref() == Some("Block"),
        fs_type: csi.and_then(|csi| csi.fs_type.clone()).unwrap_or_default(),
        mount_flags: volume.spec.mount_options.clone(),
    };
    used.together(&volume.spec.access_modes)
}

fn single(mode: &str) -> Result<Mode, ClusterError> {
    match mode {
        "ReadWriteOnce" => Ok(Mode::SingleNodeMultiWriter),
        "ReadWriteOncePod" => Ok(Mode::SingleNodeSingleWriter),
        "ReadOnlyMany" => Ok(Mode::MultiNodeReaderOnly),
        "ReadWriteMany" => Ok(Mode::MultiNodeMultiWriter),
        other => Err(ClusterError::Wrong(format!("there is no access mode {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(modes: &[&str]) -> Vec<String> {
        modes.iter().map(|mode| (*mode).to_owned()).collect()
    }

    fn mode(capability: &VolumeCapability) -> Mode {
        capability.access_mode.as_ref().unwrap().mode()
    }

    #[test]
    fn each_access_mode_becomes_one_capability() {
        let used = Use { fs_type: "xfs".into(), ..Use::default() };

        let made = used.each(&modes(&["ReadWriteOnce", "ReadOnlyMany"])).unwrap();

        let found: Vec<_> = made.iter().map(mode).collect();
        assert_eq!(found, [Mode::SingleNodeMultiWriter, Mode::MultiNodeReaderOnly]);
        assert!(used.each(&[]).is_err());
        assert!(used.each(&modes(&["WriteNever"])).is_err());
    }

    #[test]
    fn a_volume_is_attached_with_the_widest_of_its_modes() {
        let used = Use { block: true, ..Use::default() };
        let of = |list: &[&str]| used.together(&modes(list));

        assert_eq!(mode(&of(&["ReadWriteOncePod"]).unwrap()), Mode::SingleNodeSingleWriter);
        let widest = of(&["ReadWriteOnce", "ReadWriteMany"]).unwrap();
        assert_eq!(mode(&widest), Mode::MultiNodeMultiWriter);
        assert!(matches!(widest.access_type, Some(AccessType::Block(_))));
        assert!(of(&["ReadOnlyMany", "ReadWriteOnce"]).is_err());
        assert!(of(&["ReadWriteOncePod", "ReadWriteOnce"]).is_err());
        assert!(of(&[]).is_err());
    }
}
