//! SIGKILL at some of the steps, spread over all of them; `vm_kills` has the rest.

use hawser_live::lab::guest::faults::{Asked, Kills, MAPS, TWO};
use hawser_live::lab::guest::san::San;

#[test]
fn case_26_an_attach_that_is_killed_between_two_steps_is_made_good() {
    let san = San::new(&TWO[..1], 1);
    Kills::of("one path", &Asked::one(&san), &san.before).some(4).connects();
}

#[test]
fn case_26_a_detach_that_is_killed_between_two_steps_is_made_good() {
    let san = San::new(&TWO[..1], 1);
    Kills::of("one path", &Asked::one(&san), &san.before).some(4).disconnects();
}

#[test]
fn case_26_an_attach_of_a_map_that_is_killed_between_two_steps_is_made_good() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    Kills::of("two paths", &Asked::all(&san), &san.before).some(3).connects();
}

#[test]
fn case_26_a_detach_of_a_map_that_is_killed_between_two_steps_is_made_good() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    Kills::of("two paths", &Asked::all(&san), &san.before).some(3).disconnects();
}
