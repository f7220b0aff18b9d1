//! NBD servers: nbdkit, which serves every file of a folder, and qemu-nbd, which serves one.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Daemon, cmd, wait_for};

/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum NbdPlace {
    /// Over TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl NbdPlace {
    fn listens(&self) -> bool {
        match self {
            Self::Tcp(address) => TcpStream::connect(address).is_ok(),
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
        }
    }
}

/// nbdkit with a folder: each file is an export of its name. It tells each connection the size that
/// the file has when it comes, and lets several connections have one export.
#[derive(Debug)]
pub struct Nbdkit {
    place: NbdPlace,
    folder: PathBuf,
    options: Vec<String>,
    daemon: Option<Daemon>,
}

impl Nbdkit {
    /// A server that listens.
    #[track_caller]
    pub fn new(place: NbdPlace) -> Self {
        Self::with(place, &[])
    }

    /// A server with more options.
    #[track_caller]
    pub fn with(place: NbdPlace, options: &[&str]) -> Self {
        let folder = PathBuf::from("/var/tmp/nbd");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for exports");
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = Self { place, folder, options, daemon: None };
        server.start();
        server
    }

    /// Makes an export and answers its file.
    #[track_caller]
    pub fn export(&self, name: &str, mib: u64) -> PathBuf {
        let path = self.folder.join(name);
        let file = File::create(&path).expect("a file to export");
        file.set_len(mib << 20).expect("room for an export");
        path
    }

    /// Makes an export larger.
    #[track_caller]
    pub fn grow(&self, name: &str, mib: u64) {
        let file = File::options().write(true).open(self.folder.join(name)).expect("an export");
        file.set_len(mib << 20).expect("room for an export");
    }

    /// What is in an export.
    #[track_caller]
    pub fn read(&self, name: &str, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let file = File::open(self.folder.join(name)).expect("an export");
        file.read_exact_at(&mut bytes, at).expect("a readable export");
        bytes
    }

    /// Starts it, after it was killed.
    #[track_caller]
    pub fn start(&mut self) {
        assert!(self.daemon.is_none(), "it runs");
        let mut nbdkit = cmd("nbdkit").args(["-f", "-v"]).args(&self.options);
        nbdkit = match &self.place {
            NbdPlace::Tcp(address) => {
                nbdkit.args(["-i", &address.ip().to_string(), "-p", &address.port().to_string()])
            }
            NbdPlace::Unix(path) => {
                let _ = fs::remove_file(path);
                nbdkit.arg("-U").arg(path)
            }
        };
        let mut dir = std::ffi::OsString::from("dir=");
        dir.push(&self.folder);
        let mut daemon = nbdkit.arg("file").arg(dir).start();
        wait_for("nbdkit", START_LIMIT, || {
            daemon.assert_alive();
            self.place.listens().then_some(())
        });
        self.daemon = Some(daemon);
    }

    /// The last that it said, and whether it has ended.
    pub fn log(&self) -> String {
        let log = self.daemon.as_ref().map(Daemon::log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Kills it as a crash would.
    #[track_caller]
    pub fn kill(&mut self) {
        self.daemon.take().expect("it runs").kill();
    }
}

/// qemu-nbd with one file, on a Unix socket.
#[derive(Debug)]
pub struct QemuNbd {
    _daemon: Daemon,
}

impl QemuNbd {
    /// Serves a file under a name.
    #[track_caller]
    pub fn new(socket: &Path, export: &str, file: &Path, options: &[&str]) -> Self {
        let _ = fs::remove_file(socket);
        let mut daemon = cmd("qemu-nbd")
            .args(["--persistent", "--format=raw", "-x", export, "-k"])
            .arg(socket)
            .args(options)
            .arg(file)
            .start();
        wait_for("qemu-nbd", START_LIMIT, || {
            daemon.assert_alive();
            socket.exists().then_some(())
        });
        Self { _daemon: daemon }
    }
}
