//! The command line: clap's parser for every client command, and what each does over the ports.
//!
//! The binary flattens [`Command`] into its own commands and [`Global`] into its own options, makes a
//! [`Context`] and calls [`run`]. Nothing here names an implementation: [`Backend`] hands out the
//! `Control` of the server and the `Node` of this host when a command asks for them, and not before,
//! so that a command costs only what it uses.

pub mod args;
mod context;
mod error;
pub mod generate;
mod human;
mod output;
mod parse;
mod progress;
mod run;
mod table;

#[cfg(test)]
mod tests;

pub use args::{Command, Global};
pub use context::{Backend, Context, Exit, Interrupt, Terminal, WaitFor};
pub use error::CliError;
pub use output::Format;
pub use run::{print_error, run};

/// What the command line is.
pub(crate) static FRONT: crate::Front =
    crate::Front { name: "cli", about: "people and scripts, through the command hawser" };
