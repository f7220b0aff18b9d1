//! The node database: settings of targets as files.

use super::Portal;
use crate::fake_host::Tree;

/// Where records are.
const NODES: &str = "/etc/iscsi/nodes";

/// The names of settings that the simulation reads.
pub(super) const USER: &str = "node.session.auth.username";
pub(super) const PASSWORD: &str = "node.session.auth.password";
pub(super) const METHOD: &str = "node.session.auth.authmethod";
pub(super) const REPLACEMENT: &str = "node.session.timeo.replacement_timeout";
pub(super) const LOGIN: &str = "node.conn[0].timeo.login_timeout";
pub(super) const TRIES: &str = "node.session.initial_login_retry_max";

/// Every setting of a new record beyond its address: name and value.
const DEFAULTS: [(&str, &str); 14] = [
    ("iface.iscsi_ifacename", "default"),
    ("iface.transport_name", "tcp"),
    ("node.discovery_type", "static"),
    ("node.startup", "manual"),
    ("node.leading_login", "No"),
    ("node.session.initial_cmdsn", "0"),
    (TRIES, "8"),
    ("node.session.nr_sessions", "1"),
    (METHOD, "None"),
    (REPLACEMENT, "120"),
    ("node.session.scan", "auto"),
    (LOGIN, "15"),
    ("node.conn[0].timeo.logout_timeout", "15"),
    ("node.conn[0].startup", "manual"),
];

/// One record and its file.
pub(super) struct Record {
    pub(super) file: String,
    pub(super) iqn: String,
    pub(super) portal: Portal,
    settings: Vec<(String, String)>,
}

impl Record {
    pub(super) fn get(&self, name: &str) -> &str {
        self.get_or(name, "")
    }

    pub(super) fn get_or<'a>(&'a self, name: &str, other: &'a str) -> &'a str {
        let found = self.settings.iter().rev().find(|(its, _)| its == name);
        found.map_or(other, |(_, value)| value)
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        match self.settings.iter_mut().find(|(its, _)| its == name) {
            Some((_, old)) => *old = value.into(),
            None => self.settings.push((name.into(), value.into())),
        }
    }

    /// As the tool prints it: secrets as stars.
    pub(super) fn print(&self) -> String {
        let line = |(name, value): &(String, String)| {
            let value = if name.contains("password") { "********" } else { value };
            format!("{name} = {value}\n")
        };
        let body: String = self.settings.iter().map(line).collect();
        format!("# BEGIN RECORD 2.1.8\n{body}# END RECORD\n")
    }

    pub(super) fn write(&self, tree: &mut Tree) {
        let body: String =
            self.settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        let text = format!("# BEGIN RECORD 2.1.8\n{body}# END RECORD\n");
        tree.file_mode(&self.file, text, 0o600);
    }

    /// Removes the file, and the folders that it leaves empty.
    pub(super) fn remove(&self, tree: &mut Tree) {
        tree.remove(&self.file);
        let mut folder = std::path::Path::new(&self.file).parent();
        while let Some(path) = folder.filter(|path| *path != std::path::Path::new(NODES)) {
            if !tree.list(path).is_empty() {
                break;
            }
            tree.remove(path);
            folder = path.parent();
        }
    }
}

/// A new record; `group` is known when discovery made it.
pub(super) fn new_record(iqn: &str, portal: &Portal, group: Option<u32>, iface: &str) -> Record {
    let file = match group {
        Some(group) => format!("{NODES}/{iqn}/{},{group}/{iface}", portal.file_name()),
        None => format!("{NODES}/{iqn}/{}", portal.file_name()),
    };
    let group = group.map_or("-1".to_owned(), |group| group.to_string());
    let mut record = Record { file, iqn: iqn.into(), portal: portal.clone(), settings: Vec::new() };
    record.set("node.name", iqn);
    record.set("node.tpgt", &group);
    for (name, value) in DEFAULTS {
        record.set(name, value);
    }
    record.set("iface.iscsi_ifacename", iface);
    if iface.starts_with("iser") {
        record.set("iface.transport_name", "iser");
    }
    record.set("node.conn[0].address", &portal.address.to_string());
    record.set("node.conn[0].port", &portal.port.to_string());
    record
}

/// All records, or those of a target, a portal or both.
pub(super) fn records(tree: &Tree, iqn: Option<&str>, portal: Option<&Portal>) -> Vec<Record> {
    let mut found = Vec::new();
    for name in tree.list(NODES).into_iter().filter(|name| iqn.is_none_or(|iqn| iqn == name)) {
        for place in tree.list(format!("{NODES}/{name}")) {
            let path = format!("{NODES}/{name}/{place}");
            let mut parts = place.split(',');
            let address = parts.next().and_then(|text| text.parse().ok());
            let port = parts.next().and_then(|text| text.parse().ok());
            let (Some(address), Some(port)) = (address, port) else { continue };
            let its = Portal { address, port };
            if portal.is_some_and(|portal| *portal != its) {
                continue;
            }
            let files = match tree.read(&path) {
                Some(_) => vec![path.clone()],
                None => tree.list(&path).iter().map(|iface| format!("{path}/{iface}")).collect(),
            };
            found.extend(files.into_iter().map(|file| read(tree, file, &name, &its)));
        }
    }
    found
}

fn read(tree: &Tree, file: String, iqn: &str, portal: &Portal) -> Record {
    let text = tree.text(&file);
    let setting = |line: &str| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    let settings = text.lines().filter(|line| !line.starts_with('#')).filter_map(setting).collect();
    Record { file, iqn: iqn.into(), portal: portal.clone(), settings }
}
