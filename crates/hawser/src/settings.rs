//! Settings: the compiled-in file, then a file of the administrator's, then the environment, then
//! flags. Read once, here, and passed on as values.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value};

use hawser_api::link::TlsFiles;
use hawser_core::error::{Classify, Kind, Result};
use hawser_core::name::{ClassName, NodeId};
use hawser_front::cli::Global;

/// The documented defaults.
const BUILT_IN: &str = include_str!("../../../deploy/hawser.toml");

/// What the server commands take from the command line and the environment.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SettingsFlags {
    /// A settings file; see deploy/hawser.toml for every key and its default
    #[arg(long, env = "HAWSER_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store: embedded:FILE
    #[arg(long, env = "HAWSER_STORE", value_name = "KIND:PLACE")]
    store: Option<String>,
    /// The name of this node; the host name unless given
    #[arg(long, env = "HAWSER_NODE_ID", value_name = "NAME")]
    node_id: Option<String>,
    /// What is logged: a level or a filter such as info,hawser_engine=debug
    #[arg(long, env = "HAWSER_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How: text or json
    #[arg(long, env = "HAWSER_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<String>,
    /// The Unix socket of the REST API
    #[arg(long, env = "HAWSER_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// An address for TCP; needs --token-file
    #[arg(long, env = "HAWSER_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The certificate chain of the TCP address
    #[arg(long, env = "HAWSER_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of the TCP address
    #[arg(long, env = "HAWSER_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Where nodes on other machines dial in, over mutual TLS; needs the other --link options
    #[arg(long, env = "HAWSER_LINK_LISTEN", value_name = "ADDRESS:PORT")]
    link_listen: Option<String>,
    /// The certificate chain of this end of the node link
    #[arg(long, env = "HAWSER_LINK_CERT", value_name = "FILE")]
    link_cert: Option<PathBuf>,
    /// The key of this end of the node link
    #[arg(long, env = "HAWSER_LINK_KEY", value_name = "FILE")]
    link_key: Option<PathBuf>,
    /// The authority that the certificate of the other end must come from
    #[arg(long, env = "HAWSER_LINK_CA", value_name = "FILE")]
    link_ca: Option<PathBuf>,
    /// The class that is used when none is named
    #[arg(long, env = "HAWSER_DEFAULT_CLASS", value_name = "CLASS")]
    default_class: Option<String>,
}

/// Everything the server needs to know.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Where everything of this instance lives.
    pub(crate) state_dir: PathBuf,
    /// The store.
    pub(crate) store: String,
    /// The name of this node.
    pub(crate) node_id: Option<NodeId>,
    /// What is logged.
    pub(crate) log: String,
    /// How.
    pub(crate) log_format: LogFormat,
    /// The Unix socket of the REST API.
    pub(crate) socket: PathBuf,
    /// A group, by number, whose members may use the socket too.
    pub(crate) socket_group: Option<u32>,
    /// An address for TCP.
    pub(crate) listen: Option<SocketAddr>,
    /// A file with the token of TCP callers.
    pub(crate) token_file: Option<PathBuf>,
    /// The certificate chain of the TCP address.
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the TCP address.
    pub(crate) tls_key: Option<PathBuf>,
    /// Where nodes on other machines dial in.
    pub(crate) link_listen: Option<SocketAddr>,
    /// The certificate chain of this end of the node link.
    pub(crate) link_cert: Option<PathBuf>,
    /// The key of this end of the node link.
    pub(crate) link_key: Option<PathBuf>,
    /// The authority of the other end of the node link.
    pub(crate) link_ca: Option<PathBuf>,
    /// The class that is used when none is named.
    pub(crate) default_class: ClassName,
    /// The classes.
    #[serde(default)]
    pub(crate) class: BTreeMap<ClassName, ClassSettings>,
}

/// One class.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ClassSettings {
    /// Which provider.
    pub(crate) provider: String,
    /// The provider's own settings.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The file cannot be read.
    #[error("reading the settings file {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is not TOML.
    #[error("the settings file {} is not TOML", path.display())]
    Malformed { path: PathBuf, source: Box<toml::de::Error> },
    /// A value or a key is wrong.
    #[error("the settings cannot be used")]
    Wrong { source: Box<toml::de::Error> },
    /// Some of the files of the node link are missing.
    #[error("link_cert, link_key and link_ca are set together or not at all")]
    HalfALink,
}

impl Classify for SettingsError {
    fn kind(&self) -> Kind {
        match self {
            Self::Unreadable { .. }
            | Self::Malformed { .. }
            | Self::Wrong { .. }
            | Self::HalfALink => Kind::Invalid,
        }
    }
}

impl Settings {
    /// Lays the sources over each other.
    pub(crate) fn read(
        flags: &SettingsFlags,
        global: &Global,
        state_dir: &Path,
        privileged: bool,
    ) -> Result<Self> {
        let built_in = Path::new("deploy/hawser.toml");
        let mut table = parse(built_in, BUILT_IN)?;
        if let Some(path) = &flags.config {
            let text = std::fs::read_to_string(path)
                .map_err(|source| SettingsError::Unreadable { path: path.clone(), source })?;
            let file = parse(path, &text)?;
            // Whoever lists classes means those: the built-in one is only for who lists none.
            if file.contains_key("class") {
                table.remove("class");
            }
            overlay(&mut table, file);
        }
        overlay(&mut table, flags.table());
        // The same options are a client's: where its server is, and the token it sends.
        if global.state_dir.is_some() {
            table.insert("state_dir".into(), state_dir.display().to_string().into());
        }
        if let Some(path) = &global.token_file {
            table.insert("token_file".into(), path.display().to_string().into());
        }
        Self::complete(table, state_dir, privileged)
    }

    /// Fills in the defaults that depend on where Hawser runs, below the folder that is used in the
    /// end: `state_dir` is only for who named none.
    fn complete(mut table: toml::Table, state_dir: &Path, privileged: bool) -> Result<Self> {
        let named = table.get("state_dir").and_then(toml::Value::as_str).map(PathBuf::from);
        let state_dir = named.as_deref().unwrap_or(state_dir);
        let mut default = |key: &str, value: String| {
            table.entry(key).or_insert_with(|| toml::Value::String(value));
        };
        default("state_dir", state_dir.display().to_string());
        default("store", format!("embedded:{}", state_dir.join("store.redb").display()));
        default("socket", state_dir.join("hawser.sock").display().to_string());
        let mut settings: Self =
            table.try_into().map_err(|source| SettingsError::Wrong { source: Box::new(source) })?;
        for (name, class) in &mut settings.class {
            if class.provider == "local" {
                let folder = if name.as_str() == "default" {
                    "pool".to_owned()
                } else {
                    format!("pool-{name}")
                };
                let path = settings.state_dir.join(folder);
                class.rest.entry("path").or_insert_with(|| path.display().to_string().into());
                let kind = if privileged { "image" } else { "folder" };
                class.rest.entry("kind").or_insert_with(|| kind.into());
            }
        }
        Ok(settings)
    }
}

impl Settings {
    /// The files of this end of the node link; all of them or none.
    pub(crate) fn link_files(&self) -> Result<Option<TlsFiles>> {
        match (&self.link_cert, &self.link_key, &self.link_ca) {
            (Some(certificate), Some(key), Some(authority)) => Ok(Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                authority: authority.clone(),
            })),
            (None, None, None) => Ok(None),
            (_, _, _) => Err(SettingsError::HalfALink.into()),
        }
    }
}

impl SettingsFlags {
    /// The flags that were given, as a settings table.
    fn table(&self) -> toml::Table {
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let given = [
            ("store", self.store.clone()),
            ("node_id", self.node_id.clone()),
            ("log", self.log.clone()),
            ("log_format", self.log_format.clone()),
            ("socket", text(&self.socket)),
            ("listen", self.listen.clone()),
            ("tls_cert", text(&self.tls_cert)),
            ("tls_key", text(&self.tls_key)),
            ("link_listen", self.link_listen.clone()),
            ("link_cert", text(&self.link_cert)),
            ("link_key", text(&self.link_key)),
            ("link_ca", text(&self.link_ca)),
            ("default_class", self.default_class.clone()),
        ];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value?)));
        given.map(|(key, value)| (key.to_owned(), toml::Value::String(value))).collect()
    }
}

fn parse(path: &Path, text: &str) -> Result<toml::Table> {
    Ok(text.parse::<toml::Table>().map_err(|source| SettingsError::Malformed {
        path: path.to_owned(),
        source: Box::new(source),
    })?)
}

/// Lays `over` on `table`, section by section.
fn overlay(table: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn global(arguments: &[&str]) -> Global {
        #[derive(clap::Parser)]
        struct Options {
            #[command(flatten)]
            global: Global,
        }
        let arguments = ["hawser"].iter().chain(arguments);
        <Options as clap::Parser>::parse_from(arguments).global
    }

    fn read(file: &str) -> Result<Settings> {
        read_with(file, &global(&[]), "/state")
    }

    fn read_with(file: &str, global: &Global, state_dir: &str) -> Result<Settings> {
        let mut config = tempfile::NamedTempFile::new().unwrap();
        config.write_all(file.as_bytes()).unwrap();
        let flags = SettingsFlags {
            config: Some(config.path().to_owned()),
            log: Some("debug".into()),
            ..SettingsFlags::default()
        };
        Settings::read(&flags, global, Path::new(state_dir), true)
    }

    #[test]
    fn nothing_needs_to_be_set() {
        let settings =
            Settings::read(&SettingsFlags::default(), &global(&[]), Path::new("/state"), false)
                .unwrap();

        assert_eq!(settings.store, "embedded:/state/store.redb");
        assert_eq!(settings.socket, Path::new("/state/hawser.sock"));
        let class = &settings.class[&settings.default_class];
        assert_eq!(class.rest["path"], "/state/pool");
        assert_eq!(class.rest["kind"], "folder");
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_built_in() {
        let settings = read("log = \"warn\"\nlog_format = \"json\"").unwrap();

        assert_eq!(settings.log, "debug");
        assert_eq!(settings.log_format, LogFormat::Json);
    }

    #[test]
    fn the_state_folder_of_the_file_takes_everything_along_and_a_flag_wins_over_it() {
        let file = "state_dir = \"/of-the-file\"";

        let settings = read(file).unwrap();
        assert_eq!(settings.state_dir, Path::new("/of-the-file"));
        assert_eq!(settings.store, "embedded:/of-the-file/store.redb");
        assert_eq!(settings.socket, Path::new("/of-the-file/hawser.sock"));
        assert_eq!(settings.class[&settings.default_class].rest["path"], "/of-the-file/pool");
        let flag = global(&["--state-dir", "/of-the-flag"]);
        let settings = read_with(file, &flag, "/of-the-flag").unwrap();

        assert_eq!(settings.state_dir, Path::new("/of-the-flag"));
        assert_eq!(settings.store, "embedded:/of-the-flag/store.redb");
        assert_eq!(settings.socket, Path::new("/of-the-flag/hawser.sock"));
    }

    #[test]
    fn classes_of_a_file_replace_the_built_in_one() {
        let settings =
            read("default_class = \"gold\"\n[class.gold]\nprovider = \"local\"").unwrap();

        assert_eq!(settings.class.len(), 1);
        assert_eq!(settings.class[&settings.default_class].rest["path"], "/state/pool-gold");
    }

    #[test]
    fn what_is_no_setting_is_refused_by_name() {
        for (bad, word) in [
            ("colour = 1", "colour"),
            ("socket_group = \"a\"", "socket_group"),
            ("listen = \"here\"", "listen"),
            ("[class.\"A B\"]\nprovider = \"local\"", "class"),
            ("log = ", "TOML"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.sentence().contains(word), "{bad}: {}", error.sentence());
            assert_eq!(error.kind(), Kind::Invalid);
        }
    }
}
