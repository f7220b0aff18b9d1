//! The REST gateway: logging in, finding a volume by its name, mapping it to a client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hawser_core::Outcome;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::registry::LockGuard;
use hawser_core::secret::Secret;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::answer::{self, Complaint, Named};
use super::config;
use super::data::Access;
use super::tls;
use super::wire::{self, Ask, Failed, Said, Server};
use crate::shared::digest;
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// How long one request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The volume is mapped to this client already; in the words of version 3, and of version 4.
const MAPPED: [i64; 2] = [81, 4037];
/// It is not mapped to this client.
const NOT_MAPPED: [i64; 2] = [84, 4039];

/// More tokens than this are not kept.
const MOST_TOKENS: usize = 64;

/// Tokens that gateways gave out, so that not every call logs in. By gateway, user and password: a
/// wrong password gets nobody in.
static TOKENS: Mutex<BTreeMap<String, Secret>> = Mutex::new(BTreeMap::new());

/// A gateway, for one call.
pub(super) struct Gateway {
    server: Server,
    words: String,
    user: String,
    password: Option<Secret>,
    token: Option<Secret>,
    guard: Arc<dyn LockGuard>,
    deadline: Deadline,
}

impl Gateway {
    /// Finds out how to talk to it; nothing is asked yet. The guard is held while it is asked.
    pub(super) fn open(
        host: &dyn Host,
        access: &Access,
        guard: Arc<dyn LockGuard>,
        deadline: Deadline,
    ) -> Result<Self> {
        let login = config::login(host, access)?;
        if login.password.is_none() && access.token.is_none() {
            let what = format!("the password of {} at {}", login.user, access.words());
            let advice = format!("give serverPassword, or config_group and {}", config::FILE);
            return Err(AttachError::Missing { what, advice }.into());
        }
        let tls = tls::config(host, access)?;
        Ok(Self {
            server: Server { host: access.host.clone(), port: access.port, at: access.at(), tls },
            words: access.words(),
            user: login.user,
            password: login.password,
            token: access.token.clone(),
            guard,
            deadline,
        })
    }

    /// The id of the volume of a name.
    pub(super) async fn resolve(&self, name: &str) -> Result<String> {
        // The gateway takes the name apart once more than HTTP does.
        let once = utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
        let twice = utf8_percent_encode(&once, NON_ALPHANUMERIC);
        let path = format!("/api/types/Volume/instances/getByName::{twice}");
        let said = self.call(Method::GET, path, None).await?;
        match Named::read(&said.body).filter(|_| said.status == 200) {
            Some(Named::Volume(id)) => Ok(id),
            Some(Named::Nothing) => Err(self.no_volume(name)),
            None => Err(self.complaint(&said, &format!("finding the volume {name}"), false)),
        }
    }

    fn no_volume(&self, name: &str) -> Error {
        let (target, volume) = (self.words.clone(), format!("volume {name}"));
        AttachError::VolumeNotFound { target, volume, limit: REQUEST_LIMIT }.into()
    }

    /// Maps a volume to a client; false when it was mapped already.
    pub(super) async fn map(&self, id: &str, guid: &str) -> Result<bool> {
        let body = json!({ "guid": guid, "allowMultipleMappings": "TRUE" });
        self.change(id, "addMappedSdc", &body, &MAPPED, "mapping").await
    }

    /// Takes a volume from a client; false when it was not mapped.
    pub(super) async fn unmap(&self, id: &str, guid: &str) -> Result<bool> {
        let body = json!({ "guid": guid });
        self.change(id, "removeMappedSdc", &body, &NOT_MAPPED, "unmapping").await
    }

    /// Limits what a client may do with a volume, where there is a limit.
    pub(super) async fn limit(&self, id: &str, guid: &str, access: &Access) -> Result<()> {
        let mut body = json!({ "guid": guid });
        if let Some(limit) = access.bandwidth {
            body["bandwidthLimitInKbps"] = json!(limit);
        }
        if let Some(limit) = access.iops {
            body["iopsLimit"] = json!(limit);
        }
        self.change(id, "setMappedSdcLimits", &body, &[], "limiting").await.map(drop)
    }

    /// True when it was done now, false when one of these codes says that it was done before.
    async fn change(
        &self,
        id: &str,
        action: &str,
        body: &Value,
        already: &[i64],
        attempt: &str,
    ) -> Result<bool> {
        let path = format!("/api/instances/Volume::{id}/action/{action}");
        let said = self.call(Method::POST, path, Some(body.to_string())).await?;
        if said.status == 200 {
            return Ok(true);
        }
        if Complaint::read(&said.body).is_some_and(|said| already.contains(&said.error_code)) {
            return Ok(false);
        }
        Err(self.complaint(&said, &format!("{attempt} the volume {id}"), true))
    }

    /// One request. Without a token, or with one that is no longer good, it logs in first.
    async fn call(&self, method: Method, path: String, body: Option<String>) -> Result<Said> {
        let known = self.token.clone().or_else(|| self.kept());
        if let Some(token) = known {
            let said = self.ask(&method, &path, &body, &token).await?;
            if !matches!(said.status, 401 | 403) {
                return Ok(said);
            }
        }
        let token = self.log_in().await?;
        let said = self.ask(&method, &path, &body, &token).await?;
        if matches!(said.status, 401 | 403) {
            return Err(self.denied());
        }
        Ok(said)
    }

    fn denied(&self) -> Error {
        AttachError::AuthFailed { target: self.words.clone() }.into()
    }

    async fn log_in(&self) -> Result<Secret> {
        let Some(password) = &self.password else { return Err(self.denied()) };
        let said = self.ask(&Method::GET, "/api/login", &None, password).await?;
        match answer::token(&said.body) {
            _ if matches!(said.status, 401 | 403) => Err(self.denied()),
            Some(token) if said.status == 200 => {
                self.keep(&token);
                Ok(token)
            }
            Some(_) | None => Err(self.complaint(&said, "logging in", false)),
        }
    }

    fn key(&self) -> Option<String> {
        let password = self.password.as_ref()?;
        let text = format!("{}\n{}\n{}", self.server.at, self.user, password.expose());
        Some(digest::short(text.as_bytes()))
    }

    fn kept(&self) -> Option<Secret> {
        let tokens = TOKENS.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(&self.key()?).cloned()
    }

    fn keep(&self, token: &Secret) {
        let Some(key) = self.key() else { return };
        let mut tokens = TOKENS.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MOST_TOKENS {
            tokens.clear();
        }
        tokens.insert(key, token.clone());
    }

    async fn ask(
        &self,
        method: &Method,
        path: &str,
        body: &Option<String>,
        secret: &Secret,
    ) -> Result<Said> {
        let limit = self.deadline.within(REQUEST_LIMIT);
        let ask = Ask {
            method: method.clone(),
            path: path.to_owned(),
            user: self.user.clone(),
            secret: secret.clone(),
            body: body.clone(),
        };
        let changes = method == Method::POST;
        let said = wire::ask(self.server.clone(), ask, self.guard.clone(), limit.left()).await;
        said.map_err(|failed| self.no_answer(failed, changes, limit.limit()))
    }

    /// Why there is no answer, and what that means for a change.
    fn no_answer(&self, failed: Failed, changes: bool, limit: Duration) -> Error {
        let words = self.words.clone();
        let (error, asked) = match failed {
            Failed::Refused => (AttachError::PortalRefused { portal: words }, false),
            Failed::Silent(limit) => (AttachError::PortalTimeout { portal: words, limit }, false),
            Failed::Unreachable(why) => (AttachError::Unreachable { target: words, why }, false),
            Failed::Unanswered => (AttachError::PortalTimeout { portal: words, limit }, true),
            Failed::Garbled => {
                let why = "it hung up, or answered nothing that makes sense".to_owned();
                (AttachError::Unreachable { target: words, why }, true)
            }
        };
        let error = Error::from(error);
        if asked && changes { error.with_outcome(Outcome::Unknown) } else { error }
    }

    /// What the gateway complains of. Something before it may have answered in its place; then a
    /// change may have been made.
    fn complaint(&self, said: &Said, attempt: &str, changes: bool) -> Error {
        let status = said.status;
        let target = self.words.clone();
        match Complaint::read(&said.body) {
            Some(Complaint { message, error_code }) => {
                let message = self.plain(&message);
                let why = format!(
                    "{attempt}, it said {message:?} (status {status}, error code {error_code})"
                );
                AttachError::Unreachable { target, why }.into()
            }
            None => {
                let why = format!("{attempt}, it said nothing that makes sense (status {status})");
                let error = Error::from(AttachError::Unreachable { target, why });
                if changes && status >= 500 { error.with_outcome(Outcome::Unknown) } else { error }
            }
        }
    }

    /// A message of the gateway, short and without what must not be seen.
    fn plain(&self, message: &str) -> String {
        let mut plain: String = message.chars().filter(|c| !c.is_control()).take(200).collect();
        let kept = self.kept();
        for secret in [&self.password, &self.token, &kept].into_iter().flatten() {
            plain = plain.replace(secret.expose(), "***");
        }
        plain
    }
}
