//! Volumes over all paths or not at all, and their maps.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::attach::{Attach, Detach, Multipath};

use super::san::names;
use super::{Volume, cmd};

/// Over all paths, or not at all.
pub fn all() -> Attach {
    Attach { multipath: Multipath::Enforced, ..Attach::default() }
}

/// Although something fails.
pub fn forced() -> Detach {
    Detach { force: true, deadline: Duration::from_secs(40), ..Detach::default() }
}

/// Attaches over all paths.
#[track_caller]
pub fn connect(volume: &Volume) -> PathBuf {
    volume.connect_as(&all()).expect("connect").get().path().to_owned()
}

/// Detaches what was attached over all paths.
#[track_caller]
pub fn disconnect(volume: &Volume) {
    let gone = volume.disconnect_as(&all(), &Detach::default()).expect("disconnect");
    assert!(gone.is_made());
}

/// The paths of a map.
pub fn paths(map: &Path) -> Vec<String> {
    let name = map.file_name().expect("a device").to_string_lossy();
    names(&format!("/sys/block/{name}/slaves"))
}

/// How many paths of a map work, by device mapper's own word.
#[track_caller]
pub fn usable(map: &Path) -> usize {
    // By its name: a node without the link that udev makes later is none for dmsetup.
    let node = map.file_name().expect("a device").to_string_lossy();
    let name = fs::read_to_string(format!("/sys/block/{node}/dm/name")).expect("a map");
    let status = cmd("dmsetup").args(["status", name.trim()]).ok();
    let words: Vec<&str> = status.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0].contains(':') && pair[1] == "A").count()
}
