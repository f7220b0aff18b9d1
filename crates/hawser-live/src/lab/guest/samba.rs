//! A Samba server with everything of its own below one folder.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Daemon, cmd, wait_for};

/// How long the daemon may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(30);

const ROOT: &str = "/var/tmp/samba";

/// A server on every address of the guest, for one user. It ends when it is dropped.
#[derive(Debug)]
pub struct Samba {
    _smbd: Daemon,
}

impl Samba {
    /// Who may use all shares.
    pub const USER: &str = "labuser";
    /// His password.
    pub const PASSWORD: &str = "hunter2,correct horse";

    /// A server with the shares `vols` and `all vols` (for the user) and `open` (for guests too).
    #[track_caller]
    pub fn new() -> Self {
        for folder in ["private", "lock", "state", "cache", "pid", "ncalrpc", "log"] {
            fs::create_dir_all(Path::new(ROOT).join(folder)).expect("a folder for samba");
        }
        let mut settings = String::from("[global]\n");
        for folder in ["private", "lock", "state", "cache", "pid", "ncalrpc"] {
            let directory =
                if folder == "pid" { "pid directory" } else { &format!("{folder} dir") };
            settings += &format!("{directory} = {ROOT}/{folder}\n");
        }
        settings += &format!("log file = {ROOT}/log/smbd.log\n");
        settings += "server min protocol = SMB3_00\nsmb ports = 445\nmap to guest = bad user\n\
                     disable spoolss = yes\nload printers = no\nserver role = standalone\n";
        let for_user = format!("valid users = {}", Self::USER);
        for (share, more) in
            [("vols", for_user.as_str()), ("all vols", &for_user), ("open", "guest ok = yes")]
        {
            let folder = Self::folder(share);
            fs::create_dir_all(&folder).expect("a folder to share");
            settings += &format!(
                "[{share}]\npath = {}\nread only = no\nforce user = root\n{more}\n",
                folder.display()
            );
        }
        let file = format!("{ROOT}/smb.conf");
        fs::write(&file, settings).expect("a file of settings");
        Self::add_user(&file);
        let mut smbd = cmd("smbd").args(["-F", "--no-process-group", "-s", &file]).start();
        wait_for("smbd", START_LIMIT, || {
            smbd.assert_alive();
            TcpStream::connect(("127.0.0.1", 445)).ok()
        });
        Self { _smbd: smbd }
    }

    #[track_caller]
    fn add_user(settings: &str) {
        let users = fs::read_to_string("/etc/passwd").expect("a table of users");
        if !users.contains(Self::USER) {
            let line = format!("{}:x:5000:5000::/:/bin/false\n", Self::USER);
            let table = OpenOptions::new().append(true).open("/etc/passwd");
            table.and_then(|mut table| table.write_all(line.as_bytes())).expect("one more user");
        }
        let twice = format!("{0}\n{0}\n", Self::PASSWORD);
        cmd("smbpasswd").args(["-c", settings, "-s", "-a", Self::USER]).input(twice).ok();
    }

    /// Where the files of a share are.
    pub fn folder(share: &str) -> PathBuf {
        Path::new(ROOT).join("shares").join(share)
    }
}

impl Default for Samba {
    fn default() -> Self {
        Self::new()
    }
}
