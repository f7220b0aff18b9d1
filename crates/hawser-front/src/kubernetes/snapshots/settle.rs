//! Brings a content to where it should be, step by step.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tracing::warn;

use super::super::error::ClusterError;
use super::super::events::About;
use super::super::objects::Key;
use super::super::queue::Next;
use super::Snapshots;
use super::any::AnyContent;
use super::patch;
use super::step::{Step, is_marked, step};

/// How often a snapshot that is not ready is asked for. An answer that changes nothing costs the API
/// server nothing.
const POLL: Duration = Duration::from_secs(2);

/// After somebody else changed the same object: by then the watch has told it.
const SOON: Duration = Duration::from_millis(500);

/// A content after a step, if it is still there, and when to go on if the step is still to be done.
type Turn<C> = (Option<Arc<C>>, Next);

impl Snapshots {
    /// Does for one content what there is to do.
    pub(super) async fn work<C: AnyContent>(self: Arc<Self>, key: Key) -> Next {
        match self.settle::<C>(&key).await {
            Ok(next) => next,
            Err(error) if error.is_absent() => Next::Done,
            Err(error) if error.is_conflict() => Next::After(SOON),
            Err(error) => {
                let error = error.sentence();
                warn!(snapshot.content = %key, error, "a snapshot has to wait");
                Next::Retry
            }
        }
    }

    /// Steps until nothing is left, or the same step would come again. What others changed meanwhile
    /// is in the answers to our own writes, and no watch tells it again: so each step begins with
    /// the latest answer.
    async fn settle<C: AnyContent>(&self, key: &Key) -> Result<Next, ClusterError> {
        let mut content = C::table(&self.office.tables).get(key);
        let mut last = None;
        while let Some(known) = content {
            let now = if self.is_ours(&*known) { step(&*known) } else { Step::Rest };
            if let Some((done, next)) = last
                && done == now
            {
                return Ok(next);
            }
            let (after, next) = match now {
                Step::Rest => return Ok(Next::Done),
                Step::Take => self.take(known).await?,
                Step::Look => self.look(known).await?,
                Step::Unmark => (Some(self.unmark(known).await?), Next::After(SOON)),
                Step::Remove => self.remove(known).await?,
                Step::Release => self.release(known).await?,
            };
            (content, last) = (after, Some((now, next)));
        }
        Ok(Next::Done)
    }

    /// Has the snapshot taken. The mark comes first and goes last: while it is there nobody lets go
    /// of the content, whose snapshot would be lost.
    async fn take<C: AnyContent>(&self, content: Arc<C>) -> Result<Turn<C>, ClusterError> {
        let order = match content.order(&self.office).await {
            Ok(order) => order,
            Err(error) => return self.not_taken(content, error).await,
        };
        let content = match is_marked(&*content) {
            true => content,
            false => self.change(&*content, &patch::mark(&*content)).await?,
        };
        if step(&*content) != Step::Take {
            return Ok((Some(content), Next::After(SOON)));
        }
        match content.take(&self.office, order).await {
            Ok(news) => {
                let content = self.report(content, news).await?;
                Ok((Some(self.unmark(content).await?), Next::After(POLL)))
            }
            Err(error) if error.may_be_at_work() => self.not_taken(content, error).await,
            Err(error) => {
                let content = self.unmark(content).await?;
                self.not_taken(content, error).await
            }
        }
    }

    async fn not_taken<C: AnyContent>(
        &self,
        content: Arc<C>,
        error: ClusterError,
    ) -> Result<Turn<C>, ClusterError> {
        let message = format!("failed to take the snapshot: {}", error.sentence());
        self.tell_failure(content, C::NAMES.not_taken, message).await
    }

    /// Looks at a snapshot that is there.
    async fn look<C: AnyContent>(&self, content: Arc<C>) -> Result<Turn<C>, ClusterError> {
        match content.look(&self.office).await {
            Ok(news) => Ok((Some(self.report(content, news).await?), Next::After(POLL))),
            Err(error) => {
                let message = format!("failed to look at the snapshot: {}", error.sentence());
                self.tell_failure(content, C::NAMES.not_seen, message).await
            }
        }
    }

    /// Has the snapshot removed, then tells that it is gone: what still holds the content shall not
    /// take it for one that has a snapshot. When nothing else holds it, it goes at once instead.
    async fn remove<C: AnyContent>(&self, content: Arc<C>) -> Result<Turn<C>, ClusterError> {
        if let Err(error) = content.remove(&self.office).await {
            let message = format!("failed to remove the snapshot: {}", error.sentence());
            warn!(snapshot.content = content.name(), error = message, "a snapshot stays");
            self.office.events.warning(About::of(&*content), C::NAMES.not_removed, message);
            return Ok((Some(content), Next::Retry));
        }
        if content.finalizers() == [C::NAMES.finalizer] {
            return self.release(content).await;
        }
        Ok((Some(self.report(content, C::cleared()).await?), Next::Retry))
    }

    /// Lets go of the content.
    async fn release<C: AnyContent>(&self, content: Arc<C>) -> Result<Turn<C>, ClusterError> {
        let (key, last) = (content.key(), content.finalizers().len() == 1);
        let answer = self.office.cluster.patch::<C>(&key, &patch::release(&*content)).await?;
        let table = C::table(&self.office.tables);
        if last {
            table.forget(&key);
            return Ok((None, Next::Done));
        }
        Ok((Some(table.tell(answer)), Next::Done))
    }

    async fn unmark<C: AnyContent>(&self, content: Arc<C>) -> Result<Arc<C>, ClusterError> {
        match is_marked(&*content) {
            true => self.change(&*content, &patch::unmark(&*content)).await,
            false => Ok(content),
        }
    }

    /// Tells a failure, in the log always, to users when it is a new one.
    async fn tell_failure<C: AnyContent>(
        &self,
        content: Arc<C>,
        reason: &'static str,
        message: String,
    ) -> Result<Turn<C>, ClusterError> {
        warn!(snapshot.content = content.name(), error = message, "a snapshot is not ready");
        if content.told() == Some(&message) {
            return Ok((Some(content), Next::Retry));
        }
        let status = patch::failed(&message);
        self.office.events.warning(About::of(&*content), reason, message);
        Ok((Some(self.report(content, status).await?), Next::Retry))
    }

    async fn change<C: AnyContent>(
        &self,
        content: &C,
        patch: &Value,
    ) -> Result<Arc<C>, ClusterError> {
        let answer = self.office.cluster.patch::<C>(&content.key(), patch).await?;
        Ok(C::table(&self.office.tables).tell(answer))
    }

    /// Changes the status, if there is something to change.
    async fn report<C: AnyContent>(
        &self,
        content: Arc<C>,
        status: Value,
    ) -> Result<Arc<C>, ClusterError> {
        if status.as_object().is_some_and(Map::is_empty) {
            return Ok(content);
        }
        let patch = json!({ "status": status });
        let answer = self.office.cluster.patch_status::<C>(&content.key(), &patch).await?;
        Ok(C::table(&self.office.tables).tell(answer))
    }
}
