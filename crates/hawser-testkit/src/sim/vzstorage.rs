//! The Virtuozzo storage client, from its specification alone: the list of servers in
//! `/etc/pstorage/clusters/CLUSTER/bs_list`, `pstorage -c CLUSTER auth-node -P` with the password on
//! standard input, and `pstorage-mount -c CLUSTER [FLAGS] FOLDER`. It refuses everything else.
//!
//! What the mount table shows is not in the specification; it is taken from the names of the client.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fake_host::{FakeHost, Ran, Remote};

/// A cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its servers, one of which the host must know.
    pub servers: Vec<String>,
    /// Without it no node is let in, where there is one.
    pub password: Option<String>,
}

/// A host with the client, and the one cluster there is.
pub fn install(host: &FakeHost, cluster: &Cluster, content: &Path) {
    let authorised = Arc::new(AtomicBool::new(cluster.password.is_none()));
    let (let_in, own) = (Arc::clone(&authorised), cluster.clone());
    host.kernel().folder("/etc/pstorage/clusters");
    host.tool("pstorage", move |_, call| {
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        if args != ["-c", own.name.as_str(), "auth-node", "-P"] {
            return Ran::failed(1, "pstorage: bad usage, or no such cluster");
        }
        let given = call.stdin.as_deref().map(str::trim_end);
        if own.password.is_some() && given != own.password.as_deref() {
            return Ran::failed(1, "pstorage: authentication failed");
        }
        let_in.store(true, Ordering::Relaxed);
        Ran::ok("")
    });
    let (own, content) = (cluster.clone(), content.to_owned());
    host.mounting_tool("pstorage-mount", move |tree, call| {
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        let ["-c", name, flags @ .., folder] = args.as_slice() else {
            return (Ran::failed(1, "pstorage-mount: bad usage"), None);
        };
        if !flags.chunks(2).all(|pair| matches!(pair, ["-u" | "-g" | "-m" | "-o", _])) {
            return (Ran::failed(1, "pstorage-mount: bad usage"), None);
        }
        let list = format!("/etc/pstorage/clusters/{name}/bs_list");
        let list = tree.read(&list).map(|list| String::from_utf8_lossy(list).into_owned());
        let known = list.unwrap_or_default();
        let reached = known.lines().any(|line| own.servers.iter().any(|server| server == line));
        if *name != own.name || !reached {
            return (Ran::failed(1, "pstorage-mount: cluster not found"), None);
        }
        if !authorised.load(Ordering::Relaxed) {
            return (Ran::failed(1, "pstorage-mount: node is not authenticated"), None);
        }
        let remote = Remote {
            fs_type: "fuse.pstorage".into(),
            source: format!("pstorage://{name}"),
            super_options: vec!["rw".into()],
            folder: content.clone(),
        };
        (Ran::ok(""), Some((PathBuf::from(folder), remote, false)))
    });
}
