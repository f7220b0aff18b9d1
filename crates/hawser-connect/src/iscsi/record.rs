//! Records of the node database of open-iscsi: files that `iscsiadm` reads before it logs in.
//!
//! A record is written here as a whole, readable by root alone. That needs no program where
//! `iscsiadm` would run once per setting, and no secret stands in an argument. The form of a record
//! without a portal group (`nodes/IQN/ADDRESS,PORT`) is read by every version of `iscsiadm` since
//! 2.0-865; keys that are left out get its built-in values, so what `iscsid.conf` says is copied.
//!
//! The database has a lock, which is a link that a killed process leaves behind and everybody then
//! waits half a minute for. It is not taken: a record appears under its name complete or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::data::{Chap, Target, Transport};
use super::kept::Kept;
use super::notes::Notes;
use super::portal::Portal;
use crate::shared::error::AttachError;
use crate::shared::fields::invalid;

const ENOTEMPTY: i32 = 39;

/// Where distributions have the database: Debian and SUSE, then all others.
const ROOTS: [&str; 2] = ["/etc/iscsi", "/var/lib/iscsi"];

/// Folders by which a database is known.
const FOLDERS: [&str; 5] = ["nodes", "send_targets", "ifaces", "static", "isns"];

/// The defaults of this host.
const DEFAULTS: &str = "/etc/iscsi/iscsid.conf";

/// The first line of records that we made: they go with the last volume, also after a reboot.
pub(super) const MARK: &str =
    "# Made by hawser, and removed by it with the last volume of the target.";

/// How long a target may take to answer a login, as [`OURS`] tells iscsid.
pub(super) const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);

/// Settings of ours, whatever the defaults of the host are.
///
/// - Volumes are attached when they are asked for, not when the host starts.
/// - Only the volume that is asked for is scanned: others may belong to other hosts' users.
/// - iscsid tries a first login once. It would go on for minutes with what never works, cannot be
///   stopped, and does not tell an unknown target from one that is slow; whoever asked tries again.
/// - It gives a target [`LOGIN_TIMEOUT`] to answer.
const OURS: [(&str, &str); 7] = [
    ("node.startup", "manual"),
    ("node.conn[0].startup", "manual"),
    ("node.leading_login", "No"),
    ("node.session.scan", "manual"),
    ("node.session.nr_sessions", "1"),
    ("node.session.initial_login_retry_max", "0"),
    ("node.conn[0].timeo.login_timeout", "15"),
];

/// What a login needs beyond its target.
pub(super) struct Settings<'a> {
    pub(super) iface: &'a str,
    pub(super) chap: Option<&'a Chap>,
}

/// The folder of the database; `None` when only `iscsiadm` can tell.
pub(super) fn database(files: &dyn Files) -> Result<Option<PathBuf>> {
    let mut found = Vec::new();
    for root in ROOTS {
        for folder in FOLDERS {
            if files.resolve(&Path::new(root).join(folder))?.is_some() {
                found.push(PathBuf::from(root));
                break;
            }
        }
    }
    Ok(match found.as_slice() {
        [one] => Some(one.join("nodes")),
        _ => None,
    })
}

/// The records of a target and portal in every possible database, for one interface.
pub(super) fn existing(files: &dyn Files, target: &Target, iface: &str) -> Result<Vec<PathBuf>> {
    let mut records = Vec::new();
    let file = target.portal.file_name();
    let with_group = format!("{file},");
    for root in ROOTS {
        let folder = Path::new(root).join("nodes").join(&target.iqn);
        for name in files.list(&folder)? {
            let path = folder.join(&name);
            if name == file {
                records.push(path);
            } else if name.starts_with(&with_group) {
                let record = path.join(iface);
                if files.resolve(&record)?.is_some() {
                    records.push(record);
                }
            }
        }
    }
    Ok(records)
}

/// True when a record is ours.
fn is_ours(files: &dyn Files, record: &Path) -> Result<bool> {
    let text = files.read(record)?.unwrap_or_default();
    Ok(text.starts_with(MARK.as_bytes()))
}

/// The portals of a target of which we made records, also during an earlier boot.
pub(super) fn ours(files: &dyn Files, iqn: &str) -> Result<Vec<Portal>> {
    let mut portals = Vec::new();
    for root in ROOTS {
        let folder = Path::new(root).join("nodes").join(iqn);
        for name in files.list(&folder)? {
            let portal = name.split_once(',').and_then(|(a, port)| Portal::of_parts(a, port));
            if let Some(portal) = portal
                && is_ours(files, &folder.join(&name))?
            {
                portals.push(portal);
            }
        }
    }
    Ok(portals)
}

/// The targets of which there are records.
pub(super) fn targets(files: &dyn Files) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for root in ROOTS {
        names.extend(files.list(&Path::new(root).join("nodes"))?);
    }
    Ok(names)
}

/// Puts a record in place for a login. A record of somebody else is kept in the notes and comes
/// back with [`super::kept::restore`]. It may be called again before that: what stands in its place then is ours,
/// and only what is kept is somebody else's.
pub(super) async fn put(
    host: &dyn Host,
    notes: &Notes<'_>,
    target: &Target,
    settings: &Settings<'_>,
    place: &InPlace,
) -> Result<()> {
    let files = host.files();
    let made_by_tool = matches!(place, InPlace::MadeByTool);
    let kept = Kept::read(files, notes)?;
    let mut known = existing(files, target, settings.iface)?.into_iter();
    let known = match &kept {
        // What iscsiadm made besides it is in the database that it reads.
        Some(kept) if made_by_tool => known.find(|path| *path != kept.path),
        Some(_) => None,
        None => known.next(),
    };
    let (path, theirs) = match (known, kept) {
        (None, Some(Kept { path, content })) => (path, Some(content)),
        (Some(path), _) => {
            let before = files.read(&path)?.unwrap_or_default();
            let ours = before.is_empty() || before.starts_with(MARK.as_bytes()) || made_by_tool;
            let content = (!ours).then(|| String::from_utf8_lossy(&before).into_owned());
            if let Some(content) = &content {
                Kept { path: path.clone(), content: content.clone() }.store(files, notes).await?;
            }
            (path, content)
        }
        (None, None) => {
            let database = match place {
                InPlace::Database(database) => database.as_path(),
                InPlace::MadeByTool => Path::new("/etc/iscsi/nodes"),
            };
            (database.join(&target.iqn).join(target.portal.file_name()), None)
        }
    };
    // Somebody else's stays without our mark, should we die before it is back.
    let (mark, base) = match theirs {
        None => (MARK, defaults(files)?),
        Some(content) => ("# BEGIN RECORD", parse(&content)),
    };
    let record = format!("{mark}\n{}", compose(files, base, target, settings)?);
    files.store(&path, record.as_bytes(), 0o600).await?;
    Ok(())
}

/// How it is known where a record belongs.
pub(super) enum InPlace {
    /// The folder of the database is known.
    Database(PathBuf),
    /// `iscsiadm` has just made the record for us.
    MadeByTool,
}

/// Removes our records of a target and portal, and the folder of the target when it is empty then;
/// true when there was one.
pub(super) async fn remove(host: &dyn Host, target: &Target, iface: &str) -> Result<bool> {
    let files = host.files();
    let mut removed = false;
    // One that an attach was writing when its caller gave up appears a moment later.
    for root in ROOTS {
        let folder = Path::new(root).join("nodes").join(&target.iqn);
        files.settled(&folder).await?;
    }
    for record in existing(files, target, iface)? {
        if is_ours(files, &record)? {
            removed |= files.remove(&record).await?;
        }
    }
    for root in ROOTS {
        let folder = Path::new(root).join("nodes").join(&target.iqn);
        if files.resolve(&folder)?.is_none() || !files.list(&folder)?.is_empty() {
            continue;
        }
        match files.remove(&folder).await {
            Ok(gone) => removed |= gone,
            // Somebody wrote another record into it just now.
            Err(error) if error.errno() == Some(ENOTEMPTY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(removed)
}

type Values = BTreeMap<String, String>;

/// `name = value`, line by line.
fn parse(text: &str) -> Values {
    let line = |line: &str| {
        let line = line.trim();
        let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        let (name, value) = (name.trim(), value.trim());
        let legal = !name.is_empty() && !value.is_empty() && value != "<empty>";
        legal.then(|| (name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// What the host's configuration says about new records.
fn defaults(files: &dyn Files) -> Result<Values> {
    let mut values = parse(&files.read_text(Path::new(DEFAULTS))?.unwrap_or_default());
    values.retain(|name, _| name.starts_with("node."));
    Ok(values)
}

/// A record: what was there or is the default, and over it what we need.
fn compose(
    files: &dyn Files,
    mut values: Values,
    target: &Target,
    settings: &Settings<'_>,
) -> Result<String, AttachError> {
    let mut set = |name: &str, value: &str| values.insert(name.to_owned(), value.to_owned());
    for (name, value) in OURS {
        set(name, value);
    }
    set("node.name", &target.iqn);
    set("node.conn[0].address", &target.portal.address);
    set("node.conn[0].port", &target.portal.port.to_string());
    if let Some(chap) = settings.chap {
        set("node.session.auth.authmethod", "CHAP");
        set("node.session.auth.username", &chap.username);
        set("node.session.auth.password", chap.password.expose());
        if let Some((username, password)) = &chap.target {
            set("node.session.auth.username_in", username);
            set("node.session.auth.password_in", password.expose());
        }
        if let Some(algorithms) = &chap.algorithms {
            set("node.session.auth.chap_algs", algorithms);
        }
    }
    if settings.chap.is_some_and(|chap| chap.target.is_none()) {
        values.remove("node.session.auth.username_in");
        values.remove("node.session.auth.password_in");
    }
    for (name, value) in interface(files, target, settings.iface)? {
        values.insert(name, value);
    }
    // Without these a record without a group is not found again.
    values.entry("node.tpgt".into()).or_insert_with(|| "-1".into());
    values.entry("node.discovery_type".into()).or_insert_with(|| "static".into());
    let mut text = String::new();
    for (name, value) in &values {
        let _ = writeln!(text, "{name} = {value}");
    }
    Ok(text)
}

/// The settings of an interface; the two that every host has need no file.
fn interface(
    files: &dyn Files,
    target: &Target,
    iface: &str,
) -> Result<BTreeMap<String, String>, AttachError> {
    let transport = match target.transport {
        Transport::Tcp => "tcp",
        Transport::Iser => "iser",
    };
    let mut values = BTreeMap::new();
    if iface != "default" && iface != "iser" {
        let mut text = None;
        for root in ROOTS {
            let file = Path::new(root).join("ifaces").join(iface);
            let read = files.read_text(&file);
            text = text.or(read.map_err(AttachError::kernel(format!("reading {iface}")))?);
        }
        let Some(text) = text else {
            let why = format!("names {iface}, and there is no such interface record");
            return Err(invalid("iscsi_iface", &why));
        };
        values = parse(&text);
        values.retain(|name, _| name.starts_with("iface."));
    }
    values.insert("iface.iscsi_ifacename".into(), iface.to_owned());
    values.entry("iface.transport_name".into()).or_insert_with(|| transport.to_owned());
    Ok(values)
}

#[cfg(test)]
hawser_testkit::fuzz_corpus!(corpus, "iscsi_record", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let _ = parse(&text);
});
