//! A session that was lost comes back.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;

use super::data::Target;
use super::probe;
use super::session::Session;
use crate::shared::error::AttachError;
use crate::shared::wait::{self, Deadline};

/// How long iscsid may take to bring a session back whose portal answers again.
const LIMIT: Duration = Duration::from_secs(10);

/// Waits for a session that iscsid is bringing back, and for its devices, which the kernel lets go on
/// a moment later.
pub(super) async fn session(
    host: &dyn Host,
    iface: &str,
    target: &Target,
    deadline: Deadline,
) -> Result<Session> {
    let mut events = host.events().subscribe();
    probe::target(host, iface, target, deadline).await?;
    let limit = deadline.within(LIMIT);
    let files = host.files();
    let up = async || {
        let session = Session::of(files, target)?.into_iter().find(Session::is_up);
        Ok(match session {
            Some(session) if session.goes_on(files)? => Some(session),
            Some(_) | None => None,
        })
    };
    match wait::until(&mut *events, limit, up).await? {
        Some(session) => Ok(session),
        None => Err(AttachError::Unreachable {
            target: target.to_string(),
            why: "its portal answers, but the session is not up again".into(),
        }
        .into()),
    }
}
