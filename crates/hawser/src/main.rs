//! The command and the daemon in one: reads what was typed, hands out the parts, runs.

mod assemble;
mod backend;
mod commands;
mod demo;
mod log;
mod serve;
mod settings;
mod state_dir;
mod store;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tokio::runtime::{Builder, Runtime};

use hawser_core::error::{Error, Kind, Result};
use hawser_front::cli::{self, CliError, Context, Exit, generate};

use backend::Backend;
use commands::{Cli, Command};
use settings::{Settings, SettingsFlags};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let backend = Backend::new(&cli.global, &cli.command);
    let mut context = Context::new(&cli.global, &backend);
    context.this_node = backend.this_node();
    let exit = match cli.command {
        Command::Client(command) => client(command, &context),
        own => match run(&cli.global, own) {
            Ok(()) => Exit::Done,
            Err(error) => failed(error, &context),
        },
    };
    exit.into()
}

/// A command that asks a server: one thread is enough, and starts faster.
fn client(command: cli::Command, context: &Context<'_>) -> Exit {
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(cli::run(command, context)),
        Err(error) => failed(Error::from_source(Kind::Unavailable, error), context),
    }
}

fn failed(error: Error, context: &Context<'_>) -> Exit {
    let error = CliError::from(error);
    cli::print_error(context, &error);
    error.exit()
}

fn run(global: &cli::Global, command: Command) -> Result<()> {
    let state_dir = || state_dir::find(global.state_dir.as_deref());
    match command {
        Command::Client(_) => Ok(()),
        Command::Demo => {
            log::start("warn", settings::LogFormat::Text)?;
            runtime()?.block_on(demo::run(global))
        }
        Command::Up(flags) => server(&flags, &state_dir()?, global, true),
        Command::Serve(flags) => server(&flags, &state_dir()?, global, false),
        Command::Store(command) => runtime()?.block_on(store::run(&command, &state_dir()?)),
        Command::Completions(args) => {
            generate::completions(Cli::command(), &args, &mut std::io::stdout());
            Ok(())
        }
        Command::Man(args) => generate::man(Cli::command(), &args, &mut std::io::stdout())
            .map_err(|source| Error::from_source(Kind::Invalid, source)),
    }
}

fn server(
    flags: &SettingsFlags,
    state_dir: &Path,
    global: &cli::Global,
    with_node: bool,
) -> Result<()> {
    let runtime = runtime()?;
    let privileged = runtime.block_on(async { assemble::host().facts().await })?.privileged;
    let settings = Settings::read(flags, global, state_dir, privileged)?;
    log::start(&settings.log, settings.log_format)?;
    runtime.block_on(serve::server(settings, with_node))
}

fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::from_source(Kind::Unavailable, source))
}
