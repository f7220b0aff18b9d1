//! A map becomes as large as its paths.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;

use super::daemon::{self, Answer};
use super::map::Map;
use crate::shared::error::AttachError;
use crate::shared::wait::{self, Deadline};

/// How long multipathd may take.
const GROW_LIMIT: Duration = Duration::from_secs(30);

/// Makes a map as large as its paths, which all have this size already; never smaller.
pub(crate) async fn grow(host: &dyn Host, map: &Map, size: u64, deadline: Deadline) -> Result<()> {
    let files = host.files();
    if map.disk.size(files)? >= size {
        return Ok(());
    }
    let mut events = host.events().subscribe();
    let limit = deadline.within(GROW_LIMIT);
    let command = format!("resize map {}", map.name);
    let grown = async || {
        if map.disk.size(files)? >= size {
            return Ok(Some(()));
        }
        match daemon::tell(host, &command, limit).await? {
            Answer::Done if map.disk.size(files)? >= size => Ok(Some(())),
            // It answers so as well while it reads its configuration again.
            Answer::Done | Answer::Late => Ok(None),
            Answer::Refused(why) => {
                tracing::debug!(map = %map.name, %why, "multipathd does not grow the map yet");
                Ok(None)
            }
            Answer::NotRunning => Err(AttachError::Missing {
                what: "multipathd".into(),
                advice: format!("start it: only it can grow the map {}", map.name),
            }
            .into()),
        }
    };
    match wait::until(&mut *events, limit, grown).await? {
        Some(()) => Ok(()),
        None => {
            let attempt = format!("growing the map {} to {size} bytes", map.name);
            Err(AttachError::Deadline { attempt, limit: limit.limit() }.into())
        }
    }
}
