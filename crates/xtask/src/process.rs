//! The one place of xtask that starts programs: cargo and git, on a developer's machine.

use std::process::Command;

/// A program with the caller's environment.
///
/// The product starts programs only in `hawser-host/src/exec`. That door clears the environment,
/// which cargo and git need, and xtask must build without any crate that it checks.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask is no part of the product and runs only cargo and git"
)]
pub(crate) fn program(name: &str) -> Command {
    Command::new(name)
}
