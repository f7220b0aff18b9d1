//! `iscsiadm`, where there is no way without it: logging in, and asking a target for its portals.

use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::{Tool, ToolOutput};

use super::data::Target;
use super::portal::Portal;
use super::record;
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// How long a logout may take.
const LOGOUT_LIMIT: Duration = Duration::from_secs(20);

/// How long a target may take to list its portals.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(15);

/// Exit codes of `iscsiadm`, by their names in `iscsi_err.h`; the others are all "failed".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done,
    SessionNotFound,
    Transport,
    LoginFailed,
    /// Nothing that a second try would change: a target that cannot prove who it is, for example.
    LoginFatal,
    Database,
    TransportTimeout,
    PduTimeout,
    TransportMissing,
    Access,
    SessionExists,
    NoDaemon,
    NothingFound,
    AuthFailed,
    TryAgain,
    Other,
}

impl Exit {
    pub(super) fn of(output: &ToolOutput) -> Self {
        match output.code {
            Some(0) => Self::Done,
            Some(2) => Self::SessionNotFound,
            Some(4) => Self::Transport,
            Some(5) => Self::LoginFailed,
            Some(6) => Self::Database,
            Some(8) => Self::TransportTimeout,
            Some(11) => Self::PduTimeout,
            Some(12) => Self::TransportMissing,
            Some(13) => Self::Access,
            Some(15) => Self::SessionExists,
            Some(18 | 20) => Self::NoDaemon,
            Some(19) => Self::LoginFatal,
            Some(21) => Self::NothingFound,
            Some(24) => Self::AuthFailed,
            Some(28 | 29) => Self::TryAgain,
            Some(_) | None => Self::Other,
        }
    }
}

fn iscsiadm(mode: &str, limit: Duration) -> Tool {
    Tool::new("iscsiadm").args(["-m", mode]).limit(limit)
}

fn node(target: &Target, iface: &str, limit: Duration) -> Tool {
    let portal = target.portal.to_string();
    iscsiadm("node", limit).args(["-T", &target.iqn, "-p", &portal, "-I", iface])
}

/// Logs in with the record that is in the database. It may take what is left of the deadline: iscsid
/// gives up on a target after [`record::LOGIN_TIMEOUT`], but it does one thing at a time, and with
/// many logins at once the last one waits for all others.
pub(super) async fn login(
    host: &dyn Host,
    target: &Target,
    iface: &str,
    deadline: Deadline,
) -> Result<ToolOutput> {
    host.run(&node(target, iface, deadline.left()).arg("--login")).await
}

/// Lets `iscsiadm` make a record: only it knows where its database is.
pub(super) async fn make_record(
    host: &dyn Host,
    target: &Target,
    iface: &str,
    deadline: Deadline,
) -> Result<()> {
    let tool = node(target, iface, deadline.within(LOGOUT_LIMIT).left()).args(["-o", "new"]);
    let made = host.run(&tool).await?;
    let attempt = format!("making a node record for {target}");
    made.ok().map_err(AttachError::tool(attempt))?;
    Ok(())
}

/// Ends a session by its number.
pub(super) async fn logout(
    host: &dyn Host,
    session: u32,
    deadline: Deadline,
) -> Result<ToolOutput> {
    let limit = deadline.within(LOGOUT_LIMIT).left();
    host.run(&iscsiadm("session", limit).args(["-r", &session.to_string(), "-u"])).await
}

/// Asks a portal for its targets, without writing anything to the database.
pub(super) async fn discover(
    host: &dyn Host,
    portal: &Portal,
    iface: &str,
    with_record: bool,
    deadline: Deadline,
) -> Result<ToolOutput> {
    let limit = deadline.within(DISCOVERY_LIMIT).left();
    let mode = if with_record { "discoverydb" } else { "discovery" };
    let mut tool = iscsiadm(mode, limit).args(["-t", "sendtargets", "-p", &portal.to_string()]);
    tool = tool.args(["-I", iface, "-o", "nonpersistent"]);
    if with_record {
        tool = tool.arg("--discover");
    }
    host.run(&tool).await
}

/// What a failed login means; `proof` when the target was asked to prove who it is.
pub(super) fn login_error(target: &Target, output: &ToolOutput, proof: bool) -> Error {
    let portal = target.portal.to_string();
    let failed = output.failed();
    let error = match Exit::of(output) {
        Exit::LoginFatal if proof => AttachError::AuthFailed { target: target.to_string() },
        Exit::AuthFailed => AttachError::AuthFailed { target: target.to_string() },
        Exit::PduTimeout => AttachError::PortalTimeout { portal, limit: record::LOGIN_TIMEOUT },
        Exit::TransportMissing => AttachError::Missing {
            what: "the kernel's part of this iSCSI transport".into(),
            advice: "load iscsi_tcp (or ib_iser for ISER)".into(),
        },
        Exit::NoDaemon => AttachError::Missing {
            what: "iscsid, the session daemon,".into(),
            advice: "start it: systemctl start iscsid".into(),
        },
        Exit::Transport | Exit::TransportTimeout | Exit::LoginFailed | Exit::LoginFatal => {
            AttachError::Unreachable { target: target.to_string(), why: failed.stderr }
        }
        Exit::Done
        | Exit::SessionNotFound
        | Exit::Database
        | Exit::Access
        | Exit::SessionExists
        | Exit::NothingFound
        | Exit::TryAgain
        | Exit::Other => {
            AttachError::Tool { attempt: format!("logging in to {target}"), source: failed }
        }
    };
    error.into()
}
