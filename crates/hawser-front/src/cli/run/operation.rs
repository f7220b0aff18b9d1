//! `hawser operation …`

use std::time::Duration;

use hawser_api::rest::list::ListView;
use hawser_api::rest::operations::OperationView;
use hawser_core::Error;
use hawser_core::operation::{Operation, OperationState};
use hawser_core::port::control::OperationFilter;

use super::super::args::node::{OperationCommand, OperationListArgs};
use super::super::context::Context;
use super::super::error::CliError;
use super::super::human;
use super::super::progress::percent;
use super::super::table::{Table, details};
use super::all_pages;

pub(super) async fn run(command: OperationCommand, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    match command {
        OperationCommand::List(args) => list(args, context).await,
        OperationCommand::Show { id } => {
            print(control.get_operation(&id, Duration::ZERO).await?, context)
        }
        OperationCommand::Wait { id } => {
            let operation = control.get_operation(&id, Duration::ZERO).await?;
            let operation = context.follow(&*control, operation).await?;
            print(operation, context)
        }
        OperationCommand::Cancel { id } => print(control.cancel_operation(&id).await?, context),
    }
}

async fn list(args: OperationListArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let filter = OperationFilter { state: args.state.map(Into::into), subject: args.subject };
    let most = args.limit as usize;
    let operations =
        all_pages(most, async |page| control.list_operations(&filter, &page).await).await?;
    let names: Vec<String> = operations.iter().map(|op| op.id.to_string()).collect();
    let mut table = Table::new(["ID", "WHAT", "OF", "STATE", "PROGRESS", "AGE"]).right(5);
    for operation in &operations {
        table.row([
            operation.id.to_string(),
            operation.kind.as_str().replace('_', " "),
            operation.subject_name.clone(),
            state(operation).to_owned(),
            progress(operation),
            human::age(context.now, operation.started),
        ]);
    }
    context.list(&ListView::<OperationView>::whole(operations), || names, || table.render())
}

fn state(operation: &Operation) -> &'static str {
    match operation.state {
        OperationState::Running => "running",
        OperationState::Waiting => "waiting",
        OperationState::Succeeded => "succeeded",
        OperationState::Failed => "failed",
    }
}

fn progress(operation: &Operation) -> String {
    if operation.state.is_final() {
        return "-".to_owned();
    }
    let step = operation.progress.step.clone();
    human::or_dash(match percent(operation) {
        Some(percent) => format!("{step} {percent}%").trim_start().to_owned(),
        None => step,
    })
}

fn print(operation: Operation, context: &Context<'_>) -> Result<(), CliError> {
    let dash = || "-".to_owned();
    let error = operation.error.clone().map(|failure| Error::from(failure).sentence());
    let text = details(&[
        ("id", operation.id.to_string()),
        ("what", operation.kind.as_str().replace('_', " ")),
        ("of", format!("{} ({})", operation.subject_name, operation.subject)),
        ("state", state(&operation).to_owned()),
        ("progress", progress(&operation)),
        ("started", operation.started.to_string()),
        ("finished", operation.finished.map_or_else(dash, |at| at.to_string())),
        ("error", error.unwrap_or_else(dash)),
    ]);
    context.show(&OperationView::from(operation), || text)
}
