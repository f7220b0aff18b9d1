//! Device maps of the tree: what device mapper knows and shows.

use hawser_core::port::kernel::MapTarget;

use super::behaviour::Answer;
use super::disk::DiskSpec;
use super::errno::{EBUSY, EEXIST, EINVAL, ENXIO};
use super::lun::Lun;
use super::tree::Tree;

/// One map.
#[derive(Clone)]
pub(super) struct Map {
    /// The block device: `dm-0` and so on.
    pub(super) disk: String,
    pub(super) kind: Kind,
}

#[derive(Clone)]
pub(super) enum Kind {
    /// Several paths to one volume.
    Multipath { wwid: String, paths: Vec<Path>, queues: bool },
    /// Something above other devices: its type, its parameters and what it stands on.
    Other { kind: String, parameters: String, slaves: Vec<String> },
}

/// One path of a map; kept by name and number when its device goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) name: String,
    pub(super) number: (u32, u32),
    /// By a message.
    pub(super) failed: bool,
}

impl Path {
    pub(super) fn is_active(&self, tree: &Tree) -> bool {
        let there = tree.disks.get(&self.name).is_some_and(|disk| disk.number == self.number);
        there && !self.failed && tree.usable(&self.name)
    }
}

impl Map {
    pub(super) fn is_usable(&self, tree: &Tree) -> bool {
        match &self.kind {
            Kind::Multipath { paths, .. } => paths.iter().any(|path| path.is_active(tree)),
            Kind::Other { slaves, .. } => {
                slaves.iter().all(|name| tree.disks.contains_key(name) && tree.usable(name))
            }
        }
    }

    pub(super) fn wwid(&self) -> Option<&str> {
        match &self.kind {
            Kind::Multipath { wwid, .. } => Some(wwid),
            Kind::Other { .. } => None,
        }
    }

    pub(super) fn paths(&self) -> &[Path] {
        match &self.kind {
            Kind::Multipath { paths, .. } => paths,
            Kind::Other { .. } => &[],
        }
    }

    fn status(&self, tree: &Tree) -> (String, String) {
        match &self.kind {
            Kind::Multipath { paths, .. } => {
                let one = |path: &Path| {
                    let state = if path.is_active(tree) { 'A' } else { 'F' };
                    format!(" {}:{} {state} 0 0 1", path.number.0, path.number.1)
                };
                let all: String = paths.iter().map(one).collect();
                let groups = if paths.is_empty() {
                    "2 0 0 0 0 0".into()
                } else {
                    let active = if self.is_usable(tree) { 'A' } else { 'E' };
                    format!("2 0 0 0 1 1 {active} 0 {} 2{all}", paths.len())
                };
                ("multipath".into(), groups)
            }
            Kind::Other { kind, .. } => (kind.clone(), String::new()),
        }
    }

    fn table(&self) -> (String, String) {
        match &self.kind {
            Kind::Multipath { paths, queues, .. } => {
                let features = if *queues { "1 queue_if_no_path" } else { "0" };
                let one = |path: &Path| format!(" {}:{} 1 1", path.number.0, path.number.1);
                let all: String = paths.iter().map(one).collect();
                let groups = if paths.is_empty() {
                    "0 0 0".into()
                } else {
                    format!("0 1 1 service-time 0 {} 2{all}", paths.len())
                };
                ("multipath".into(), format!("{features} {groups}"))
            }
            Kind::Other { kind, parameters, .. } => (kind.clone(), parameters.clone()),
        }
    }
}

impl Tree {
    /// The first free `dm-` name.
    fn free_dm(&self) -> String {
        let name = |nth: u32| format!("dm-{nth}");
        (0..1000)
            .map(name)
            .find(|name| !self.disks.contains_key(name))
            .expect("fewer than 1000 maps")
    }

    /// Adds a map above other devices, such as `crypt` or `linear`; answers its device's name. `lun`
    /// is what it shows: its own volume, or the one below it.
    pub fn add_map(
        &mut self,
        name: &str,
        uuid: &str,
        target: (&str, &str),
        slaves: &[&str],
        lun: &Lun,
    ) -> Answer<String> {
        let slaves: Vec<String> = slaves.iter().map(|slave| (*slave).to_owned()).collect();
        let kind = Kind::Other {
            kind: target.0.into(),
            parameters: target.1.into(),
            slaves: slaves.clone(),
        };
        self.insert_map(name, uuid, kind, &slaves, |disk| DiskSpec::new(disk, lun))
    }

    pub(super) fn insert_map(
        &mut self,
        name: &str,
        uuid: &str,
        kind: Kind,
        slaves: &[String],
        spec: impl FnOnce(&str) -> DiskSpec,
    ) -> Answer<String> {
        if self.maps.contains_key(name) {
            return Err(EEXIST);
        }
        if slaves.iter().any(|slave| !self.disks.contains_key(slave)) {
            return Err(ENXIO);
        }
        let disk = self.free_dm();
        let links = [format!("dm-uuid-{uuid}"), format!("dm-name-{name}")];
        self.maps.insert(name.into(), Map { disk: disk.clone(), kind });
        self.add_disk(spec(&disk).links(links));
        let folder = self.disk_mut(&disk).folder.clone();
        self.value(folder.join("dm/name"), name)
            .value(folder.join("dm/uuid"), uuid)
            .value(folder.join("dm/suspended"), 0)
            .link(format!("/dev/mapper/{name}"), format!("../{disk}"));
        for slave in slaves {
            self.hold(&disk, slave);
        }
        self.emit();
        Ok(disk)
    }

    /// Writes down that `above` stands on `below`.
    pub(super) fn hold(&mut self, above: &str, below: &str) {
        let (above_folder, below_folder) =
            (self.disk_mut(above).folder.clone(), self.disk_mut(below).folder.clone());
        self.link(above_folder.join("slaves").join(below), &below_folder);
        self.link(below_folder.join("holders").join(above), &above_folder);
    }

    /// Takes back what [`Tree::hold`] wrote.
    pub(super) fn let_go(&mut self, above: &str, below: &str) {
        for (name, side, other) in [(above, "slaves", below), (below, "holders", above)] {
            if let Some(disk) = self.disks.get(name) {
                let link = disk.folder.join(side).join(other);
                self.remove(link);
            }
        }
    }

    /// True when somebody has the map's device open or for himself.
    pub fn map_is_open(&self, name: &str) -> bool {
        self.maps.get(name).is_some_and(|map| {
            self.disks.get(&map.disk).is_some_and(|disk| disk.openers > 0)
                || self.is_claimed(&map.disk)
        })
    }

    /// Removes a map; `EBUSY` while it is open, `ENXIO` when there is none.
    pub fn remove_map(&mut self, name: &str) -> Answer<()> {
        if !self.maps.contains_key(name) {
            return Err(ENXIO);
        }
        if self.map_is_open(name) {
            return Err(EBUSY);
        }
        let Some(map) = self.maps.remove(name) else { return Err(ENXIO) };
        let slaves = match &map.kind {
            Kind::Multipath { paths, .. } => paths.iter().map(|path| path.name.clone()).collect(),
            Kind::Other { slaves, .. } => slaves.clone(),
        };
        for slave in slaves {
            self.let_go(&map.disk, &slave);
        }
        self.remove(format!("/dev/mapper/{name}"));
        self.remove_disk(&map.disk);
        Ok(())
    }

    /// The names of all maps.
    pub fn map_names(&self) -> Vec<String> {
        self.maps.keys().cloned().collect()
    }

    /// The device of a map: `dm-0` and so on.
    pub fn map_device(&self, name: &str) -> Option<String> {
        self.maps.get(name).map(|map| map.disk.clone())
    }

    /// The name of the map with this name, device or name of the volume behind it.
    pub fn find_map(&self, word: &str) -> Option<String> {
        let fits = |(name, map): &(&String, &Map)| {
            *name == word || map.disk == word || map.wwid() == Some(word)
        };
        self.maps.iter().find(fits).map(|(name, _)| name.clone())
    }

    /// True when reads and writes of this device wait for a path, should there be none.
    pub(super) fn queues(&self, disk: &str) -> bool {
        let Some(map) = self.maps.values().find(|map| map.disk == disk) else { return false };
        match &map.kind {
            Kind::Multipath { queues, .. } => *queues,
            Kind::Other { slaves, .. } => slaves.iter().any(|slave| self.queues(slave)),
        }
    }

    /// Lets a map wait for a path, or fail: then what waits for one is lost.
    pub fn set_queueing(&mut self, name: &str, on: bool) -> Answer<()> {
        let map = self.maps.get_mut(name).ok_or(ENXIO)?;
        let Kind::Multipath { queues, .. } = &mut map.kind else { return Err(EINVAL) };
        *queues = on;
        let disk = map.disk.clone();
        if !on && !self.usable(&disk) {
            let disk = self.disk_mut(&disk);
            disk.lost += u64::from(std::mem::take(&mut disk.dirty));
        }
        self.emit();
        Ok(())
    }

    pub(super) fn map_targets(&self, name: &str, table: bool) -> Answer<Vec<MapTarget>> {
        let map = self.maps.get(name).ok_or(ENXIO)?;
        let (kind, parameters) = if table { map.table() } else { map.status(self) };
        let length = self.size_of(&map.disk) / 512;
        Ok(vec![MapTarget { start: 0, length, kind, parameters }])
    }

    pub(super) fn map_message(&mut self, name: &str, text: &str) -> Answer<()> {
        if let Some(answer) = self.ask_map(name, &format!("message {text}")) {
            return answer;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["fail_if_no_path"] => self.set_queueing(name, false),
            ["queue_if_no_path"] => self.set_queueing(name, true),
            [verb @ ("fail_path" | "reinstate_path"), number] => {
                let map = self.maps.get_mut(name).ok_or(ENXIO)?;
                let Kind::Multipath { paths, .. } = &mut map.kind else { return Err(EINVAL) };
                let is_it = |p: &&mut Path| format!("{}:{}", p.number.0, p.number.1) == *number;
                let path = paths.iter_mut().find(is_it).ok_or(EINVAL)?;
                path.failed = *verb == "fail_path";
                self.emit();
                Ok(())
            }
            _ => Err(if self.maps.contains_key(name) { EINVAL } else { ENXIO }),
        }
    }

    pub(super) fn map_remove(&mut self, name: &str) -> Answer<()> {
        match self.ask_map(name, "remove") {
            Some(answer) => answer,
            None => self.remove_map(name),
        }
    }
}
