//! Two guests that run the same tests at the same time see each other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use hawser_live::lab::guest::{self, Peer, cmd};

#[test]
fn both_guests_meet_and_have_names_of_their_own() {
    let mut peer = Peer::join();
    peer.meet("started");

    let own = guest::initiator();
    peer.send(&own);
    let other = peer.receive();
    assert_ne!(own, other);

    let number = if guest::number() == 1 { 2 } else { 1 };
    cmd("ping").args(["-c", "1", "-W", "5", &format!("lab{number}")]).ok();
    peer.meet("done");
}
