//! On which node a volume is made.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use async_trait::async_trait;
use hawser_core::Result;
use hawser_core::class::Capacity;
use hawser_core::name::NodeId;
use hawser_core::place::Place;
use hawser_core::port::provider::{Placement, Provision};

use super::NodePools;
use super::error::OnNodesError;
use super::provider::source_place;
use crate::reach::listed;

#[async_trait]
impl Placement for NodePools {
    async fn place(&self, wanted: &Provision, places: &[Place]) -> Result<Place> {
        if let Some(source_at) = source_place(wanted) {
            return self.beside_source(source_at, places).await;
        }
        let anywhere = [Place::default()];
        let asked = if places.is_empty() { &anywhere[..] } else { places };
        let mut seen = BTreeSet::new();
        for there in self.nodes_at(asked).await? {
            let fresh: Vec<NodeId> =
                there.into_iter().filter(|id| seen.insert(id.clone())).collect();
            let rooms = self.rooms(&fresh).await.into_iter();
            let fits = rooms.filter(|(_, room)| room.largest_volume >= wanted.size);
            // Of two with the same room the first by name, so that the choice can be foretold.
            if let Some((id, _)) =
                fits.max_by_key(|(id, room)| (room.available, Reverse(id.clone())))
            {
                return Ok(Place::node(&id));
            }
        }
        // A control half that has just started must not send everybody elsewhere.
        if seen.is_empty() && self.nodes.ids().await?.is_empty() {
            return Err(OnNodesError::NoneConnected { class: self.class.to_string() }.into());
        }
        let (class, places, size) = (self.class.to_string(), listed(asked), wanted.size);
        Err(OnNodesError::NoRoom { class, places, size }.into())
    }

    async fn capacity_at(&self, place: &Place) -> Result<Capacity> {
        let there = self.nodes_at(std::slice::from_ref(place)).await?.concat();
        let rooms = self.rooms(&there).await;
        Ok(rooms.into_iter().fold(Capacity::NONE, |sum, (_, room)| sum.with(room)))
    }
}

impl NodePools {
    /// A copy is made where its source is. Whether there is room is seen when it is made: blocks that
    /// are shared need none.
    async fn beside_source(&self, source_at: &Place, places: &[Place]) -> Result<Place> {
        let named = places.iter().any(|place| source_at.is_reached_from(place));
        if places.is_empty() || named {
            return Ok(source_at.clone());
        }
        if let Some(node) = source_at.node_id()
            && self.nodes_at(places).await?.concat().contains(&node)
        {
            return Ok(source_at.clone());
        }
        let (source_at, places) = (source_at.to_string(), listed(places));
        Err(OnNodesError::CopyElsewhere { source_at, places }.into())
    }
}
