//! An API server in memory, with the manners of the real one as far as a storage controller meets
//! them; followed are the strategies and errors of Kubernetes 1.34.
//!
//! Every resource is served, derived from its path; `known` holds what a path does not tell. The
//! parts of an object that the server owns are its own: a write to the main resource leaves the
//! status alone and the other way round, a new object has no status but its default, an object with
//! finalizers outlives its removal, and a write that changes nothing is answered and not made.
//! Revisions have gaps, as they have where others write, too.
//!
//! It refuses what it does not do: dry runs, strategic patches with lists, field selectors that the
//! real one does not know. It does not validate specs, adds no finalizers of its own, collects no
//! garbage, and an apply is a merge that may create.

mod answer;
mod call;
mod discovery;
mod fault;
mod inspect;
mod known;
mod list;
mod name;
mod patch;
mod select;
mod state;
mod tests;
mod update;
mod watch;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch as bell;

pub(crate) use call::Seen;
pub(crate) use fault::{Cut, Fault};

use answer::{Answer, Done, Refusal};
use call::Call;
use state::State;

/// The namespace of the client.
pub(crate) const NAMESPACE: &str = "ns";

/// The server: a handle, every clone of which is the same server.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    /// Rings whenever something has changed.
    bell: bell::Sender<()>,
}

impl FakeApi {
    /// An empty server of all groups that `known` lists.
    pub(crate) fn new() -> Self {
        Self { state: Arc::new(Mutex::new(State::new())), bell: bell::channel(()).0 }
    }

    /// A client of this server, without any layer that retries; needs a runtime.
    pub(crate) fn client(&self) -> Client {
        let fake = self.clone();
        let answer = move |request: Request<Body>| fake.clone().answer(request);
        Client::new(tower::service_fn(answer), NAMESPACE)
    }

    /// Which versions of a group there are, the preferred one first; none means no such group.
    pub(crate) fn serve(&self, group: &str, versions: &[&str]) {
        let versions = versions.iter().map(|version| (*version).to_owned()).collect();
        self.lock().groups.insert(group.to_owned(), versions);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the server, and wakes whoever watches or waits.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.bell.send_replace(());
        changed
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let call = Call::read(request).await?;
        let fault = self.change(|state| {
            state.requests.push(call.seen.clone());
            state.take_fault(&call)
        });
        if let Some(fault) = fault {
            match fault {
                Fault::Refused(code) => return answer::refuse(&fault::told(code)),
                Fault::RefusedLate(time, code) => {
                    tokio::time::sleep(time).await;
                    return answer::refuse(&fault::told(code));
                }
                Fault::Reset => return Err(fault::reset()),
                Fault::Hang => return std::future::pending().await,
                Fault::Slow(time) => tokio::time::sleep(time).await,
                Fault::DoneBut(_) | Fault::Lost | Fault::Late(_) => {}
            }
        }
        let answer = match call.is_watch() {
            true => self.watch(&call),
            false => match self.change(|state| state.route(&call)) {
                Ok(done) => answer::reply(&done),
                Err(refusal) => answer::refuse(&refusal),
            },
        };
        match fault {
            Some(Fault::DoneBut(code)) => answer::refuse(&fault::told(code)),
            Some(Fault::Lost) => Err(fault::reset()),
            Some(Fault::Late(time)) => {
                tokio::time::sleep(time).await;
                answer
            }
            Some(
                Fault::Refused(_)
                | Fault::RefusedLate(..)
                | Fault::Reset
                | Fault::Hang
                | Fault::Slow(_),
            )
            | None => answer,
        }
    }
}

impl State {
    fn route(&mut self, call: &Call) -> Result<Done, Refusal> {
        if let Some(document) = self.discover(call) {
            return document.map(Done::ok);
        }
        let target = self.target(call)?;
        if call.query.contains_key("dryRun") {
            return Err(Refusal::bad_request("a dry run is not faked"));
        }
        let named = target.name.is_some();
        let mut done = match call.seen.method {
            Method::GET if !named => return self.list(&target, call).map(Done::ok),
            Method::GET => self.get(&target).map(Done::ok),
            Method::POST if !named => self.create(&target, call.object()?).map(Done::created),
            Method::PUT if named => self.replace(&target, call.object()?).map(Done::ok),
            Method::PATCH if named => self.patch(&target, call),
            Method::DELETE if named => self.delete(&target, &call.seen.body).map(Done::ok),
            _ => return Err(Refusal::method_not_allowed(&target, &call.seen.method)),
        }?;
        done.body = call.view(&target).object(done.body);
        Ok(done)
    }
}
