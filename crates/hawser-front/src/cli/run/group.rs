//! `hawser snapshot group …`

use std::collections::BTreeMap;

use hawser_api::rest::groups::GroupView;
use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::name::Labels;
use hawser_core::{Change, Error};

use super::super::args::group::{CreateGroupArgs, DeleteGroupArgs, GroupCommand, OneGroupArgs};
use super::super::context::Context;
use super::super::error::CliError;
use super::super::human;
use super::super::progress::Settled;
use super::super::table::details;
use super::snapshot;

pub(super) async fn run(command: GroupCommand, context: &Context<'_>) -> Result<(), CliError> {
    match command {
        GroupCommand::Create(args) => create(args, context).await,
        GroupCommand::Show(OneGroupArgs { group }) => {
            let group = context.control().await?.get_group(&group).await?;
            let text = describe(&group, context);
            context.show(&GroupView::from(group), || text)
        }
        GroupCommand::Delete(args) => delete(args, context).await,
    }
}

async fn create(args: CreateGroupArgs, context: &Context<'_>) -> Result<(), CliError> {
    let labels: BTreeMap<_, _> = args.labels.into_iter().collect();
    let labels = Labels::try_from(labels).map_err(Error::from)?;
    let wanted = GroupRef::Alias(args.name.clone());
    let request = GroupRequest { alias: args.name, volumes: args.volumes, labels };
    let control = context.control().await?;
    let reply = control.create_group(request, context.first_wait()).await?;
    let settled =
        context.settle(&*control, reply, async || control.get_group(&wanted).await).await?;
    context.report::<_, GroupView>(settled, |change| {
        let group = change.get();
        let names: Vec<_> = group.snapshots.iter().map(|s| s.alias.to_string()).collect();
        let verb = if change.is_made() { "taken" } else { "is there already" };
        format!("group {} {verb}: {}", group.alias, names.join(", "))
    })
}

fn describe(group: &Group, context: &Context<'_>) -> String {
    let age = human::age(context.now, group.created);
    let head = details(&[
        ("name", group.alias.to_string()),
        ("id", group.id.to_string()),
        ("created", format!("{} ({age} ago)", group.created)),
    ]);
    format!("{head}\n{}", snapshot::table(&group.snapshots, context).render())
}

async fn delete(args: DeleteGroupArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let reply = control.delete_group(&args.group, context.first_wait()).await?;
    let settled = context.settle(&*control, reply, async || Ok(())).await?;
    let what = format!("group {}", args.group);
    if matches!(settled, Settled::Done(Change::Already(()))) && !args.ignore_missing {
        return Err(CliError::Missing { what });
    }
    context.report_gone(settled, |made| {
        if made { format!("{what} deleted") } else { format!("{what} was not there") }
    })
}
