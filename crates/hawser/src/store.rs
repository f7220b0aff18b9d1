//! `hawser store`: moves records out of a store and into one.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_store::transfer;

use crate::assemble;

/// What can be done with a store.
#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Write all records, but for secrets, as JSON lines
    #[command(after_help = "Examples:\n  hawser store export > records.jsonl")]
    Export(TransferArgs),
    /// Read records that `export` wrote; nothing is written unless every line is good
    #[command(after_help = "Examples:\n  hawser store import records.jsonl")]
    Import(TransferArgs),
}

#[derive(Args)]
pub(crate) struct TransferArgs {
    /// The file; standard output or input when left out or `-`
    file: Option<PathBuf>,
    /// The store: embedded:FILE; the one of the state folder when left out
    #[arg(long, env = "HAWSER_STORE", value_name = "KIND:PLACE")]
    store: Option<String>,
}

impl TransferArgs {
    fn file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|file| *file != Path::new("-"))
    }
}

/// Runs one of them.
pub(crate) async fn run(command: &StoreCommand, state_dir: &Path) -> Result<()> {
    let (StoreCommand::Export(args) | StoreCommand::Import(args)) = command;
    assemble::prepare_state(state_dir)?;
    let default = || format!("embedded:{}", state_dir.join("store.redb").display());
    let setting = args.store.clone().unwrap_or_else(default);
    let store = hawser_store::open(&setting).await?;
    match command {
        StoreCommand::Export(args) => {
            let writer: Box<dyn Write + Send> = match args.file() {
                Some(path) => Box::new(named(path, File::create_new(path))?),
                None => Box::new(std::io::stdout()),
            };
            let count = transfer::export(&*store, writer).await?;
            eprintln!("{count} records were exported");
        }
        StoreCommand::Import(args) => {
            let reader: Box<dyn Read + Send> = match args.file() {
                Some(path) => Box::new(named(path, File::open(path))?),
                None => Box::new(std::io::stdin()),
            };
            let imported = transfer::import(&*store, reader).await?;
            eprintln!(
                "{} records were imported, {} were there already",
                imported.written, imported.already
            );
        }
    }
    Ok(())
}

fn named(path: &Path, opened: std::io::Result<File>) -> Result<File> {
    opened
        .map_err(|source| Error::from_source(Kind::Invalid, source))
        .context(|| format!("opening {}", path.display()))
}
