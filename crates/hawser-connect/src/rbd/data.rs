//! What the connection info says of an image, and the text that maps it.

use std::path::PathBuf;

use hawser_core::attach::{Attached, Identity};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::secret::Secret;

use super::error::RbdError;
use super::monitors::{self, Monitors};
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};

/// One image and the way to it.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) pool: String,
    pub(super) namespace: Option<String>,
    pub(super) image: String,
    pub(super) snapshot: Option<String>,
    monitors: Monitors,
    pub(super) user: String,
    pub(super) read_only: bool,
    pub(super) expected: Vec<Identity>,
    cluster: String,
    needs_key: bool,
    key: Option<Secret>,
}

/// Reads the data, and refuses what cannot be meant.
pub(super) fn read(info: &ConnectionInfo) -> Result<Image, AttachError> {
    let fields = Fields::of(info)?;
    let (pool, namespace, image, snapshot) = split_name(fields.need_text("name")?)?;
    let word = |field: &str, value: &str| match is_word(value) {
        true => Ok(value.to_owned()),
        false => Err(invalid(field, "must not be empty or have blanks, commas or equals signs")),
    };
    let user = match fields.text("auth_username")? {
        Some(user) => word("auth_username", user.strip_prefix("client.").unwrap_or(user))?,
        None => "admin".to_owned(),
    };
    let cluster = fields.text("cluster_name")?.unwrap_or("ceph");
    if cluster.is_empty() || cluster.contains(['/', '.']) {
        return Err(invalid("cluster_name", "must be a plain name"));
    }
    let key = match (info.secrets.get("secret"), info.secrets.get("keyring")) {
        (Some(secret), _) => Some(checked_key(secret.expose(), "secret")?),
        (None, Some(text)) => {
            let found = key_of(text.expose(), &user);
            Some(checked_key(&found.ok_or_else(|| invalid("keyring", "has no key"))?, "keyring")?)
        }
        (None, None) => None,
    };
    Ok(Image {
        pool,
        namespace,
        image,
        snapshot,
        monitors: monitors::read(&fields)?,
        user,
        read_only: fields.read_only()?.unwrap_or(false),
        expected: fields.expected(info)?,
        cluster: cluster.to_owned(),
        needs_key: fields.flag("auth_enabled")?.unwrap_or(true),
        key,
    })
}

/// Words of the mapping text: the kernel splits it at blanks and commas.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == ',' || c == '=')
}

type Name = (String, Option<String>, String, Option<String>);

/// `pool/image`, `pool/namespace/image`, each with or without `@snapshot`.
fn split_name(name: &str) -> Result<Name, AttachError> {
    let (path, snapshot) = match name.split_once('@') {
        Some((path, snapshot)) => (path, Some(snapshot)),
        None => (name, None),
    };
    let parts: Vec<&str> = path.split('/').collect();
    let (pool, namespace, image) = match parts.as_slice() {
        [pool, image] => (*pool, None, *image),
        [pool, namespace, image] => (*pool, Some(*namespace), *image),
        _ => return Err(invalid("name", "must be pool/image or pool/namespace/image")),
    };
    let plain = |part: &str| !part.is_empty() && !part.contains(char::is_whitespace);
    let all = [Some(pool), namespace, Some(image), snapshot];
    if !all.iter().flatten().all(|part| plain(part)) || namespace.is_some_and(|n| !is_word(n)) {
        return Err(invalid("name", "must have parts without blanks"));
    }
    let owned = |part: Option<&str>| part.map(str::to_owned);
    Ok((pool.into(), owned(namespace), image.into(), owned(snapshot)))
}

/// The key of a user in a keyring file; the only key where there is just one.
fn key_of(keyring: &str, user: &str) -> Option<String> {
    let (mut section, mut keys) = (String::new(), Vec::new());
    for line in keyring.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_owned();
        } else if let Some((name, value)) = line.split_once('=')
            && name.trim() == "key"
        {
            keys.push((section.clone(), value.trim().to_owned()));
        }
    }
    let wanted = format!("client.{user}");
    let of_user = keys.iter().find(|(section, _)| *section == wanted);
    match (of_user, keys.as_slice()) {
        (Some((_, key)), _) | (None, [(_, key)]) => Some(key.clone()),
        (None, _) => None,
    }
}

fn checked_key(key: &str, field: &str) -> Result<Secret, AttachError> {
    let key = key.trim();
    let base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    if key.is_empty() || !key.chars().all(base64) {
        return Err(invalid(field, "must be a key in base64"));
    }
    Ok(Secret::new(key))
}

impl Image {
    /// The whole name, as people write it.
    pub(super) fn name(&self) -> String {
        let namespace = self.namespace.as_ref().map(|n| format!("{n}/")).unwrap_or_default();
        let snapshot = self.snapshot.as_ref().map(|s| format!("@{s}")).unwrap_or_default();
        format!("{}/{namespace}{}{snapshot}", self.pool, self.image)
    }

    /// The monitors that the kernel is told, in one text.
    pub(super) fn monitors(&self) -> String {
        self.monitors.used.join(",")
    }

    /// True when a mapping that was made with these monitors has one that is known here.
    pub(super) fn shares_monitor(&self, monitors: &str) -> bool {
        monitors.split(',').any(|monitor| self.monitors.given.iter().any(|given| given == monitor))
    }

    /// This image, which must be the one that was attached.
    pub(super) fn expecting(mut self, attached: Option<&Attached>) -> Self {
        if self.expected.is_empty() {
            self.expected.extend(attached.and_then(Attached::identity).cloned());
        }
        self
    }

    /// The key: given, or that of the host's own keyring.
    pub(super) fn key(&self, host: &dyn Host) -> Result<Option<Secret>> {
        if !self.needs_key {
            return Ok(None);
        }
        if let Some(key) = &self.key {
            return Ok(Some(key.clone()));
        }
        let file = format!("/etc/ceph/{}.client.{}.keyring", self.cluster, self.user);
        let text = host.files().read_text(&PathBuf::from(&file))?;
        let found = text.and_then(|text| key_of(&text, &self.user));
        match found {
            Some(key) => Ok(Some(checked_key(&key, "keyring")?)),
            None => Err(RbdError::NoKey { user: self.user.clone(), file }.into()),
        }
    }

    /// What the kernel wants to read.
    pub(super) fn request(&self, key: Option<&Secret>, read_only: bool, seconds: u64) -> String {
        let mut options = vec![format!("name={}", self.user)];
        options.extend(key.map(|key| format!("secret={}", key.expose())));
        options.push(format!("mount_timeout={seconds}"));
        options.extend(self.monitors.mode.map(|mode| format!("ms_mode={mode}")));
        options.extend(self.namespace.as_ref().map(|namespace| format!("_pool_ns={namespace}")));
        if read_only || self.snapshot.is_some() {
            options.push("ro".into());
        }
        let snapshot = self.snapshot.as_deref().unwrap_or("-");
        let (monitors, options) = (self.monitors(), options.join(","));
        format!("{monitors} {options} {} {} {snapshot}", self.pool, self.image)
    }
}
