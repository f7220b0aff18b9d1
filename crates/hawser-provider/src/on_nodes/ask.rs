//! Asking one node, some, or all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use hawser_core::class::Capacity;
use hawser_core::error::ResultExt;
use hawser_core::name::NodeId;
use hawser_core::place::Place;
use hawser_core::port::pools::{PoolAnswer, PoolCall};
use hawser_core::{Error, Kind, Result};

use super::NodePools;
use super::error::OnNodesError;

/// Nodes that are asked at the same time.
const AT_ONCE: usize = 32;

/// A node that cannot say within this time how much room it has is not one to make a volume on. Work
/// has no such limit: a copy may take hours.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// Takes the value out of the one kind of answer that a call has.
macro_rules! answer {
    ($kind:ident) => {
        |answer| {
            use hawser_core::port::pools::PoolAnswer;
            if let PoolAnswer::$kind(value) = answer { Some(value) } else { None }
        }
    };
}
pub(super) use answer;

/// What a node says of where it is.
type Topology = BTreeMap<String, String>;

impl NodePools {
    /// Has one node do a call, however long that takes. Dropping this does not stop the node.
    pub(super) async fn ask<T>(
        &self,
        node: &NodeId,
        call: PoolCall,
        take: fn(PoolAnswer) -> Option<T>,
    ) -> Result<T> {
        let changes = call.changes();
        let answered = async {
            let half = self.nodes.get(node).await?;
            let no_storage = || OnNodesError::NoStorage { node: node.to_string() };
            let pools = half.pools().ok_or_else(no_storage)?;
            pools.call(&self.class, call).await
        };
        let attempt = || format!("asking node {node}, which has the storage");
        let answer = answered.await.context(attempt)?;
        let odd = || OnNodesError::OtherAnswer { node: node.to_string(), changes };
        Ok(take(answer).ok_or_else(odd)?)
    }

    /// Has every connected node do a call; those that do not have the class are left out.
    pub(super) async fn ask_all<T>(
        &self,
        call: &PoolCall,
        take: fn(PoolAnswer) -> Option<T>,
    ) -> Result<Vec<(NodeId, T)>> {
        let ids = self.nodes.ids().await?;
        let mut answers = Vec::new();
        for some in ids.chunks(AT_ONCE) {
            let asked = some.iter().map(|id| self.ask(id, call.clone(), take));
            for (id, answer) in some.iter().zip(join_all(asked).await) {
                match answer {
                    Ok(answer) => answers.push((id.clone(), answer)),
                    Err(error) if lacks_class(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(answers)
    }

    /// Has these nodes do a call that may be left out on any of them.
    pub(super) async fn ask_those<T>(
        &self,
        ids: &[NodeId],
        call: &PoolCall,
        take: fn(PoolAnswer) -> Option<T>,
    ) -> Vec<(NodeId, T)> {
        let mut answers = Vec::new();
        for some in ids.chunks(AT_ONCE) {
            let asked = some.iter().map(|id| async {
                tokio::time::timeout(LOOK_LIMIT, self.ask(id, call.clone(), take)).await
            });
            for (id, answer) in some.iter().zip(join_all(asked).await) {
                let reason = match answer {
                    Ok(Ok(answer)) => {
                        answers.push((id.clone(), answer));
                        continue;
                    }
                    Ok(Err(error)) if lacks_class(&error) || lacks_call(&error) => continue,
                    Ok(Err(error)) => error.sentence(),
                    Err(_) => format!("no answer within {LOOK_LIMIT:?}"),
                };
                tracing::warn!(node.id = %id, class = %self.class, %reason, "a node is left out");
            }
        }
        answers
    }

    /// The room on these nodes; those that cannot say have none.
    pub(super) async fn rooms(&self, ids: &[NodeId]) -> Vec<(NodeId, Capacity)> {
        let mut rooms = Vec::new();
        for some in ids.chunks(AT_ONCE) {
            let asked = join_all(some.iter().map(|id| self.room(id))).await;
            let told = some.iter().zip(asked).filter_map(|(id, room)| Some((id.clone(), room?)));
            rooms.extend(told);
        }
        rooms
    }

    async fn room(&self, id: &NodeId) -> Option<Capacity> {
        let asked = self.ask(id, PoolCall::Capacity, answer!(Capacity));
        let reason = match tokio::time::timeout(LOOK_LIMIT, asked).await {
            Ok(Ok(room)) => return Some(room),
            Ok(Err(error)) => error.sentence(),
            Err(_) => format!("no answer within {LOOK_LIMIT:?}"),
        };
        tracing::debug!(node.id = %id, %reason, "a node does not say how much room it has");
        None
    }

    /// The connected nodes at each of these places.
    pub(super) async fn nodes_at(&self, places: &[Place]) -> Result<Vec<Vec<NodeId>>> {
        let ids = self.nodes.ids().await?;
        let by_name =
            |place: &Place| place.pairs().is_empty() || place.pairs().contains_key(Place::NODE);
        let topologies = match places.iter().all(by_name) {
            true => vec![Topology::new(); ids.len()],
            false => self.topologies(&ids).await,
        };
        let at = |place: &Place| {
            let nodes = ids.iter().zip(&topologies);
            let there = nodes.filter(|(id, topology)| crate::reach::is_at(place, id, topology));
            there.map(|(id, _)| id.clone()).collect::<Vec<_>>()
        };
        Ok(places.iter().map(at).collect())
    }

    /// What nodes say of where they are; one that does not answer is nowhere.
    async fn topologies(&self, ids: &[NodeId]) -> Vec<Topology> {
        let mut topologies = Vec::with_capacity(ids.len());
        for some in ids.chunks(AT_ONCE) {
            topologies.extend(join_all(some.iter().map(|id| self.topology(id))).await);
        }
        topologies
    }

    async fn topology(&self, id: &NodeId) -> Topology {
        let asked = async { self.nodes.get(id).await?.describe().await };
        match tokio::time::timeout(LOOK_LIMIT, asked).await {
            Ok(Ok(record)) => record.topology,
            Ok(Err(_)) | Err(_) => Topology::new(),
        }
    }
}

/// True when a node answered that it does not know the call: one of an earlier version, whose params
/// have no such variant, or whose storage is of another kind.
fn lacks_call(error: &Error) -> bool {
    matches!(error.kind(), Kind::Invalid | Kind::Unsupported)
}

/// True when a node answered that it does not have the class, which is no fault of the class.
pub(super) fn lacks_class(error: &Error) -> bool {
    error.kind() == Kind::Precondition
}
