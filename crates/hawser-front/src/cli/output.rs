//! Printing: tables for people, the shapes of the REST API as JSON or YAML for programs.

use std::io::Write;

use serde::Serialize;

use super::context::Context;
use super::error::CliError;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns and sentences, for people.
    #[default]
    Table,
    /// The shapes of the REST API.
    Json,
    /// The same as YAML.
    Yaml,
}

impl Context<'_> {
    /// Prints one result.
    pub(super) fn show<T: Serialize>(
        &self,
        view: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        let text = match self.format {
            Format::Table => text(),
            Format::Json | Format::Yaml => self.encode(view)?,
        };
        self.write(&text)
    }

    /// Prints a list: with `--quiet` the bare names, one per line.
    pub(super) fn list<T: Serialize>(
        &self,
        view: &T,
        names: impl FnOnce() -> Vec<String>,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        if self.quiet && self.format == Format::Table {
            let names = names();
            return self.write(&names.iter().map(|name| format!("{name}\n")).collect::<String>());
        }
        self.show(view, text)
    }

    /// Prints one item of a list without end: a line, or a YAML document.
    pub(super) fn item<T: Serialize>(
        &self,
        view: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        let line = match self.format {
            Format::Table => text(),
            Format::Json => {
                let line = serde_json::to_string(view).map_err(CliError::Json)?;
                format!("{line}\n")
            }
            Format::Yaml => format!("---\n{}", self.encode(view)?),
        };
        self.write(&line)
    }

    /// Says what was done, to people only.
    pub(super) fn say(&self, line: &str) -> Result<(), CliError> {
        if self.quiet || self.format != Format::Table {
            return Ok(());
        }
        self.write(&format!("{}\n", super::human::plain(line)))
    }

    /// Says something beside the result; a closed stream is nobody's problem.
    pub(super) fn note(&self, line: &str) {
        let mut err = self.err.borrow_mut();
        let _ = writeln!(err, "{line}");
        let _ = err.flush();
    }

    /// A value in the format for programs.
    pub(super) fn encode<T: Serialize>(&self, view: &T) -> Result<String, CliError> {
        match self.format {
            Format::Table | Format::Json => {
                let mut text = serde_json::to_string_pretty(view).map_err(CliError::Json)?;
                text.push('\n');
                Ok(text)
            }
            Format::Yaml => serde_norway::to_string(view).map_err(CliError::Yaml),
        }
    }

    fn write(&self, text: &str) -> Result<(), CliError> {
        let mut out = self.out.borrow_mut();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
    }
}
