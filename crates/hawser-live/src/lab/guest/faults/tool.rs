//! `hawser` as a program, and what all faults are measured by.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::guest::san::{San, write};
use crate::lab::guest::{Cmd, Done, Leftovers, cmd};

/// Two ways to one target.
pub const TWO: [&str; 2] = ["127.0.1.1:3260", "127.0.1.2:3260"];

/// What becomes a map: every SCSI disk.
pub const MAPS: &str = "defaults {\n find_multipaths no\n polling_interval 1\n \
    user_friendly_names no\n}\nblacklist {\n devnode \"^(vd|loop|dm-|ram)\"\n}\n";

/// How long what the kernel and daemons do behind the caller's back may take.
const SETTLED: Duration = Duration::from_secs(20);

/// One volume, and how it is asked for.
#[derive(Clone)]
pub struct Asked {
    info: String,
    args: Vec<&'static str>,
}

impl Asked {
    /// Over one path.
    pub fn one(san: &San) -> Self {
        Self::new(san.one_way(1), &[])
    }

    /// Over all paths, or not at all.
    pub fn all(san: &San) -> Self {
        Self::new(san.all_ways(1), &["--enforce-multipath"])
    }

    /// By this data over iSCSI, with these options of connect.
    pub fn new(data: Value, args: &[&'static str]) -> Self {
        Self::over("iscsi", data, args)
    }

    /// The same over another protocol.
    pub fn over(protocol: &str, data: Value, args: &[&'static str]) -> Self {
        let info = json!({ "driver_volume_type": protocol, "data": data }).to_string();
        Self { info, args: args.to_vec() }
    }

    /// The words of a command.
    fn words(&self, verb: &'static str) -> Vec<&'static str> {
        let mut words = vec!["hawser", verb, "--deadline", "30s", "--output", "json"];
        if verb == "connect" {
            words.extend(&self.args);
        }
        words
    }

    /// A command with the volume on its standard input, perhaps below another program.
    pub fn below(&self, mut words: Vec<String>, verb: &'static str) -> Cmd {
        words.extend(self.words(verb).into_iter().map(str::to_owned));
        let (program, rest) = words.split_first().expect("at least the program");
        cmd(program).args(rest).input(&self.info).limit(Duration::from_secs(150))
    }

    /// Runs a command to its end, whatever that is.
    pub fn run(&self, verb: &'static str) -> Done {
        self.below(Vec::new(), verb).run()
    }

    /// Attaches it and answers the device, which takes a write.
    #[track_caller]
    pub fn connect(&self) -> PathBuf {
        let said = self.below(Vec::new(), "connect").ok();
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let path = PathBuf::from(said["path"].as_str().expect("a path"));
        write(&path, 0, &[0x5A; 4096]);
        path
    }

    /// Detaches it.
    #[track_caller]
    pub fn disconnect(&self) {
        self.below(Vec::new(), "disconnect").ok();
    }
}

/// Counts what is left, and where it was.
pub struct Tally {
    what: String,
    begun: Instant,
    points: usize,
    left: Vec<String>,
}

impl Tally {
    /// For one kind of fault.
    pub fn of(what: &str) -> Self {
        Self { what: what.to_owned(), begun: Instant::now(), points: 0, left: Vec::new() }
    }

    /// Compares after one fault. What comes down behind the caller's back gets its time.
    pub fn point(&mut self, name: &str, before: &Leftovers) {
        let begun = Instant::now();
        let mut left = before.difference(&Leftovers::snapshot());
        while !left.is_empty() && begun.elapsed() < SETTLED {
            std::thread::sleep(Duration::from_millis(50));
            left = before.difference(&Leftovers::snapshot());
        }
        self.points += 1;
        self.left.extend(left.into_iter().map(|line| format!("{name}: {line}")));
    }

    /// Says how it was.
    #[track_caller]
    pub fn close(self) {
        let Self { what, begun, points, left } = self;
        let took = begun.elapsed().as_secs();
        println!("{what}: {points} faults in {took} s, leftovers {}", left.len());
        assert!(left.is_empty(), "{left:#?}");
    }
}
