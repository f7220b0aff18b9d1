//! `iscsiadm`: what connectors run, with its exit codes.

use std::time::Duration;

use super::database::{self, Record};
use super::{Export, Layer, Portal, PortalState, Session, close_session, open_session};
use crate::fake_host::kernel::Answer;
use crate::fake_host::kernel::errno::ECONNREFUSED;
use crate::fake_host::{Ran, ToolCall, Tree};
use crate::sim::scsi;

/// The codes that connectors tell apart.
const SESSION_NOT_FOUND: i32 = 2;
const LOGIN_FAILED: i32 = 5;
const INVALID: i32 = 7;
const NO_ANSWER: i32 = 8;
const DISCOVERY_TIMEOUT: i32 = 11;
const SESSION_EXISTS: i32 = 15;
const NO_DAEMON: i32 = 20;
const NOTHING: i32 = 21;
const AUTH_FAILED: i32 = 24;

/// How long a portal takes to refuse, and a target to say that it is not there.
const REFUSAL: Duration = Duration::from_secs(1);

/// True when a run only prints, by the text of its arguments.
pub(super) fn only_looks(detail: &str) -> bool {
    if detail.contains("\"nonpersistent\"") {
        return detail.contains("\"iscsiadm\"");
    }
    const CHANGES: [&str; 10] = [
        "\"-o\"",
        "\"--op",
        "\"--login\"",
        "\"--logout\"",
        "\"--discover\"",
        "\"--rescan\"",
        "\"-l\"",
        "\"-u\"",
        "\"-R\"",
        "\"discovery\"",
    ];
    detail.contains("\"iscsiadm\"") && !CHANGES.iter().any(|word| detail.contains(word))
}

/// One run.
pub(super) fn run(tree: &mut Tree, call: &ToolCall) -> Ran {
    tree.with::<Layer, _>(|layer, _| layer.commands += 1);
    let portal = match call.value(&["-p", "--portal"]).map(Portal::parse) {
        Some(None) => return Ran::failed(INVALID, "iscsiadm: Could not parse the portal\n"),
        Some(portal) => portal,
        None => None,
    };
    let iqn = call.value(&["-T", "--targetname"]);
    match call.value(&["-m", "--mode"]) {
        Some("node") => node(tree, call, iqn, portal.as_ref()),
        Some("session") => session(tree, call),
        Some("discovery" | "discoverydb") => discovery(tree, call, portal.as_ref()),
        Some("iface") => iface(tree, call),
        _ => Ran::failed(INVALID, "iscsiadm: unknown mode\n"),
    }
}

fn daemon_runs(tree: &Tree) -> bool {
    tree.text("/proc/522/comm") == "iscsid"
}

fn no_daemon() -> Ran {
    Ran::failed(NO_DAEMON, "iscsiadm: can not connect to iSCSI daemon (111)!\n")
}

fn node(tree: &mut Tree, call: &ToolCall, iqn: Option<&str>, portal: Option<&Portal>) -> Ran {
    let operation = call.value(&["-o", "--op"]);
    if operation == Some("new") {
        let (Some(iqn), Some(portal)) = (iqn, portal) else {
            return Ran::failed(INVALID, "iscsiadm: --portal and --targetname are needed\n");
        };
        let iface = call.value(&["-I", "--interface"]).unwrap_or("default");
        database::new_record(iqn, portal, None, iface).write(tree);
        let text = portal.file_name();
        return Ran::ok(format!("New iSCSI node [tcp:[{iface}] {text},-1 {iqn}] added\n"));
    }
    let records = database::records(tree, iqn, portal);
    if call.has("--logout") || call.has("-u") {
        return logout(tree, |session| {
            iqn.is_none_or(|iqn| iqn == session.iqn)
                && portal.is_none_or(|portal| *portal == session.portal)
        });
    }
    if records.is_empty() {
        return Ran::failed(NOTHING, "iscsiadm: No records found\n");
    }
    if call.has("--login") || call.has("-l") {
        return login(tree, &records);
    }
    match operation {
        Some("update") => {
            let (Some(name), Some(value)) =
                (call.value(&["-n", "--name"]), call.value(&["-v", "--value"]))
            else {
                return Ran::failed(INVALID, "iscsiadm: update needs --name and --value\n");
            };
            for mut record in records {
                record.set(name, value);
                record.write(tree);
            }
            Ran::ok("")
        }
        Some("delete") => delete(tree, &records),
        Some("show") | None => Ran::ok(records.iter().map(Record::print).collect::<String>()),
        Some(other) => Ran::failed(INVALID, format!("iscsiadm: unknown operation {other}\n")),
    }
}

fn delete(tree: &mut Tree, records: &[Record]) -> Ran {
    for record in records {
        let used = tree.with::<Layer, _>(|layer, _| {
            let mut all = layer.sessions.values();
            all.any(|session| session.iqn == record.iqn && session.portal == record.portal)
        });
        if used {
            let words = "iscsiadm: This command will remove the record, but a session is using it. \
                         Logout session then rerun command to remove record.\n";
            return Ran::failed(SESSION_EXISTS, words);
        }
    }
    for record in records {
        record.remove(tree);
    }
    Ran::ok("")
}

/// What a login ended with, the worst of several.
fn login(tree: &mut Tree, records: &[Record]) -> Ran {
    if !daemon_runs(tree) {
        return no_daemon();
    }
    let (mut worst, mut said, mut complaints) = (0, String::new(), String::new());
    for record in records {
        let place = format!("[iface: default, target: {}, portal: {}]", record.iqn, record.file);
        match login_one(tree, record) {
            Ok(()) => said.push_str(&format!("Login to {place} successful.\n")),
            Err(code) => {
                worst = worst.max(code);
                complaints.push_str(&format!(
                    "iscsiadm: Could not login to {place}.\n\
                     iscsiadm: initiator reported error ({code} - {})\n",
                    words_of(code)
                ));
            }
        }
    }
    Ran { code: worst, stdout: said, stderr: complaints }
}

fn words_of(code: i32) -> &'static str {
    match code {
        LOGIN_FAILED => "encountered iSCSI login failure",
        NO_ANSWER => "connection timed out",
        SESSION_EXISTS => "session exists",
        AUTH_FAILED => "iSCSI login failed due to authorization failure",
        _ => "unknown error",
    }
}

fn login_one(tree: &mut Tree, record: &Record) -> Result<(), i32> {
    let (there, state, export, chap) = tree.with::<Layer, _>(|layer, _| {
        let same = |s: &Session| s.iqn == record.iqn && s.portal == record.portal;
        let wanted = |e: &&Export| e.iqn == record.iqn && e.portal == record.portal;
        let listens = layer.exports.iter().any(|export| export.portal == record.portal);
        let silent = if listens { PortalState::Open } else { PortalState::Silent };
        (
            layer.sessions.values().any(same),
            layer.portals.get(&record.portal).copied().unwrap_or(silent),
            layer.exports.iter().find(wanted).cloned(),
            layer.chap.get(&record.iqn).cloned(),
        )
    });
    if there {
        return Err(SESSION_EXISTS);
    }
    let number = |name: &str, other: u64| record.get(name).parse().unwrap_or(other);
    let again = u32::try_from(number(database::TRIES, 8)).unwrap_or(8);
    let tries = again.max(1);
    match (state, export) {
        (PortalState::Silent, _) => {
            tree.takes(Duration::from_secs(number(database::LOGIN, 15)) * tries);
            Err(NO_ANSWER)
        }
        (PortalState::Open, None) if again == 0 => Err(LOGIN_FAILED),
        (PortalState::Refuses, _) | (PortalState::Open, None) => {
            tree.takes(REFUSAL * tries);
            Err(NO_ANSWER)
        }
        (PortalState::Open, Some(export)) => {
            if let Some((user, password)) = chap {
                let given = (record.get(database::USER), record.get(database::PASSWORD));
                let tried = record.get(database::METHOD) == "CHAP";
                if !tried || given != (user.as_str(), password.as_str()) {
                    return Err(AUTH_FAILED);
                }
            }
            open_session(tree, &export, record);
            Ok(())
        }
    }
}

/// A logout without the tool: the daemon's code.
pub(super) fn logout_by_message(tree: &mut Tree, session: u32) -> Answer<i32> {
    if !daemon_runs(tree) {
        return Err(ECONNREFUSED);
    }
    let there = tree.with::<Layer, _>(|layer, _| layer.sessions.contains_key(&session));
    if !there {
        return Ok(SESSION_NOT_FOUND);
    }
    close_session(tree, session);
    Ok(0)
}

fn logout(tree: &mut Tree, which: impl Fn(&Session) -> bool) -> Ran {
    if !daemon_runs(tree) {
        return no_daemon();
    }
    let ids: Vec<u32> = tree.with::<Layer, _>(|layer, _| {
        layer.sessions.iter().filter(|(_, one)| which(one)).map(|(id, _)| *id).collect()
    });
    if ids.is_empty() {
        return Ran::failed(NOTHING, "iscsiadm: No matching sessions found\n");
    }
    for id in &ids {
        close_session(tree, *id);
    }
    Ran::ok(format!("Logout of {} sessions successful.\n", ids.len()))
}

fn session(tree: &mut Tree, call: &ToolCall) -> Ran {
    let sid: Option<u32> = call.value(&["-r", "--sid"]).and_then(|text| text.parse().ok());
    let all: Vec<(u32, Session)> = tree.with::<Layer, _>(|layer, _| {
        let fits = |id: &u32| sid.is_none_or(|sid| sid == *id);
        layer.sessions.iter().filter(|(id, _)| fits(id)).map(|(i, s)| (*i, s.clone())).collect()
    });
    if all.is_empty() {
        return Ran::failed(NOTHING, "iscsiadm: No active sessions.\n");
    }
    if call.has("--logout") || call.has("-u") {
        for (id, _) in &all {
            close_session(tree, *id);
        }
        return Ran::ok("");
    }
    if call.has("--rescan") || call.has("-R") {
        for (_, session) in &all {
            scsi::scan_for(tree, session.host, None, None, None);
        }
        return Ran::ok("");
    }
    let line = |(id, one): &(u32, Session)| {
        let (transport, portal) = (one.transport, one.portal.text());
        format!("{transport}: [{id}] {portal},{} {} (non-flash)\n", one.group, one.iqn)
    };
    Ran::ok(all.iter().map(line).collect::<String>())
}

/// `discovery -t sendtargets` and `discoverydb`, which also remembers whom it asked.
fn discovery(tree: &mut Tree, call: &ToolCall, portal: Option<&Portal>) -> Ran {
    let folder = |portal: &Portal| format!("/etc/iscsi/send_targets/{}", portal.file_name());
    let operation = call.value(&["-o", "--op"]);
    let asks = call.value(&["-m", "--mode"]) == Some("discovery") || call.has("--discover");
    let Some(portal) = portal else {
        return Ran::failed(INVALID, "iscsiadm: discovery needs a portal\n");
    };
    match operation.filter(|_| !asks || call.has("--discover")) {
        Some("new") if !asks => {
            tree.file_mode(format!("{}/st_config", folder(portal)), "", 0o600);
            return Ran::ok("");
        }
        Some("update") if !asks => {
            let file = format!("{}/st_config", folder(portal));
            let (Some(name), Some(value)) =
                (call.value(&["-n", "--name"]), call.value(&["-v", "--value"]))
            else {
                return Ran::failed(INVALID, "iscsiadm: update needs --name and --value\n");
            };
            if !tree.exists(&file) {
                return Ran::failed(6, "iscsiadm: Could not read the discovery record\n");
            }
            let text = format!("{}\n{name} = {value}\n", tree.text(&file));
            tree.file_mode(file, text, 0o600);
            return Ran::ok("");
        }
        Some("delete") => {
            let gone = tree.remove(folder(portal));
            return if gone { Ran::ok("") } else { Ran::failed(NOTHING, "no record found\n") };
        }
        Some(_) | None if !asks => {
            return Ran::ok(tree.text(format!("{}/st_config", folder(portal))));
        }
        Some(_) | None => {}
    }
    let iface = call.value(&["-I", "--interface"]).unwrap_or("default").to_owned();
    let keeps = operation != Some("nonpersistent");
    send_targets(tree, portal, &folder(portal), &iface, keeps)
}

/// True when a portal that asks for credentials finds them in its record.
fn may_discover(tree: &mut Tree, portal: &Portal, folder: &str) -> bool {
    let wanted = tree.with::<Layer, _>(|layer, _| layer.discovery.get(portal).cloned());
    let Some((user, password)) = wanted else { return true };
    let text = tree.text(format!("{folder}/st_config"));
    let has = |name: &str, value: &str| {
        let line = format!("discovery.sendtargets.auth.{name} = {value}");
        text.lines().any(|its| its == line)
    };
    has("authmethod", "CHAP") && has("username", &user) && has("password", &password)
}

fn send_targets(tree: &mut Tree, portal: &Portal, folder: &str, iface: &str, keeps: bool) -> Ran {
    if !daemon_runs(tree) {
        return no_daemon();
    }
    if !may_discover(tree, portal, folder) {
        let words = "iscsiadm: Login authentication failed with target\n";
        return Ran::failed(AUTH_FAILED, words);
    }
    let (open, exports) = tree.with::<Layer, _>(|layer, _| {
        let here = |export: &&Export| export.portal == *portal;
        let iqns: Vec<String> =
            layer.exports.iter().filter(here).map(|export| export.iqn.clone()).collect();
        let state = layer.portals.get(portal).copied().unwrap_or_default();
        let all = layer.lists_all;
        let shown = |export: &&Export| all || iqns.contains(&export.iqn);
        let shown = layer.exports.iter().filter(shown).cloned();
        (state == PortalState::Open && !iqns.is_empty(), shown.collect::<Vec<_>>())
    });
    if !open {
        tree.takes(Duration::from_secs(15));
        return Ran::failed(DISCOVERY_TIMEOUT, "iscsiadm: connection login retries exceeded\n");
    }
    if keeps && !tree.exists(format!("{folder}/st_config")) {
        tree.file_mode(format!("{folder}/st_config"), "discovery.type = sendtargets\n", 0o600);
    }
    let mut lines = String::new();
    for export in &exports {
        // Records that are there are written anew, with the defaults.
        let record = database::new_record(&export.iqn, &export.portal, Some(export.group), iface);
        if keeps {
            record.write(tree);
        }
        lines.push_str(&format!("{},{} {}\n", export.portal.text(), export.group, export.iqn));
    }
    Ran::ok(lines)
}

fn iface(tree: &mut Tree, call: &ToolCall) -> Ran {
    let Some(name) = call.value(&["-I", "--interface"]) else {
        return Ran::ok("default tcp,<empty>,<empty>,<empty>,<empty>\n");
    };
    let file = format!("/etc/iscsi/ifaces/{name}");
    match call.value(&["-o", "--op"]) {
        Some("new") => {
            tree.file_mode(&file, format!("iface.iscsi_ifacename = {name}\n"), 0o600);
            Ran::ok("")
        }
        Some("update") if tree.exists(&file) => {
            let (name, value) = (call.value(&["-n", "--name"]), call.value(&["-v", "--value"]));
            let line = format!("{} = {}\n", name.unwrap_or_default(), value.unwrap_or_default());
            let text = format!("{}\n{line}", tree.text(&file));
            tree.file_mode(file, text, 0o600);
            Ran::ok("")
        }
        Some("delete") => {
            let gone = tree.remove(file);
            if gone { Ran::ok("") } else { Ran::failed(NOTHING, "iscsiadm: no such iface\n") }
        }
        Some(_) | None if tree.exists(&file) => Ran::ok(tree.text(file)),
        Some(_) | None => Ran::failed(NOTHING, "iscsiadm: no such iface\n"),
    }
}
