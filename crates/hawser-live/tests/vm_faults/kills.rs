//! SIGKILL at some of the steps, spread over all of them; `vm_kills` has the rest.

use hawser_live::lab::guest::faults::{Asked, MAPS, TWO, kill_connects, kill_disconnects};
use hawser_live::lab::guest::san::San;

#[test]
fn case_26_an_attach_that_is_killed_between_two_steps_is_made_good() {
    let san = San::new(&TWO[..1], 1);
    kill_connects("kills of connect", &san, &Asked::one(&san), 4);
}

#[test]
fn case_26_a_detach_that_is_killed_between_two_steps_is_made_good() {
    let san = San::new(&TWO[..1], 1);
    kill_disconnects("kills of disconnect", &san, &Asked::one(&san), 4);
}

#[test]
fn case_26_an_attach_of_a_map_that_is_killed_between_two_steps_is_made_good() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    kill_connects("kills of connect, two paths", &san, &Asked::all(&san), 3);
}

#[test]
fn case_26_a_detach_of_a_map_that_is_killed_between_two_steps_is_made_good() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    kill_disconnects("kills of disconnect, two paths", &san, &Asked::all(&san), 3);
}
