//! `lab`: builds guests, boots them, runs tests in them. See `docs/lab.md`.

use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use hawser_live::lab::host::{self, Build, Lab, LabError, Result};
use hawser_live::lab::suites::{self, BENCHES, Image, SUITES, Set};
use tokio::signal::unix::{SignalKind, signal};

/// Tests on a real kernel with real targets, in a guest that is thrown away.
#[derive(Parser)]
#[command(name = "lab")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run suites; the core set unless told otherwise.
    Run {
        /// The set; "full" holds "core", "soak" is on its own.
        #[arg(long)]
        set: Option<SetArg>,
        /// How many suites run at the same time.
        #[arg(long, default_value_t = at_once())]
        jobs: NonZero<usize>,
        /// Only suites whose name holds this; of every set unless one is given.
        name: Option<String>,
        /// For the test executables.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Run a bench: release builds, and figures instead of counts.
    Bench {
        /// With the builds of tests: to see whether it runs, not for figures.
        #[arg(long)]
        quick: bool,
        /// Which one.
        name: String,
        /// For the bench.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Build the images that are missing.
    Build {
        /// Which image; both when not given.
        image: Option<ImageArg>,
        /// Build anew what is there, from the newest packages.
        #[arg(long)]
        fresh: bool,
    },
    /// Boot a guest and get a shell in it.
    Shell {
        /// Which image.
        #[arg(long, default_value = "core")]
        image: ImageArg,
        /// The guest of this suite, its test executable in /job/target/deps.
        name: Option<String>,
    },
    /// Show the suites.
    List,
    /// Remove the images of earlier recipes.
    Clean {
        /// Remove those of this one too.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum SetArg {
    Core,
    Full,
    Soak,
}

#[derive(Clone, Copy, ValueEnum)]
enum ImageArg {
    Core,
    Full,
}

impl From<SetArg> for Set {
    fn from(arg: SetArg) -> Self {
        match arg {
            SetArg::Core => Self::Core,
            SetArg::Full => Self::Full,
            SetArg::Soak => Self::Soak,
        }
    }
}

impl From<ImageArg> for Image {
    fn from(arg: ImageArg) -> Self {
        match arg {
            ImageArg::Core => Self::Core,
            ImageArg::Full => Self::Full,
        }
    }
}

// One thread: the kernel kills what we started when the thread that started it ends.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    // Dropping the work ends every program that it started and removes its folders.
    let outcome = tokio::select! {
        outcome = act(args.command) => outcome,
        () = interrupted() => Err(LabError::Interrupted),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab: {}", chain(&error));
            // What was killed is gone once the runtime has heard of it.
            tokio::time::sleep(Duration::from_millis(200)).await;
            if matches!(error, LabError::Interrupted) {
                // Not by a return: the runtime would wait for a thread that waits for a lock.
                std::process::exit(130);
            }
            ExitCode::FAILURE
        }
    }
}

async fn act(command: Command) -> Result<bool> {
    let lab = lab();
    match command {
        Command::Run { set, jobs, name, args } => {
            let chosen = suites::choose(set.map(Set::from), name.as_deref());
            if chosen.is_empty() {
                let none = |filter| LabError::NoSuite { filter };
                return Err(name.map_or(LabError::EmptySet, none));
            }
            return host::run(&lab, &chosen, jobs.get(), &args).await;
        }
        Command::Bench { quick, name, args } => {
            let how = if quick { Build::Quick } else { Build::Shipped };
            let bench = BENCHES.iter().find(|bench| bench.test == name);
            let bench = bench.ok_or(LabError::NoSuite { filter: name })?;
            return host::bench(&lab, bench, how, &args).await;
        }
        Command::Build { image, fresh } => {
            let both = [Image::Core, Image::Full];
            let one = image.map(|image| [Image::from(image)]);
            let images = one.as_ref().map_or(both.as_slice(), |one| one.as_slice());
            lab.build(images, fresh).await?;
        }
        Command::Shell { image, name } => {
            let suite = name.as_deref().map(find).transpose()?;
            host::shell(&lab, image.into(), suite).await?;
        }
        // Whoever reads the list may have seen enough of it.
        Command::List => drop(std::io::stdout().write_all(list().as_bytes())),
        Command::Clean { all } => lab.clean(all)?,
    }
    Ok(true)
}

/// As many as there are processors: tests wait more than they work.
fn at_once() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

fn list() -> String {
    let line = |suite: &suites::Suite| {
        let (set, image) = (format!("{:?}", suite.set), format!("{:?}", suite.image));
        format!(
            "{:<20} {set:<5} {image:<5} {} guest(s), {} MiB, at most {} s\n",
            suite.test,
            suite.guests,
            suite.memory_mib,
            suite.limit.as_secs()
        )
    };
    SUITES.iter().map(line).collect()
}

/// The suite of this name, or the first whose name holds it.
fn find(name: &str) -> Result<&'static suites::Suite> {
    let found = suites::choose(None, Some(name));
    let exactly = found.iter().find(|suite| suite.test == name).or(found.first());
    exactly.copied().ok_or_else(|| LabError::NoSuite { filter: name.to_owned() })
}

#[expect(clippy::disallowed_methods, reason = "the program reads its settings, once")]
fn lab() -> Lab {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = folder("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
        let home = folder("HOME")?;
        Some(Path::new(&home).join(".cache"))
    });
    Lab {
        repo: Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        cache: cache.unwrap_or_else(|| "/var/cache".into()).join("hawser-lab"),
        cargo: folder("CARGO").unwrap_or_else(|| "cargo".into()),
    }
}

async fn interrupted() {
    let stream = |kind| signal(kind).expect("a signal handler can be installed");
    let (mut interrupt, mut terminate) =
        (stream(SignalKind::interrupt()), stream(SignalKind::terminate()));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// An error and its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
