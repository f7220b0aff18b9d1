//! A map without a path lets what waits for one fail.

use std::time::Duration;

use hawser_core::port::Host;

use super::daemon::{self, Answer};
use super::map::Map;
use crate::shared::wait::Deadline;

/// How long multipathd may take: it may be busy with this very map.
const LIMIT: Duration = Duration::from_secs(3);

/// Lets what waits for a path fail.
///
/// multipathd is told first: at its next look at the map it would switch the waiting on again, as its
/// settings say, and whoever reads the map then, such as a program of udev's, would wait for ever.
/// The kernel is told in any case, since multipathd may be gone.
pub(crate) async fn stop_waiting(host: &dyn Host, map: &Map, deadline: Deadline) {
    let command = format!("disablequeueing map {}", map.name);
    match daemon::tell(host, &command, deadline.within(LIMIT)).await {
        Ok(Answer::Done | Answer::NotRunning) => {}
        Ok(answer @ (Answer::Refused(_) | Answer::Late)) => {
            tracing::debug!(map = %map.name, ?answer, "multipathd may let the map wait again");
        }
        Err(error) => {
            tracing::debug!(map = %map.name, error = %error.sentence(), "multipathd was not told");
        }
    }
    if let Err(error) = host.maps().message(&map.name, "fail_if_no_path").await {
        tracing::warn!(map = %map.name, %error, "the map goes on waiting for a path");
    }
}
