//! What each command does: one call of a port, and its answer printed.

mod class;
mod connectors;
mod doctor;
mod events;
mod group;
mod library;
mod mount;
mod operation;
mod snapshot;
mod volume;

use std::sync::Arc;

use hawser_api::rest::operations::OperationView;
use hawser_core::Change;
use hawser_core::name::NodeId;
use hawser_core::operation::Operation;
use hawser_core::page::{Page, PageRequest};
use hawser_core::port::Control;
use serde::Serialize;

use super::args::Command;
use super::context::{Context, Exit, Underway};
use super::error::CliError;
use super::human::plain;
use super::output::Format;
use super::progress::Settled;

/// Runs a client command to its end and says what became of it; errors are printed already.
///
/// Ctrl-C stops the waiting, never the work: the user is told how to look at it.
pub async fn run(command: Command, context: &Context<'_>) -> Exit {
    let ended = tokio::select! {
        ended = execute(command, context) => ended,
        () = (context.interrupt)() => interrupted(context),
    };
    match ended {
        Ok(()) => Exit::Done,
        Err(error) => {
            print_error(context, &error);
            error.exit()
        }
    }
}

async fn execute(command: Command, context: &Context<'_>) -> Result<(), CliError> {
    match command {
        Command::Volume(command) => volume::run(command, context).await,
        Command::Snapshot(command) => snapshot::run(command, context).await,
        Command::Class(command) => class::run(command, context).await,
        Command::Node(command) => class::run_node(command, context).await,
        Command::Operation(command) => operation::run(command, context).await,
        Command::Mount(args) => mount::mount(args, context).await,
        Command::Unmount(args) => mount::unmount(args, context).await,
        Command::Doctor(args) => doctor::run(args, context).await,
        Command::Events(args) => events::run(args, context).await,
        Command::Properties(args) => library::properties(args, context).await,
        Command::Connect(args) => library::connect(*args, context).await,
        Command::Disconnect(args) => library::disconnect(args, context).await,
        Command::Extend(args) => library::extend(args, context).await,
        Command::Lookup(args) => library::lookup(args, context).await,
        Command::Connectors(args) => connectors::run(args, context).await,
    }
}

fn interrupted(context: &Context<'_>) -> Result<(), CliError> {
    match &*context.underway.borrow() {
        Underway::Nothing => Ok(()),
        Underway::Sent => Err(CliError::Interrupted(
            "the request may have reached the server: look with `hawser operation list`".into(),
        )),
        Underway::Operation(id) => Err(CliError::Interrupted(format!(
            "operation {id} goes on: look with `hawser operation show {id}`"
        ))),
    }
}

/// An error for programs.
#[derive(Serialize)]
struct ErrorView {
    error: ErrorBody,
}

#[derive(Serialize)]
struct ErrorBody {
    kind: hawser_core::Kind,
    outcome: hawser_core::Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<hawser_core::Reason>,
    message: String,
    messages: Vec<String>,
    hint: String,
}

/// Prints an error to standard error, in the words or the format that the user wants.
pub fn print_error(context: &Context<'_>, error: &CliError) {
    if error.exit() == Exit::Done {
        return;
    }
    match context.format {
        Format::Table => {
            context.note(&format!("error: {}", plain(&error.to_string())));
            context.note(&format!("hint: {}", error.hint()));
        }
        Format::Json | Format::Yaml => {
            let body = ErrorBody {
                kind: error.kind(),
                outcome: error.outcome(),
                reason: error.reason(),
                message: error.to_string(),
                messages: error.messages(),
                hint: error.hint(),
            };
            let text = context.encode(&ErrorView { error: body });
            context.note(text.unwrap_or_else(|_| error.to_string()).trim_end());
        }
    }
}

impl Context<'_> {
    async fn control(&self) -> Result<Arc<dyn Control>, CliError> {
        Ok(self.backend.control().await?)
    }

    /// The node that is meant: the named one, this host, or the only one there is.
    async fn node(&self, control: &dyn Control, named: Option<NodeId>) -> Result<NodeId, CliError> {
        if let Some(node) = named {
            return Ok(node);
        }
        let mut ids: Vec<NodeId> =
            control.list_nodes().await?.into_iter().map(|node| node.id).collect();
        if let Some(this) = self.this_node.as_ref().filter(|this| ids.contains(this)) {
            return Ok(this.clone());
        }
        match (ids.pop(), ids.len()) {
            (Some(only), 0) => Ok(only),
            (Some(last), _) => {
                let names: Vec<_> = ids.iter().chain([&last]).map(NodeId::as_str).collect();
                let names = names.join(", ");
                Err(CliError::Usage(format!("which node is meant? say --node with one of {names}")))
            }
            (None, _) => Err(CliError::Usage(
                "the server knows no node yet: start one with `hawser up` or `hawser node`".into(),
            )),
        }
    }

    /// Prints what became of a change: the object for programs, a sentence for people.
    fn report<T, V: Serialize + From<T>>(
        &self,
        settled: Settled<T>,
        sentence: impl FnOnce(&Change<T>) -> String,
    ) -> Result<(), CliError> {
        match settled {
            Settled::Done(change) if self.format == Format::Table => self.say(&sentence(&change)),
            Settled::Done(change) => self.show(&V::from(change.into_inner()), String::new),
            Settled::Begun(operation) => self.report_begun(*operation),
        }
    }

    /// Prints what became of a change that leaves nothing to show.
    fn report_gone(
        &self,
        settled: Settled<()>,
        sentence: impl FnOnce(bool) -> String,
    ) -> Result<(), CliError> {
        match settled {
            Settled::Done(change) => self.say(&sentence(change.is_made())),
            Settled::Begun(operation) => self.report_begun(*operation),
        }
    }

    fn report_begun(&self, operation: Operation) -> Result<(), CliError> {
        let id = operation.id.clone();
        self.list(
            &OperationView::from(operation),
            || vec![id.to_string()],
            || format!("operation {id} has begun; wait for it with `hawser operation wait {id}`\n"),
        )
    }
}

/// All items of a list that comes in pages, at most `most`.
async fn all_pages<T>(
    most: usize,
    mut page: impl AsyncFnMut(PageRequest) -> hawser_core::Result<Page<T>>,
) -> Result<Vec<T>, CliError> {
    let mut items = Vec::new();
    let mut request = PageRequest { limit: most.min(hawser_core::page::LARGEST_PAGE), token: None };
    loop {
        let part = page(request.clone()).await?;
        items.extend(part.items);
        if items.len() >= most {
            items.truncate(most);
            return Ok(items);
        }
        match part.next {
            Some(token) => request.token = Some(token),
            None => return Ok(items),
        }
    }
}
