//! multipathd, through its socket.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::map::Map;
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// How long multipathd may take for an answer.
const LIMIT: Duration = Duration::from_secs(5);

const ECONNREFUSED: i32 = 111;

/// What multipathd made of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was done.
    Done,
    /// It was refused, or it failed; the words that came with it.
    Refused(String),
    /// Nobody answered in time: it is busy, with itself or with this.
    Late,
    /// There is no multipathd.
    NotRunning,
}

/// What multipathd shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Text(String),
    /// It is too busy to answer.
    Late,
    /// There is no multipathd.
    NotRunning,
}

/// Asks for a text; `None` when there is no multipathd, or it is too busy.
async fn show(host: &dyn Host, command: &str, deadline: Deadline) -> Result<Option<String>> {
    match ask(host, command, deadline).await? {
        Shown::Text(text) => Ok(Some(text)),
        Shown::Late | Shown::NotRunning => Ok(None),
    }
}

/// Asks for a text.
pub(super) async fn ask(host: &dyn Host, command: &str, deadline: Deadline) -> Result<Shown> {
    let answer = host.maps().multipathd(command, deadline.within(LIMIT).left()).await;
    match answer {
        Ok(text) if text.trim() == "timeout" => Ok(Shown::Late),
        Ok(text) => Ok(Shown::Text(text)),
        Err(error) if is_absent(&error) => Ok(Shown::NotRunning),
        Err(KernelError::Late { .. }) => Ok(Shown::Late),
        Err(error) => {
            Err(AttachError::kernel(format!("asking multipathd to {command}"))(error).into())
        }
    }
}

/// Gives a command that is done or refused.
pub(super) async fn tell(host: &dyn Host, command: &str, deadline: Deadline) -> Result<Answer> {
    let answer = host.maps().multipathd(command, deadline.within(LIMIT).left()).await;
    match answer {
        Ok(text) => Ok(match text.trim() {
            "ok" => Answer::Done,
            "timeout" => Answer::Late,
            other => Answer::Refused(other.chars().take(200).collect()),
        }),
        Err(error) if is_absent(&error) => Ok(Answer::NotRunning),
        Err(KernelError::Late { .. }) => Ok(Answer::Late),
        Err(error) => {
            Err(AttachError::kernel(format!("asking multipathd to {command}"))(error).into())
        }
    }
}

/// True when multipathd runs, however busy it is: it takes paths then too.
pub(crate) async fn is_running(host: &dyn Host, deadline: Deadline) -> Result<bool> {
    Ok(match ask(host, "show daemon", deadline).await? {
        Shown::Text(text) => !text.starts_with("error"),
        Shown::Late => true,
        Shown::NotRunning => false,
    })
}

/// Makes the map of a volume anew from its paths, as they are now: one that was made while they
/// refused writes goes on refusing them. Whether that helped is seen at the map.
pub(crate) async fn reload(host: &dyn Host, map: &Map, deadline: Deadline) -> Result<()> {
    let answer = tell(host, &format!("reload map {}", map.name), deadline).await?;
    if answer != Answer::Done {
        tracing::debug!(map = %map.name, ?answer, "multipathd did not reload the map");
    }
    Ok(())
}

fn is_absent(error: &KernelError) -> bool {
    error.errno() == Some(ECONNREFUSED)
}

/// Which paths become maps: `find_multipaths` of the configuration that multipathd uses.
pub(super) async fn takes_strangers(host: &dyn Host, deadline: Deadline) -> Result<bool> {
    let mut config = show(host, "show config local", deadline).await?;
    if config.as_deref().is_none_or(|text| !text.contains("defaults")) {
        config = show(host, "show config", deadline).await?;
    }
    Ok(config.as_deref().and_then(find_multipaths).is_some_and(|mode| mode.takes_strangers()))
}

/// The value of `find_multipaths`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FindMultipaths {
    Strict,
    Yes,
    No,
    Greedy,
    Smart,
}

impl FindMultipaths {
    /// True when one path of a volume that is not remembered becomes a map.
    pub(super) fn takes_strangers(self) -> bool {
        match self {
            Self::No | Self::Greedy => true,
            // `yes` takes a second path and `smart` waits for one: neither takes the first.
            Self::Strict | Self::Yes | Self::Smart => false,
        }
    }
}

/// Reads the mode from a configuration.
pub(super) fn find_multipaths(config: &str) -> Option<FindMultipaths> {
    let value = config.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("find_multipaths")?;
        rest.starts_with(char::is_whitespace).then(|| rest.trim().trim_matches('"'))
    })?;
    Some(match value {
        "strict" => FindMultipaths::Strict,
        "yes" | "on" => FindMultipaths::Yes,
        "no" | "off" => FindMultipaths::No,
        "greedy" => FindMultipaths::Greedy,
        "smart" => FindMultipaths::Smart,
        _ => return None,
    })
}
