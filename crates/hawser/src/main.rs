//! The command and the daemon in one: reads what was typed, hands out the parts, runs.

mod assemble;
mod backend;
mod commands;
mod csi;
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
use commands::{Cli, Command, Own};
use serve::NodeJob;
use settings::{Settings, SettingsFlags};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let backend = Backend::new(&cli.global, &cli.command);
    let mut context = Context::new(&cli.global, &backend);
    context.this_node = backend.this_node();
    let exit = match cli.command {
        Command::Client(cli::Command::Node(args)) if args.command.is_none() => {
            ended(node(&cli.global, args), &context)
        }
        Command::Client(command) => client(command, &context),
        Command::Own(command) => ended(run(&cli.global, command), &context),
    };
    exit.into()
}

/// A command that asks a server: one thread is enough, and starts faster.
fn client(command: cli::Command, context: &Context<'_>) -> Exit {
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(cli::run(command, context)),
        Err(error) => ended(Err(Error::from_source(Kind::Unavailable, error)), context),
    }
}

fn ended(result: Result<()>, context: &Context<'_>) -> Exit {
    let Err(error) = result else { return Exit::Done };
    let error = CliError::from(error);
    cli::print_error(context, &error);
    error.exit()
}

fn run(global: &cli::Global, command: Own) -> Result<()> {
    let state_dir = || state_dir::find(global.state_dir.as_deref());
    match command {
        Own::Demo => {
            log::start("warn", settings::LogFormat::Text)?;
            runtime()?.block_on(demo::run(global))
        }
        Own::Up(flags) => server(&flags, &state_dir()?, global, true),
        Own::Serve(flags) => server(&flags, &state_dir()?, global, false),
        Own::Csi(args) => driver(*args, &state_dir()?, global),
        Own::Store(command) => runtime()?.block_on(store::run(&command, &state_dir()?)),
        Own::Completions(args) => {
            generate::completions(Cli::command(), &args, &mut std::io::stdout());
            Ok(())
        }
        Own::Man(args) => generate::man(Cli::command(), &args, &mut std::io::stdout())
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
    let privileged = runtime.block_on(assemble::is_privileged())?;
    let settings = Settings::read(flags, global, state_dir, privileged)?;
    log::start(&settings.log, settings.log_format)?;
    runtime.block_on(serve::server(settings, with_node))
}

fn driver(args: csi::CsiArgs, state_dir: &Path, global: &cli::Global) -> Result<()> {
    let runtime = runtime()?;
    // The storage of a controller's classes is on nodes, which are privileged, whatever it is itself.
    let privileged =
        args.mode == csi::Mode::Controller || runtime.block_on(assemble::is_privileged())?;
    let settings = Settings::read(&args.settings, global, state_dir, privileged)?;
    log::start(&settings.log, settings.log_format)?;
    runtime.block_on(csi::run(&args, &settings))
}

fn node(global: &cli::Global, args: cli::args::node::NodeArgs) -> Result<()> {
    let state_dir = state_dir::find(global.state_dir.as_deref())?;
    let server = match args.alone {
        true => None,
        false => Some(serve::link_socket(global.server.as_ref(), &state_dir)?),
    };
    log::start("info", settings::LogFormat::Text)?;
    let job = NodeJob { server, library: args.library, id: args.node_id };
    runtime()?.block_on(serve::node(&state_dir, job))
}

fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::from_source(Kind::Unavailable, source))
}
