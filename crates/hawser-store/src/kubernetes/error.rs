//! Why the Kubernetes store could not do what it was asked.

use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hawser_core::port::store::LONGEST_KEY;
use hawser_core::{Classify, Kind, Outcome};
use kube::client::AuthError;
use kube::config::InClusterError;
use kube::core::Status;

use super::object::{LARGEST_OBJECT, ObjectError};
use super::resource::Resource;

/// What a lower layer says about a failure.
pub(super) type Cause = Box<dyn StdError + Send + Sync>;

/// Everything that can go wrong between this process and the API server.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubernetesError {
    #[error(
        "the store setting {setting:?} is not understood; write kubernetes:NAMESPACE or kubernetes:NAMESPACE?kubeconfig=PATH, where the namespace may be left out"
    )]
    Setting { setting: String },
    #[error("reading the kubeconfig {path}")]
    Kubeconfig { path: PathBuf, source: Cause },
    #[error(
        "this process runs in no cluster ({in_cluster}) and has no default kubeconfig; name one with kubernetes:NAMESPACE?kubeconfig=PATH"
    )]
    NoCluster { in_cluster: Box<InClusterError>, source: Cause },
    #[error("preparing the connection to the API server")]
    Client { source: Cause },
    #[error(
        "the cluster has no resource records.hawser.storage; let an administrator apply deploy/crds/records.hawser.storage.yaml once"
    )]
    NotInstalled,
    #[error("{attempt}: the namespace {namespace} does not exist; create it first")]
    NoNamespace { attempt: Attempt, namespace: String },
    #[error("{attempt}: the API server answered {code}: {message}")]
    Refused { attempt: Attempt, code: u16, message: String },
    #[error("{attempt}: this process has no valid credentials for the API server")]
    Credentials { attempt: Attempt, source: Cause },
    #[error("{attempt}: the API server could not be reached")]
    Unreachable { attempt: Attempt, source: Cause },
    #[error("{attempt}: the connection to the API server was lost")]
    Lost { attempt: Attempt, source: Cause },
    #[error("{attempt}: no answer within {} seconds", .limit.as_secs())]
    Timeout { attempt: Attempt, limit: Duration, sent: bool },
    #[error(
        "{attempt}: the API server has done it, but its watch did not tell so within {} seconds",
        .limit.as_secs()
    )]
    Untold { attempt: Attempt, limit: Duration },
    #[error("{attempt}: the answer of the API server is not understood")]
    Answer { attempt: Attempt, source: Cause },
    #[error("the {} {name} in the cluster is no readable record", .resource.word())]
    Malformed { resource: Resource, name: String, source: ObjectError },
    #[error("the {} {name} in the cluster is no readable record", .resource.word())]
    Unreadable { resource: Resource, name: String },
    #[error("the watch of the API server does not tell what was changed, and was given up")]
    Silent,
    #[error("listing the {}s takes longer than the API server keeps the pages of a list", .resource.word())]
    Endless { resource: Resource },
    #[error("the watch of the API server is {} seconds behind", .limit.as_secs())]
    Behind { limit: Duration },
    #[error("the store is closed")]
    Closed,
    #[error("a store key has {0} bytes, the most is {LONGEST_KEY}")]
    KeyTooLong(usize),
    #[error(
        "the value of {key} has {size} bytes, the most that an object of Kubernetes holds is {LARGEST_OBJECT}"
    )]
    ValueTooLarge { key: String, size: usize },
}

/// What was asked of the API server, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) verb: Verb,
    pub(super) resource: Resource,
    /// The object, or nothing where it is about all of them.
    pub(super) name: Option<String>,
}

/// The requests that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Replace,
    Remove,
    /// Writes the object that is written only to be seen: no record is changed.
    Tick,
    /// Applies the definition of the resource: no record is changed.
    Install,
}

impl Verb {
    /// True when a record may be changed by a request whose answer was lost.
    fn changes(self) -> bool {
        match self {
            Self::Create | Self::Replace | Self::Remove => true,
            Self::Get | Self::List | Self::Watch | Self::Tick | Self::Install => false,
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.resource.word();
        let doing = match self.verb {
            Verb::Get => "reading",
            Verb::List => "listing",
            Verb::Watch => "watching",
            Verb::Create => "creating",
            Verb::Replace => "replacing",
            Verb::Remove => "removing",
            Verb::Tick => "marking",
            Verb::Install => "installing the resource of",
        };
        match &self.name {
            Some(name) => write!(f, "{doing} the {word} {name}"),
            None => write!(f, "{doing} the {word}s"),
        }
    }
}

impl KubernetesError {
    /// What an answer of the API server means that is neither yes nor a conflict.
    pub(super) fn refused(attempt: Attempt, namespace: &str, status: Status) -> Self {
        let details = status.details.as_ref();
        if status.code == 404 {
            if details.is_some_and(|details| details.kind == "namespaces") {
                return Self::NoNamespace { attempt, namespace: namespace.to_owned() };
            }
            // The path itself is unknown: no object of any name would be there.
            if attempt.resource == Resource::Records && details.is_none_or(|d| d.name.is_empty()) {
                return Self::NotInstalled;
            }
        }
        let message = match status.message.is_empty() {
            true => status.reason,
            false => status.message,
        };
        Self::Refused { attempt, code: status.code, message }
    }

    /// What a failure below HTTP means.
    pub(super) fn broken(attempt: Attempt, error: kube::Error) -> Self {
        let source = cause(error);
        if is_below::<AuthError>(&*source, |_| true) {
            return Self::Credentials { attempt, source: said(source) };
        }
        if is_below::<serde_json::Error>(&*source, |_| true) {
            return Self::Answer { attempt, source };
        }
        type Client = hyper_util::client::legacy::Error;
        if is_below::<Client>(&*source, Client::is_connect) {
            return Self::Unreachable { attempt, source };
        }
        Self::Lost { attempt, source }
    }

    /// A list or an event of a watch whose revision is no number.
    pub(super) fn uncounted(verb: Verb, resource: Resource, source: ObjectError) -> Self {
        Self::Answer { attempt: Attempt { verb, resource, name: None }, source: source.into() }
    }

    /// True when the API server no longer has the changes from the asked revision on.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }
}

/// The cause of a client error without the line of the client, which repeats it.
fn cause(error: kube::Error) -> Cause {
    use kube::Error as E;
    // The client's enum grows with its features, so this cannot be an exhaustive match.
    if let E::Service(source) = error {
        return source;
    }
    if let E::HyperError(source) = error {
        return source.into();
    }
    if let E::ReadEvents(source) = error {
        return source.into();
    }
    if let E::SerdeError(source) = error {
        return source.into();
    }
    if let E::Auth(source) = error {
        return source.into();
    }
    said(error)
}

/// What an error says as one line, for errors whose line repeats their source.
pub(super) fn said(error: impl fmt::Display) -> Cause {
    error.to_string().into()
}

/// True when the error, or one that it comes from, is an `E` for which `test` holds.
fn is_below<E: StdError + 'static>(error: &(dyn StdError + 'static), test: fn(&E) -> bool) -> bool {
    std::iter::successors(Some(error), |&error| error.source())
        .any(|error| error.downcast_ref::<E>().is_some_and(test))
}

impl Classify for KubernetesError {
    fn kind(&self) -> Kind {
        match self {
            Self::Setting { .. }
            | Self::Kubeconfig { .. }
            | Self::NoCluster { .. }
            | Self::Client { .. }
            | Self::KeyTooLong(_) => Kind::Invalid,
            Self::NotInstalled | Self::NoNamespace { .. } => Kind::Precondition,
            Self::Refused { code, .. } => refusal(*code),
            Self::Credentials { .. } => Kind::Unauthenticated,
            Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::Silent
            | Self::Endless { .. }
            | Self::Behind { .. }
            | Self::Closed => Kind::Unavailable,
            Self::Timeout { .. } | Self::Untold { .. } => Kind::Timeout,
            Self::Answer { .. } | Self::Malformed { .. } | Self::Unreadable { .. } => {
                Kind::Internal
            }
            Self::ValueTooLarge { .. } => Kind::OutOfRange,
        }
    }

    fn outcome(&self) -> Outcome {
        let unknown = match self {
            // The API server also answers 5xx when etcd did not confirm a write in time.
            Self::Refused { attempt, code, .. } => *code >= 500 && attempt.verb.changes(),
            Self::Lost { attempt, .. } | Self::Answer { attempt, .. } => attempt.verb.changes(),
            Self::Timeout { attempt, sent, .. } => *sent && attempt.verb.changes(),
            // Without a revision nobody can say what was after it.
            Self::Untold { .. } => true,
            Self::Setting { .. }
            | Self::Kubeconfig { .. }
            | Self::NoCluster { .. }
            | Self::Client { .. }
            | Self::NotInstalled
            | Self::NoNamespace { .. }
            | Self::Credentials { .. }
            | Self::Unreachable { .. }
            | Self::Malformed { .. }
            | Self::Unreadable { .. }
            | Self::Silent
            | Self::Endless { .. }
            | Self::Behind { .. }
            | Self::Closed
            | Self::KeyTooLong(_)
            | Self::ValueTooLarge { .. } => false,
        };
        if unknown { Outcome::Unknown } else { Outcome::Nothing }
    }
}

/// What a status code means to a caller.
fn refusal(code: u16) -> Kind {
    match code {
        401 => Kind::Unauthenticated,
        403 => Kind::Denied,
        413 => Kind::OutOfRange,
        // A 409 that is not about the record: a quota was changed by somebody else meanwhile.
        409 | 429 => Kind::Unavailable,
        408 | 504 => Kind::Timeout,
        500.. => Kind::Unavailable,
        // Hawser and the definition in the cluster do not agree on what a record is.
        _ => Kind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;

    use super::*;

    fn attempt(verb: Verb) -> Attempt {
        Attempt { verb, resource: Resource::Records, name: Some("volume.a".into()) }
    }

    fn status(code: u16, kind: &str, name: &str) -> Status {
        let details = StatusDetails {
            kind: kind.into(),
            name: name.into(),
            group: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        Status::failure("no", "Because").with_code(code).with_details(details)
    }

    #[test]
    fn every_answer_has_its_kind_and_only_a_write_has_an_unknown_outcome() {
        let cases = [
            (401, Kind::Unauthenticated, false),
            (403, Kind::Denied, false),
            (404, Kind::Internal, false),
            (409, Kind::Unavailable, false),
            (413, Kind::OutOfRange, false),
            (422, Kind::Internal, false),
            (429, Kind::Unavailable, false),
            (500, Kind::Unavailable, true),
            (503, Kind::Unavailable, true),
            (504, Kind::Timeout, true),
        ];

        for (code, kind, unknown) in cases {
            for (verb, changes) in [(Verb::Create, true), (Verb::Get, false), (Verb::Tick, false)] {
                let status = status(code, "records", "volume.a");
                let error = KubernetesError::refused(attempt(verb), "ns", status);
                let outcome = if unknown && changes { Outcome::Unknown } else { Outcome::Nothing };
                assert_eq!((error.kind(), error.outcome()), (kind, outcome), "{code} {verb:?}");
                assert_eq!(error.is_gone(), code == 410);
            }
        }
    }

    #[test]
    fn a_missing_definition_and_a_missing_namespace_are_told_apart() {
        let page = Status::failure("404 page not found", "?").with_code(404);
        let error = KubernetesError::refused(attempt(Verb::Create), "ns", page);
        assert!(matches!(error, KubernetesError::NotInstalled), "{error}");
        assert_eq!(error.kind(), Kind::Precondition);

        let missing = status(404, "namespaces", "ns");
        let error = KubernetesError::refused(attempt(Verb::Create), "ns", missing);
        assert!(error.to_string().contains("the namespace ns does not exist"), "{error}");
        assert_eq!(error.kind(), Kind::Precondition);
    }

    #[test]
    fn a_lost_answer_leaves_a_write_unknown_and_a_read_as_it_was() {
        let lost = |verb| {
            let source = std::io::Error::other("reset").into();
            KubernetesError::broken(attempt(verb), kube::Error::Service(source))
        };

        for verb in [Verb::Create, Verb::Replace, Verb::Remove] {
            assert_eq!(
                (lost(verb).kind(), lost(verb).outcome()),
                (Kind::Unavailable, Outcome::Unknown)
            );
        }
        for verb in [Verb::Get, Verb::List, Verb::Watch, Verb::Tick, Verb::Install] {
            assert_eq!(lost(verb).outcome(), Outcome::Nothing);
        }
        let error = hawser_core::Error::from(lost(Verb::Create));
        assert_eq!(
            error.chain(),
            ["creating the record volume.a: the connection to the API server was lost", "reset"]
        );
    }

    #[test]
    fn a_request_that_never_left_changed_nothing() {
        let late = |sent| KubernetesError::Timeout {
            attempt: attempt(Verb::Create),
            limit: Duration::from_secs(30),
            sent,
        };

        assert_eq!((late(false).kind(), late(false).outcome()), (Kind::Timeout, Outcome::Nothing));
        assert_eq!(late(true).outcome(), Outcome::Unknown);
    }
}
