//! The one place of xtask that starts programs: cargo and git, on a developer's machine.

use std::process::Command;

/// What cargo tells the program that it runs of its package. Build scripts of dependencies ask for the
/// same names: left in place, cargo run by us would build those, and all that stands on them, anew, and
/// once more when it is next run by hand.
const OF_OUR_PACKAGE: [&str; 7] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// A program with the caller's environment, without what cargo put there for us.
///
/// The product starts programs only in `hawser-host/src/exec`. That door clears the environment,
/// which cargo and git need, and xtask must build without any crate that it checks.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask is no part of the product and runs only cargo and git"
)]
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    OF_OUR_PACKAGE.iter().for_each(|variable| {
        command.env_remove(variable);
    });
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_hears_nothing_of_the_package_that_runs_it() {
        let command = program("cargo");
        let removed =
            |name: &str| command.get_envs().any(|(key, set)| key == name && set.is_none());
        // Those that the build script of ring asks for.
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"));
    }
}
