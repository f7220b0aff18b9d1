//! What the suites of NFS share.
#![allow(dead_code, reason = "each suite uses its part")]

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hawser_live::lab::guest::faults::Asked;
use hawser_live::lab::guest::file_suite::{BASE, assert_clean, clear, live_twice};
use hawser_live::lab::guest::{Leftovers, Nfsd, Volume};
use serde_json::{Value, json};

pub(crate) const SERVER: &str = "127.0.1.1";

/// One server for all tests: its daemons take longer to start than a test to run.
pub(crate) static SHARED: Mutex<Option<Nfsd>> = Mutex::new(None);

/// A server with one export that holds two volumes.
pub(crate) struct Bench {
    pub(crate) server: MutexGuard<'static, Option<Nfsd>>,
    pub(crate) folder: PathBuf,
    pub(crate) before: Leftovers,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::without(&[])
    }

    /// With a server that does not speak these versions.
    pub(crate) fn without(versions: &[&str]) -> Self {
        let mut server = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = clear();
        let nfsd = server.get_or_insert_with(Nfsd::new);
        nfsd.set_without(versions);
        let folder = nfsd.export("vols");
        for name in ["volume-1", "volume-2"] {
            let file = File::create(folder.join(name)).and_then(|file| file.set_len(16 << 20));
            file.expect("a volume at the server");
        }
        Self { server, folder, before: Leftovers::snapshot() }
    }

    pub(crate) fn server(&mut self) -> &mut Nfsd {
        self.server.as_mut().expect("it was started")
    }

    pub(crate) fn volume(&self, name: &str) -> Volume {
        self.volume_of(SERVER, name, json!({}))
    }

    pub(crate) fn volume_of(&self, server: &str, name: &str, more: Value) -> Volume {
        Volume::new("nfs", self.data_of(server, name, more))
    }

    pub(crate) fn data_of(&self, server: &str, name: &str, more: Value) -> Value {
        let mut data = json!({
            "export": format!("{server}:/srv/nfs/vols"), "name": name, "mount_point_base": BASE,
        });
        for (key, value) in more.as_object().expect("an object") {
            data[key] = value.clone();
        }
        data
    }

    /// Its first volume, as somebody has it who runs the command.
    pub(crate) fn asked(&self) -> Asked {
        Asked::over("nfs", self.data_of(SERVER, "volume-1", json!({})), &[])
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert_clean(&self.before);
    }

    #[track_caller]
    pub(crate) fn live_twice(&self, volume: &Volume, shown: &str) {
        live_twice(volume, &self.folder.join("volume-1"), shown, &self.before);
    }
}
