//! The kernel's NFS server, with the daemons around it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Daemon, cmd, modprobe, wait_for};

/// How long a daemon may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Where the exported folders are; memory cannot be exported without an id, so this is disk.
const ROOT: &str = "/srv/nfs";

/// A server on every address of the guest. All is gone when it is dropped.
#[derive(Debug)]
pub struct Nfsd {
    exports: Vec<String>,
    without: Vec<String>,
    _daemons: Vec<Daemon>,
}

impl Nfsd {
    /// A server that speaks versions 3, 4.0, 4.1 and 4.2.
    #[track_caller]
    pub fn new() -> Self {
        modprobe(&["nfsd", "lockd"]);
        if !Path::new("/proc/fs/nfsd/threads").exists() {
            cmd("mount").args(["-t", "nfsd", "nfsd", "/proc/fs/nfsd"]).ok();
        }
        fs::create_dir_all("/var/lib/nfs/v4recovery").expect("a folder for the server's clients");
        // After a start the server waits for clients of its last life, which nobody here has.
        for limit in ["nlm_timeout", "nlm_grace_period"] {
            fs::write(format!("/proc/sys/fs/nfs/{limit}"), "3").expect("a setting of lockd");
        }
        let rpcbind = cmd("rpcbind").arg("-f").start();
        wait_for("rpcbind", START_LIMIT, || Path::new("/run/rpcbind.sock").exists().then_some(()));
        let statd = cmd("rpc.statd").args(["-F", "--no-notify"]).start();
        let mountd = cmd("rpc.mountd").arg("-F").start();
        wait_for("mountd and statd", START_LIMIT, || {
            let list = cmd("rpcinfo").arg("-p").run().stdout;
            (list.contains("mountd") && list.contains("status")).then_some(())
        });
        let daemons = vec![rpcbind, statd, mountd];
        let server = Self { exports: Vec::new(), without: Vec::new(), _daemons: daemons };
        server.start();
        server
    }

    /// Makes it not speak these versions, such as `4.2` or `3`, and all others; folders stay
    /// exported.
    #[track_caller]
    pub fn set_without(&mut self, versions: &[&str]) {
        if self.without != versions {
            self.without = versions.iter().map(|version| (*version).to_owned()).collect();
            cmd("rpc.nfsd").arg("0").ok();
            self.start();
        }
    }

    #[track_caller]
    fn start(&self) {
        let mut nfsd = cmd("rpc.nfsd");
        for version in ["3", "4", "4.0", "4.1", "4.2"] {
            let off = self.without.iter().any(|without| without == version);
            nfsd = nfsd.args([if off { "-N" } else { "-V" }, version]);
        }
        nfsd.arg("4").ok();
        if !self.without.iter().any(|without| without == "4") {
            fs::write("/proc/fs/nfsd/v4_end_grace", "Y").expect("an end of the waiting");
        }
    }

    /// Exports a folder of this name to everybody, and answers where it is.
    #[track_caller]
    pub fn export(&mut self, name: &str) -> PathBuf {
        self.export_to("*", name, "rw,no_root_squash")
    }

    /// Exports a folder to some, with these options.
    #[track_caller]
    pub fn export_to(&mut self, clients: &str, name: &str, options: &str) -> PathBuf {
        let folder = Path::new(ROOT).join(name);
        fs::create_dir_all(&folder).expect("a folder to export");
        let export = format!("{clients}:{}", folder.display());
        let options = format!("{options},sync,no_subtree_check");
        cmd("exportfs").args(["-i", "-o", &options, &export]).ok();
        if !self.exports.contains(&export) {
            self.exports.push(export);
        }
        folder
    }

    /// Takes an export back, and forgets what clients know of it.
    #[track_caller]
    pub fn unexport(&mut self, name: &str) {
        let folder = Path::new(ROOT).join(name).display().to_string();
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.exports.drain(..).partition(|export| export.ends_with(&folder));
        self.exports = kept;
        for export in gone {
            cmd("exportfs").args(["-u", &export]).ok();
        }
        cmd("exportfs").arg("-f").ok();
    }
}

impl Default for Nfsd {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Nfsd {
    fn drop(&mut self) {
        for export in &self.exports {
            cmd("exportfs").args(["-u", export]).run();
        }
        cmd("exportfs").arg("-f").run();
        cmd("rpc.nfsd").arg("0").run();
        let _ = fs::remove_dir_all(ROOT);
    }
}
