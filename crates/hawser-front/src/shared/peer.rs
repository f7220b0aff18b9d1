//! Who is at the other end of a Unix socket.

use tokio::net::unix::UCred;

/// Root, the server's own user and the members of the group may use a socket.
pub(crate) async fn is_trusted(who: &UCred, own: u32, group: Option<u32>) -> bool {
    let uid = who.uid();
    if uid == 0 || uid == own {
        return true;
    }
    match group {
        Some(group) => who.gid() == group || in_groups(who.pid(), group).await,
        None => false,
    }
}

/// The kernel tells the first group only; the others stand in its process file. The socket's own mode
/// has let the caller in already, so a process that is gone by now is merely refused.
async fn in_groups(pid: Option<i32>, group: u32) -> bool {
    let Some(pid) = pid else { return false };
    let Ok(status) = tokio::fs::read_to_string(format!("/proc/{pid}/status")).await else {
        return false;
    };
    names_group(&status, group)
}

/// True when the `Groups:` line of a process file has this group.
fn names_group(status: &str, group: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.is_some_and(|line| line.split_whitespace().any(|id| id.parse() == Ok(group)))
}

#[cfg(test)]
mod tests {
    use super::names_group;

    #[test]
    fn further_groups_are_read_from_the_process_file() {
        let status = "Name:\tx\nUid:\t7\t7\t7\t7\nGroups:\t4 24 4242 \nNgid:\t99\n";

        assert!(names_group(status, 4242));
        assert!(!names_group(status, 42));
        assert!(!names_group(status, 99));
        assert!(!names_group("Groups:\t \n", 0));
        assert!(!names_group("", 0));
    }
}
