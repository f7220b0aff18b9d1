//! SIGKILL at every step of an attach and a detach over iSCSI, one after the other. Takes long;
//! `vm_faults` kills at some of them.

use hawser_live::lab::guest::faults::{Asked, MAPS, TWO, kill_connects, kill_disconnects};
use hawser_live::lab::guest::san::San;

#[test]
fn case_26_an_attach_that_is_killed_at_any_step_is_made_good() {
    let san = San::new(&TWO[..1], 1);
    kill_connects("kills of connect", &san, &Asked::one(&san), usize::MAX);
}

#[test]
fn case_26_a_detach_that_is_killed_at_any_step_is_made_good() {
    let san = San::new(&TWO[..1], 1);
    kill_disconnects("kills of disconnect", &san, &Asked::one(&san), usize::MAX);
}

#[test]
fn case_26_an_attach_of_a_map_that_is_killed_at_any_step_is_made_good() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    kill_connects("kills of connect, two paths", &san, &Asked::all(&san), usize::MAX);
}

#[test]
fn case_26_a_detach_of_a_map_that_is_killed_at_any_step_is_made_good() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    kill_disconnects("kills of disconnect, two paths", &san, &Asked::all(&san), usize::MAX);
}
