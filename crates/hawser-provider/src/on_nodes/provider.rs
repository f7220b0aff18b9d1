//! The ports of a class on the nodes: each call goes to the node that has the volume.

use std::collections::BTreeSet;

use async_trait::async_trait;
use hawser_core::attach::Health;
use hawser_core::class::{Ability, Capacity};
use hawser_core::connection::ConnectionInfo;
use hawser_core::doctor::Finding;
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::name::NodeId;
use hawser_core::node::NodeRecord;
use hawser_core::place::Place;
use hawser_core::port::Progress;
use hawser_core::port::pools::PoolCall;
use hawser_core::port::provider::{
    Blank, Blanks, Expand, Groups, HasCapacity, Held, Inventory, Placement, Provider, ProviderInfo,
    Provision, ProvisionSource, Provisioned, SnapshotAtProvider, Snapshots, VolumeAtProvider,
};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Change, Kind, Result};

use super::ask::{answer, lacks_class};
use super::error::OnNodesError;
use super::{INFO, NodePools};

impl NodePools {
    /// The node that a place names.
    fn node_at(&self, id: &str, place: Option<&Place>) -> Result<NodeId, OnNodesError> {
        place.and_then(Place::node_id).ok_or_else(|| OnNodesError::NoNode {
            id: id.to_owned(),
            place: place.map_or_else(|| "no place".to_owned(), ToString::to_string),
            class: self.class.to_string(),
        })
    }

    pub(super) fn node_of(&self, volume: &VolumeAtProvider) -> Result<NodeId, OnNodesError> {
        self.node_at(volume.id.as_str(), volume.place.as_ref())
    }

    /// What any node of the class says: before a place is chosen, all of them are alike.
    async fn check_anywhere(&self, wanted: &Provision) -> Result<ByteSize> {
        for node in self.nodes.ids().await? {
            match self.ask(&node, PoolCall::Check(wanted.clone()), answer!(Size)).await {
                Err(error) if lacks_class(&error) || error.kind() == Kind::Unavailable => {}
                checked => return checked,
            }
        }
        Err(OnNodesError::NoneConnected { class: self.class.to_string() }.into())
    }
}

/// Where the source of a copy is.
pub(super) fn source_place(wanted: &Provision) -> Option<&Place> {
    match wanted.source.as_ref()? {
        ProvisionSource::Snapshot(snapshot) => snapshot.place.as_ref(),
        ProvisionSource::Volume(volume) => volume.place.as_ref(),
    }
}

#[async_trait]
impl Provider for NodePools {
    fn info(&self) -> &'static ProviderInfo {
        &INFO
    }

    fn handle(&self, id: &VolumeId) -> String {
        (self.outline.handle)(id)
    }

    fn default_access(&self) -> Access {
        self.outline.default_access
    }

    async fn check(&self, wanted: &Provision) -> Result<ByteSize> {
        let Some(place) = wanted.place.as_ref().or_else(|| source_place(wanted)) else {
            return self.check_anywhere(wanted).await;
        };
        let node = self.node_at(wanted.id.as_str(), Some(place))?;
        self.ask(&node, PoolCall::Check(wanted.clone()), answer!(Size)).await
    }

    /// How far a copy has come is not told over the link.
    async fn create(
        &self,
        wanted: &Provision,
        _progress: &dyn Progress,
    ) -> Result<Change<Provisioned>> {
        let node = self.node_at(wanted.id.as_str(), wanted.place.as_ref())?;
        if let (Some(source_at), Some(place)) = (source_place(wanted), &wanted.place)
            && source_at.node_id().as_ref() != Some(&node)
        {
            let (source_at, place) = (source_at.to_string(), place.to_string());
            return Err(OnNodesError::CopyMoved { source_at, place }.into());
        }
        self.ask(&node, PoolCall::Create(wanted.clone()), answer!(Created)).await
    }

    async fn delete(&self, volume: &VolumeAtProvider) -> Result<Change<()>> {
        let node = self.node_of(volume)?;
        self.ask(&node, PoolCall::Delete(volume.clone()), answer!(Gone)).await
    }

    async fn publish(
        &self,
        volume: &VolumeAtProvider,
        user: &NodeRecord,
        read_only: bool,
    ) -> Result<ConnectionInfo> {
        let node = self.node_of(volume)?;
        if user.id != node {
            let (id, node, user) = (volume.id.to_string(), node.to_string(), user.id.to_string());
            return Err(OnNodesError::OtherUser { id, node, user }.into());
        }
        let user = Box::new(user.clone());
        let call = PoolCall::Publish { volume: volume.clone(), node: user, read_only };
        self.ask(&node, call, answer!(Published)).await
    }

    async fn unpublish(&self, volume: &VolumeAtProvider, user: &NodeRecord) -> Result<Change<()>> {
        let node = self.node_of(volume)?;
        let call = PoolCall::Unpublish { volume: volume.clone(), node: Box::new(user.clone()) };
        self.ask(&node, call, answer!(Gone)).await
    }

    /// A volume whose node is away does not work now, and that is an answer.
    async fn health(&self, volume: &VolumeAtProvider) -> Result<Health> {
        let node = self.node_of(volume)?;
        match self.ask(&node, PoolCall::Health(volume.clone()), answer!(Health)).await {
            Err(error) if error.kind() == Kind::Unavailable => Ok(Health::bad(error.sentence())),
            told => told,
        }
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.can(Ability::Snapshots).then_some(self)
    }

    fn clones(&self) -> bool {
        self.can(Ability::Clones)
    }

    fn expand(&self) -> Option<&dyn Expand> {
        self.can(Ability::Expand).then_some(self)
    }

    fn capacity(&self) -> Option<&dyn HasCapacity> {
        self.can(Ability::Capacity).then_some(self)
    }

    fn inventory(&self) -> Option<&dyn Inventory> {
        self.can(Ability::Inventory).then_some(self)
    }

    fn groups(&self) -> Option<&dyn Groups> {
        self.can(Ability::Groups).then_some(self)
    }

    fn blanks(&self) -> Option<&dyn Blanks> {
        self.can(Ability::Blanks).then_some(self)
    }

    /// Whatever the storage is: it is on a node.
    fn placement(&self) -> Option<&dyn Placement> {
        Some(self)
    }
}

#[async_trait]
impl Snapshots for NodePools {
    fn snapshot_handle(&self, id: &SnapshotId) -> String {
        (self.outline.snapshot_handle)(id)
    }

    async fn snapshot(
        &self,
        volume: &VolumeAtProvider,
        id: &SnapshotId,
        _progress: &dyn Progress,
    ) -> Result<Change<SnapshotAtProvider>> {
        let node = self.node_of(volume)?;
        let call = PoolCall::Snapshot { volume: volume.clone(), id: id.clone() };
        self.ask(&node, call, answer!(Snapshot)).await
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotAtProvider) -> Result<Change<()>> {
        let node = self.node_at(snapshot.id.as_str(), snapshot.place.as_ref())?;
        self.ask(&node, PoolCall::DeleteSnapshot(snapshot.clone()), answer!(Gone)).await
    }
}

#[async_trait]
impl Expand for NodePools {
    async fn expand(&self, volume: &VolumeAtProvider, size: ByteSize) -> Result<Change<ByteSize>> {
        let node = self.node_of(volume)?;
        let call = PoolCall::Expand { volume: volume.clone(), size };
        self.ask(&node, call, answer!(Expanded)).await
    }
}

#[async_trait]
impl HasCapacity for NodePools {
    /// Of all nodes that are connected.
    async fn capacity(&self) -> Result<Capacity> {
        let rooms = self.rooms(&self.nodes.ids().await?).await;
        Ok(rooms.into_iter().fold(Capacity::NONE, |sum, (_, room)| sum.with(room)))
    }
}

#[async_trait]
impl Inventory for NodePools {
    /// What the connected nodes hold. What is recorded on a node that is away is not in it, and not
    /// lost: whoever compares must look at the places.
    async fn list(&self) -> Result<Held> {
        let mut all = Held::default();
        for (_, held) in self.ask_all(&PoolCall::List, answer!(Held)).await? {
            all.volumes.extend(held.volumes);
            all.snapshots.extend(held.snapshots);
        }
        all.volumes.sort_unstable();
        all.snapshots.sort_unstable();
        Ok(all)
    }

    async fn survey(&self, fix: bool) -> Result<Vec<Finding>> {
        let told = self.ask_all(&PoolCall::Survey { fix }, answer!(Findings)).await?;
        let on = |node: NodeId, finding: Finding| Finding {
            subject: format!("{node}: {}", finding.subject),
            ..finding
        };
        let findings = told.into_iter().flat_map(|(node, findings)| {
            findings.into_iter().map(move |finding| on(node.clone(), finding))
        });
        Ok(findings.collect())
    }
}

#[async_trait]
impl Groups for NodePools {
    async fn snapshot_group(
        &self,
        members: &[(VolumeAtProvider, SnapshotId)],
        _progress: &dyn Progress,
    ) -> Result<Change<Vec<SnapshotAtProvider>>> {
        let mut nodes = BTreeSet::new();
        for (volume, _) in members {
            nodes.insert(self.node_of(volume)?);
        }
        let Some(node) = nodes.pop_first() else { return Ok(Change::Already(Vec::new())) };
        if !nodes.is_empty() {
            nodes.insert(node);
            let nodes = nodes.iter().map(NodeId::as_str).collect::<Vec<_>>().join(", ");
            return Err(OnNodesError::Scattered { nodes }.into());
        }
        self.ask(&node, PoolCall::SnapshotGroup(members.to_vec()), answer!(Snapshots)).await
    }
}

#[async_trait]
impl Blanks for NodePools {
    /// Of the nodes that answer: what is on another is found when that one can be asked.
    async fn blanks(&self, at: Option<&Place>) -> Result<Vec<Blank>> {
        let nodes = match at {
            Some(place) => self.nodes_at(std::slice::from_ref(place)).await?.concat(),
            None => self.nodes.ids().await?,
        };
        let mut all = Vec::new();
        for (node, ids) in self.ask_those(&nodes, &PoolCall::Blanks, answer!(Blanks)).await {
            let place = Some(Place::node(&node));
            all.extend(ids.into_iter().map(|id| Blank { id, place: place.clone() }));
        }
        Ok(all)
    }

    async fn delete_blank(&self, blank: &Blank) -> Result<Change<()>> {
        let node = self.node_at(blank.id.as_str(), blank.place.as_ref())?;
        self.ask(&node, PoolCall::DeleteBlank(blank.clone()), answer!(Gone)).await
    }
}
