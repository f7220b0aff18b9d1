//! The contract of the provider port: one named rule per test.
//!
//! A provider's tests give a [`ProviderRig`] and run them all:
//!
//! ```text
//! mod contract {
//!     hawser_testkit::provider_contract!(super::rig());
//! }
//! ```
//!
//! Rules about an ability hold for providers that have it; rules about content, leftovers and
//! failing hosts for rigs that can look there. The rest of the contract holds for all.

mod basics;
mod blanks;
mod copies;
mod cuts;
mod groups;
mod places;
mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use hawser_core::connection::ConnectionInfo;
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::name::NodeId;
use hawser_core::node::NodeRecord;
use hawser_core::place::Place;
use hawser_core::port::Provider;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::{
    Provision, ProvisionSource, SnapshotAtProvider, VolumeAtProvider,
};
use hawser_core::{ByteSize, Result, Timestamp};

use crate::fake_host::FakeHost;

pub use basics::*;
pub use blanks::*;
pub use copies::*;
pub use cuts::*;
pub use groups::*;
pub use places::*;
pub use room::*;

/// A provider with a storage of its own that holds nothing yet, and ways to look behind it.
#[async_trait]
pub trait ProviderRig: Send + Sync {
    /// The provider.
    fn provider(&self) -> Arc<dyn Provider>;

    /// A size that every volume of these tests can have, several times over.
    fn size(&self) -> ByteSize;

    /// False for a provider that keeps nothing: it cannot tell a second call from a first.
    fn remembers(&self) -> bool {
        true
    }

    /// Where the volumes of these tests are; `None` for a provider whose volumes are reached from
    /// everywhere.
    fn place(&self) -> Option<Place> {
        None
    }

    /// Stops the provider and opens its storage anew, as after a restart.
    async fn reopen(&mut self);

    /// The name of everything that the storage holds, finished or not; `None` where nobody can look.
    fn holds(&self) -> Option<BTreeSet<String>> {
        None
    }

    /// Writes content into a published volume; false where volumes have none.
    fn write(&self, _info: &ConnectionInfo, _content: &[u8]) -> bool {
        false
    }

    /// The first bytes of a published volume, as many as were written.
    fn read(&self, _info: &ConnectionInfo, _length: usize) -> Vec<u8> {
        Vec::new()
    }

    /// Leaves in the storage what a crash in the middle of a create would leave; false where that
    /// cannot be.
    fn plant_leftover(&self, _id: &VolumeId) -> bool {
        false
    }

    /// The host below the provider, where it can be made to fail.
    fn host(&self) -> Option<&FakeHost> {
        None
    }
}

/// What the rules ask of a rig, in their words.
#[async_trait]
pub(super) trait Asks: ProviderRig {
    /// A plain volume of a new id.
    fn wanted(&self) -> Provision {
        Provision {
            id: VolumeId::generate(),
            size: self.size(),
            access: self.provider().default_access(),
            source: None,
            parameters: BTreeMap::new(),
            place: self.place(),
        }
    }

    fn volume(&self, wanted: &Provision) -> VolumeAtProvider {
        VolumeAtProvider {
            id: wanted.id.clone(),
            handle: self.provider().handle(&wanted.id),
            size: wanted.size,
            access: wanted.access,
            parameters: wanted.parameters.clone(),
            place: wanted.place.clone(),
            in_use: false,
        }
    }

    async fn create(&self, wanted: &Provision) -> Result<VolumeAtProvider> {
        let made = self.provider().create(wanted, &Silent).await?.into_inner();
        Ok(VolumeAtProvider { handle: made.handle, size: made.size, ..self.volume(wanted) })
    }

    async fn new_volume(&self) -> VolumeAtProvider {
        self.create(&self.wanted()).await.expect("there is room for a plain volume")
    }

    async fn take_snapshot(&self, volume: &VolumeAtProvider) -> SnapshotAtProvider {
        let provider = self.provider();
        let snapshots = provider.snapshots().expect("asked of providers with snapshots only");
        let id = SnapshotId::generate();
        snapshots.snapshot(volume, &id, &Silent).await.expect("there is room").into_inner()
    }

    /// What a provider is told of a snapshot that may not be there.
    fn unfinished(&self, volume: &VolumeAtProvider, id: &SnapshotId) -> SnapshotAtProvider {
        let provider = self.provider();
        let snapshots = provider.snapshots().expect("asked of providers with snapshots only");
        let (size, place) = (volume.size, volume.place.clone());
        SnapshotAtProvider { id: id.clone(), handle: snapshots.snapshot_handle(id), size, place }
    }

    fn copy_of(&self, source: ProvisionSource, size: ByteSize) -> Provision {
        Provision { source: Some(source), size, ..self.wanted() }
    }

    async fn published(&self, volume: &VolumeAtProvider) -> ConnectionInfo {
        self.provider().publish(volume, &node(), false).await.expect("it can be published")
    }

    /// Writes; false where volumes have no content.
    async fn fill(&self, volume: &VolumeAtProvider, content: &[u8]) -> bool {
        let info = self.published(volume).await;
        self.write(&info, content)
    }

    async fn assert_content(&self, volume: &VolumeAtProvider, content: &[u8], why: &str) {
        let info = self.published(volume).await;
        let found = self.read(&info, content.len());
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(content), "{why}");
    }
}

impl<R: ProviderRig + ?Sized> Asks for R {}

/// A node to publish to.
pub(super) fn node() -> NodeRecord {
    NodeRecord {
        id: "node-1".parse::<NodeId>().expect("a legal name"),
        properties: BTreeMap::new(),
        topology: BTreeMap::new(),
        boot_id: "boot".into(),
        privileged: true,
        last_seen: Timestamp::UNIX_EPOCH,
    }
}

/// Runs every rule of the provider port as a test of its own. The argument is an expression that
/// awaits to `Option<impl ProviderRig>`, evaluated anew for each; `None` skips, and whoever made it
/// has said why with [`skip`](crate::skip()).
#[macro_export]
macro_rules! provider_contract {
    ($rig:expr) => {
        $crate::provider_contract!(@rules $rig;
            creating_twice_answers_the_same_volume
            the_handle_is_known_before_the_volume
            check_answers_the_size_that_create_gives
            deleting_something_absent_answers_already
            deleting_leaves_nothing
            unknown_parameters_are_refused
            another_handle_is_refused
            publishing_twice_answers_the_same_and_unpublishing_is_safe
            health_follows_the_volume
            the_storage_survives_a_reopen
            the_inventory_lists_what_was_made
            a_survey_finds_leftovers_and_removes_them
            a_full_pool_refuses_and_makes_nothing
            the_last_room_is_given_once
            capacity_adds_up
            expanding_grows_and_never_shrinks
            expanding_a_full_pool_changes_nothing
            a_snapshot_is_taken_once
            a_snapshot_keeps_its_content
            a_clone_goes_its_own_way
            a_copy_may_be_larger_and_never_smaller
            a_snapshot_of_something_absent_is_not_found
            a_group_is_taken_once
            members_of_a_group_are_removed_one_by_one
            a_group_that_fails_leaves_no_member
            a_group_that_was_cut_off_is_taken_anew
            a_create_cut_off_anywhere_can_be_repeated
            a_create_cut_off_anywhere_can_be_deleted
            a_copy_cut_off_anywhere_can_be_repeated_or_deleted
            a_snapshot_cut_off_anywhere_can_be_repeated_or_deleted
            a_group_cut_off_anywhere_can_be_repeated_or_deleted
            a_delete_cut_off_anywhere_can_be_repeated
            an_expand_cut_off_anywhere_can_be_repeated
            a_survey_leaves_running_work_alone
            a_volume_is_placed_where_it_is_wanted
            a_place_without_room_is_not_chosen
            room_is_told_by_place
            what_is_made_keeps_its_place
            a_new_volume_is_blank_and_a_written_one_is_not
            a_copy_is_as_blank_as_its_source
            a_blank_volume_is_removed_once
            only_a_blank_volume_is_removed_as_one
            blank_volumes_are_told_by_place
            a_failing_host_leaves_nothing_behind
        );
    };
    (@rules $rig:expr; $($rule:ident)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                if let Some(rig) = $rig.await {
                    $crate::contract::provider::$rule(rig).await;
                }
            }
        )*
    };
}
