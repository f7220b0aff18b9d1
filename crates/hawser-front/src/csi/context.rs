//! The publish context: what the controller tells a node of a publication, through the orchestrator.
//!
//! Whoever may read a VolumeAttachment reads it, so it has no secrets. It is an offer: a node that
//! finds it incomplete asks the control half.

use std::collections::BTreeMap;

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use hawser_core::filesystem::{Filesystem, FormatState, FsKind};
use hawser_core::id::PublicationId;
use hawser_core::publication::Publication;
use hawser_core::volume::{Access, Volume};

use super::error::CsiError;

const PUBLICATION: &str = "publication";
const ACCESS: &str = "access";
const FILESYSTEM: &str = "filesystem";
const READ_ONLY: &str = "readOnly";
const IDENTITY: &str = "identity";
const INFO: &str = "info";

/// The protocol allows 4 KiB; some of it goes into the frame of each pair.
const LARGEST: usize = 3800;

/// What a node is told of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Context {
    /// The right.
    pub(super) publication: PublicationId,
    /// What the volume is used as.
    pub(super) access: Access,
    /// What must be inside, and how far making it had come then.
    pub(super) filesystem: Option<Filesystem>,
    /// Without the right to write.
    pub(super) read_only: bool,
    /// What the device must say of itself, where that is known.
    pub(super) identity: Option<Identity>,
    /// How to reach the volume; `None` when that needs a secret or does not fit.
    pub(super) info: Option<ConnectionInfo>,
}

impl Context {
    /// What there is to tell of a publication.
    pub(super) fn of(volume: &Volume, publication: &Publication) -> Self {
        let info = publication.info.as_ref();
        let identity = volume.identity.as_ref().or(info.and_then(|info| info.identity.as_ref()));
        Self {
            publication: publication.id.clone(),
            access: volume.access,
            filesystem: volume.filesystem.clone(),
            read_only: publication.read_only,
            identity: identity.cloned(),
            info: info.filter(|_| !publication.needs_secrets).map(ConnectionInfo::without_secrets),
        }
    }

    /// Writes it, without how to reach the volume where that does not fit.
    pub(super) fn write(&self) -> BTreeMap<String, String> {
        let mut context = BTreeMap::from([
            (PUBLICATION.to_owned(), self.publication.to_string()),
            (ACCESS.to_owned(), self.access.to_string()),
            (READ_ONLY.to_owned(), self.read_only.to_string()),
        ]);
        if let Some(Filesystem { kind, uuid, state }) = &self.filesystem {
            context.insert(FILESYSTEM.to_owned(), format!("{kind}/{uuid}/{}", word(*state)));
        }
        if let Some(identity) = &self.identity {
            context.insert(IDENTITY.to_owned(), identity.to_string());
        }
        if let Some(info) = &self.info
            && let Ok(info) = serde_json::to_string(info)
            && size(&context) + INFO.len() + info.len() <= LARGEST
        {
            context.insert(INFO.to_owned(), info);
        }
        context
    }
}

fn size(context: &BTreeMap<String, String>) -> usize {
    context.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// Reads a context; `None` where the controller sent none. `Kind::Invalid` for one that this driver
/// did not write.
pub(super) fn read(context: &BTreeMap<String, String>) -> Result<Option<Context>, CsiError> {
    let Some(publication) = context.get(PUBLICATION) else { return Ok(None) };
    let bad = |key| CsiError::Context { key };
    let publication = publication.parse().map_err(|_| bad(PUBLICATION))?;
    let access = context.get(ACCESS).and_then(|text| access(text)).ok_or(bad(ACCESS))?;
    let read_only = match context.get(READ_ONLY).map(String::as_str) {
        Some("true") => true,
        Some("false") => false,
        Some(_) | None => return Err(bad(READ_ONLY)),
    };
    let filesystem = match context.get(FILESYSTEM) {
        None => None,
        Some(text) => Some(filesystem(text).ok_or(bad(FILESYSTEM))?),
    };
    let identity = match context.get(IDENTITY) {
        None => None,
        Some(text) => {
            let (scheme, value) = text.split_once(':').ok_or(bad(IDENTITY))?;
            Some(Identity::new(scheme, value))
        }
    };
    let info = match context.get(INFO) {
        None => None,
        Some(text) => {
            let mut info: ConnectionInfo = serde_json::from_str(text).map_err(|_| bad(INFO))?;
            // What was learned of the device since binds, too.
            info.identity = identity.clone().or(info.identity);
            Some(info)
        }
    };
    Ok(Some(Context { publication, access, filesystem, read_only, identity, info }))
}

fn access(text: &str) -> Option<Access> {
    match text {
        "block" => Some(Access::Block),
        "folder" => Some(Access::Folder),
        kind => Some(Access::Filesystem(kind.parse().ok()?)),
    }
}

fn filesystem(text: &str) -> Option<Filesystem> {
    let mut parts = text.splitn(3, '/');
    let kind: FsKind = parts.next()?.parse().ok()?;
    let uuid = parts.next()?.parse().ok()?;
    let state = match parts.next()? {
        "never" => FormatState::Never,
        "started" => FormatState::Started,
        "done" => FormatState::Done,
        _ => return None,
    };
    Some(Filesystem { kind, uuid, state })
}

fn word(state: FormatState) -> &'static str {
    match state {
        FormatState::Never => "never",
        FormatState::Started => "started",
        FormatState::Done => "done",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn context() -> Context {
        let info = json!({
            "driver_volume_type": "iscsi",
            "data": { "target_iqn": "iqn.a", "target_portal": "10.0.0.1:3260", "target_lun": 1 },
            "identity": { "scheme": "wwid", "value": "3600:1" },
        });
        Context {
            publication: PublicationId::generate(),
            access: Access::Filesystem(FsKind::Xfs),
            filesystem: Some(Filesystem {
                kind: FsKind::Xfs,
                uuid: uuid::Uuid::new_v4(),
                state: FormatState::Started,
            }),
            read_only: true,
            identity: Some(Identity::new("wwid", "3600:1")),
            info: Some(ConnectionInfo::try_from(info).unwrap()),
        }
    }

    #[test]
    fn a_context_reads_back_as_it_was_written() {
        for context in [context(), Context { filesystem: None, info: None, ..context() }] {
            assert_eq!(read(&context.write()).unwrap(), Some(context));
        }
    }

    #[test]
    fn what_does_not_fit_is_left_to_the_control_half() {
        let mut long = context();
        let data = &mut long.info.as_mut().unwrap().data;
        data.insert("portals".into(), json!("x".repeat(4000)));

        let written = long.write();

        assert!(size(&written) < 4096);
        assert_eq!(written["identity"], "wwid:3600:1", "told all the same");
        assert_eq!(read(&written).unwrap().unwrap().info, None);
    }

    #[test]
    fn other_contexts_are_refused_and_none_is_fine() {
        let device = BTreeMap::from([("device".to_owned(), "/dev/mock".to_owned())]);
        assert_eq!(read(&device).unwrap(), None);
        for (key, value) in [
            (PUBLICATION, "../../etc"),
            (ACCESS, "zfs"),
            (READ_ONLY, "yes"),
            (FILESYSTEM, "ext4/7/done"),
            (FILESYSTEM, "ext4"),
            (IDENTITY, "wwid"),
            (INFO, "{}"),
        ] {
            let mut context = context().write();
            context.insert(key.to_owned(), value.to_owned());
            assert!(read(&context).is_err(), "{key}={value}");
        }
        let mut context = context().write();
        context.remove(ACCESS);
        assert!(read(&context).is_err());
    }

    proptest! {
        #[test]
        fn no_context_makes_it_panic(
            key in prop::sample::select(vec![ACCESS, READ_ONLY, FILESYSTEM, IDENTITY, INFO]),
            value in "\\PC{0,60}",
        ) {
            let mut context = context().write();
            context.insert(key.to_owned(), value);
            let _ = read(&context);
        }
    }
}
