//! The contract of the connector port.
//!
//! `hawser_testkit::connector_contract!(rig());`, where `rig()` gives a fresh [`ConnectorRig`] over
//! a [`FakeHost`]. Several rigs of one module have names: `connector_contract!(image, image_rig());`.
//!
//! Rules run with a stopped clock: a deadline costs no time, and a connector measures time with
//! `tokio::time::Instant` or not at all. What a connector cannot do is said in fields of its rig;
//! then the rules ask for the honest alternative, or say that they were skipped and why.

mod basics;
mod block;
mod faults;
mod secrets;

use std::any::Any;

use hawser_core::attach::{Attach, AttachRecord, AttachState, Attached, Detach};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::id::{InstanceId, PublicationId, VolumeId};
use hawser_core::port::Connector;
use hawser_core::{ByteSize, Change, Timestamp};

use crate::fake_host::{FakeHost, HostState};

pub use basics::*;
pub use block::*;
pub use faults::*;
pub use secrets::*;

/// No connector makes so many calls, or is polled so often, for one attach.
const ENOUGH: usize = 3000;

/// Something that the storage system does to the volume of a rig.
type Staged<T> = Box<dyn Fn(&FakeHost) -> T + Send>;

/// A connector, a host on which its volume can be attached, and the way to that volume.
pub struct ConnectorRig {
    /// The connector.
    pub connector: &'static dyn Connector,
    /// The host, with all that the volume needs.
    pub host: FakeHost,
    /// The way to the volume. Its secrets, where it has any, are what must never be seen.
    pub info: ConnectionInfo,
    /// How the rules attach.
    pub attach: Attach,
    /// What becomes of the wish for a device that refuses writes.
    pub read_only: ReadOnly,
    /// Who writes out cached data before a detach.
    pub flush: FlushedBy,
    /// Why the program of this protocol gets its secret as an argument, where it takes it by no
    /// other way.
    pub secret_arguments: Option<&'static str>,
    /// Why a second attach at the same time does not find the first, where it cannot.
    pub alone: Option<&'static str>,
    swap: Option<Staged<()>>,
    grow: Option<Staged<ByteSize>>,
    _cleanup: Box<dyn Any + Send>,
}

/// What becomes of the wish for a device that refuses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnly {
    /// The device refuses writes.
    Honoured,
    /// Connect refuses the wish: a wish that is not heard would be worse.
    Refused,
    /// It is a folder or a file, and whoever binds it into place makes it read-only.
    LeftToTheMount,
}

/// Who writes out cached data before a detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushedBy {
    /// The connector, through an opening of the device that it made first.
    Connector,
    /// The kernel or the client, as part of the detach itself, which fails when that fails; why the
    /// connector need not. One that hangs hangs the detach, and is not staged.
    Detach(&'static str),
}

impl ConnectorRig {
    /// A rig; `cleanup` is dropped with it.
    pub fn new(
        connector: &'static dyn Connector,
        host: FakeHost,
        info: ConnectionInfo,
        cleanup: impl Any + Send,
    ) -> Self {
        Self {
            connector,
            host,
            info,
            attach: Attach::default(),
            read_only: ReadOnly::Honoured,
            flush: FlushedBy::Connector,
            secret_arguments: None,
            alone: None,
            swap: None,
            grow: None,
            _cleanup: Box::new(cleanup),
        }
    }

    /// What the storage system does so that another volume is where this one was, without telling
    /// the host. Rigs of networked block devices have it.
    #[must_use]
    pub fn on_swap(mut self, swap: impl Fn(&FakeHost) + Send + 'static) -> Self {
        self.swap = Some(Box::new(swap));
        self
    }

    /// What the storage system does to make the volume larger, and how large it is then. Rigs of
    /// connectors that can extend have it.
    #[must_use]
    pub fn on_grow(mut self, grow: impl Fn(&FakeHost) -> ByteSize + Send + 'static) -> Self {
        self.grow = Some(Box::new(grow));
        self
    }

    /// Attaches as the rig says.
    pub async fn connect(&self) -> Result<Change<Attached>> {
        self.connect_as(&self.attach).await
    }

    /// Attaches in another way.
    pub async fn connect_as(&self, attach: &Attach) -> Result<Change<Attached>> {
        self.connector.connect(&self.host, &self.info, attach).await
    }

    /// Detaches what this record names, with the defaults.
    pub async fn disconnect(&self, record: &AttachRecord) -> Result<Change<()>> {
        self.disconnect_as(record, &Detach::default()).await
    }

    /// Detaches in another way.
    pub async fn disconnect_as(
        &self,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        self.connector.disconnect(&self.host, record, detach).await
    }

    /// The record that is written before `connect` acts.
    pub fn intent(&self) -> AttachRecord {
        AttachRecord {
            publication: PublicationId::generate(),
            volume: VolumeId::generate(),
            info: self.info.without_secrets(),
            attach: self.attach.clone(),
            state: AttachState::Intent,
            attached: None,
            mounts: Vec::new(),
            frozen: None,
            instance: InstanceId::generate(),
            boot_id: "boot".into(),
            created: Timestamp::UNIX_EPOCH,
        }
    }

    /// The record that is written after `connect` answered.
    pub fn record(&self, attached: &Attached) -> AttachRecord {
        AttachRecord {
            state: AttachState::Attached,
            attached: Some(attached.clone()),
            ..self.intent()
        }
    }

    /// True when connecting makes something that disconnecting takes away.
    async fn makes_something(&self) -> bool {
        let found = self.connector.lookup(&self.host, &self.info).await.expect("lookup");
        found.is_none()
    }

    /// Fails with what differs, unless the host is as it was.
    #[track_caller]
    fn is_as(&self, before: &HostState, when: impl AsRef<str>) {
        let difference = before.difference(&self.host.snapshot());
        assert!(difference.is_empty(), "{}:\n{difference}", when.as_ref());
    }
}

/// Runs every rule of the connector port, each as a test of its own, with fresh rigs.
#[macro_export]
macro_rules! connector_contract {
    ($rig:expr) => {
        $crate::connector_contract! { connector_contract, $rig }
    };
    ($module:ident, $rig:expr) => {
        mod $module {
            use super::*;
            $crate::connector_contract! { @rules $rig;
                its_names_are_canonical
                connecting_twice_answers_already
                disconnecting_something_absent_answers_already
                disconnecting_takes_everything_away
                an_identity_that_was_learnt_leaves_nothing_behind
                a_stale_record_never_detaches_another_device
                a_reboot_is_survived
                two_connects_at_once_end_with_one_device
                looking_up_changes_nothing
                health_tells_attached_from_gone
                extending_something_unchanged_answers_its_size
                a_grown_volume_is_seen_by_extending
                what_is_answered_can_be_opened
                another_identity_is_refused
                another_volume_in_its_place_is_refused
                read_only_is_honoured_or_refused
                a_busy_device_is_not_detached_without_force
                a_failed_flush_stops_a_detach_and_everything_stays
                a_flush_that_hangs_is_given_up_and_everything_stays
                force_goes_on_past_a_failed_flush_and_reports_the_loss
                force_without_errors_answers_success
                another_multipath_setting_at_detach_removes_everything
                a_failed_connect_leaves_nothing_behind
                what_cannot_be_undone_is_called_unknown
                a_failed_disconnect_can_be_repeated
                a_dropped_connect_is_safe
                a_dropped_disconnect_is_safe
                secrets_are_hidden
                secrets_leave_no_file_that_others_can_read
            }
        }
    };
    (@rules $rig:expr; $($rule:ident)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $rule() {
                $crate::contract::connector::$rule(|| $rig).await;
            }
        )*
    };
}
