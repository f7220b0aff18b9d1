//! The settings of os-brick's connector, where administrators put the gateway's password.

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::secret::Secret;

use super::data::Access;
use crate::shared::error::AttachError;

/// Where they stand.
pub(super) const FILE: &str = "/opt/emc/scaleio/openstack/connector.conf";

/// Who logs in.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: Option<Secret>,
}

/// Who logs in: as the info says, or as the settings say.
pub(super) fn login(host: &dyn Host, access: &Access) -> Result<Login> {
    let user = access.user.clone();
    let group = match (&access.password, &access.group) {
        (None, Some(group)) => group,
        (password, _) => return Ok(Login { user, password: password.clone() }),
    };
    let missing = |what: String| {
        let advice = format!("put san_username and san_password there, under [{group}]");
        AttachError::Missing { what, advice }
    };
    let text = host.files().read(FILE.as_ref())?;
    let text = text.ok_or_else(|| missing(format!("the password of the gateway in {FILE}")))?;
    let prefix = if access.failed_over { "replicating_san" } else { "san" };
    let text = String::from_utf8_lossy(&text);
    let password = value(&text, group, &format!("{prefix}_password"))
        .ok_or_else(|| missing(format!("{prefix}_password in {FILE}")))?;
    // The user may have changed since the info was made.
    let user = value(&text, group, &format!("{prefix}_username")).unwrap_or(user);
    Ok(Login { user, password: Some(Secret::new(password)) })
}

/// One value of a section; the last one counts. `%%` is an escaped `%`, as in every such file of
/// Python's configparser.
pub(super) fn value(text: &str, section: &str, key: &str) -> Option<String> {
    let mut inside = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = name == section;
            continue;
        }
        let Some((name, value)) = line.split_once(['=', ':']) else { continue };
        if inside && name.trim().eq_ignore_ascii_case(key) {
            found = Some(value.trim().replace("%%", "%"));
        }
    }
    found.filter(|value| !value.is_empty())
}

#[cfg(test)]
hawser_testkit::fuzz_corpus!(corpus, "scaleio_connector_conf", |bytes| {
    let _ = value(&String::from_utf8_lossy(bytes), "powerflex", "san_password");
});
