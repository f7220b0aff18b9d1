//! Several ways to one volume: tried one after the other, or all at once.

use std::fmt::Display;

use async_trait::async_trait;
use futures_util::future::join_all;
use hawser_core::Outcome;
use hawser_core::error::{Error, Result};

use super::undo::{is_wrong_volume, most_telling};
use super::{Names, ScsiDisk};
use crate::shared::wait::Deadline;

/// A path to the volume.
pub(crate) type Path = (ScsiDisk, Names);

/// One attach of a transport that has several ways to its volume.
#[async_trait]
pub(crate) trait Tries: Sync {
    /// A way.
    type Way: Display + Sync;

    /// What a try made over one way, for taking it back.
    type Made: Send + Sync;

    /// Nothing yet, over this way.
    fn begin(&self, way: &Self::Way) -> Self::Made;

    /// True when there is anything to take back.
    fn is_anything(made: &Self::Made) -> bool;

    /// Finds the volume over one way, and marks what is made before it is made.
    async fn path(&self, way: &Self::Way, made: &mut Self::Made) -> Result<Path>;

    /// Takes back what was made.
    async fn take_back(&self, made: &[Self::Made]) -> Result<()>;

    /// When the attach ends.
    fn deadline(&self) -> Deadline;

    /// The path over the first way that works.
    async fn first(&self, ways: &[Self::Way], made: &mut Vec<Self::Made>) -> Result<Vec<Path>> {
        let mut errors = Vec::new();
        for way in ways {
            let mut at = self.begin(way);
            match self.path(way, &mut at).await {
                Ok(path) => {
                    made.push(at);
                    return Ok(vec![path]);
                }
                Err(error) if is_wrong_volume(&error) || self.deadline().passed() => {
                    made.push(at);
                    return Err(error);
                }
                Err(error) => {
                    let error = self.undo(vec![at], error).await;
                    if error.is_unknown() {
                        return Err(error);
                    }
                    errors.push(error);
                }
            }
        }
        Err(most_telling(errors, self.deadline()))
    }

    /// The paths over all ways, and what was made for those that lead nowhere.
    async fn all(
        &self,
        ways: &[Self::Way],
        made: &mut Vec<Self::Made>,
    ) -> Result<(Vec<Path>, Vec<Self::Made>)> {
        let tries = ways.iter().map(|way| async move {
            let mut at = self.begin(way);
            let path = self.path(way, &mut at).await;
            (way, at, path)
        });
        let (mut paths, mut errors, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (way, at, path) in join_all(tries).await {
            match path {
                Ok(path) => {
                    paths.push(path);
                    made.push(at);
                }
                Err(error) => {
                    tracing::warn!(%way, error = %error.sentence(), "a path is missing");
                    errors.push(error);
                    failed.push(at);
                }
            }
        }
        // A way that leads to another volume is no path that happens to be down.
        let wrong = errors.iter().position(is_wrong_volume);
        if wrong.is_none() && !paths.is_empty() {
            return Ok((paths, failed));
        }
        made.extend(failed);
        Err(match wrong {
            Some(at) => errors.swap_remove(at),
            None => most_telling(errors, self.deadline()),
        })
    }

    /// Takes back what was made, and answers the error with what is known then.
    async fn undo(&self, mut made: Vec<Self::Made>, error: Error) -> Error {
        made.retain(Self::is_anything);
        if made.is_empty() {
            return error;
        }
        match self.take_back(&made).await {
            Ok(()) => error.with_outcome(Outcome::RolledBack),
            Err(undo) => {
                let why = format!("and taking it back failed too ({})", undo.sentence());
                error.with_outcome(Outcome::Unknown).context(why)
            }
        }
    }
}
