//! A target with its portals, LUNs and rights.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{Disk, get, make, objects, put, remove, tie, ties, top};
use crate::lab::guest::Cut;

/// A name and a password.
type Credentials = (String, String);

/// One iSCSI target with one portal group; gone when dropped.
#[derive(Debug)]
pub struct Target {
    iqn: String,
    /// The folder of the portal group.
    group: PathBuf,
    portals: Vec<SocketAddr>,
    luns: BTreeMap<u16, Disk>,
    initiators: Vec<String>,
    /// What initiators have to say, and what the target answers with.
    chap: (Option<Credentials>, Option<Credentials>),
}

impl Target {
    /// A target that nobody can reach yet: see [`Target::enable`].
    #[track_caller]
    pub fn new(iqn: &str) -> Self {
        let group = top().join("iscsi").join(iqn).join("tpgt_1");
        make(&group);
        put(&group.join("attrib/authentication"), "0");
        Self {
            iqn: iqn.to_owned(),
            group,
            portals: Vec::new(),
            luns: BTreeMap::new(),
            initiators: Vec::new(),
            chap: (None, None),
        }
    }

    /// Its name.
    pub fn iqn(&self) -> &str {
        &self.iqn
    }

    /// Its portals, in the order in which they were added.
    pub fn portals(&self) -> &[SocketAddr] {
        &self.portals
    }

    /// Listens here too: `127.0.1.1:3260`, `[::1]:3260`.
    #[track_caller]
    pub fn add_portal(&mut self, portal: &str) -> &mut Self {
        let portal: SocketAddr = portal.parse().expect("an address and a port");
        make(&self.portal_object(portal));
        self.portals.push(portal);
        self
    }

    /// Listens there no more; sessions through it end.
    #[track_caller]
    pub fn remove_portal(&mut self, portal: &str) -> &mut Self {
        let portal: SocketAddr = portal.parse().expect("an address and a port");
        remove(&self.portal_object(portal));
        self.portals.retain(|known| *known != portal);
        self
    }

    fn portal_object(&self, portal: SocketAddr) -> PathBuf {
        self.group.join("np").join(portal.to_string())
    }

    /// Serves a portal over iSER, on an address of an RDMA device, or over TCP again.
    #[track_caller]
    pub fn set_iser(&mut self, portal: &str, on: bool) -> &mut Self {
        let portal = portal.parse().expect("an address and a port");
        put(&self.portal_object(portal).join("iser"), if on { "1" } else { "0" });
        self
    }

    /// Makes one of its portals silent while the answer lives.
    #[track_caller]
    pub fn cut(&self, portal: usize) -> Cut {
        Cut::silent(self.portals[portal])
    }

    /// Shows a disk under this number, to every initiator that is allowed.
    #[track_caller]
    pub fn add_lun(&mut self, number: u16, disk: &Disk) -> &mut Self {
        let lun = self.group.join(format!("lun/lun_{number}"));
        make(&lun);
        tie(disk.object(), &lun.join("disk"));
        for initiator in &self.initiators {
            self.map(initiator, number);
        }
        self.luns.insert(number, disk.clone());
        self
    }

    /// Shows nothing under this number any more.
    #[track_caller]
    pub fn remove_lun(&mut self, number: u16) -> &mut Self {
        for initiator in &self.initiators {
            unmap(&self.group.join(format!("acls/{initiator}/lun_{number}")));
        }
        unmap(&self.group.join(format!("lun/lun_{number}")));
        self.luns.remove(&number);
        self
    }

    /// Shows another disk under a number that is in use, as an array that gives it away again does.
    #[track_caller]
    pub fn swap_lun(&mut self, number: u16, disk: &Disk) -> &mut Self {
        self.remove_lun(number).add_lun(number, disk)
    }

    /// Lets this initiator in, and shows it all LUNs.
    #[track_caller]
    pub fn allow(&mut self, initiator: &str) -> &mut Self {
        make(&self.group.join("acls").join(initiator));
        self.initiators.push(initiator.to_owned());
        for number in self.luns.keys() {
            self.map(initiator, *number);
        }
        self.write_chap();
        self
    }

    /// Takes an initiator's right back and ends its sessions.
    #[track_caller]
    pub fn forbid(&mut self, initiator: &str) -> &mut Self {
        remove_initiator(&self.group.join("acls").join(initiator));
        self.initiators.retain(|known| known != initiator);
        self
    }

    #[track_caller]
    fn map(&self, initiator: &str, number: u16) {
        let mapped = self.group.join(format!("acls/{initiator}/lun_{number}"));
        make(&mapped);
        tie(&self.group.join(format!("lun/lun_{number}")), &mapped.join("lun"));
    }

    /// Lets everybody in, to read and write.
    #[track_caller]
    pub fn allow_all(&mut self) -> &mut Self {
        for (name, value) in [
            ("generate_node_acls", "1"),
            ("cache_dynamic_acls", "1"),
            ("demo_mode_write_protect", "0"),
            ("prod_mode_write_protect", "0"),
        ] {
            self.set_attribute(name, value);
        }
        self
    }

    /// Asks initiators for this name and password.
    #[track_caller]
    pub fn chap(&mut self, user: &str, password: &str) -> &mut Self {
        self.chap.0 = Some((user.into(), password.into()));
        self.set_attribute("authentication", "1");
        self.write_chap();
        self
    }

    /// Answers initiators that ask for a name and password with these; needs [`Target::chap`].
    #[track_caller]
    pub fn mutual_chap(&mut self, user: &str, password: &str) -> &mut Self {
        self.chap.1 = Some((user.into(), password.into()));
        self.write_chap();
        self
    }

    /// Writes the credentials where they count: with each initiator, and with the group for those
    /// that are let in without being known.
    #[track_caller]
    fn write_chap(&self) {
        let acls = self.group.join("acls");
        let known = self.initiators.iter().map(|initiator| acls.join(initiator));
        for place in known.chain([self.group.clone()]) {
            if let (Some((user, password)), _) = &self.chap {
                put(&place.join("auth/userid"), user);
                put(&place.join("auth/password"), password);
            }
            if let (_, Some((user, password))) = &self.chap {
                put(&place.join("auth/userid_mutual"), user);
                put(&place.join("auth/password_mutual"), password);
            }
        }
    }

    /// Changes an attribute of the portal group, such as `login_timeout`.
    #[track_caller]
    pub fn set_attribute(&mut self, name: &str, value: &str) -> &mut Self {
        put(&self.group.join("attrib").join(name), value);
        self
    }

    /// Answers logins from now on.
    #[track_caller]
    pub fn enable(&mut self) -> &mut Self {
        put(&self.group.join("enable"), "1");
        self
    }

    /// Ends all sessions and answers no more logins, as an array that is switched off.
    #[track_caller]
    pub fn disable(&mut self) -> &mut Self {
        put(&self.group.join("enable"), "0");
        self
    }

    /// The initiators that have a session now.
    pub fn connected(&self) -> Vec<String> {
        let acls = objects(&self.group.join("acls")).into_iter();
        let known = acls.filter(|acl| !get(&acl.join("info")).starts_with("No active"));
        let known = known.filter_map(|acl| acl.file_name()?.to_str().map(str::to_owned));
        let dynamic = get(&self.group.join("dynamic_sessions"));
        let dynamic = dynamic.split(['\n', '\0']).map(str::trim).filter(|name| !name.is_empty());
        let mut all: Vec<String> = known.chain(dynamic.map(str::to_owned)).collect();
        all.sort();
        all.dedup();
        all
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Not there when it never came to be; then nothing else is either.
        let _ = std::fs::write(self.group.join("enable"), "0");
        for initiator in objects(&self.group.join("acls")) {
            remove_initiator(&initiator);
        }
        for lun in objects(&self.group.join("lun")) {
            unmap(&lun);
        }
        for portal in objects(&self.group.join("np")) {
            remove(&portal);
        }
        remove(&self.group);
        if let Some(target) = self.group.parent() {
            remove(target);
        }
        // Now nobody shows the disks, and those that no test holds go.
        self.luns.clear();
    }
}

/// Removes a LUN with its ties, of a group or of an initiator.
#[track_caller]
fn unmap(lun: &Path) {
    ties(lun).iter().for_each(|tie| remove(tie));
    remove(lun);
}

#[track_caller]
fn remove_initiator(acl: &Path) {
    for object in objects(acl) {
        let name = object.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("lun_") {
            unmap(&object);
        }
    }
    remove(acl);
}

/// Asks for a name and password before anybody is told of targets, or no more.
#[track_caller]
pub fn discovery_chap(credentials: Option<(&str, &str)>) {
    let auth = top().join("iscsi/discovery_auth");
    if let Some((user, password)) = credentials {
        put(&auth.join("userid"), user);
        put(&auth.join("password"), password);
    }
    let enforced = if credentials.is_some() { "1" } else { "0" };
    put(&auth.join("enforce_discovery_auth"), enforced);
}
