//! Paths from outside. The kubelet's are honest, and it is not the only one who can write an object
//! that they are made of.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use tracing::debug;

use super::error::{CsiError, cut};

/// The kernel's limit, with its terminator.
const LONGEST: usize = 4096;
/// The folders of a kubelet in which volumes are staged and published.
const OF_KUBELET: [&str; 2] = ["pods", "plugins"];
/// A folder that does not answer is left where it is.
const LIMIT: Duration = Duration::from_secs(5);

/// Checks a path, and that it lies where the kubelet has its own. `Kind::Invalid` otherwise. What its
/// folders are is checked by whoever opens them, one by one.
pub(super) fn check(
    kubelet_dir: Option<&Path>,
    field: &'static str,
    text: &str,
) -> Result<PathBuf, CsiError> {
    let refuse = |why: String| Err(CsiError::Path { field, path: cut(text), why });
    if text.len() >= LONGEST {
        return refuse("it is longer than a path can be".to_owned());
    }
    if text.chars().any(char::is_control) {
        return refuse("it has control characters".to_owned());
    }
    let path = PathBuf::from(text);
    let parts: Vec<_> = path.components().collect();
    let plain = parts.iter().skip(1).all(|part| matches!(part, Component::Normal(_)));
    let rebuilt: PathBuf = parts.iter().collect();
    if !path.is_absolute() || parts.len() < 2 || !plain || rebuilt.as_os_str() != path.as_os_str() {
        return refuse(
            "it must be absolute, without `.`, `..`, double or trailing slashes".to_owned(),
        );
    }
    if let Some(root) = kubelet_dir
        && !OF_KUBELET.iter().any(|folder| is_below(&path, &root.join(folder)))
    {
        let root = root.display();
        return refuse(format!("it must lie below {root}/pods or {root}/plugins"));
    }
    Ok(path)
}

fn is_below(path: &Path, root: &Path) -> bool {
    path != root && path.starts_with(root)
}

/// Removes the empty folder or file at a target that nothing is mounted on: whoever made it, it goes
/// when the volume is unpublished. Never more than that one entry, and no link is followed.
pub(super) async fn remove_leftover(path: &Path) {
    let owned = path.to_owned();
    let task = tokio::task::spawn_blocking(move || remove(&owned));
    match tokio::time::timeout(LIMIT, task).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => debug!(path = %path.display(), %error, "the target stays"),
        Ok(Err(_)) | Err(_) => debug!(path = %path.display(), "the target does not answer"),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let there =
        rustix::fs::openat2(CWD, parent, flags, Mode::empty(), resolve).and_then(|parent| {
            let found = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR),
                FileType::RegularFile if found.st_size == 0 => {
                    rustix::fs::unlinkat(&parent, name, AtFlags::empty())
                }
                FileType::RegularFile
                | FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => Ok(()),
            }
        });
    match there {
        Err(rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn taken(kubelet: Option<&str>, path: &str) -> bool {
        check(kubelet.map(Path::new), "target_path", path).is_ok()
    }

    /// CVE-2020-8567, CVE-2020-8568: `..` in a path writes files of the host.
    #[test]
    fn no_path_leads_out_of_the_folders_of_the_kubelet() {
        let kubelet = Some("/var/lib/kubelet");
        for good in [
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pv/mount",
            "/var/lib/kubelet/plugins/kubernetes.io/csi/d/0/globalmount",
        ] {
            assert!(taken(kubelet, good), "{good}");
        }
        for bad in [
            "/var/lib/kubelet/pods/../../../etc",
            "/var/lib/kubelet/pods",
            "/var/lib/kubelet/pods/",
            "/var/lib/kubelet/podsx/1",
            "/var/lib/kubelet/plugins_registry/x",
            "/var/lib/kubelet",
            "/etc",
            "/var/lib/kubelet-evil/pods/1",
        ] {
            assert!(!taken(kubelet, bad), "{bad}");
        }
    }

    #[test]
    fn only_plain_absolute_paths_are_taken() {
        assert!(taken(None, "/tmp/csi-mount/target"));
        for bad in ["", "/", "some/path", "/a/../b", "/a/./b", "/a//b", "/a/", "/a\nb", "/a\0b"] {
            assert!(!taken(None, bad), "{bad:?}");
        }
        assert!(!taken(None, &format!("/{}", "x".repeat(LONGEST))));
    }

    #[test]
    fn an_empty_folder_or_file_goes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir(at("empty")).unwrap();
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("full")).unwrap();
        fs::write(at("full/data"), "x").unwrap();
        fs::write(at("text"), "x").unwrap();

        for name in ["empty", "file", "full", "text", "absent", "absent/too"] {
            let _ = remove(&at(name));
        }

        assert!(!at("empty").exists() && !at("file").exists());
        assert!(at("full/data").exists() && at("text").exists());
    }

    /// CVE-2017-1002101, CVE-2021-25741: a folder is swapped for a link.
    #[test]
    fn no_link_is_followed_when_a_target_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("host/precious")).unwrap();
        std::os::unix::fs::symlink(root.join("host"), root.join("pod")).unwrap();
        std::os::unix::fs::symlink(root.join("host/precious"), root.join("target")).unwrap();
        fs::write(root.join("host/empty"), "").unwrap();
        std::os::unix::fs::symlink(root.join("host/empty"), root.join("to-file")).unwrap();

        assert!(remove(&root.join("pod/precious")).is_err(), "a parent is a link");
        remove(&root.join("target")).unwrap();
        remove(&root.join("to-file")).unwrap();

        assert!(root.join("host/precious").is_dir(), "what it leads to is there");
        for link in ["target", "to-file"] {
            assert!(root.join(link).is_symlink(), "and so is the link, which is not ours");
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_stays_below(text in "\\PC{0,80}") {
            if let Ok(path) = check(Some(Path::new("/k")), "target_path", &text) {
                prop_assert!(path.starts_with("/k/pods") || path.starts_with("/k/plugins"));
            }
        }

        #[test]
        fn no_dots_get_through(parts in prop::collection::vec("\\.{0,3}|[a-z]{1,3}", 0..6)) {
            let text = format!("/k/pods/{}", parts.join("/"));
            if let Ok(path) = check(Some(Path::new("/k")), "target_path", &text) {
                prop_assert!(path.components().all(|part| part != Component::ParentDir));
            }
        }
    }
}
