//! os-brick: its library in a process of its own, which is kept.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use hawser_live::process;
use serde_json::{Value, json};

use crate::place::{Volume, Ways};
use crate::sides::Side;

/// What the process runs.
const SCRIPT: &str = include_str!("peer.py");

/// Where it is put in the guest.
const PLACE: &str = "/tmp/peer.py";

/// Where the process complains to.
const LOG: &str = "/tmp/peer.log";

/// The process, once it has loaded everything.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// os-brick as a command.
pub(crate) fn command() -> Command {
    let mut command = process::command("python3");
    // Compiled modules are kept, as an installed package has them.
    command.env("PYTHONPATH", "/job/python").env("PYTHONPYCACHEPREFIX", "/var/tmp/pyc");
    command.arg(PLACE);
    command
}

impl Peer {
    pub(crate) fn start() -> Self {
        fs::write(PLACE, SCRIPT).expect("a file in memory");
        let log = fs::File::create(LOG).expect("a log");
        let mut command = command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("Python starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut peer = Self { child, input, output };
        let ready = peer.read();
        assert_eq!(ready["ready"], json!(true), "{ready}");
        peer
    }

    /// How long the properties take.
    pub(crate) fn properties(&mut self) -> Duration {
        let answer = self.ask(&json!({ "op": "properties" }));
        seconds(&answer)
    }

    fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.input, "{command}").expect("os-brick listens");
        self.input.flush().expect("os-brick listens");
        let answer = self.read();
        assert!(answer.get("error").is_none(), "os-brick: {answer}\n{}", log());
        answer
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("os-brick answers");
        assert!(!line.is_empty(), "os-brick ended: {:?}\n{}", self.child.try_wait(), log());
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    fn work(&mut self, op: &str, volumes: &[&Volume], ways: Ways) -> Value {
        let volumes: Vec<Value> = volumes.iter().map(|volume| volume.data(ways)).collect();
        let command = json!({ "op": op, "multipath": ways == Ways::Two, "volumes": volumes });
        self.ask(&command)
    }
}

fn log() -> String {
    let text = fs::read_to_string(LOG).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// By its own clock: what the pipe costs is not os-brick's.
fn seconds(answer: &Value) -> Duration {
    Duration::from_secs_f64(answer["seconds"].as_f64().expect("a number"))
}

impl Side for Peer {
    fn name(&self) -> &'static str {
        "os-brick"
    }

    fn connect(&mut self, volumes: &[&Volume], ways: Ways) -> (Duration, Vec<PathBuf>) {
        let answer = self.work("connect", volumes, ways);
        let paths = answer["paths"].as_array().expect("a list").iter();
        let paths = paths.map(|path| PathBuf::from(path.as_str().expect("a path")));
        (seconds(&answer), paths.collect())
    }

    fn disconnect(&mut self, volumes: &[&Volume], ways: Ways) -> Duration {
        seconds(&self.work("disconnect", volumes, ways))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
