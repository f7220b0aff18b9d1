//! Completions and manual pages, made from the parser itself.

use std::io::{self, Write};
use std::path::Path;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

/// `hawser completions`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  hawser completions bash")]
pub struct CompletionsArgs {
    /// For which shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `hawser man`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  hawser man\n  hawser man volume create")]
pub struct ManArgs {
    /// The page of this command; of the program itself when left out.
    pub command: Vec<String>,
    /// Write all pages into this folder instead.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<std::path::PathBuf>,
}

/// Writes the completion script of `program` for a shell.
pub fn completions(mut program: Command, args: &CompletionsArgs, out: &mut dyn Write) {
    let name = program.get_name().to_owned();
    clap_complete::generate(args.shell, &mut program, name, out);
}

/// Writes one manual page of `program`, or all of them into a folder. `NotFound` for a command that
/// there is not.
pub fn man(mut program: Command, args: &ManArgs, out: &mut dyn Write) -> io::Result<()> {
    program.build();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir)?;
        return write_all(&program, dir);
    }
    let mut command = &program;
    for word in &args.command {
        command = command.find_subcommand(word).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("there is no command {word:?}"))
        })?;
    }
    page(command).render(out)
}

fn page(command: &Command) -> Man {
    // After `build` the display name of `volume create` is `hawser-volume-create`.
    let title = command.get_display_name().unwrap_or(command.get_name()).to_uppercase();
    Man::new(command.clone()).title(title).section("1")
}

fn write_all(command: &Command, dir: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut file = std::fs::File::create(dir.join(format!("{name}.1")))?;
    page(command).render(&mut file)?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        write_all(sub, dir)?;
    }
    Ok(())
}
