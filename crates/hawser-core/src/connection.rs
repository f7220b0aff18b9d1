//! [`ConnectionInfo`]: all that passes between a provider and a connector.
//!
//! It is the shape of os-brick and Cinder (`driver_volume_type` and `data`), read in snake case and in
//! camel case, with the secrets split off and the volume's identity beside it. Unknown keys are kept,
//! because storage systems send many and callers want them back.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::attach::Identity;
use crate::embedded_secret::{self, Split};
use crate::error::{Classify, Kind};
use crate::secret::{Secret, Secrets};

/// The name of a protocol: upper case, one spelling. Names are open; a connector says which it takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Protocol(String);

/// Other spellings of protocol names that are seen in the wild.
const PROTOCOL_ALIASES: [(&str, &str); 9] = [
    ("NVME", "NVMEOF"),
    ("NVME-OF", "NVMEOF"),
    ("NVME_OF", "NVMEOF"),
    ("FC", "FIBRE_CHANNEL"),
    ("POWERFLEX", "SCALEIO"),
    ("VXFLEXOS", "SCALEIO"),
    ("CIFS", "SMBFS"),
    ("SMB", "SMBFS"),
    ("CEPH", "RBD"),
];

impl Protocol {
    /// A protocol by any of its spellings.
    pub fn new(name: &str) -> Self {
        let upper = name.trim().to_ascii_uppercase();
        let known = PROTOCOL_ALIASES.iter().find(|(alias, _)| *alias == upper);
        Self(known.map_or(upper, |(_, canonical)| (*canonical).to_owned()))
    }

    /// The canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Protocol {
    fn from(name: String) -> Self {
        Self::new(&name)
    }
}

impl From<Protocol> for String {
    fn from(protocol: Protocol) -> String {
        protocol.0
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Other spellings of fields, beyond the mechanical camel case; from os-brick, OpenSDS and
/// csi-lib-iscsi. The key is in snake case already.
const FIELD_ALIASES: [(&str, &str); 10] = [
    ("iqn", "target_iqn"),
    ("lun", "target_lun"),
    ("nqn", "target_nqn"),
    ("auth_user_name", "auth_username"),
    ("auth_type", "auth_method"),
    ("target_ip", "target_portal"),
    ("transpor_type", "transport_type"),
    ("export_location", "export"),
    ("export_locations", "export"),
    ("shares", "export"),
];

/// Fields that hold secrets, in snake case.
const SECRET_FIELDS: [&str; 17] = [
    "auth_password",
    "auth_password_in",
    "discovery_auth_password",
    "discovery_auth_password_in",
    "password",
    "password_in",
    "keyring",
    "secret",
    "server_password",
    "server_token",
    "provider_auth",
    "dhchap_key",
    "dhchap_secret",
    "dhchap_ctrl_key",
    "dhchap_ctrl_secret",
    "tls_psk",
    "encryption_key",
];

/// Objects of csi-lib-iscsi that hold secrets of their own, and what stands before the names of those
/// fields elsewhere.
const CHAP_OBJECTS: [(&str, &str); 2] =
    [("session_secrets", "auth_"), ("discovery_secrets", "discovery_auth_")];

/// What a connector needs to know, by the names of its fields.
pub type Data = Map<String, Value>;

/// Fields that say nothing of the volume itself, in snake case: what a program sends back of an
/// answer, and what is meant for whoever uses the device.
pub const HINTS: [&str; 9] = [
    "device_path",
    "multipath_id",
    "enforce_multipath",
    "encrypted",
    "qos_specs",
    "discard",
    "cacheable",
    "shared_targets",
    "service_uuid",
];

/// How to reach a volume.
///
/// Its JSON carries no secrets: reading splits them off into [`ConnectionInfo::secrets`], writing
/// leaves them out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct ConnectionInfo {
    /// Which connector.
    pub protocol: Protocol,
    /// What it needs; keys as they came, without the secrets.
    pub data: Data,
    /// Secrets by the snake-case name of their field.
    pub secrets: Secrets,
    /// What the device must say of itself.
    pub identity: Option<Identity>,
    /// In which spelling it came, and goes out again.
    pub spelling: Spelling,
}

/// How the keys of an envelope are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spelling {
    /// `driver_volume_type`.
    #[default]
    Snake,
    /// `driverVolumeType`.
    Camel,
}

/// Why a JSON value is not a [`ConnectionInfo`].
#[derive(Debug, thiserror::Error)]
pub enum ConnectionInfoError {
    /// Not an object, or without a type.
    #[error(
        "connection info must be an object with driver_volume_type (or driverVolumeType) and data"
    )]
    Shape,
    /// The type is not a short text.
    #[error("driver_volume_type must be a text of 1 to 64 characters")]
    Type,
    /// Two spellings of one field say different things.
    #[error("connection info gives {field} twice with different values")]
    Ambiguous {
        /// The field in snake case.
        field: String,
    },
    /// A secret that is not a text.
    #[error("the secret field {field} must be a text")]
    SecretShape {
        /// The field in snake case.
        field: String,
    },
    /// The identity is not `{scheme, value}`.
    #[error("the identity must be an object with scheme and value")]
    Identity,
    /// A field that this protocol needs is missing or of another type.
    #[error("connection info for {protocol} is not usable")]
    Data {
        /// Which protocol.
        protocol: String,
        /// Which field, and why.
        source: serde_json::Error,
    },
}

impl Classify for ConnectionInfoError {
    fn kind(&self) -> Kind {
        match self {
            Self::Shape
            | Self::Type
            | Self::Ambiguous { .. }
            | Self::SecretShape { .. }
            | Self::Identity
            | Self::Data { .. } => Kind::Invalid,
        }
    }
}

impl ConnectionInfo {
    /// A new one in snake case without secrets.
    pub fn new(protocol: Protocol, data: Map<String, Value>, identity: Option<Identity>) -> Self {
        Self { protocol, data, secrets: Secrets::new(), identity, spelling: Spelling::Snake }
    }

    /// The data as a connector's own struct: keys in snake case, known aliases resolved.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConnectionInfoError> {
        let mut normal = Map::new();
        for (key, value) in &self.data {
            let field = canonical_field(key);
            match normal.get(&field) {
                Some(other) if other != value => {
                    return Err(ConnectionInfoError::Ambiguous { field });
                }
                Some(_) | None => normal.insert(field, value.clone()),
            };
        }
        serde_json::from_value(Value::Object(normal)).map_err(|source| ConnectionInfoError::Data {
            protocol: self.protocol.to_string(),
            source,
        })
    }

    /// Takes secrets that came beside it, by the names of their fields in any spelling. What is no
    /// field for secrets is left out; what is known already stays.
    pub fn add_secrets(&mut self, given: Secrets) {
        for (key, secret) in given {
            let field = snake_case(&key);
            if SECRET_FIELDS.contains(&field.as_str()) {
                self.secrets.entry(field).or_insert(secret);
            }
        }
    }

    /// The same without secrets, for records.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        Self { secrets: Secrets::new(), ..self.clone() }
    }
}

/// `targetIqn`, `targetIQN` and `iqn` are all `target_iqn`.
fn canonical_field(key: &str) -> String {
    let snake = snake_case(key);
    let known = FIELD_ALIASES.iter().find(|(alias, _)| *alias == snake);
    known.map_or(snake, |(_, canonical)| (*canonical).to_owned())
}

/// A run of capitals is one word: `targetIQN` is `target_iqn`, `targetWWNs` is `target_wwns`.
fn snake_case(key: &str) -> String {
    let mut snake = String::with_capacity(key.len() + 4);
    let mut before_lower = false;
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            if before_lower {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        } else {
            snake.push(c);
        }
        before_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    snake
}

impl TryFrom<Value> for ConnectionInfo {
    type Error = ConnectionInfoError;

    fn try_from(value: Value) -> Result<Self, ConnectionInfoError> {
        let Value::Object(mut envelope) = value else { return Err(ConnectionInfoError::Shape) };
        let snake = envelope.remove("driver_volume_type");
        let camel = envelope.remove("driverVolumeType");
        let spelling =
            if camel.is_some() && snake.is_none() { Spelling::Camel } else { Spelling::Snake };
        let protocol = match (snake, camel) {
            (Some(a), Some(b)) if a != b => {
                return Err(ConnectionInfoError::Ambiguous { field: "driver_volume_type".into() });
            }
            (Some(name), _) | (None, Some(name)) => protocol(&name)?,
            (None, None) => return Err(ConnectionInfoError::Shape),
        };
        let Some(Value::Object(mut data)) = envelope.remove("data") else {
            return Err(ConnectionInfoError::Shape);
        };
        let identity = match envelope.remove("identity") {
            None | Some(Value::Null) => None,
            Some(value) => {
                Some(serde_json::from_value(value).map_err(|_| ConnectionInfoError::Identity)?)
            }
        };
        take_in(&mut envelope, &mut data)?;
        let mut secrets = split_secrets(&mut data)?;
        split_embedded(&protocol, &mut data, &mut secrets)?;
        Ok(Self { protocol, data, secrets, identity, spelling })
    }
}

fn protocol(name: &Value) -> Result<Protocol, ConnectionInfoError> {
    match name.as_str().map(str::trim) {
        Some(text) if !text.is_empty() && text.len() <= 64 => Ok(Protocol::new(text)),
        Some(_) | None => Err(ConnectionInfoError::Type),
    }
}

/// Where file systems are mounted stands beside `data` in os-brick; a connector sees `data` alone.
fn take_in(
    envelope: &mut Map<String, Value>,
    data: &mut Map<String, Value>,
) -> Result<(), ConnectionInfoError> {
    for key in ["mount_point_base", "mountPointBase"] {
        let Some(value) = envelope.remove(key).filter(|value| !value.is_null()) else { continue };
        let field = snake_case(key);
        match data.iter().find(|(other, _)| snake_case(other) == field) {
            Some((_, other)) if *other != value => {
                return Err(ConnectionInfoError::Ambiguous { field });
            }
            Some(_) => {}
            None => {
                data.insert(key.into(), value);
            }
        }
    }
    Ok(())
}

/// Splits off passwords that stand inside of other fields.
fn split_embedded(
    protocol: &Protocol,
    data: &mut Map<String, Value>,
    secrets: &mut Secrets,
) -> Result<(), ConnectionInfoError> {
    let cluster = protocol.as_str() == "VZSTORAGE";
    let mut empty = Vec::new();
    for (key, value) in data.iter_mut() {
        let field = canonical_field(key);
        for text in texts(value) {
            let split = match field.as_str() {
                "options" => embedded_secret::of_options(text),
                "export" if cluster => embedded_secret::of_cluster_export(text),
                _ => None,
            };
            let Some(Split { rest, secret }) = split else { continue };
            if secrets.get("password").is_some_and(|other| *other != secret) {
                return Err(ConnectionInfoError::Ambiguous { field: "password".into() });
            }
            secrets.insert("password".into(), secret);
            if rest.is_empty() {
                empty.push(key.clone());
            }
            *text = rest;
        }
    }
    for key in empty {
        data.remove(&key);
    }
    Ok(())
}

/// One text, or those of a list.
fn texts(value: &mut Value) -> Vec<&mut String> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter_mut().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn split_secrets(data: &mut Map<String, Value>) -> Result<Secrets, ConnectionInfoError> {
    let mut secrets = Secrets::new();
    for (key, value) in data.iter_mut() {
        let object = CHAP_OBJECTS.iter().find(|(object, _)| *object == snake_case(key));
        if let (Some((_, prefix)), Value::Object(inner)) = (object, value) {
            take_secrets(inner, prefix, &mut secrets)?;
        }
    }
    take_secrets(data, "", &mut secrets)?;
    Ok(secrets)
}

/// Takes the secret fields out of an object; `prefix` stands before their names.
fn take_secrets(
    data: &mut Map<String, Value>,
    prefix: &str,
    secrets: &mut Secrets,
) -> Result<(), ConnectionInfoError> {
    let keys: Vec<String> = data
        .keys()
        .filter(|key| SECRET_FIELDS.contains(&snake_case(key).as_str()))
        .cloned()
        .collect();
    for key in keys {
        let field = format!("{prefix}{}", snake_case(&key));
        match data.remove(&key) {
            Some(Value::String(text)) => {
                let secret = Secret::new(text);
                if secrets.get(&field).is_some_and(|other| *other != secret) {
                    return Err(ConnectionInfoError::Ambiguous { field });
                }
                secrets.insert(field, secret);
            }
            Some(Value::Null) | None => {}
            Some(_) => return Err(ConnectionInfoError::SecretShape { field }),
        }
    }
    Ok(())
}

impl From<ConnectionInfo> for Value {
    fn from(info: ConnectionInfo) -> Self {
        let mut envelope = Map::new();
        let key = match info.spelling {
            Spelling::Snake => "driver_volume_type",
            Spelling::Camel => "driverVolumeType",
        };
        envelope.insert(key.into(), Value::String(info.protocol.0));
        envelope.insert("data".into(), Value::Object(info.data));
        if let Some(identity) = info.identity {
            let mut fields = Map::new();
            fields.insert("scheme".into(), Value::String(identity.scheme));
            fields.insert("value".into(), Value::String(identity.value));
            envelope.insert("identity".into(), Value::Object(fields));
        }
        Value::Object(envelope)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Iscsi {
        target_iqn: String,
        target_portal: String,
        target_lun: u32,
    }

    fn read(value: Value) -> Result<ConnectionInfo, ConnectionInfoError> {
        ConnectionInfo::try_from(value)
    }

    #[test]
    fn both_spellings_mean_the_same() {
        let snake = read(json!({ "driver_volume_type": "iscsi", "data": {
            "target_iqn": "iqn.a", "target_portal": "10.0.0.1:3260", "target_lun": 0 } }))
        .unwrap();
        let camel = read(json!({ "driverVolumeType": " ISCSI ", "data": {
            "targetIQN": "iqn.a", "targetPortal": "10.0.0.1:3260", "lun": 0 } }))
        .unwrap();

        assert_eq!(snake.protocol, camel.protocol);
        assert_eq!(snake.parse::<Iscsi>().unwrap(), camel.parse::<Iscsi>().unwrap());
        assert_eq!(Value::from(camel)["data"]["targetIQN"], "iqn.a", "goes out as it came");
    }

    #[test]
    fn secrets_are_split_off_and_never_written() {
        let info = read(json!({ "driver_volume_type": "iscsi", "data": {
            "auth_username": "u", "authPassword": "hunter2", "keyring": null } }))
        .unwrap();

        assert_eq!(info.secrets["auth_password"].expose(), "hunter2");
        let shown = format!("{info:?} {}", serde_json::to_string(&info).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn secrets_inside_of_objects_are_split_off_too() {
        let info = read(json!({ "driver_volume_type": "iscsi", "data": {
            "sessionSecrets": { "userName": "u", "password": "hunter2", "passwordIn": "hunter3" },
            "discovery_secrets": { "password": "hunter4" } } }))
        .unwrap();

        assert_eq!(info.secrets["auth_password"].expose(), "hunter2");
        assert_eq!(info.secrets["auth_password_in"].expose(), "hunter3");
        assert_eq!(info.secrets["discovery_auth_password"].expose(), "hunter4");
        let shown = format!("{info:?} {}", serde_json::to_string(&info).unwrap());
        assert!(shown.contains("userName") && !shown.contains("hunter"), "{shown}");
    }

    #[test]
    fn secrets_from_beside_go_into_known_fields_that_are_free() {
        let mut info = read(json!({ "driver_volume_type": "iscsi", "data": {
            "auth_password": "of the storage" } }))
        .unwrap();

        info.add_secrets(Secrets::from([
            ("authPassword".into(), Secret::new("of the caller")),
            ("encryption_key".into(), Secret::new("key")),
            ("target_portal".into(), Secret::new("10.0.0.9")),
            ("token".into(), Secret::new("t")),
        ]));

        assert_eq!(info.secrets.keys().collect::<Vec<_>>(), ["auth_password", "encryption_key"]);
        assert_eq!(info.secrets["auth_password"].expose(), "of the storage");
        assert_eq!(info.secrets["encryption_key"].expose(), "key");
        assert!(!info.data.contains_key("target_portal"), "a secret changes no address");
    }

    #[test]
    fn disagreeing_spellings_are_refused() {
        let info = read(json!({ "driver_volume_type": "iscsi", "data": {
            "target_iqn": "iqn.a", "targetIqn": "iqn.b" } }))
        .unwrap();

        let error = info.parse::<Iscsi>().unwrap_err();

        assert!(error.to_string().contains("target_iqn"), "{error}");
    }

    #[test]
    fn unknown_keys_and_identity_survive_a_round_trip() {
        let value = json!({ "driver_volume_type": "NVMEOF", "data": { "qosSpecs": { "a": 1 } },
            "identity": { "scheme": "nguid", "value": "ab" } });

        assert_eq!(Value::from(read(value.clone()).unwrap()), value);
    }

    #[test]
    fn the_mount_point_base_beside_the_data_is_kept() {
        for key in ["mount_point_base", "mountPointBase"] {
            let mut value = json!({ "driver_volume_type": "nfs", "data": { "export": "a:/x" } });
            value[key] = json!("/mnt/base");
            let info = read(value.clone()).unwrap();
            assert_eq!(
                info.parse::<Map<String, Value>>().unwrap()["mount_point_base"],
                "/mnt/base"
            );
            assert_eq!(read(Value::from(info.clone())).unwrap(), info, "and survives a round trip");

            value["data"][key] = json!("/mnt/base");
            assert_eq!(read(value.clone()).unwrap().data, info.data);
            value["data"][key] = json!("/elsewhere");
            assert!(read(value).is_err());
        }
    }

    #[test]
    fn passwords_inside_of_other_fields_are_split_off() {
        let smb = read(json!({ "driver_volume_type": "smbfs", "data": {
            "export": "//s/x:y", "options": "-o username=u,password=hunter2" } }))
        .unwrap();
        let cluster = read(json!({ "driver_volume_type": "vzstorage", "data": {
            "exportLocation": "mds:/c1:hunter2", "options": "-o pass=hunter2" } }))
        .unwrap();
        let list = read(json!({ "driver_volume_type": "vzstorage", "data": {
            "exportLocations": ["mds:/c1:hunter2", "c1:hunter2"] } }))
        .unwrap();

        for info in [&smb, &cluster, &list] {
            assert_eq!(info.secrets["password"].expose(), "hunter2");
            let shown = format!("{info:?} {}", serde_json::to_string(info).unwrap());
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(smb.data["options"], "-o username=u");
        assert_eq!(smb.data["export"], "//s/x:y", "only clusters have passwords there");
        assert_eq!(cluster.data["exportLocation"], "mds:/c1");
        assert_eq!(list.data["exportLocations"], json!(["mds:/c1", "c1"]));
        let twice = json!({ "driver_volume_type": "smbfs", "data": {
            "password": "a", "options": "-o password=b" } });
        assert!(read(twice).is_err());
    }

    #[test]
    fn other_shapes_are_refused() {
        for bad in [
            json!(null),
            json!([]),
            json!({}),
            json!({ "driver_volume_type": "iscsi" }),
            json!({ "driver_volume_type": 7, "data": {} }),
            json!({ "driver_volume_type": "", "data": {} }),
            json!({ "driver_volume_type": "a", "driverVolumeType": "b", "data": {} }),
            json!({ "driver_volume_type": "a", "data": { "password": 7 } }),
            json!({ "driver_volume_type": "a", "data": {}, "identity": "x" }),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = serde_json::from_str::<ConnectionInfo>(&text);
            let _ = canonical_field(&text);
        }

        #[test]
        fn any_data_survives(key in "[a-zA-Z_]{1,12}", value in "\\PC{0,20}") {
            let mut data = Map::new();
            data.insert(key, Value::String(value));
            if let Ok(info) = read(json!({ "driver_volume_type": "x", "data": data })) {
                let back = read(Value::from(info.without_secrets())).unwrap();
                prop_assert_eq!(&back.data, &info.data);
                let _ = info.parse::<Map<String, Value>>();
            }
        }
    }
}
