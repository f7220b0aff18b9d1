//! A share, and who asks for it.

use std::path::{Path, PathBuf};

use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Host;
use hawser_core::secret::Secret;

use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::remote_fs::data::Volume;
use crate::shared::remote_fs::options::Options;

/// The port of SMB.
const PORT: u16 = 445;

/// A share of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) server: String,
    /// Everything after the server, without a slash at the end: `share` or `share/folder`.
    pub(super) path: String,
    pub(super) who: Who,
    /// The options of the mount without those that say who.
    pub(super) options: Options,
    pub(super) port: u16,
}

/// In whose name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) user: Option<String>,
    pub(super) domain: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) guest: bool,
    /// A file with all three, which is read when it is needed.
    pub(super) file: Option<PathBuf>,
}

impl Share {
    /// Reads `//server/share` and the credentials, wherever they stand.
    pub(super) fn read(
        host: &dyn Host,
        info: &ConnectionInfo,
        volume: &Volume,
    ) -> Result<Self, AttachError> {
        let wrong = || invalid("export", "must be //server/share");
        let (server, path) = split(&volume.export).ok_or_else(wrong)?;
        let mut options = volume.options.clone();
        let port = options.port("port")?.unwrap_or(PORT);
        let mut who = Who::read(&Fields::of(info)?, &mut options)?;
        who.password = info.secrets.get("password").cloned();
        if let Some(file) = &who.file
            && let Ok(Some(bytes)) = host.files().read(file)
        {
            who.fill(&String::from_utf8_lossy(&bytes));
        }
        Ok(Self { server, path, who, options, port })
    }

    /// As the kernel takes it.
    pub(super) fn source(&self) -> String {
        format!("//{}/{}", self.server, self.path)
    }

    /// True when a source of the mount table is this share. Names of servers and shares have no
    /// case; folders below may.
    pub(super) fn is_source(&self, source: &str) -> bool {
        self.is_path(source)
            && split(source).is_some_and(|(server, _)| server.eq_ignore_ascii_case(&self.server))
    }

    /// The same, whatever the server is called: it may have two names.
    pub(super) fn is_path(&self, source: &str) -> bool {
        let Some((_, path)) = split(source) else { return false };
        let ((share, folder), (own_share, own_folder)) = (halves(&path), halves(&self.path));
        share.eq_ignore_ascii_case(own_share) && folder == own_folder
    }
}

impl Who {
    fn read(fields: &Fields, options: &mut Options) -> Result<Self, AttachError> {
        let one = |field: &str, option: Option<String>| match (fields.text(field)?, option) {
            (Some(a), Some(b)) if a != b => {
                Err(invalid(field, "is given twice with different values"))
            }
            (Some(text), _) => Ok(Some(text.to_owned())),
            (None, option) => Ok(option),
        };
        let user = one("username", options.take(&["username", "user"]))?;
        let domain = one("domain", options.take(&["domain", "dom", "workgroup"]))?;
        let file = options.take(&["credentials", "cred"]).map(PathBuf::from);
        if file.as_deref().is_some_and(|file| !is_plain(file)) {
            return Err(invalid("options", "have credentials, which must be an absolute path"));
        }
        let guest = options.take_flag(&["guest"]) || user.as_deref() == Some("guest");
        let mut who = Self { user: user.filter(|_| !guest), domain, guest, file, password: None };
        who.split_user();
        Ok(who)
    }

    /// `DOMAIN\user` and `DOMAIN/user` say both.
    fn split_user(&mut self) {
        let Some(user) = &self.user else { return };
        if let Some((domain, name)) = user.split_once(['\\', '/']) {
            let (domain, name) = (domain.to_owned(), name.to_owned());
            self.domain.get_or_insert(domain);
            self.user = Some(name);
        }
    }

    /// Takes what a credentials file says where nothing else does.
    fn fill(&mut self, text: &str) {
        for line in text.lines() {
            let Some((key, value)) = line.trim_start().split_once('=') else { continue };
            match key.trim_end() {
                "username" | "user" => {
                    self.user.get_or_insert_with(|| value.trim().into());
                }
                "domain" | "dom" | "workgroup" => {
                    self.domain.get_or_insert_with(|| value.trim().into());
                }
                "password" | "pass" => {
                    self.password.get_or_insert_with(|| Secret::new(value));
                }
                _ => {}
            }
        }
        self.split_user();
    }
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir)
}

/// Server and the rest, whatever slashes were used.
fn split(export: &str) -> Option<(String, String)> {
    let text = export.replace('\\', "/");
    let (server, path) = text.strip_prefix("//")?.split_once('/')?;
    let path = path.trim_end_matches('/');
    let legal = !server.is_empty()
        && !server.contains(char::is_whitespace)
        && !path.is_empty()
        && path.split('/').all(|part| !part.is_empty() && part != ".." && part != ".");
    legal.then(|| (server.to_owned(), path.to_owned()))
}

/// The share and the folder in it.
fn halves(path: &str) -> (&str, &str) {
    path.split_once('/').unwrap_or((path, ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn who(data: serde_json::Value, options: &str) -> Result<Who, AttachError> {
        let info = json!({ "driver_volume_type": "smbfs", "data": data });
        let fields = Fields::of(&serde_json::from_value(info).unwrap()).unwrap();
        Who::read(&fields, &mut Options::parse(options).unwrap())
    }

    #[test]
    fn shares_are_split_with_any_slashes() {
        for export in ["//nas/vols", "\\\\nas\\vols", "//nas/vols/"] {
            assert_eq!(split(export), Some(("nas".into(), "vols".into())));
        }
        assert_eq!(split("//nas/vols/a/b"), Some(("nas".into(), "vols/a/b".into())));
        assert_eq!(split("//nas/All Vols"), Some(("nas".into(), "All Vols".into())));
        for export in [
            "",
            "//",
            "//nas",
            "//nas/",
            "/nas/vols",
            "///vols",
            "//nas/a//b",
            "//n/a/../b",
            "//n s/a",
        ] {
            assert_eq!(split(export), None, "{export}");
        }
    }

    #[test]
    fn credentials_stand_in_fields_or_options() {
        let by_option = who(json!({}), "-o user=u,dom=d").unwrap();
        let by_field = who(json!({ "username": "u", "domain": "d" }), "").unwrap();
        let both = who(json!({ "username": "d\\u" }), "").unwrap();

        assert_eq!((&by_option, &by_option), (&by_field, &both));
        assert!(who(json!({ "username": "a" }), "-o user=b").is_err());
        assert!(who(json!({}), "-o credentials=relative").is_err());
        for options in ["-o guest", "-o user=guest"] {
            let guest = who(json!({}), options).unwrap();
            assert!(guest.guest && guest.user.is_none(), "{options}");
        }
    }

    #[test]
    fn a_credentials_file_fills_what_is_missing() {
        let mut known = Who { user: Some("u".into()), ..Who::default() };

        known.fill("username=other\n password= with blank \n# x\nDOMAIN\ndomain = d \n");

        assert_eq!(known.user.as_deref(), Some("u"));
        assert_eq!(known.domain.as_deref(), Some("d"));
        assert_eq!(known.password.unwrap().expose(), " with blank ");
    }

    proptest! {
        #[test]
        fn any_text_is_a_share_or_none(text in "\\PC{0,40}") {
            if let Some((server, path)) = split(&text) {
                prop_assert!(!server.contains('/') && !path.ends_with('/'));
            }
            Who::default().fill(&text);
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "smb_credentials", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut who = Who { user: Some("u".into()), ..Who::default() };
        who.fill(&text);
        assert_eq!(who.user.as_deref(), Some("u"), "what is known was changed");
        if let Some(password) = who.password {
            assert!(text.contains(password.expose()), "a password was made up");
        }
    });
}
