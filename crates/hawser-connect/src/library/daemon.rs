//! Whether a daemon is there, or would be as soon as somebody asked it.

use std::path::Path;

use hawser_core::error::Result;
use hawser_core::port::connector::AbstractSocket;
use hawser_core::port::kernel::Files;

/// The sockets of the network namespace that this process is in: those that it can reach.
const SOCKETS: &str = "/proc/net/unix";

/// What is there where systemd runs; without it `systemctl` starts nothing.
const SYSTEMD: &str = "/run/systemd/system";

/// `__SO_ACCEPTCON`, as the flags of a socket that listens are printed.
const LISTENS: &str = "00010000";

/// True when a process of this name is there.
pub(super) fn runs(files: &dyn Files, name: &str) -> Result<bool> {
    for pid in files.list(Path::new("/proc"))? {
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let comm = Path::new("/proc").join(&pid).join("comm");
        if files.read_text(&comm)?.as_deref() == Some(name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True when somebody listens at a socket (the daemon, or systemd, which starts it), or its programs
/// have a command that starts it. A process of its name proves nothing: from another network
/// namespace it is not reached.
pub(super) fn answers(files: &dyn Files, socket: &AbstractSocket) -> Result<bool> {
    let sockets = files.read_text(Path::new(SOCKETS))?.unwrap_or_default();
    if listens(&sockets, socket.name) {
        return Ok(true);
    }
    let Some((file, setting)) = socket.starter else { return Ok(false) };
    let text = files.read_text(Path::new(file))?.unwrap_or_default();
    let Some(program) = starter(&text, setting) else { return Ok(false) };
    let systemctl = Path::new(program).file_name().is_some_and(|name| name == "systemctl");
    Ok(files.resolve(Path::new(program))?.is_some()
        && (!systemctl || files.resolve(Path::new(SYSTEMD))?.is_some()))
}

/// Finds a listening abstract socket in the table of the kernel. The zero bytes around a name are
/// printed as `@`; connections that were taken bear the name too, without listening.
fn listens(sockets: &str, name: &str) -> bool {
    sockets.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, flags, _, _, _, path] = words[..] else { return false };
        let its = path.strip_prefix('@').map(|path| path.trim_end_matches('@'));
        flags == LISTENS && its == Some(name)
    })
}

/// The program of the command that a setting has.
fn starter<'a>(text: &'a str, setting: &str) -> Option<&'a str> {
    let value = |line: &'a str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == setting).then(|| value.split_whitespace().next())?
    };
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use hawser_testkit::fake_host::FakeHost;

    use super::*;

    const ISCSID: AbstractSocket = AbstractSocket {
        name: "ISCSIADM_ABSTRACT_NAMESPACE",
        starter: Some(("/etc/iscsi/iscsid.conf", "iscsid.startup")),
    };

    fn told(host: &FakeHost) -> bool {
        answers(hawser_core::port::Host::files(host), &ISCSID).unwrap()
    }

    #[test]
    fn only_a_socket_that_listens_under_the_whole_name_counts() {
        let line = |flags: &str, path: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0001 01 20123 {path}\n")
        };
        let head = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let found = |flags, path| listens(&format!("{head}{}", line(flags, path)), ISCSID.name);

        assert!(found(LISTENS, "@ISCSIADM_ABSTRACT_NAMESPACE"));
        assert!(found(LISTENS, "@ISCSIADM_ABSTRACT_NAMESPACE@@@"));
        assert!(!found("00000000", "@ISCSIADM_ABSTRACT_NAMESPACE"), "a connection of somebody");
        assert!(!found(LISTENS, "@ISCSIADM_ABSTRACT_NAMESPACE-77"));
        assert!(!found(LISTENS, "ISCSIADM_ABSTRACT_NAMESPACE"), "a file of that name");
        assert!(!listens(head, ISCSID.name) && !listens("", ISCSID.name));
    }

    #[test]
    fn a_daemon_that_its_programs_start_need_not_run() {
        let host = FakeHost::new();
        let conf = |line: &str| {
            host.kernel()
                .file("/etc/iscsi/iscsid.conf", format!("node.startup = manual\n{line}\n"));
        };
        assert!(!told(&host));
        conf("# iscsid.startup = /bin/systemctl start iscsid.socket");
        assert!(!told(&host), "a comment");
        conf("iscsid.startup = /bin/systemctl start iscsid.socket");
        assert!(!told(&host), "no such program");
        host.kernel().file("/bin/systemctl", "");
        assert!(!told(&host), "systemd does not run");
        host.kernel().folder(SYSTEMD);
        assert!(told(&host));
        conf("iscsid.startup = /usr/sbin/iscsid");
        assert!(!told(&host));
        host.kernel().file("/usr/sbin/iscsid", "");
        assert!(told(&host));
    }

    #[test]
    fn a_process_is_found_by_its_name() {
        let host = FakeHost::new();
        host.kernel().daemon("mmfsd", 77);
        let files = hawser_core::port::Host::files(&host);
        assert!(runs(files, "mmfsd").unwrap() && !runs(files, "mmfs").unwrap());
    }
}
