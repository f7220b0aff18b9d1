//! The contract of the connector port.
//!
//! `hawser_testkit::connector_contract!(rig());`, where `rig()` gives a fresh [`ConnectorRig`] over
//! a [`FakeHost`]. Several rigs of one module have names: `connector_contract!(image, image_rig());`.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use hawser_core::attach::{Attach, AttachRecord, AttachState, Attached, Detach, Identity};
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_core::error::Result;
use hawser_core::id::{InstanceId, PublicationId, VolumeId};
use hawser_core::port::Connector;
use hawser_core::secret::Secret;
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Timestamp};

use crate::fake_host::{FakeHost, When};

/// No connector makes so many calls, or is polled so often, for one attach.
const ENOUGH: usize = 400;

/// What must never be seen.
const SECRET: &str = "hunter2-correct-horse";

/// A connector, a host on which its volume can be attached, and the way to that volume.
pub struct ConnectorRig {
    /// The connector.
    pub connector: &'static dyn Connector,
    /// The host, with all that the volume needs.
    pub host: FakeHost,
    /// The way to the volume.
    pub info: ConnectionInfo,
    _cleanup: Box<dyn Any + Send>,
}

impl ConnectorRig {
    /// A rig; `cleanup` is dropped with it.
    pub fn new(
        connector: &'static dyn Connector,
        host: FakeHost,
        info: ConnectionInfo,
        cleanup: impl Any + Send,
    ) -> Self {
        Self { connector, host, info, _cleanup: Box::new(cleanup) }
    }

    /// Attaches with the defaults.
    pub async fn connect(&self) -> Result<Change<Attached>> {
        self.connector.connect(&self.host, &self.info, &Attach::default()).await
    }

    /// Detaches what this record names, with the defaults.
    pub async fn disconnect(&self, record: &AttachRecord) -> Result<Change<()>> {
        self.connector.disconnect(&self.host, record, &Detach::default()).await
    }

    /// The record that is written before `connect` acts.
    pub fn intent(&self) -> AttachRecord {
        AttachRecord {
            publication: PublicationId::generate(),
            volume: VolumeId::generate(),
            info: self.info.without_secrets(),
            attach: Attach::default(),
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
}

/// Names are the canonical ones, so that the table finds them.
pub async fn its_names_are_canonical(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let info = rig.connector.info();

    assert!(info.protocols.contains(&rig.info.protocol.as_str()));
    assert!(!info.note.is_empty());
    for name in info.protocols {
        assert_eq!(Protocol::new(name).as_str(), *name);
    }
}

/// Asking twice gives the same path, says so, and changes nothing.
pub async fn connecting_twice_answers_already(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let fresh = rig.makes_something().await;
    let first = rig.connect().await.expect("first connect");
    let (state, changes) = (rig.host.snapshot(), rig.host.changes());

    let second = rig.connect().await.expect("second connect");

    assert_eq!(first.is_made(), fresh, "the first connect says what it did");
    assert_eq!(second, Change::Already(first.into_inner()));
    assert_eq!(rig.host.changes(), changes, "second connect changed the host");
    assert_eq!(rig.host.snapshot(), state);
}

/// Taking away what is not there is no error, and changes nothing.
pub async fn disconnecting_something_absent_answers_already(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let before = rig.host.snapshot();

    let change = rig.disconnect(&rig.intent()).await.expect("disconnect");

    assert_eq!(change, Change::Already(()));
    assert_eq!(rig.host.snapshot(), before);
}

/// Connect and disconnect, with the record or only its intent, leave the host as it was.
pub async fn disconnecting_takes_everything_away(rig: impl Fn() -> ConnectorRig) {
    for only_intent in [false, true] {
        let rig = rig();
        let before = rig.host.snapshot();
        let connected = rig.connect().await.expect("connect");
        let record = if only_intent { rig.intent() } else { rig.record(connected.get()) };

        let first = rig.disconnect(&record).await.expect("disconnect");
        let second = rig.disconnect(&record).await.expect("disconnect again");

        assert_eq!(first.is_made(), connected.is_made());
        assert_eq!(second, Change::Already(()));
        assert_eq!(rig.host.snapshot(), before);
    }
}

/// A number in the record may be another's by now: only the volume itself is taken away.
pub async fn a_stale_record_never_detaches_another_device(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let image = rig.host.add_image("bystander.img", ByteSize::mib(1));
    let bystander = rig.host.add_foreign_loop(&image, Some("bystander"));
    let stale = Attached::Block {
        device: bystander.device.clone(),
        identity: rig.info.identity.clone(),
        size: ByteSize::mib(1),
    };
    let before = rig.host.snapshot();

    for connected in [false, true] {
        if connected {
            rig.connect().await.expect("connect");
        }
        rig.disconnect(&rig.record(&stale)).await.expect("disconnect");
        assert_eq!(rig.host.snapshot(), before, "connected: {connected}");
    }
}

/// After a reboot there is nothing to take away, and connecting works again.
pub async fn a_reboot_is_survived(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let fresh = rig.makes_something().await;
    let attached = rig.connect().await.expect("connect").into_inner();
    rig.host.reboot();

    let change = rig.disconnect(&rig.record(&attached)).await.expect("disconnect");
    assert_eq!(change, Change::Already(()));
    let again = rig.connect().await.expect("connect");

    assert_eq!(again.is_made(), fresh);
}

/// One failing host call, before or after it acted: an error leaves nothing, and a retry works.
pub async fn a_failed_connect_leaves_nothing_behind(rig: impl Fn() -> ConnectorRig) {
    for when in [When::Before, When::After] {
        let mut reached = false;
        for nth in 0..ENOUGH {
            let rig = rig();
            let before = rig.host.snapshot();
            rig.host.fail_call(nth, when);

            let result = rig.connect().await;

            if rig.host.struck() == 0 {
                result.expect("nothing failed");
                reached = true;
                break;
            }
            rig.host.heal();
            match result {
                Err(error) => {
                    assert_eq!(rig.host.snapshot(), before, "call {nth} {when:?}: {error:?}");
                }
                Ok(_) => rig.connector.lookup(&rig.host, &rig.info).await.map(drop).expect("there"),
            }
            rig.connect().await.expect("a retry works");
            rig.disconnect(&rig.intent()).await.expect("disconnect");
            assert_eq!(rig.host.snapshot(), before, "after a retry of call {nth} {when:?}");
        }
        assert!(reached, "connect never ends");
    }
}

/// A host that dies during connect and cannot be cleaned up: then the error says so.
pub async fn what_cannot_be_undone_is_called_unknown(rig: impl Fn() -> ConnectorRig) {
    for when in [When::Before, When::After] {
        for first in 0..ENOUGH {
            let rig = rig();
            let before = rig.host.snapshot();
            rig.host.fail_from(first, when);

            let result = rig.connect().await;

            if rig.host.struck() == 0 {
                break;
            }
            if let Err(error) = result {
                let clean = rig.host.snapshot() == before;
                assert!(clean || error.outcome() == Outcome::Unknown, "call {first}: {error:?}");
            }
            rig.host.heal();
            rig.disconnect(&rig.intent()).await.expect("disconnect");
            assert_eq!(rig.host.snapshot(), before, "hosts that died from call {first} {when:?}");
        }
    }
}

/// One failing host call during disconnect: a retry takes everything away.
pub async fn a_failed_disconnect_can_be_repeated(rig: impl Fn() -> ConnectorRig) {
    for when in [When::Before, When::After] {
        for nth in 0..ENOUGH {
            let rig = rig();
            let before = rig.host.snapshot();
            let attached = rig.connect().await.expect("connect").into_inner();
            let record = rig.record(&attached);
            rig.host.fail_call(nth, when);

            let result = rig.disconnect(&record).await;

            let struck = rig.host.struck() > 0;
            rig.host.heal();
            if result.is_ok() {
                assert_eq!(rig.host.snapshot(), before, "success with something left");
            }
            rig.disconnect(&record).await.expect("a retry works");
            assert_eq!(rig.host.snapshot(), before, "call {nth} {when:?}");
            if !struck {
                break;
            }
        }
    }
}

/// A volume that is not the one the publication means is refused by name and left alone.
pub async fn another_identity_is_refused(rig: impl Fn() -> ConnectorRig) {
    for connected in [false, true] {
        let mut rig = rig();
        if connected {
            rig.connect().await.expect("connect");
        }
        let before = rig.host.snapshot();
        let scheme =
            rig.info.identity.as_ref().map_or("image", |identity| &identity.scheme).to_owned();
        rig.info.identity = Some(Identity::new(scheme, "somebody-elses-volume"));

        let error = rig.connect().await.expect_err("another volume");

        assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
        assert!(error.sentence().contains("somebody-elses-volume"), "{error:?}");
        assert_eq!(rig.host.snapshot(), before);
        let taken = rig.disconnect(&rig.intent()).await;
        assert!(!matches!(taken, Ok(Change::Made(()))), "took another's volume away");
        assert_eq!(rig.host.snapshot(), before);
    }
}

/// Connect may be dropped at any poll; connecting and disconnecting both work afterwards.
pub async fn a_dropped_connect_is_safe(rig: impl Fn() -> ConnectorRig) {
    for retry in [false, true] {
        for polls in 0..ENOUGH {
            let rig = rig();
            let before = rig.host.snapshot();

            let ended = cut_off(rig.connect(), polls).await;

            if retry {
                rig.connect().await.expect("connect after a dropped one");
            }
            rig.disconnect(&rig.intent()).await.expect("disconnect");
            assert_eq!(rig.host.snapshot(), before, "dropped after {polls} polls");
            if ended {
                break;
            }
        }
    }
}

/// Disconnect may be dropped at any poll; doing it again ends it.
pub async fn a_dropped_disconnect_is_safe(rig: impl Fn() -> ConnectorRig) {
    for polls in 0..ENOUGH {
        let rig = rig();
        let before = rig.host.snapshot();
        let attached = rig.connect().await.expect("connect").into_inner();
        let record = rig.record(&attached);

        let ended = cut_off(rig.disconnect(&record), polls).await;

        rig.disconnect(&record).await.expect("disconnect after a dropped one");
        assert_eq!(rig.host.snapshot(), before, "dropped after {polls} polls");
        if ended {
            break;
        }
    }
}

/// Polls a future so often and drops it; true when it ended by then.
async fn cut_off<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        future.as_mut().poll(context).map(|_| true)
    })
    .await
}

/// Looking agrees with what was connected and changes nothing.
pub async fn looking_up_changes_nothing(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let fresh = rig.makes_something().await;
    let attached = rig.connect().await.expect("connect").into_inner();
    rig.host.forget_calls();

    let found = rig.connector.lookup(&rig.host, &rig.info).await.expect("lookup");

    assert_eq!(found.as_ref(), Some(&attached));
    assert!(rig.host.changes().is_empty(), "{:?}", rig.host.changes());
    rig.disconnect(&rig.record(&attached)).await.expect("disconnect");
    let gone = rig.connector.lookup(&rig.host, &rig.info).await.expect("lookup");
    assert_eq!(gone.is_none(), fresh);
}

/// Health is good while it is attached, says what is wrong when it is not, and changes nothing.
pub async fn health_tells_attached_from_gone(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let fresh = rig.makes_something().await;
    let attached = rig.connect().await.expect("connect").into_inner();
    let record = rig.record(&attached);
    rig.host.forget_calls();

    let good = rig.connector.health(&rig.host, &record).await.expect("health");
    assert!(good.healthy, "{good:?}");
    rig.host.reboot();
    let gone = rig.connector.health(&rig.host, &record).await.expect("health");

    assert_eq!(gone.healthy, !fresh, "{gone:?}");
    assert!(!gone.message.is_empty());
    assert!(rig.host.changes().is_empty(), "{:?}", rig.host.changes());
}

/// Extending what has not grown answers its size as it is.
pub async fn extending_something_unchanged_answers_its_size(rig: impl Fn() -> ConnectorRig) {
    let rig = rig();
    let attached = rig.connect().await.expect("connect").into_inner();

    let size = rig.connector.extend(&rig.host, &rig.record(&attached)).await.expect("extend");

    match attached {
        Attached::Block { size: before, .. } => assert_eq!(size, before),
        Attached::Directory { .. } | Attached::File { .. } => {}
    }
}

/// Secrets are in no error, no answer, no call of the host and no record.
pub async fn secrets_are_hidden(rig: impl Fn() -> ConnectorRig) {
    let with_secret = || {
        let mut rig = rig();
        for field in ["auth_password", "keyring", "secret"] {
            rig.info.secrets.insert(field.into(), Secret::new(SECRET));
        }
        rig
    };
    let mut seen = Vec::new();
    for nth in 0..ENOUGH {
        let rig = with_secret();
        rig.host.fail_call(nth, When::Before);
        let result = rig.connect().await;
        seen.push(shown(&result.map(|change| format!("{change:?}"))));
        seen.push(format!("{:?}", rig.host.calls()));
        seen.push(serde_json::to_string(&rig.intent()).expect("a record"));
        if rig.host.struck() == 0 {
            break;
        }
    }
    let mut rig = with_secret();
    rig.info.identity = Some(Identity::new("image", "other"));
    seen.push(shown(&rig.connect().await.map(|change| format!("{change:?}"))));
    rig.info.data.clear();
    seen.push(shown(&rig.connect().await.map(|change| format!("{change:?}"))));
    seen.push(format!("{:?}", rig.info));

    for text in seen {
        assert!(!text.contains(SECRET), "{text}");
    }
}

fn shown(result: &std::result::Result<String, Error>) -> String {
    match result {
        Ok(text) => text.clone(),
        Err(error) => format!("{error} {error:?} {}", error.sentence()),
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
                a_stale_record_never_detaches_another_device
                a_reboot_is_survived
                a_failed_connect_leaves_nothing_behind
                what_cannot_be_undone_is_called_unknown
                a_failed_disconnect_can_be_repeated
                another_identity_is_refused
                a_dropped_connect_is_safe
                a_dropped_disconnect_is_safe
                looking_up_changes_nothing
                health_tells_attached_from_gone
                extending_something_unchanged_answers_its_size
                secrets_are_hidden
            }
        }
    };
    (@rules $rig:expr; $($rule:ident)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::contract::connector::$rule(|| $rig).await;
            }
        )*
    };
}
