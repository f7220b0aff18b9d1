//! DRBD: disks that can grow, configurations, and the far end of a resource in the same guest.
//!
//! A resource normally has one end on each host. Two resources of one guest that name each other as
//! peers are as good: DRBD tells ends apart by their addresses.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use super::{cmd, modprobe, wait_for};

/// The secret of all resources here.
pub const SECRET: &str = "s3cret-of-the-lab";
const LIMIT: Duration = Duration::from_secs(30);

/// A disk below a resource: a loop device over a file.
#[derive(Debug)]
pub struct Backing {
    file: PathBuf,
    /// Its node.
    pub node: PathBuf,
}

impl Backing {
    /// A blank one.
    #[track_caller]
    pub fn new(name: &str, mib: u64) -> Self {
        let file = PathBuf::from(format!("/var/tmp/drbd-{name}.img"));
        let _ = fs::remove_file(&file);
        File::create(&file).and_then(|file| file.set_len(mib << 20)).expect("room for a disk");
        Self::over(file)
    }

    /// One with what was kept of another, by its name.
    #[track_caller]
    pub fn kept(name: &str) -> Self {
        let file = PathBuf::from(format!("/var/tmp/drbd-{name}.img"));
        fs::copy(format!("/var/tmp/drbd-{name}.kept"), &file).expect("what was kept");
        Self::over(file)
    }

    fn over(file: PathBuf) -> Self {
        let node = cmd("losetup").args(["--find", "--show"]).arg(&file).ok();
        Self { file, node: node.trim().into() }
    }

    /// Keeps what is in it for [`Backing::kept`]. Its resource must be down.
    #[track_caller]
    pub fn keep(&self) {
        cmd("blockdev").arg("--flushbufs").arg(&self.node).ok();
        fs::copy(&self.file, self.file.with_extension("kept")).expect("room for a copy");
    }

    /// Makes it larger.
    #[track_caller]
    pub fn grow(&self, mib: u64) {
        let file = File::options().write(true).open(&self.file).expect("the disk's file");
        file.set_len(mib << 20).expect("room for a disk");
        cmd("losetup").arg("-c").arg(&self.node).ok();
    }

    /// What is in it; data of a resource with internal metadata begins at its beginning.
    #[track_caller]
    pub fn read(&self, at: u64, length: usize) -> Vec<u8> {
        cmd("blockdev").arg("--flushbufs").arg(&self.node).ok();
        let mut bytes = vec![0; length];
        let file = File::open(&self.file).expect("the disk's file");
        file.read_exact_at(&mut bytes, at).expect("a readable disk");
        bytes
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        cmd("losetup").arg("-d").arg(&self.node).run();
    }
}

/// One end of a resource.
#[derive(Clone, Debug)]
pub struct End {
    /// The name of its host.
    pub host: String,
    /// The number of its device.
    pub minor: u32,
    /// The disk below it.
    pub disk: PathBuf,
    /// `IP:PORT`.
    pub address: String,
}

/// The configuration of a resource, with a gap for the secret.
pub fn config(name: &str, ends: [&End; 2]) -> String {
    let one = |end: &End| {
        let End { host, minor, disk, address } = end;
        format!(
            "  on {host} {{ device /dev/drbd{minor}; disk {}; meta-disk internal; \
             address {address}; }}\n",
            disk.display()
        )
    };
    // Without ping-timeout and the like a pulled cable is noticed after half a minute.
    format!(
        "resource {name} {{\n  net {{ protocol C; cram-hmac-alg sha1; \
         shared-secret \"%(shared-secret)s\"; ping-int 2; timeout 20; connect-int 1; }}\n{}{}}}\n",
        one(ends[0]),
        one(ends[1])
    )
}

/// A resource that is handled with the programs of DRBD, not by what is tested.
#[derive(Debug)]
pub struct ByHand {
    name: String,
    minor: u32,
    file: PathBuf,
}

impl ByHand {
    /// The resource of this configuration, which is not up.
    #[track_caller]
    pub fn new(name: &str, minor: u32, config: &str) -> Self {
        modprobe(&["drbd"]);
        let file = PathBuf::from(format!("/var/tmp/{name}-by-hand.res"));
        let config = config.replace("%(shared-secret)s", SECRET);
        fs::write(&file, config).expect("a configuration");
        Self { name: name.into(), minor, file }
    }

    /// `drbdadm COMMAND NAME`.
    #[track_caller]
    pub fn admin(&self, command: &[&str]) {
        cmd("drbdadm").arg("-c").arg(&self.file).args(command).arg(&self.name).ok();
    }

    /// Makes its metadata; what was on the disk is gone.
    #[track_caller]
    pub fn create_metadata(&self) {
        self.admin(&["create-md", "--force"]);
    }

    /// Both ends hold the same from now on, whatever is on their disks. They must be connected.
    #[track_caller]
    pub fn skip_first_sync(&self) {
        self.wait("cs:Connected");
        let volume = format!("{}/0", self.name);
        let command = ["new-current-uuid", "--clear-bitmap", &volume];
        cmd("drbdadm").arg("-c").arg(&self.file).args(command).ok();
        self.wait("ds:UpToDate/UpToDate");
    }

    /// The line of `/proc/drbd`; empty when it is not up.
    pub fn state(&self) -> String {
        let table = fs::read_to_string("/proc/drbd").unwrap_or_default();
        let begin = format!("{}:", self.minor);
        let line = table.lines().find(|line| line.trim_start().starts_with(&begin));
        line.unwrap_or_default().trim().to_owned()
    }

    /// Waits until the state holds these words.
    #[track_caller]
    pub fn wait(&self, words: &str) {
        wait_for(&format!("{words} in {}", self.state()), LIMIT, || {
            self.state().contains(words).then_some(())
        });
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        cmd("drbdsetup").args(["down", &self.name]).run();
    }
}

/// Gives the guest addresses that drbdadm finds on an interface; it looks for them.
#[track_caller]
pub fn add_addresses() {
    for address in ["127.0.1.1/8", "127.0.1.2/8"] {
        cmd("ip").args(["addr", "replace", address, "dev", "lo"]).ok();
    }
}
