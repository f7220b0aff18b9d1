//! What a caller wants to use a volume as.

use hawser_api::csi::v1::VolumeCapability;
use hawser_api::csi::v1::volume_capability::AccessType;
use hawser_api::csi::v1::volume_capability::access_mode::Mode as WireMode;
use hawser_core::filesystem::FsKind;
use hawser_core::volume::{Access, Sharing, Volume};
use hawser_core::{Error, Result};

use crate::csi::error::{CsiError, cut};

/// Who uses a volume at the same time; the numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::csi) enum Mode {
    /// One node, which may write.
    OneWriter,
    /// One node, which may not.
    OneReader,
    /// Many nodes, none of which writes.
    ManyReaders,
    /// Many nodes, one of which writes.
    ManyReadersOneWriter,
    /// Many nodes, all of which may write.
    ManyWriters,
    /// One pod of one node.
    OnePod,
    /// Many pods of one node.
    ManyPods,
}

impl Mode {
    fn read(number: i32) -> Result<Self, CsiError> {
        match WireMode::try_from(number) {
            Ok(WireMode::SingleNodeWriter) => Ok(Self::OneWriter),
            Ok(WireMode::SingleNodeReaderOnly) => Ok(Self::OneReader),
            Ok(WireMode::MultiNodeReaderOnly) => Ok(Self::ManyReaders),
            Ok(WireMode::MultiNodeSingleWriter) => Ok(Self::ManyReadersOneWriter),
            Ok(WireMode::MultiNodeMultiWriter) => Ok(Self::ManyWriters),
            Ok(WireMode::SingleNodeSingleWriter) => Ok(Self::OnePod),
            Ok(WireMode::SingleNodeMultiWriter) => Ok(Self::ManyPods),
            Ok(WireMode::Unknown) | Err(_) => Err(CsiError::NoAccessMode { mode: number }),
        }
    }

    /// True when nobody may write.
    pub(in crate::csi) fn reads_only(self) -> bool {
        match self {
            Self::OneReader | Self::ManyReaders => true,
            Self::OneWriter
            | Self::ManyReadersOneWriter
            | Self::ManyWriters
            | Self::OnePod
            | Self::ManyPods => false,
        }
    }

    /// True when no other node has it meanwhile.
    pub(in crate::csi) fn single_node(self) -> bool {
        self.sharing() == Sharing::SingleWriter
    }

    /// The least that a volume must bear for this.
    fn sharing(self) -> Sharing {
        match self {
            Self::OneWriter | Self::OneReader | Self::OnePod | Self::ManyPods => {
                Sharing::SingleWriter
            }
            Self::ManyReaders => Sharing::ManyReaders,
            // One writer beside readers of other nodes is as hard for the content as many writers.
            Self::ManyReadersOneWriter | Self::ManyWriters => Sharing::ManyWriters,
        }
    }
}

/// A volume as a device or in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::csi) enum Use {
    /// The device itself.
    Block,
    /// In a folder.
    Mount {
        /// With this file system; whatever it has when `None`.
        fs: Option<FsKind>,
        /// Mount options.
        flags: Vec<String>,
        /// The group that may write.
        group: Option<u32>,
    },
}

/// One capability, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::csi) struct Capability {
    /// As what.
    pub(in crate::csi) usage: Use,
    /// By whom.
    pub(in crate::csi) mode: Mode,
}

impl Capability {
    /// Reads one that must be there.
    pub(in crate::csi) fn required(
        field: &'static str,
        given: Option<VolumeCapability>,
    ) -> Result<Self> {
        Self::read(given.ok_or(CsiError::Missing { field })?)
    }

    /// Reads one. `Kind::Invalid` when it says too little, or something that nobody can do.
    pub(in crate::csi) fn read(given: VolumeCapability) -> Result<Self> {
        let usage = match given.access_type {
            None => return Err(CsiError::NoAccessType.into()),
            Some(AccessType::Block(_)) => Use::Block,
            Some(AccessType::Mount(mount)) => Use::Mount {
                fs: match mount.fs_type.as_str() {
                    "" => None,
                    kind => Some(kind.parse::<FsKind>().map_err(Error::from)?),
                },
                flags: mount.mount_flags,
                group: match mount.volume_mount_group.as_str() {
                    "" => None,
                    group => Some(
                        group.parse().map_err(|_| CsiError::MountGroup { group: cut(group) })?,
                    ),
                },
            },
        };
        let mode = given.access_mode.map_or(0, |mode| mode.mode);
        Ok(Self { usage, mode: Mode::read(mode)? })
    }
}

/// Everything that a new volume must be able to do, as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::csi) struct Together {
    /// Used as what; the class decides when `None`.
    pub(in crate::csi) access: Option<Access>,
    /// Used as a device.
    pub(in crate::csi) block: bool,
    /// By whom.
    pub(in crate::csi) sharing: Sharing,
}

/// Reads the capabilities of a new volume, and what they come to together.
pub(in crate::csi) fn of_many(given: Vec<VolumeCapability>) -> Result<Together> {
    let all = given.into_iter().map(Capability::read).collect::<Result<Vec<_>>>()?;
    let Some(first) = all.first() else {
        return Err(CsiError::Missing { field: "volume_capabilities" }.into());
    };
    let block = first.usage == Use::Block;
    if all.iter().any(|one| (one.usage == Use::Block) != block) {
        return Err(CsiError::Mixed { why: "some are block and some are mount" }.into());
    }
    let sharing = sharing_of(&all)?;
    let fs = fs_of(&all)?;
    let access = match (block, fs, sharing) {
        (true, ..) => Some(Access::Block),
        (false, Some(fs), Sharing::ManyWriters) => {
            return Err(CsiError::SharedFilesystem { fs: fs.to_string() }.into());
        }
        // Only a folder that the storage itself serves can be written from several nodes; a class
        // that has none refuses it.
        (false, None, Sharing::ManyWriters) => Some(Access::Folder),
        (false, fs, Sharing::SingleWriter | Sharing::ManyReaders) => fs.map(Access::Filesystem),
    };
    Ok(Together { access, block, sharing })
}

fn sharing_of(all: &[Capability]) -> Result<Sharing, CsiError> {
    let has = |sharing| all.iter().any(|one| one.mode.sharing() == sharing);
    if has(Sharing::ManyWriters) {
        return Ok(Sharing::ManyWriters);
    }
    if !has(Sharing::ManyReaders) {
        return Ok(Sharing::SingleWriter);
    }
    if all.iter().all(|one| one.mode.reads_only()) {
        return Ok(Sharing::ManyReaders);
    }
    Err(CsiError::Mixed { why: "one node writes, and many nodes read" })
}

fn fs_of(all: &[Capability]) -> Result<Option<FsKind>, CsiError> {
    let mut found = None;
    for one in all {
        let Use::Mount { fs: Some(fs), .. } = one.usage else { continue };
        if found.is_some_and(|other| other != fs) {
            return Err(CsiError::Mixed { why: "they name different file systems" });
        }
        found = Some(fs);
    }
    Ok(found)
}

/// Why a volume cannot be used like this; `None` when it can.
pub(in crate::csi) fn fits(volume: &Volume, wanted: &Capability) -> Option<String> {
    match (&wanted.usage, volume.access) {
        (Use::Block, Access::Block) | (Use::Mount { fs: None, .. }, Access::Folder) => {}
        (Use::Mount { fs: Some(fs), .. }, Access::Folder) => {
            return Some(format!("it is a folder that the storage serves, and {fs} is asked for"));
        }
        (Use::Mount { fs, .. }, Access::Filesystem(there)) => {
            if let Some(fs) = fs.filter(|fs| *fs != there) {
                return Some(format!("it holds {there}, and {fs} is asked for"));
            }
        }
        (Use::Block, Access::Filesystem(_) | Access::Folder) => {
            return Some(format!("it is used as {}, not as a device", volume.access));
        }
        (Use::Mount { .. }, Access::Block) => {
            return Some("it is a raw device and is not mounted".to_owned());
        }
    }
    let asked = wanted.mode.sharing();
    let borne = match (volume.sharing, asked) {
        (Sharing::ManyWriters, _) => true,
        (Sharing::ManyReaders, _) => wanted.mode.reads_only(),
        (Sharing::SingleWriter, Sharing::SingleWriter) => true,
        (Sharing::SingleWriter, Sharing::ManyReaders | Sharing::ManyWriters) => false,
    };
    (!borne).then(|| {
        format!(
            "it was made for {}, and {} is asked for",
            volume.sharing.as_str(),
            if wanted.mode.reads_only() { "many_readers" } else { asked.as_str() }
        )
    })
}

#[cfg(test)]
mod tests {
    use hawser_api::csi::v1::volume_capability::{AccessMode, BlockVolume, MountVolume};
    use hawser_core::Kind;

    use super::*;

    fn block(mode: WireMode) -> VolumeCapability {
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode as i32 }),
            access_type: Some(AccessType::Block(BlockVolume {})),
        }
    }

    fn mount(fs: &str, mode: WireMode) -> VolumeCapability {
        let mount = MountVolume { fs_type: fs.into(), ..MountVolume::default() };
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode as i32 }),
            access_type: Some(AccessType::Mount(mount)),
        }
    }

    #[test]
    fn the_mode_of_kubernetes_decides_who_may_write() {
        use WireMode::*;
        for (given, wanted) in [
            (vec![mount("", SingleNodeWriter)], Sharing::SingleWriter),
            (vec![mount("", SingleNodeMultiWriter)], Sharing::SingleWriter),
            (vec![mount("", SingleNodeSingleWriter)], Sharing::SingleWriter),
            (vec![mount("", SingleNodeReaderOnly)], Sharing::SingleWriter),
            (vec![mount("", MultiNodeReaderOnly)], Sharing::ManyReaders),
            (vec![block(MultiNodeMultiWriter)], Sharing::ManyWriters),
            (vec![block(MultiNodeSingleWriter)], Sharing::ManyWriters),
            (vec![block(SingleNodeMultiWriter), block(MultiNodeMultiWriter)], Sharing::ManyWriters),
            (vec![block(MultiNodeReaderOnly), block(MultiNodeMultiWriter)], Sharing::ManyWriters),
        ] {
            assert_eq!(of_many(given.clone()).unwrap().sharing, wanted, "{given:?}");
        }
    }

    #[test]
    fn what_is_asked_for_decides_what_is_inside() {
        use WireMode::*;
        let access = |given| of_many(vec![given]).unwrap().access;

        assert_eq!(access(block(SingleNodeWriter)), Some(Access::Block));
        assert_eq!(access(mount("xfs", SingleNodeWriter)), Some(Access::Filesystem(FsKind::Xfs)));
        assert_eq!(access(mount("", SingleNodeWriter)), None, "the class decides");
        assert_eq!(access(mount("", MultiNodeMultiWriter)), Some(Access::Folder));
    }

    #[test]
    fn what_nobody_can_make_is_refused() {
        use WireMode::*;
        let none = VolumeCapability { access_type: None, ..block(SingleNodeWriter) };
        let no_mode = VolumeCapability { access_mode: None, ..block(SingleNodeWriter) };
        let mut future = block(SingleNodeWriter);
        future.access_mode = Some(AccessMode { mode: 99 });
        for bad in [
            vec![],
            vec![none],
            vec![no_mode],
            vec![future],
            vec![block(Unknown)],
            vec![block(SingleNodeWriter), mount("", SingleNodeWriter)],
            vec![mount("zfs", SingleNodeWriter)],
            vec![mount("ext4", SingleNodeWriter), mount("xfs", SingleNodeWriter)],
            vec![mount("ext4", MultiNodeMultiWriter)],
            vec![mount("", SingleNodeWriter), mount("", MultiNodeReaderOnly)],
        ] {
            let error = of_many(bad.clone()).expect_err(&format!("{bad:?}"));
            assert_eq!(error.kind(), Kind::Invalid, "{bad:?}");
        }
    }

    #[test]
    fn a_group_is_a_number() {
        let with = |group: &str| {
            let mount = MountVolume { volume_mount_group: group.into(), ..MountVolume::default() };
            let mut given = block(WireMode::SingleNodeWriter);
            given.access_type = Some(AccessType::Mount(mount));
            Capability::read(given)
        };

        let Use::Mount { group, .. } = with("1000").unwrap().usage else { panic!() };
        assert_eq!(group, Some(1000));
        for bad in ["staff", "-1", "4294967296", "1 2"] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }
}
