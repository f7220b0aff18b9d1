//! How outside names of volumes become the ids of records.

use hawser_core::connection::ConnectionInfo;
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::port::library::VolumeKey;
use serde_json::Value;

use crate::shared::digest;
use crate::shared::error::AttachError;

/// Longer names are no names.
const LONGEST: usize = 1024;

/// The name of a volume and the ids that belong to it on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) publication: PublicationId,
    pub(crate) volume: VolumeId,
}

impl Key {
    /// The key of a name.
    pub(crate) fn of_name(name: &str) -> Result<Self, AttachError> {
        let invalid = |why: &str| Err(AttachError::Invalid { why: why.to_owned() });
        if name.is_empty() || name.len() > LONGEST {
            return invalid("a volume id must have 1 to 1024 bytes");
        }
        if name.chars().any(char::is_control) {
            return invalid("a volume id must not have control characters");
        }
        let tail = digest::short(name.as_bytes());
        let publication = format!("{}-{tail}", PublicationId::PREFIX);
        // A volume of Hawser keeps its id: one lock and one writer, whoever attaches it.
        let digest = || format!("{}-{tail}", VolumeId::PREFIX).parse();
        let volume = name.parse().or_else(|_| digest());
        Ok(Self {
            name: name.to_owned(),
            publication: publication.parse().expect("26 characters of the alphabet are an id"),
            volume: volume.expect("26 characters of the alphabet are an id"),
        })
    }

    /// The key of what a volume is connected with: its `volume_id`, or a digest of everything.
    pub(crate) fn of_info(info: &ConnectionInfo) -> Result<Self, AttachError> {
        match volume_id(info) {
            Some(name) => Self::of_name(&name),
            None => {
                let whole = serde_json::to_vec(&info.without_secrets()).unwrap_or_default();
                Self::of_name(&format!("{}-{}", info.protocol, digest::short(&whole)))
            }
        }
    }

    /// The key that a caller means.
    pub(crate) fn of(key: &VolumeKey) -> Result<Self, AttachError> {
        match key {
            VolumeKey::Volume(name) => Self::of_name(name),
            VolumeKey::Info(info) => Self::of_info(info),
        }
    }
}

/// The `volume_id` of the data, in either spelling; numbers count as texts.
pub(super) fn volume_id(info: &ConnectionInfo) -> Option<String> {
    let value = info.data.get("volume_id").or_else(|| info.data.get("volumeId"))?;
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn info(data: Value) -> ConnectionInfo {
        let envelope = json!({ "driver_volume_type": "iscsi", "data": data });
        serde_json::from_value(envelope).unwrap()
    }

    #[test]
    fn both_spellings_and_the_bare_name_are_one_volume() {
        let name = Key::of_name("v1").unwrap();

        assert_eq!(
            Key::of_info(&info(json!({ "volume_id": "v1", "target_lun": 1 }))).unwrap(),
            name
        );
        assert_eq!(Key::of_info(&info(json!({ "volumeId": "v1" }))).unwrap(), name);
        assert_ne!(Key::of_name("v2").unwrap().publication, name.publication);
    }

    #[test]
    fn a_volume_of_hawser_is_the_same_volume_through_the_library() {
        let id = VolumeId::generate();

        assert_eq!(Key::of_name(id.as_str()).unwrap().volume, id);
    }

    #[test]
    fn without_a_name_the_whole_info_is_the_name_and_secrets_do_not_count() {
        let key = |data| Key::of_info(&info(data)).unwrap().publication;
        let plain = key(json!({ "target_lun": 1 }));

        assert_eq!(plain, key(json!({ "target_lun": 1, "auth_password": "x" })));
        assert_ne!(plain, key(json!({ "target_lun": 2 })));
    }

    proptest! {
        #[test]
        fn any_name_is_a_key_or_refused(name in "\\PC{0,40}") {
            if let Ok(key) = Key::of_name(&name) {
                prop_assert_eq!(key.name, name);
            }
        }
    }
}
