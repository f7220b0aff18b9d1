//! multipathd forgets paths that went.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;

use super::daemon::{self, Shown};
use crate::shared::users::Whole;
use crate::shared::wait::{self, Deadline};

/// How long multipathd may take to hear of a disk that went.
const FORGET_LIMIT: Duration = Duration::from_secs(10);

/// Waits until multipathd has heard that these disks of a volume went. Otherwise the event of the
/// old disk reaches it after the next attach took the same name, and takes that one's path away.
///
/// A path that it does not let go of by itself is taken from it.
pub(crate) async fn forgotten(
    host: &dyn Host,
    wwid: &str,
    disks: &[Whole],
    deadline: Deadline,
) -> Result<()> {
    if disks.is_empty() {
        return Ok(());
    }
    let mut events = host.events().subscribe();
    let limit = deadline.within(FORGET_LIMIT);
    let known = async || {
        let left = still_known(host, wwid, disks, deadline).await?;
        Ok(left.is_empty().then_some(()))
    };
    if wait::until(&mut *events, limit, known).await?.is_some() {
        return Ok(());
    }
    for name in still_known(host, wwid, disks, deadline).await? {
        let gone = host.files().resolve(&Whole::new(name.as_str()).folder())?.is_none();
        if gone {
            tracing::warn!(path = %name, "multipathd has not heard that the path went; it is told");
            daemon::tell(host, &format!("del path {name}"), deadline).await?;
        }
    }
    Ok(())
}

/// The disks that multipathd still has as paths of this volume; those that have the name of one and
/// belong to another volume are not ours.
async fn still_known(
    host: &dyn Host,
    wwid: &str,
    disks: &[Whole],
    deadline: Deadline,
) -> Result<Vec<String>> {
    let text = match daemon::ask(host, "show paths raw format \"%d %w\"", deadline).await? {
        Shown::Text(text) => text,
        // It is busy: that is no word about any path.
        Shown::Late => return Ok(disks.iter().map(|disk| disk.name.clone()).collect()),
        Shown::NotRunning => return Ok(Vec::new()),
    };
    let ours = paths_of(&text, wwid).filter(|name| disks.iter().any(|disk| disk.name == *name));
    Ok(ours.map(str::to_owned).collect())
}

/// The paths of a volume in a list of paths, each in a line with the volume that it leads to.
pub(super) fn paths_of<'a>(text: &'a str, wwid: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        (words.next() == Some(wwid)).then_some(name)
    })
}
