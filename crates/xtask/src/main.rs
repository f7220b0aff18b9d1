//! `cargo xtask`: the checks that keep the house in shape, and the test runner.
//!
//! Each check reads the tree (and `cargo metadata`) and answers a [`report::Report`]; it changes
//! nothing. `cargo xtask all` runs every one of them. Only `test`, `proto` and `changelog --release`
//! act.

mod cases;
mod changelog;
mod deploy;
mod deps;
mod generated;
mod graph;
mod layers;
mod process;
mod promises;
mod report;
mod sizes;
mod source;
mod tables;
mod tester;
mod tree;
mod words;

use std::error::Error;
use std::process::ExitCode;

use report::Report;
use tree::Tree;

/// What a check or command answers when it could not even look.
type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// One check: its name on the command line, what it guards, and how.
struct Check {
    name: &'static str,
    about: &'static str,
    run: fn(&Tree) -> Result<Report>,
}

/// Every check, in the order in which `all` runs them.
static CHECKS: &[Check] = &[
    Check { name: "layers", about: "which crate may use which", run: layers::check },
    Check {
        name: "tables",
        about: "every plug-in is registered, proven, and does what it must",
        run: tables::check,
    },
    Check { name: "sizes", about: "the ten longest files; none over 600 lines", run: sizes::check },
    Check { name: "deps", about: "licences, duplicates, sources, versions", run: deps::check },
    Check {
        name: "generated",
        about: "generated code is that of its .proto files",
        run: generated::check,
    },
    Check { name: "deploy", about: "what the chart repeats is the same", run: deploy::check },
    Check { name: "words", about: "words that do not belong in the tree", run: words::check },
    Check { name: "changelog", about: "the notes of unreleased changes", run: changelog::check },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what the arguments ask for; false when something was found.
fn run(args: &[&str]) -> Result<bool> {
    let tree = Tree::of_this_workspace()?;
    match args {
        ["all"] => run_checks(&tree, &CHECKS.iter().collect::<Vec<_>>()),
        ["test", rest @ ..] => tester::run(&tree, rest),
        ["proto"] => generated::write(&tree),
        ["changelog", "--release", version] => changelog::release(&tree, version),
        [name] if CHECKS.iter().any(|check| check.name == *name) => {
            let chosen: Vec<_> = CHECKS.iter().filter(|check| check.name == *name).collect();
            run_checks(&tree, &chosen)
        }
        [] | ["help" | "--help" | "-h"] => {
            print!("{}", usage());
            Ok(true)
        }
        unknown => Err(format!("unknown arguments: {}\n\n{}", unknown.join(" "), usage()).into()),
    }
}

/// Runs every given check to its end, so that one run shows all that is wrong.
fn run_checks(tree: &Tree, checks: &[&Check]) -> Result<bool> {
    let mut clean = true;
    for check in checks {
        let report = (check.run)(tree).map_err(|error| format!("{}: {error}", check.name))?;
        print!("{}", report.render(check.name));
        clean &= report.is_clean();
    }
    Ok(clean)
}

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND\n\n");
    for check in CHECKS {
        text.push_str(&format!("  {:<30} {}\n", check.name, check.about));
    }
    for (name, about) in [
        ("all", "every check above"),
        ("test [ARGUMENTS OF cargo test]", "runs the tests and sums up: passed, failed, skipped"),
        ("proto", "makes the generated code anew from its .proto files"),
        ("changelog --release VERSION", "moves the notes of changelog.d into CHANGELOG.md"),
    ] {
        text.push_str(&format!("  {name:<30} {about}\n"));
    }
    text
}
