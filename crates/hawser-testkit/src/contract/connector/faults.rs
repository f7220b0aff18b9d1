//! What fails in the middle, and what is dropped there.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use hawser_core::Outcome;

use super::{ConnectorRig, ENOUGH};
use crate::fake_host::When;

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
                    rig.is_as(&before, format!("call {nth} {when:?}: {error:?}"));
                }
                Ok(_) => rig.connector.lookup(&rig.host, &rig.info).await.map(drop).expect("there"),
            }
            rig.connect().await.expect("a retry works");
            rig.disconnect(&rig.intent()).await.expect("disconnect");
            rig.is_as(&before, format!("after a retry of call {nth} {when:?}"));
        }
        assert!(reached, "connect never ends");
    }
}

/// A host that dies during connect and cannot be cleaned up: then the error says so.
pub async fn what_cannot_be_undone_is_called_unknown(rig: impl Fn() -> ConnectorRig) {
    for when in [When::Before, When::After] {
        let mut reached = false;
        for first in 0..ENOUGH {
            let rig = rig();
            let before = rig.host.snapshot();
            rig.host.fail_from(first, when);

            let result = rig.connect().await;

            reached = rig.host.struck() == 0;
            if reached {
                break;
            }
            if let Err(error) = result {
                let clean = rig.host.snapshot() == before;
                assert!(clean || error.outcome() == Outcome::Unknown, "call {first}: {error:?}");
            }
            rig.host.heal();
            rig.disconnect(&rig.intent()).await.expect("disconnect");
            rig.is_as(&before, format!("hosts that died from call {first} {when:?}"));
        }
        assert!(reached, "connect never ends");
    }
}

/// One failing host call during disconnect: a retry takes everything away.
pub async fn a_failed_disconnect_can_be_repeated(rig: impl Fn() -> ConnectorRig) {
    for when in [When::Before, When::After] {
        let mut reached = false;
        for nth in 0..ENOUGH {
            let rig = rig();
            let before = rig.host.snapshot();
            let attached = rig.connect().await.expect("connect").into_inner();
            let record = rig.record(&attached);
            rig.host.fail_call(nth, when);

            let result = rig.disconnect(&record).await;

            reached = rig.host.struck() == 0;
            rig.host.heal();
            if result.is_ok() {
                rig.is_as(&before, "success with something left");
            }
            rig.disconnect(&record).await.expect("a retry works");
            rig.is_as(&before, format!("call {nth} {when:?}"));
            if reached {
                break;
            }
        }
        assert!(reached, "disconnect never ends");
    }
}

/// Connect may be dropped at any poll; connecting and disconnecting both work afterwards.
pub async fn a_dropped_connect_is_safe(rig: impl Fn() -> ConnectorRig) {
    for retry in [false, true] {
        let mut ended = false;
        for polls in 0..ENOUGH {
            let rig = rig();
            let before = rig.host.snapshot();

            ended = cut_off(rig.connect(), polls).await;

            if retry {
                rig.connect().await.expect("connect after a dropped one");
            }
            rig.disconnect(&rig.intent()).await.expect("disconnect");
            rig.is_as(&before, format!("dropped after {polls} polls"));
            if ended {
                break;
            }
        }
        assert!(ended, "connect never ends");
    }
}

/// Disconnect may be dropped at any poll; doing it again ends it.
pub async fn a_dropped_disconnect_is_safe(rig: impl Fn() -> ConnectorRig) {
    let mut ended = false;
    for polls in 0..ENOUGH {
        let rig = rig();
        let before = rig.host.snapshot();
        let attached = rig.connect().await.expect("connect").into_inner();
        let record = rig.record(&attached);

        ended = cut_off(rig.disconnect(&record), polls).await;

        rig.disconnect(&record).await.expect("disconnect after a dropped one");
        rig.is_as(&before, format!("dropped after {polls} polls"));
        if ended {
            break;
        }
    }
    assert!(ended, "disconnect never ends");
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
