//! An API server in memory, with the manners of the real one as far as the store meets them.
//!
//! What it does not know it refuses: other paths, unknown fields, illegal names. Revisions have gaps,
//! as they have where others write, too; a write that changes nothing is answered and not made; a
//! removal is answered without its revision.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::super::name::is_legal;

pub(super) const NAMESPACE: &str = "ns";
const RECORDS: &str = "/apis/hawser.storage/v1/namespaces/ns/records";
const SECRETS: &str = "/api/v1/namespaces/ns/secrets";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/records.hawser.storage";

type FakeBody = UnsyncBoxBody<Bytes, io::Error>;
type Answer = Result<Response<FakeBody>, io::Error>;

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// It is refused with this code and not begun.
    Status(u16),
    /// It is done, and the answer has this code.
    DoneBut(u16),
    /// It is done, and the answer is lost.
    Lost,
    /// It is not done, and there is no answer.
    Hang,
}

#[derive(Clone)]
pub(super) struct FakeApi {
    state: Arc<Mutex<State>>,
    bell: watch::Sender<()>,
}

pub(super) struct State {
    objects: BTreeMap<(&'static str, String), Value>,
    revision: u64,
    history: Vec<(u64, &'static str, Value)>,
    /// Watches from before this revision are told that it is gone.
    compacted: u64,
    pages: HashMap<String, (Vec<Value>, u64)>,
    /// Watches deliver nothing as long as this is true.
    pub(super) held: bool,
    /// Watches are refused as long as this is true.
    pub(super) unwatchable: bool,
    /// Watches end when this changes.
    cut: u64,
    faults: VecDeque<(Method, Fault)>,
    /// How many requests are told that there is no such resource, before it is served.
    pub(super) unserved: usize,
    /// How many continued pages are told that their list is too old.
    pub(super) expired: usize,
    /// Every request: method, path and query.
    pub(super) requests: Vec<(Method, String)>,
}

impl FakeApi {
    pub(super) fn new() -> Self {
        let state = State {
            objects: BTreeMap::new(),
            revision: 100,
            history: Vec::new(),
            compacted: 0,
            pages: HashMap::new(),
            held: false,
            unwatchable: false,
            cut: 0,
            faults: VecDeque::new(),
            unserved: 0,
            expired: 0,
            requests: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), bell: watch::channel(()).0 }
    }

    pub(super) fn client(&self) -> Client {
        let fake = self.clone();
        let answer = move |request: Request<Body>| fake.clone().answer(request);
        Client::new(tower::service_fn(answer), NAMESPACE)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes how it behaves, and wakes its watches.
    pub(super) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.bell.send_replace(());
    }

    /// What goes wrong with the next request of this method.
    pub(super) fn fail(&self, method: Method, fault: Fault) {
        self.lock().faults.push_back((method, fault));
    }

    /// How many watches of records were begun.
    pub(super) fn watches(&self) -> usize {
        let is_watch = |path: &str| path.starts_with(RECORDS) && path.contains("watch=1");
        self.lock().requests.iter().filter(|(_, path)| is_watch(path)).count()
    }

    /// How many requests of this method there were so far; watches and lists are not counted.
    pub(super) fn count(&self, method: Method) -> usize {
        let state = self.lock();
        state.requests.iter().filter(|(one, path)| *one == method && !path.contains('?')).count()
    }

    /// Writes an object as another process would.
    pub(super) fn write(&self, collection: &'static str, object: Value) -> u64 {
        let mut state = self.lock();
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        let stored = state.store(collection, name, object);
        drop(state);
        self.bell.send_replace(());
        revision_of(&stored)
    }

    /// Writes a record as another process would.
    pub(super) fn write_record(&self, key: &str, value: &str) -> u64 {
        let metadata = json!({ "name": key.replace('/', ".") });
        let spec = json!({ "key": key, "value": value });
        self.write(RECORDS, json!({ "metadata": metadata, "spec": spec }))
    }

    /// Removes a record as another process would.
    pub(super) fn remove_record(&self, name: &str) {
        self.lock().remove(RECORDS, name);
        self.bell.send_replace(());
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(io::Error::other)?;
        let uri = parts.uri.to_string();
        let fault = {
            let mut state = self.lock();
            state.requests.push((parts.method.clone(), uri.clone()));
            let at = state.faults.iter().position(|(method, _)| *method == parts.method);
            // Watches and lists are not what a fault of a read is meant for.
            let at = at.filter(|_| parts.method != Method::GET || !uri.contains('?'));
            at.and_then(|at| state.faults.remove(at)).map(|(_, fault)| fault)
        };
        match fault {
            Some(Fault::Hang) => return std::future::pending().await,
            Some(Fault::Status(code)) => return status(code, "Fault", "as told", "", ""),
            Some(Fault::DoneBut(_) | Fault::Lost) | None => {}
        }
        if parts.uri.query().is_some_and(|query| query.contains("watch=1")) {
            return self.watch(parts.uri.path(), parts.uri.query().unwrap_or_default());
        }
        let answer = self.lock().route(&parts.method, &parts.uri, &body);
        self.bell.send_replace(());
        match fault {
            Some(Fault::Lost) => Err(io::Error::other("the connection is reset")),
            Some(Fault::DoneBut(code)) => status(code, "Fault", "as told", "", ""),
            Some(Fault::Hang | Fault::Status(_)) | None => answer,
        }
    }

    fn watch(&self, path: &str, query: &str) -> Answer {
        let Some(collection) = collection(path) else { return page_not_found() };
        let after: u64 =
            option(query, "resourceVersion").expect("a revision").parse().expect("one");
        let state = self.lock();
        if state.unwatchable {
            return status(503, "ServiceUnavailable", "try later", "", "");
        }
        if after < state.compacted && after.is_multiple_of(2) {
            return status(410, "Expired", "too old resource version", "", "");
        }
        let start = (self.clone(), self.bell.subscribe(), after, state.cut, false);
        drop(state);
        let events = futures_util::stream::unfold(start, move |place| async move {
            let (fake, mut bell, mut after, cut, ended) = place;
            loop {
                bell.borrow_and_update();
                if ended || fake.lock().cut != cut {
                    return None;
                }
                if after < fake.lock().compacted {
                    let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired" });
                    let line = line(&json!({ "type": "ERROR", "object": gone }));
                    return Some((Ok::<_, io::Error>(line), (fake, bell, after, cut, true)));
                }
                let next = fake.lock().next(collection, after);
                if let Some((revision, event)) = next {
                    after = revision;
                    return Some((Ok(line(&event)), (fake, bell, after, cut, false)));
                }
                // The fake has an end of the bell itself, so this never fails.
                let _ = bell.changed().await;
            }
        });
        Ok(Response::new(StreamBody::new(events).boxed_unsync()))
    }
}

fn line(event: &Value) -> Frame<Bytes> {
    Frame::data(Bytes::from(format!("{event}\n")))
}

impl State {
    /// Forgets its history, and ends the watches, which then cannot go on.
    pub(super) fn compact(&mut self) {
        self.compacted = self.revision + 1;
        self.revision += 2;
        self.cut += 1;
    }

    /// Ends all watches.
    pub(super) fn cut(&mut self) {
        self.cut += 1;
    }

    /// The newest revision.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    fn next(&self, collection: &str, after: u64) -> Option<(u64, Value)> {
        if self.held {
            return None;
        }
        let first = self.history.partition_point(|(revision, ..)| *revision <= after);
        let mut later = self.history[first..].iter().filter(|(_, of, _)| *of == collection);
        later.next().map(|(revision, _, event)| (*revision, event.clone()))
    }

    fn record(&mut self, collection: &'static str, kind: &str, mut object: Value) -> Value {
        // Others write, too.
        self.revision += 3;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let event = json!({ "type": kind, "object": object });
        self.history.push((self.revision, collection, event));
        object
    }

    fn store(&mut self, collection: &'static str, name: String, object: Value) -> Value {
        let known = self.objects.contains_key(&(collection, name.clone()));
        let object = self.record(collection, if known { "MODIFIED" } else { "ADDED" }, object);
        self.objects.insert((collection, name), object.clone());
        object
    }

    fn remove(&mut self, collection: &'static str, name: &str) {
        if let Some(object) = self.objects.remove(&(collection, name.to_owned())) {
            self.record(collection, "DELETED", object);
        }
    }

    fn route(&mut self, method: &Method, uri: &http::Uri, body: &[u8]) -> Answer {
        let query = uri.query().unwrap_or_default();
        if uri.path() == CRD && *method == Method::PATCH {
            assert!(body.starts_with(b"# Where Hawser keeps"), "another definition");
            return answer(&json!({}));
        }
        let Some(collection) = collection(uri.path()) else { return page_not_found() };
        if collection == RECORDS && self.unserved > 0 {
            self.unserved -= 1;
            return page_not_found();
        }
        let name = uri.path()[collection.len()..].trim_start_matches('/').to_owned();
        let found = self.objects.get(&(collection, name.clone())).cloned();
        let kind = collection.rsplit('/').next().unwrap_or_default();
        let absent = || status(404, "NotFound", "not found", kind, &name);
        match (method.as_str(), found) {
            ("GET", _) if name.is_empty() => self.list(collection, query),
            ("GET" | "DELETE" | "PUT", None) => absent(),
            ("GET", Some(object)) => answer(&object),
            ("DELETE", Some(object)) => {
                let options: Value = serde_json::from_slice(body).expect("options");
                let wanted = &options["preconditions"]["resourceVersion"];
                if *wanted != object["metadata"]["resourceVersion"] {
                    return status(409, "Conflict", "precondition failed", kind, &name);
                }
                self.remove(collection, &name);
                answer(&json!({ "kind": "Status", "status": "Success" }))
            }
            ("POST" | "PUT" | "PATCH", found) => self.put(method, collection, &name, found, body),
            _ => panic!("{method} {uri}"),
        }
    }

    fn put(
        &mut self,
        method: &Method,
        collection: &'static str,
        name: &str,
        found: Option<Value>,
        body: &[u8],
    ) -> Answer {
        let mut object: Value = serde_json::from_slice(body).expect("an object");
        let name = match object["metadata"]["name"].as_str() {
            Some(own) if name.is_empty() || name == own => own.to_owned(),
            own => panic!("{own:?} for {name}"),
        };
        let kind = collection.rsplit('/').next().unwrap_or_default();
        if !is_legal(&name) || !is_valid(collection, &object) {
            return status(422, "Invalid", "the object is invalid", kind, &name);
        }
        let version = object["metadata"]["resourceVersion"].take();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let found = found.or_else(|| self.objects.get(&(collection, name.clone())).cloned());
        match (method.as_str(), &found) {
            ("POST", Some(_)) => return status(409, "AlreadyExists", "exists", kind, &name),
            ("PUT", Some(_)) if version.is_null() || version == "0" => panic!("unconditional"),
            ("PUT", Some(found)) if found["metadata"]["resourceVersion"] != version => {
                return status(409, "Conflict", "the object has been modified", kind, &name);
            }
            _ => {}
        }
        let same = found.filter(|found| {
            let mut found = found.clone();
            found["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
            found == object
        });
        let stored = match same {
            Some(same) => same,
            None => self.store(collection, name, object),
        };
        answer(&json!({ "kind": "PartialObjectMetadata", "metadata": stored["metadata"] }))
    }

    fn list(&mut self, collection: &'static str, query: &str) -> Answer {
        if collection == SECRETS {
            let selector = option(query, "labelSelector");
            assert_eq!(selector.as_deref(), Some("hawser.storage%2Frecord%3Dtrue"));
        }
        let limit: usize = option(query, "limit").expect("a limit").parse().expect("a number");
        let (mut items, revision) = match option(query, "continue") {
            Some(_) if self.expired > 0 => {
                self.expired -= 1;
                return status(410, "Expired", "the list is too old", "", "");
            }
            Some(token) => self.pages.remove(&token).expect("a token of ours"),
            None => {
                let all = self.objects.iter().filter(|((of, _), _)| *of == collection);
                (all.map(|(_, object)| object.clone()).collect(), self.revision)
            }
        };
        let rest = items.split_off(limit.min(items.len()));
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if !rest.is_empty() {
            let token = format!("page{}", self.requests.len());
            metadata["continue"] = json!(token);
            self.pages.insert(token, (rest, revision));
        }
        answer(&json!({ "metadata": metadata, "items": items }))
    }
}

pub(super) fn revision_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|r| r.parse().ok()).expect("revision")
}

fn collection(path: &str) -> Option<&'static str> {
    [RECORDS, SECRETS].into_iter().find(|collection| path.starts_with(collection))
}

fn option(query: &str, name: &str) -> Option<String> {
    let find =
        |pair: &str| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, v)| v.into());
    query.split('&').find_map(find)
}

/// As the definition of records says.
fn is_valid(collection: &str, object: &Value) -> bool {
    if collection == SECRETS {
        return object["metadata"]["labels"]["hawser.storage/record"] == "true";
    }
    let Some(spec) = object["spec"].as_object() else { return false };
    let known = ["key", "value", "bytes", "replaces"];
    spec.keys().all(|field| known.contains(&field.as_str()))
        && spec["key"].is_string()
        && spec.contains_key("value") != spec.contains_key("bytes")
}

fn answer(value: &Value) -> Answer {
    let body = Full::new(Bytes::from(value.to_string())).map_err(io::Error::other).boxed_unsync();
    Ok(Response::new(body))
}

fn status(code: u16, reason: &str, message: &str, kind: &str, name: &str) -> Answer {
    let mut body = json!({
        "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    if !name.is_empty() {
        body["details"] = json!({ "kind": kind, "name": name });
    }
    let mut response = answer(&body)?;
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    Ok(response)
}

fn page_not_found() -> Answer {
    let body = Full::new(Bytes::from("404 page not found\n")).map_err(io::Error::other);
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::NOT_FOUND;
    Ok(response)
}
