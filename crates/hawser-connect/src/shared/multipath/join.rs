//! Paths become a map.

use std::collections::BTreeSet;
use std::time::Duration;

use hawser_core::error::{Kind, Result};
use hawser_core::port::Host;
use tokio::time::Instant;

use super::daemon::{self, Answer};
use super::map::Map;
use super::{remove, stop_waiting, wwids};
use crate::shared::error::AttachError;
use crate::shared::users::{self, Whole};
use crate::shared::wait::{Deadline, Pause};

/// How long a map may take to appear, and to take one more of its paths.
const MAP_LIMIT: Duration = Duration::from_secs(10);

/// How long udev may take to look at new disks. multipathd hears of them from udev alone, so the time
/// for the map begins when udev is through; on a busy host that takes longer than anything else.
const UDEV_LIMIT: Duration = Duration::from_secs(30);

/// How long somebody who only looks at a map keeps it, where that ends by itself.
const A_LOOK: Duration = Duration::from_secs(2);

/// The longest time without a look of our own: multipathd's view has no event.
const RECHECK: Duration = Duration::from_millis(250);

/// Paths of one volume that are to become a map.
pub(crate) struct Join<'a> {
    pub(crate) host: &'a dyn Host,
    /// The volume, as udev names it.
    pub(crate) wwid: &'a str,
    /// Its paths on this host.
    pub(crate) paths: &'a [Whole],
    pub(crate) deadline: Deadline,
}

/// A map that is ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) map: Map,
    /// Paths that did not make it into the map in time.
    pub(crate) missing: Vec<String>,
}

impl Join<'_> {
    /// True when multipathd makes a map of even one path of this volume, unasked.
    pub(crate) async fn is_taken_anyway(&self) -> Result<bool> {
        if wwids::is_remembered(self.host.files(), self.wwid)? {
            return Ok(true);
        }
        daemon::takes_strangers(self.host, self.deadline).await
    }

    /// Waits until the map is there, holds every path and has one that works; `None` when there is
    /// no map in time. Where multipathd wants it so, the volume is remembered for it first, until
    /// [`forget_wwid`](super::forget_wwid).
    pub(crate) async fn run(&self) -> Result<Option<Joined>> {
        let mut deadline = self.deadline.within(MAP_LIMIT);
        let mut events = self.host.events().subscribe();
        let remember = self.above()?.is_none() && !self.is_taken_anyway().await?;
        if remember {
            wwids::remember(self.host, self.wwid).await?;
        }
        let mut told = BTreeSet::new();
        let mut found = None;
        let begun = Instant::now();
        let mut pause = Pause::new();
        let mut all_seen = None;
        loop {
            if let Some(map) = self.map(&mut all_seen)? {
                let missing = self.missing(&map)?;
                let usable = self.usable(&map).await?;
                if missing.is_empty() && usable > 0 && map.disk.has_node(self.host.files())? {
                    return Ok(Some(Joined { map, missing }));
                }
                // A busy host takes its paths one by one.
                let before = found.as_ref().map_or(usize::MAX, |(_, before, _)| Vec::len(before));
                if missing.len() < before {
                    deadline = self.deadline.within(MAP_LIMIT);
                }
                found = Some((map, missing, usable));
            }
            if begun.elapsed() < UDEV_LIMIT && !self.all_known_to_udev()? {
                deadline = self.deadline.within(MAP_LIMIT);
            }
            if deadline.passed() {
                break;
            }
            // It hears of new disks by itself, but has decided already where it was told to
            // remember the volume only now.
            let nudge = remember || begun.elapsed() > 4 * RECHECK;
            if nudge && self.tell(&mut told, deadline).await? == Taken::Never {
                break;
            }
            pause.wait(&mut *events, deadline).await;
        }
        match found {
            Some((map, missing, usable)) if usable > 0 => Ok(Some(Joined { map, missing })),
            Some(_) | None => Ok(None),
        }
    }

    /// How many paths of a map work: none when it is gone by now. multipathd takes back a map that
    /// it could not load.
    async fn usable(&self, map: &Map) -> Result<usize> {
        match map.usable(self.host).await {
            Err(_) if Map::of_wwid(self.host.files(), self.wwid)?.as_ref() != Some(map) => Ok(0),
            usable => usable,
        }
    }

    /// The map of the volume that stands on one of its paths.
    fn above(&self) -> Result<Option<Map>> {
        for path in self.paths {
            let map = Map::above(self.host.files(), path)?;
            if let Some(map) = map.filter(|map| map.wwid == self.wwid) {
                return Ok(Some(map));
            }
        }
        Ok(None)
    }

    /// The map of the volume. It is looked for above its paths at each event, and among all maps of
    /// this host now and then only: with many volumes that are attached at once each look at all maps
    /// of all of them would cost more than everything else.
    fn map(&self, all_seen: &mut Option<Instant>) -> Result<Option<Map>> {
        if let Some(map) = self.above()? {
            return Ok(Some(map));
        }
        if all_seen.is_some_and(|seen| seen.elapsed() < RECHECK) {
            return Ok(None);
        }
        *all_seen = Some(Instant::now());
        Map::of_wwid(self.host.files(), self.wwid)
    }

    /// The paths that are not in the map.
    fn missing(&self, map: &Map) -> Result<Vec<String>> {
        let there = map.paths(self.host.files())?;
        let missing = self.paths.iter().filter(|path| !there.contains(&path.name));
        Ok(missing.map(|path| path.name.clone()).collect())
    }

    fn all_known_to_udev(&self) -> Result<bool> {
        for path in self.paths {
            if !path.is_known_to_udev(self.host.files())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells multipathd of paths that udev knows already; before that it would refuse them.
    async fn tell(&self, told: &mut BTreeSet<String>, deadline: Deadline) -> Result<Taken> {
        for path in self.paths {
            if told.contains(&path.name) || !path.is_known_to_udev(self.host.files())? {
                continue;
            }
            let command = format!("add path {}", path.name);
            match daemon::tell(self.host, &command, deadline).await? {
                Answer::Done => {
                    told.insert(path.name.clone());
                }
                Answer::Refused(why) if why.contains("blacklisted") => {
                    tracing::warn!(path = %path.name, "the configuration of multipathd excludes it");
                    return Ok(Taken::Never);
                }
                Answer::Refused(why) => {
                    tracing::debug!(path = %path.name, %why, "multipathd does not take the path yet");
                }
                Answer::Late | Answer::NotRunning => {}
            }
        }
        Ok(Taken::Perhaps)
    }
}

/// Whether waiting for a map makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Perhaps,
    Never,
}

/// Deals with a map of this volume that an earlier attach left without a path that works: new paths
/// would join it, and with them whatever still waits in it. Nobody has it open: it goes. Somebody
/// has: the attach is refused. A program of udev's rules that began to read it when its last path
/// went would keep it for ever: it is told that there is no path. Not where nobody is seen who has it
/// open: a writer that was killed and waits for its last write has no descriptors any more.
pub(crate) async fn clear_leftover(host: &dyn Host, wwid: &str, deadline: Deadline) -> Result<()> {
    let Some(map) = Map::of_wwid(host.files(), wwid)? else { return Ok(()) };
    if map.usable(host).await? > 0 {
        return Ok(());
    }
    tracing::warn!(map = %map.name, "a map without a path that works is in the way of its volume");
    remove::refuse_used(host, &map, false, deadline).await?;
    match remove::remove(host, &map, deadline.within(A_LOOK)).await {
        Err(error)
            if error.kind() == Kind::Busy && users::is_read_by_udev(host, &map.disk).await? => {}
        done => return done,
    }
    // Asked once more: from here on a reader gets an error.
    remove::refuse_used(host, &map, false, deadline).await?;
    stop_waiting(host, &map, deadline).await;
    match remove::remove(host, &map, deadline).await {
        Err(error) if error.kind() == Kind::Busy => Err(AttachError::Busy {
            device: map.disk.node.clone(),
            users: "somebody who waits for a volume that is gone".into(),
        }
        .into()),
        done => done,
    }
}
