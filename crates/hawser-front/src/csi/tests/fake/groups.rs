use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::id::{GroupId, SnapshotId};
use hawser_core::name::{Alias, Labels, Scope};
use hawser_core::operation::OperationKind;
use hawser_core::port::control::Reply;
use hawser_core::snapshot::{Snapshot, SnapshotState};
use hawser_core::volume::Volume;
use hawser_core::{Change, Error, Kind, Result, Timestamp};

use super::control::FakeControl;
use super::missing;

pub(super) fn cut(
    volume: &Volume,
    alias: Alias,
    labels: Labels,
    group: Option<GroupId>,
) -> Snapshot {
    let id = SnapshotId::generate();
    Snapshot {
        handle: id.to_string(),
        id,
        alias,
        volume: volume.id.clone(),
        class: volume.class.clone(),
        size: volume.size,
        access: volume.access,
        filesystem: volume.filesystem.clone(),
        labels,
        place: volume.place.clone(),
        group,
        state: SnapshotState::Ready,
        created: Timestamp::now(),
    }
}

impl FakeControl {
    pub(super) fn take_group(&self, request: GroupRequest) -> Result<Reply<Group>> {
        self.may()?;
        let mut state = self.state();
        let volumes = request
            .volumes
            .iter()
            .map(|volume| state.volume(volume).cloned())
            .collect::<Result<Vec<_>>>()?;
        if let Some(known) = state.groups.iter().find(|group| group.alias == request.alias) {
            let same = known.snapshots.iter().map(|s| &s.volume).eq(volumes.iter().map(|v| &v.id));
            let known = known.clone();
            drop(state);
            if !same {
                return Err(Error::new(Kind::Exists, "it exists, of other volumes"));
            }
            return self.reply(OperationKind::CreateGroup, Change::Already(known));
        }
        if volumes.iter().any(|volume| volume.class.as_str() != "default") {
            return Err(Error::new(Kind::Precondition, "they cannot be taken together"));
        }
        let id = GroupId::generate();
        let name = |n: usize| Alias::new(Scope::Csi, format!("{id}.{n}")).unwrap();
        let snapshots: Vec<_> = volumes
            .iter()
            .enumerate()
            .map(|(n, volume)| cut(volume, name(n), request.labels.clone(), Some(id.clone())))
            .collect();
        for snapshot in &snapshots {
            state.snapshots.insert(snapshot.id.clone(), snapshot.clone());
        }
        let group = Group { id, alias: request.alias, snapshots, created: Timestamp::now() };
        state.groups.push(group.clone());
        drop(state);
        self.reply(OperationKind::CreateGroup, Change::Made(group))
    }

    pub(super) fn remove_group(&self, group: &GroupRef) -> Result<Reply<()>> {
        self.may()?;
        let Ok(found) = self.group(group) else { return Ok(Reply::Done(Change::Already(()))) };
        let mut state = self.state();
        state.groups.retain(|other| other.id != found.id);
        state.snapshots.retain(|_, snapshot| snapshot.group.as_ref() != Some(&found.id));
        drop(state);
        self.reply(OperationKind::DeleteGroup, Change::Made(()))
    }

    pub(super) fn group(&self, group: &GroupRef) -> Result<Group> {
        let is = |g: &&Group| match group {
            GroupRef::Id(id) => g.id == *id,
            GroupRef::Alias(alias) => g.alias == *alias,
        };
        self.state().groups.iter().find(is).cloned().ok_or_else(|| missing("group", group))
    }
}
