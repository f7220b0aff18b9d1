//! The REST gateway: logins, volumes by name, and what they are mapped to.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::http::{self, Reply, Request, Stream};
use super::{GUID, Manner, PASSWORD, Shared, State, USER, hide, show};
use crate::fake_host::kernel::Kernel;

/// Already mapped to that client, and not mapped to it, in the codes of version 3 and of version 4.
const MAPPED: [u32; 2] = [81, 4037];
const NOT_MAPPED: [u32; 2] = [84, 4039];

/// Listens until it is told to end.
pub(super) fn serve(shared: Shared, kernel: Kernel, ended: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound port");
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().flatten() {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            let manner = shared.lock().manner.clone();
            if manner == Manner::Silent {
                // Open until the gateway ends: whoever waits gets nothing.
                kept.push(stream);
                continue;
            }
            // Whoever hangs up early gets no answer.
            let _ = talk(stream, &manner, &shared, &kernel);
        }
    });
    address
}

fn talk(
    stream: std::net::TcpStream,
    manner: &Manner,
    shared: &Shared,
    kernel: &Kernel,
) -> std::io::Result<()> {
    let mut stream = Stream::accept(stream)?;
    let request = stream.read()?;
    shared.lock().requests.push(format!("{} {}", request.method, request.path));
    match manner {
        Manner::Works => {}
        Manner::Silent => return Ok(()),
        Manner::HangsUp => {
            answer(&request, shared, kernel);
            return Ok(());
        }
        Manner::Babbles(bytes) => return stream.write(bytes),
        Manner::Answers(_, _) if request.path == "/api/login" => {}
        Manner::Answers(status, body) => {
            return stream.answer(&Reply { status: *status, body: body.clone() });
        }
    }
    let reply = answer(&request, shared, kernel);
    stream.answer(&reply)
}

fn answer(request: &Request, shared: &Shared, kernel: &Kernel) -> Reply {
    let login = (request.method.as_str(), request.path.as_str()) == ("GET", "/api/login");
    if login {
        return log_in(request, &mut shared.lock());
    }
    let known = |state: &State| {
        let (user, token) = request.who.as_ref()?;
        (user == USER && state.tokens.contains(token)).then_some(())
    };
    if known(&shared.lock()).is_none() {
        return complaint(401, 0, "Unauthorized");
    }
    let path = request.path.as_str();
    if let Some(name) = path.strip_prefix("/api/types/Volume/instances/getByName::") {
        return match request.method.as_str() {
            "GET" => by_name(name, &shared.lock()),
            _ => complaint(405, 0, "method not allowed"),
        };
    }
    let action = path.strip_prefix("/api/instances/Volume::").and_then(|rest| {
        let (id, verb) = rest.split_once("/action/")?;
        Some((id.to_owned(), verb.to_owned()))
    });
    match (request.method.as_str(), action) {
        ("POST", Some((id, verb))) if request.is_json => {
            act(&id, &verb, &request.body, shared, kernel)
        }
        ("POST", Some(_)) => complaint(415, 0, "the body must be application/json"),
        _ => complaint(404, 0, "no such resource"),
    }
}

/// Only the password gets a token; a token is no password.
fn log_in(request: &Request, state: &mut State) -> Reply {
    match &request.who {
        Some((user, password)) if user == USER && password == PASSWORD => {
            state.issued += 1;
            let token = format!("token-{}-of-admin", state.issued);
            state.tokens.push(token.clone());
            Reply { status: 200, body: json!(token).to_string() }
        }
        Some(_) | None => complaint(401, 0, "Unauthorized"),
    }
}

/// The name is escaped twice.
fn by_name(name: &str, state: &State) -> Reply {
    let name = http::unescape(&http::unescape(name));
    match state.volumes.iter().find(|volume| volume.name == name) {
        Some(volume) => Reply { status: 200, body: json!(volume.id).to_string() },
        None => complaint(500, 79, "Could not find the volume"),
    }
}

fn act(id: &str, verb: &str, body: &Value, shared: &Shared, kernel: &Kernel) -> Reply {
    let allowed: &[&str] = match verb {
        "addMappedSdc" => &["guid", "allowMultipleMappings"],
        "removeMappedSdc" => &["guid"],
        "setMappedSdcLimits" => &["guid", "bandwidthLimitInKbps", "iopsLimit"],
        _ => return complaint(404, 0, "no such action"),
    };
    let Value::Object(fields) = body else { return complaint(400, 0, "no JSON object") };
    if let Some(field) = fields.keys().find(|key| !allowed.contains(&key.as_str())) {
        return complaint(400, 0, &format!("unknown field {field}"));
    }
    let Some(guid) = fields.get("guid").and_then(Value::as_str) else {
        return complaint(400, 0, "guid is missing");
    };
    let (found, new, limited) = {
        let state = shared.lock();
        let volume = state.volumes.iter().find(|volume| volume.id == id);
        let mapped = volume.map(|volume| volume.mapped.iter().any(|other| other == guid));
        (mapped, usize::from(state.new_codes), !state.no_limits)
    };
    match (verb, found) {
        (_, None) => complaint(500, 79, "Could not find the volume"),
        _ if guid != GUID => complaint(500, 93, "Could not find the SDC"),
        ("addMappedSdc", Some(true)) => {
            complaint(500, MAPPED[new], "The volume is already mapped to this SDC")
        }
        ("addMappedSdc", Some(false)) => {
            map(shared, kernel, id, guid);
            done()
        }
        ("removeMappedSdc", Some(true)) => {
            unmap(shared, kernel, id, guid);
            done()
        }
        ("setMappedSdcLimits", Some(true)) if limited => {
            let mut state = shared.lock();
            let volume = state.volumes.iter_mut().find(|volume| volume.id == id);
            if let Some(volume) = volume {
                volume.limits = Some(body.clone());
            }
            done()
        }
        ("setMappedSdcLimits", Some(true)) => complaint(500, 1, "not now"),
        _ => complaint(500, NOT_MAPPED[new], "The volume is not mapped to this SDC"),
    }
}

pub(super) fn map(shared: &Shared, kernel: &Kernel, id: &str, guid: &str) {
    let mut state = shared.lock();
    if let Some(volume) = state.volumes.iter_mut().find(|volume| volume.id == id) {
        volume.mapped.push(guid.to_owned());
    }
    // The tree is never asked for while the gateway is held: the client asks the other way round.
    drop(state);
    kernel.edit(|tree| show(tree, shared, id, 1));
}

pub(super) fn unmap(shared: &Shared, kernel: &Kernel, id: &str, guid: &str) {
    let mut state = shared.lock();
    if let Some(volume) = state.volumes.iter_mut().find(|volume| volume.id == id) {
        volume.mapped.retain(|other| other != guid);
        volume.limits = None;
    }
    drop(state);
    kernel.edit(|tree| hide(tree, shared, id));
}

fn done() -> Reply {
    Reply { status: 200, body: String::new() }
}

fn complaint(status: u16, code: u32, message: &str) -> Reply {
    let body = json!({ "message": message, "httpStatusCode": status, "errorCode": code });
    Reply { status, body: body.to_string() }
}
