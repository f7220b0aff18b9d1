//! How outside names of volumes become the ids of records.

use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::port::Connector;
use serde_json::Value;

use crate::shared::error::AttachError;
use crate::shared::{canonical, digest};

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

    /// The key of what a volume is connected with: its `volume_id`, or a digest of the fields that
    /// say which volume it is.
    pub(crate) fn of_info(connector: &dyn Connector, info: &ConnectionInfo) -> Result<Self> {
        Ok(match volume_id(info) {
            Some(name) => Self::of_name(&name)?,
            None => {
                let digest = canonical::digest(connector, info)?;
                Self::of_name(&format!("{}-{digest}", info.protocol))?
            }
        })
    }

    /// The key that a volume without a `volume_id` had while the whole info was its name, hints and
    /// spelling and all; records have it until they are detached.
    pub(crate) fn of_whole_info(info: &ConnectionInfo) -> Option<Self> {
        if volume_id(info).is_some() {
            return None;
        }
        let whole = serde_json::to_vec(&info.without_secrets()).unwrap_or_default();
        Self::of_name(&format!("{}-{}", info.protocol, digest::short(&whole))).ok()
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

    fn key(info: &ConnectionInfo) -> Key {
        Key::of_info(crate::find(&info.protocol).unwrap(), info).unwrap()
    }

    fn info(data: Value) -> ConnectionInfo {
        let envelope = json!({ "driver_volume_type": "iscsi", "data": data });
        serde_json::from_value(envelope).unwrap()
    }

    #[test]
    fn both_spellings_and_the_bare_name_are_one_volume() {
        let name = Key::of_name("v1").unwrap();

        assert_eq!(key(&info(json!({ "volume_id": "v1", "target_lun": 1 }))), name);
        assert_eq!(key(&info(json!({ "volumeId": "v1" }))), name);
        assert_ne!(Key::of_name("v2").unwrap().publication, name.publication);
    }

    #[test]
    fn a_volume_of_hawser_is_the_same_volume_through_the_library() {
        let id = VolumeId::generate();

        assert_eq!(Key::of_name(id.as_str()).unwrap().volume, id);
    }

    #[test]
    fn without_a_name_the_fields_that_count_are_the_name_and_secrets_are_none_of_them() {
        let key = |data| key(&info(data)).publication;
        let plain = key(json!({ "target_lun": 1 }));

        assert_eq!(plain, key(json!({ "target_lun": 1, "auth_password": "x" })));
        assert_eq!(plain, key(json!({ "targetLun": "1", "device_path": "/dev/sdb" })));
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
