//! Mounts whose file system is behind a network.

use hawser_core::port::host::MountEntry;

/// True when the mount is of this type and of this source.
pub(super) fn is_same(entry: &MountEntry, fs_type: &str, source: &str) -> bool {
    // A folder of the mount that is bound elsewhere has a root of its own; where the source names
    // a folder below what the server shares, the root may be that folder.
    let shown = plain(&entry.source);
    let root = entry.root.to_string_lossy();
    let whole = root == "/" || shown.ends_with(root.trim_end_matches('/'));
    family(&entry.fs_type) == family(fs_type) && shown == plain(source) && whole
}

/// The kernel shows `nfs4` for what was mounted as `nfs` with version 4.
fn family(fs_type: &str) -> &str {
    match fs_type {
        "nfs4" => "nfs",
        "smb3" => "cifs",
        other => other,
    }
}

/// A source without what the kernel may show in another way: slashes at its end and backslashes.
fn plain(source: &str) -> String {
    let source = source.replace('\\', "/");
    let end = source.trim_end_matches('/');
    // The root of an NFS server is a slash of its own.
    if end.ends_with(':') { format!("{end}/") } else { end.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    /// As a kernel shows them.
    const TABLE: &str = "\
61 29 0:52 / /mnt/a rw,relatime shared:30 - nfs4 192.0.2.40:/exports/vol rw,vers=4.2,hard\n\
62 29 0:53 / /mnt/b rw,relatime shared:31 - nfs4 192.0.2.40:/ rw,vers=4.1\n\
63 29 0:52 /vol/sub /mnt/c rw,relatime - nfs4 192.0.2.40:/exports/vol/sub rw,vers=4.2\n\
64 29 0:54 / /mnt/d rw,relatime - cifs //server/share rw,vers=3.1.1\n\
65 29 0:54 /sub /mnt/e rw,relatime - cifs //server/share rw,vers=3.1.1\n\
66 29 0:55 /p/q /mnt/f rw,relatime - cifs //server/share/p/q rw,vers=3.1.1\n";

    fn entry(target: &str) -> MountEntry {
        let table = table::parse(TABLE.as_bytes()).unwrap();
        table.into_iter().find(|entry| entry.target.ends_with(target)).unwrap()
    }

    #[test]
    fn the_same_export_is_known_in_each_spelling() {
        for (target, fs_type, source) in [
            ("a", "nfs4", "192.0.2.40:/exports/vol"),
            ("a", "nfs", "192.0.2.40:/exports/vol/"),
            ("b", "nfs4", "192.0.2.40:/"),
            ("c", "nfs4", "192.0.2.40:/exports/vol/sub"),
            ("d", "cifs", "//server/share"),
            ("d", "smb3", "\\\\server\\share"),
            ("f", "cifs", "//server/share/p/q/"),
        ] {
            assert!(is_same(&entry(target), fs_type, source), "{target} {source}");
        }
    }

    #[test]
    fn another_export_server_type_or_folder_is_not_the_same() {
        for (target, fs_type, source) in [
            ("a", "nfs4", "192.0.2.40:/exports/vol2"),
            ("a", "nfs4", "192.0.2.41:/exports/vol"),
            ("a", "nfs4", "192.0.2.40:/"),
            ("a", "cifs", "192.0.2.40:/exports/vol"),
            ("b", "nfs4", "192.0.2.40:/exports"),
            ("c", "nfs4", "192.0.2.40:/exports/vol"),
            ("e", "cifs", "//server/share"),
            ("d", "cifs", "//server/share2"),
        ] {
            assert!(!is_same(&entry(target), fs_type, source), "{target} {source}");
        }
    }
}
