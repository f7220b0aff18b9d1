//! What `vm_kills` does, for the protocols that need the packages of the full set.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_aoe/bench.rs"]
mod aoe;
#[path = "vm_drbd/bench.rs"]
mod drbd;
#[path = "vm_rbd/bench.rs"]
mod rbd;

use hawser_live::lab::guest::faults::Kills;

#[test]
fn case_26_over_aoe_every_call_that_is_killed_at_any_step_is_made_good() {
    let bench = aoe::Bench::new();
    Kills::of("AOE", &bench.asked(), &bench.before).sweep(&aoe::flush).run();
    bench.assert_clean();
}

#[test]
fn case_26_over_drbd_every_call_that_is_killed_at_any_step_is_made_good() {
    let bench = drbd::Bench::new();
    Kills::of("DRBD", &bench.asked(), &bench.before).run();
    bench.assert_clean();
}

#[test]
fn case_26_over_rbd_every_call_that_is_killed_at_any_step_is_made_good() {
    let bench = rbd::Bench::shared();
    Kills::of("RBD", &bench.asked(), &bench.before).run();
    bench.assert_clean();
}
