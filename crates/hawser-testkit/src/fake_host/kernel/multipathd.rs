//! multipathd, in a simple but honest model: a map forms from paths with the same name of the
//! volume, by the rules of `find_multipaths`; events reach it a wait late; it answers commands as
//! version 0.9 does.

use std::collections::BTreeMap;

use super::behaviour::Answer;
use super::disk::DiskSpec;
use super::errno::ECONNREFUSED;
use super::maps::{Kind, Map, Path};
use super::tree::Tree;

/// Where it remembers volumes.
const WWIDS: &str = "/etc/multipath/wwids";

/// What is in that file before the first name.
const WWIDS_HEAD: &str = "# Multipath wwids, Version : 1.0\n\
    # NOTE: This file is automatically maintained by multipath and multipathd.\n\
    # You should not need to edit this file in normal circumstances.\n\
    #\n\
    # Valid WWIDs:\n";

/// Which paths become maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FindMultipaths {
    /// Only of volumes that are remembered, as Debian has it.
    #[default]
    Strict,
    /// The same, and where there are two paths.
    Yes,
    /// All.
    Greedy,
}

impl FindMultipaths {
    fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Yes => "yes",
            Self::Greedy => "greedy",
        }
    }
}

/// The daemon.
#[derive(Clone, Default)]
pub(super) struct Multipathd {
    running: bool,
    find: FindMultipaths,
    /// Maps have friendly names: `mpatha` and so on.
    friendly: bool,
    /// New maps wait for a path, should there be none.
    queues: bool,
    /// What it knows: the name of the volume by the name of the path.
    paths: BTreeMap<String, String>,
}

impl Tree {
    /// Starts the daemon, with its file of remembered volumes.
    pub fn start_multipathd(&mut self, find: FindMultipaths) {
        if !self.exists(WWIDS) {
            self.file_mode(WWIDS, WWIDS_HEAD, 0o600);
        }
        self.multipathd.running = true;
        self.multipathd.find = find;
        self.multipathd.queues = true;
        self.value("/proc/611/comm", "multipathd");
        for name in self.disk_names() {
            self.multipathd_takes(&name);
        }
    }

    /// How the daemon that runs finds paths; `None` when none runs.
    pub fn multipathd_mode(&self) -> Option<FindMultipaths> {
        self.multipathd.running.then_some(self.multipathd.find)
    }

    /// Stops the daemon: maps stay, nobody looks after them.
    pub fn stop_multipathd(&mut self) {
        self.multipathd.running = false;
        self.multipathd.paths.clear();
        self.remove("/proc/611");
    }

    /// Maps get friendly names from now on.
    pub fn use_friendly_names(&mut self) {
        self.multipathd.friendly = true;
    }

    /// A device was added: the daemon hears of it a wait later.
    pub(super) fn multipathd_hears(&mut self, name: &str) {
        let Some(disk) = self.disks.get(name).filter(|disk| disk.wwid.is_some()) else { return };
        let (name, sequence) = (name.to_owned(), disk.sequence);
        if self.multipathd.running {
            self.later(1, move |tree| {
                let same = tree.disks.get(&name).is_some_and(|disk| disk.sequence == sequence);
                if same && tree.multipathd.running {
                    tree.multipathd_takes(&name);
                }
            });
        }
    }

    /// A device went: the daemon hears of it a wait later, and may hit the next one of that name.
    pub(super) fn multipathd_misses(&mut self, name: &str) {
        let name = name.to_owned();
        if self.multipathd.running && self.multipathd.paths.contains_key(&name) {
            self.later(1, move |tree| {
                if tree.multipathd.running {
                    tree.multipathd_drops(&name);
                }
            });
        }
    }

    /// Takes a path; false when there is no such device.
    fn multipathd_takes(&mut self, name: &str) -> bool {
        let Some(disk) = self.disks.get(name) else { return false };
        let number = disk.number;
        let Some(wwid) = disk.wwid.clone() else { return false };
        self.multipathd.paths.insert(name.into(), wwid.clone());
        let path = Path { name: name.into(), number, failed: false };
        match self.find_map(&wwid) {
            Some(map) => self.join_map(&map, path),
            None if self.forms_map(&wwid) => self.form_map(&wwid),
            None => {}
        }
        true
    }

    fn forms_map(&self, wwid: &str) -> bool {
        let known = self.text(WWIDS).lines().any(|line| line.trim() == format!("/{wwid}/"));
        let paths = self.multipathd.paths.values().filter(|other| *other == wwid).count();
        match self.multipathd.find {
            FindMultipaths::Strict => known,
            FindMultipaths::Yes => known || paths > 1,
            FindMultipaths::Greedy => true,
        }
    }

    fn form_map(&mut self, wwid: &str) {
        let ours = |(_, its): &(&String, &String)| *its == wwid;
        let names: Vec<String> =
            self.multipathd.paths.iter().filter(ours).map(|(name, _)| name.clone()).collect();
        let free: Vec<String> = names
            .into_iter()
            .filter(|name| self.disks.contains_key(name) && !self.is_claimed(name))
            .collect();
        let Some(first) = free.first().cloned() else { return };
        let path = |name: &String| Path {
            name: name.clone(),
            number: self.disks[name].number,
            failed: false,
        };
        let kind = Kind::Multipath {
            wwid: wwid.into(),
            paths: free.iter().map(path).collect(),
            queues: self.multipathd.queues,
        };
        let name = if self.multipathd.friendly { self.free_friendly() } else { wwid.to_owned() };
        let behind = self.disk_mut(&first).clone();
        let read_only = behind.read_only;
        let made = self.insert_map(&name, &format!("mpath-{wwid}"), kind, &free, |disk| {
            DiskSpec::like(disk, &behind)
        });
        let disk = made.expect("the name is free and its paths are there");
        self.set_read_only(&disk, read_only);
        self.remember(wwid);
    }

    fn free_friendly(&self) -> String {
        let name = |letter: u8| format!("mpath{}", char::from(letter));
        let free = |name: &String| !self.maps.contains_key(name);
        (b'a'..=b'z').map(name).find(free).expect("fewer than 27 maps")
    }

    fn remember(&mut self, wwid: &str) {
        let text = String::from_utf8_lossy(self.read(WWIDS).unwrap_or_default()).into_owned();
        if !text.lines().any(|line| line == format!("/{wwid}/")) {
            self.file(WWIDS, format!("{text}/{wwid}/\n"));
        }
    }

    fn join_map(&mut self, name: &str, path: Path) {
        let Some(Map { disk, kind: Kind::Multipath { paths, .. }, .. }) = self.maps.get_mut(name)
        else {
            return;
        };
        let disk = disk.clone();
        // One that went and came back under its old name takes its old place.
        match paths.iter_mut().find(|old| old.name == path.name) {
            Some(old) => *old = path.clone(),
            None => paths.push(path.clone()),
        }
        self.hold(&disk, &path.name);
        self.emit();
    }

    /// Forgets a path; a map that nobody has open goes with its last one.
    fn multipathd_drops(&mut self, name: &str) -> bool {
        let known = self.multipathd.paths.remove(name).is_some();
        let of = |map: &Map| map.paths().iter().any(|path| path.name == name);
        let found = self.maps.iter().find(|(_, map)| of(map)).map(|(name, _)| name.clone());
        let Some(map_name) = found else { return known };
        let Some(Map { disk, kind: Kind::Multipath { paths, .. }, .. }) =
            self.maps.get_mut(&map_name)
        else {
            return known;
        };
        paths.retain(|path| path.name != name);
        let (disk, last) = (disk.clone(), paths.is_empty());
        self.let_go(&disk, name);
        if last {
            // Refused while it is open: then a map without paths stays.
            let _ = self.remove_map(&map_name);
        }
        self.emit();
        true
    }

    /// One command and its answer.
    pub(super) fn multipathd_answers(&mut self, command: &str) -> Answer<String> {
        if !self.multipathd.running {
            return Err(ECONNREFUSED);
        }
        if let Some(answer) = self.ask_command(command) {
            return answer;
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        let bare = |word: &str| word.trim_matches('"').trim_start_matches("/dev/").to_owned();
        let done = match words.as_slice() {
            ["show", "status" | "daemon"] => return Ok("pid 611 idle\n".into()),
            ["show", "config", ..] => return Ok(self.multipathd_config()),
            ["show", "paths", rest @ ..] => return Ok(self.show_paths(&format_of(rest))),
            ["show", "maps" | "multipaths", rest @ ..] => {
                return Ok(self.show_maps(&format_of(rest)));
            }
            ["add", "path", name] => self.multipathd_takes(&bare(name)),
            ["del" | "remove", "path", name] => self.multipathd_drops(&bare(name)),
            ["add", "map", name] => self.add_known_map(&bare(name)),
            ["del" | "remove", "map", name] => {
                self.find_map(&bare(name)).is_some_and(|name| self.remove_map(&name).is_ok())
            }
            ["resize", "map", name] => self.resize_map(&bare(name)),
            [verb @ ("disablequeueing" | "restorequeueing"), "map", name] => {
                let on = *verb == "restorequeueing";
                let map = self.find_map(&bare(name));
                map.is_some_and(|name| self.set_queueing(&name, on).is_ok())
            }
            ["reconfigure", ..] => true,
            _ => false,
        };
        Ok(if done { "ok\n" } else { "fail\n" }.into())
    }

    fn multipathd_config(&self) -> String {
        let friendly = if self.multipathd.friendly { "yes" } else { "no" };
        let find = self.multipathd.find.as_str();
        format!(
            "defaults {{\n\tfind_multipaths \"{find}\"\n\tuser_friendly_names \"{friendly}\"\n}}\n"
        )
    }

    fn add_known_map(&mut self, wwid: &str) -> bool {
        if self.find_map(wwid).is_none() && self.multipathd.paths.values().any(|its| its == wwid) {
            self.form_map(wwid);
        }
        self.find_map(wwid).is_some()
    }

    /// As long as one path has another size, it fails.
    fn resize_map(&mut self, word: &str) -> bool {
        let Some(map) = self.find_map(word).and_then(|name| self.maps.get(&name)) else {
            return false;
        };
        let disk = map.disk.clone();
        let mut sizes: Vec<u64> = map
            .paths()
            .iter()
            .filter_map(|path| self.disks.get(&path.name).map(|disk| disk.size))
            .collect();
        sizes.dedup();
        let [size] = sizes.as_slice() else { return false };
        let size = *size;
        self.set_size(&disk, size);
        true
    }

    fn show_paths(&self, format: &str) -> String {
        let mut lines = String::new();
        for (name, wwid) in &self.multipathd.paths {
            let map = self.maps.iter().find(|(_, m)| m.paths().iter().any(|p| p.name == *name));
            let disk = self.disks.get(name);
            let active = disk.is_some() && self.usable(name);
            let line = filled(format, |wildcard| match wildcard {
                'd' => name.clone(),
                'w' => wwid.clone(),
                'D' => disk.map(|d| format!("{}:{}", d.number.0, d.number.1)).unwrap_or_default(),
                'i' => self.address_of(name),
                't' if map.is_none() => "undef".into(),
                't' => if active { "active" } else { "failed" }.into(),
                'o' => if disk.is_some_and(|d| d.online) { "running" } else { "offline" }.into(),
                'T' => if active { "ready" } else { "faulty" }.into(),
                'm' => map.map_or("[orphan]".into(), |(name, _)| name.clone()),
                _ => "##".into(),
            });
            lines.push_str(&format!("{line}\n"));
        }
        lines
    }

    /// The SCSI address of a device, as the name of its folder.
    fn address_of(&self, name: &str) -> String {
        let device = self.resolve(format!("/sys/block/{name}/device"));
        let folder = device.as_deref().and_then(std::path::Path::file_name);
        folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn show_maps(&self, format: &str) -> String {
        let mut lines = String::new();
        for (name, map) in &self.maps {
            let Kind::Multipath { wwid, paths, queues } = &map.kind else { continue };
            let disk = &self.disks[&map.disk];
            let line = filled(format, |wildcard| match wildcard {
                'n' => name.clone(),
                'w' => wwid.clone(),
                'd' => map.disk.clone(),
                'N' => paths.len().to_string(),
                'Q' => if *queues { "on" } else { "off" }.into(),
                'r' => if disk.read_only { "ro" } else { "rw" }.into(),
                't' => "active".into(),
                _ => "##".into(),
            });
            lines.push_str(&format!("{line}\n"));
        }
        lines
    }
}

/// The format that a `show` asks for; names and volumes where it asks for none.
fn format_of(words: &[&str]) -> String {
    let words = words.strip_prefix(&["raw"]).unwrap_or(words);
    match words {
        ["format", rest @ ..] => rest.join(" ").trim_matches('"').to_owned(),
        _ => "%d %w".into(),
    }
}

/// A format with its wildcards filled in.
fn filled(format: &str, value: impl Fn(char) -> String) -> String {
    let mut line = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('%', Some(wildcard)) => {
                chars.next();
                line.push_str(&value(wildcard));
            }
            (c, _) => line.push(c),
        }
    }
    line
}
