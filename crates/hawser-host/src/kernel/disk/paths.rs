//! The paths below a map of several paths.

use std::path::{Path, PathBuf};

use hawser_core::port::kernel::{KernelError, KernelResult};
use rustix::io::Errno;

use super::open::Device;
use super::refusal;

/// One path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathBelow {
    pub(super) node: PathBuf,
    pub(super) number: (u32, u32),
    /// The kernel sends commands down this one.
    running: bool,
}

impl PathBelow {
    /// By the name that its driver gives; asking it would wait for a path that is down.
    pub(super) fn is_nvme(&self) -> bool {
        self.node.as_os_str().as_encoded_bytes().starts_with(b"/dev/nvme")
    }
}

/// The paths of a device that is a map of several paths, those that run first; `None` for any other
/// device. Blocks.
pub(super) fn of(device: &Device) -> KernelResult<Option<Vec<PathBelow>>> {
    let attempt = || format!("listing the paths of {}", device.name());
    list(Path::new("/sys"), device.number())
        .map_err(|source| KernelError::Refused { attempt: attempt(), source })
}

/// Opens a path and makes sure that the node is the device that sysfs means. Blocks.
pub(super) fn open(below: &PathBelow, map: &Device) -> KernelResult<Device> {
    let device = Device::open(&below.node, map.workers().clone())?;
    if device.number() == below.number {
        return Ok(device);
    }
    let attempt = format!("opening {} as a path of {}", below.node.display(), map.name());
    Err(refusal(attempt, Errno::NODEV))
}

pub(super) fn list(
    sys: &Path,
    (major, minor): (u32, u32),
) -> std::io::Result<Option<Vec<PathBelow>>> {
    let map = sys.join(format!("dev/block/{major}:{minor}"));
    let read = |file: PathBuf| std::fs::read_to_string(file).unwrap_or_default();
    if !read(map.join("dm/uuid")).starts_with("mpath-") {
        return Ok(None);
    }
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(map.join("slaves"))? {
        let entry = entry?;
        // A path that goes while we look has no number any more.
        let Some(number) = parse_number(read(entry.path().join("dev")).trim()) else { continue };
        let state = read(entry.path().join("device/state"));
        let name = entry.file_name().to_string_lossy().replace('!', "/");
        let running = ["running", "live"].contains(&state.trim());
        paths.push(PathBelow { node: Path::new("/dev").join(name), number, running });
    }
    paths.sort_by(|a, b| (!a.running, &a.node).cmp(&(!b.running, &b.node)));
    Ok(Some(paths))
}

pub(super) fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
