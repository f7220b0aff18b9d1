//! The sides take turns; what they took becomes figures.

use std::path::Path;

use hawser_live::report::{Figure, Report, median, milliseconds};

use crate::floor::Floor;
use crate::ours::Ours;
use crate::peer::Peer;
use crate::place::{self, Volume, Ways};
use crate::programs::Programs;
use crate::sides::Side;

/// At most so many times what the floor takes.
const FLOOR_BAR: f64 = 1.3;

/// One comparison.
pub(crate) struct Turns<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) volumes: &'a [&'a Volume],
    pub(crate) ways: Ways,
    pub(crate) rounds: usize,
    /// The slowest side may have fewer.
    pub(crate) peer_rounds: usize,
}

/// What one side took, attaching and detaching: seconds, and programs in the last round.
#[derive(Default)]
pub(crate) struct Took {
    up: Vec<f64>,
    down: Vec<f64>,
    up_programs: usize,
    down_programs: usize,
}

/// What all of them took.
#[derive(Default)]
pub(crate) struct All {
    ours: Took,
    peer: Took,
    floor: Took,
}

impl Turns<'_> {
    /// Lets them take turns, so that all are disturbed alike by whatever else the machine does. With
    /// one volume a first round, which does not count, warms everything up.
    pub(crate) fn run(&self, ours: &mut Ours, peer: &mut Peer, floor: &mut Floor) -> All {
        let mut all = All::default();
        if self.volumes.len() == 1 {
            for side in [&mut *floor as &mut dyn Side, ours, peer] {
                self.turn(side, &mut Took::default());
            }
        }
        for round in 0..self.rounds {
            self.turn(floor, &mut all.floor);
            self.turn(ours, &mut all.ours);
            if round < self.peer_rounds {
                self.turn(peer, &mut all.peer);
            }
        }
        all
    }

    fn turn(&self, side: &mut dyn Side, took: &mut Took) {
        side.prepare();
        self.programs.clear();
        let (up, devices) = side.connect(self.volumes, self.ways);
        took.up_programs = self.programs.count();
        self.check(side.name(), &devices);
        place::rest(self.ways);
        self.programs.clear();
        let down = side.disconnect(self.volumes, self.ways);
        took.down_programs = self.programs.count();
        place::rest(self.ways);
        assert_eq!(place::sessions(), 0, "{} left sessions", side.name());
        side.finish();
        took.up.push(up.as_secs_f64());
        took.down.push(down.as_secs_f64());
        println!(
            "{}: {} at once, {} way(s): up {:.0} ms, down {:.0} ms",
            side.name(),
            self.volumes.len(),
            if self.ways == Ways::One { 1 } else { 2 },
            up.as_secs_f64() * 1e3,
            down.as_secs_f64() * 1e3
        );
    }

    /// What was answered is what was asked for: nobody is quick by doing less.
    fn check(&self, name: &str, devices: &[std::path::PathBuf]) {
        let (ways, map) = if self.ways == Ways::One { (1, false) } else { (2, true) };
        assert_eq!(place::sessions(), ways * self.volumes.len(), "sessions of {name}");
        assert_eq!(devices.len(), self.volumes.len(), "devices of {name}");
        for device in devices {
            let node = device.canonicalize();
            let node = node.unwrap_or_else(|error| panic!("{}: {error}", device.display()));
            let is_map = node.starts_with("/dev/dm-") || is_map(&node);
            assert_eq!(is_map, map, "{name} answers {}", device.display());
        }
    }
}

fn is_map(node: &Path) -> bool {
    node.file_name().is_some_and(|name| name.to_string_lossy().starts_with("dm-"))
}

/// Bars of each part: attach and detach, as ratios to os-brick.
fn bars(part: &str) -> (f64, f64) {
    match part {
        "one" => (0.4, 0.3),
        "two" => (0.5, 0.35),
        "one-crowd" => (0.33, 0.33),
        "two-crowd" => (0.25, 0.25),
        _ => (1.0, 1.0),
    }
}

/// Adds the figures of one part.
pub(crate) fn figures(report: &mut Report, part: &str, all: &All) {
    let All { ours, peer, floor } = all;
    let (up, down) = bars(part);
    for (what, bar, of, count) in [
        (
            "connect",
            up,
            (|took: &Took| took.up.clone()) as fn(&Took) -> Vec<f64>,
            (|took: &Took| took.up_programs) as fn(&Took) -> usize,
        ),
        ("disconnect", down, |took| took.down.clone(), |took| took.down_programs),
    ] {
        let name = format!("{what}-{part}");
        let own = median(of(ours));
        against(report, &name, own, median(of(peer)), bar);
        against(report, &format!("{name}-floor"), own, median(of(floor)), FLOOR_BAR);
        programs(report, &name, count(ours), count(peer), Some(count(floor)));
    }
}

fn against(report: &mut Report, name: &str, ours: f64, peer: f64, bar: f64) {
    let ratio = ours / peer;
    let figure = Figure {
        ours: milliseconds(ours),
        peer: Some(milliseconds(peer)),
        ratio: Some(ratio),
        bar: Some((format!("{bar:.2}"), ratio <= bar)),
    };
    report.add(name, figure);
}

/// Programs that one operation started (all of a crowd together).
pub(crate) fn programs(
    report: &mut Report,
    name: &str,
    ours: usize,
    peer: usize,
    floor: Option<usize>,
) {
    let floor = floor.map(|floor| format!(" floor:{floor}")).unwrap_or_default();
    let figure = Figure {
        ours: ours.to_string(),
        peer: Some(format!("{peer}{floor}")),
        ..Figure::default()
    };
    report.add(&format!("{name}-programs"), figure);
}
