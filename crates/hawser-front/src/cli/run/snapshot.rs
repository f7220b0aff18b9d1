//! `hawser snapshot …`

use std::collections::BTreeMap;

use hawser_api::rest::list::ListView;
use hawser_api::rest::snapshots::SnapshotView;
use hawser_core::name::Labels;
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest, SnapshotState};
use hawser_core::volume::SourceRef;
use hawser_core::{Change, Error};

use super::super::args::snapshot::{
    CreateArgs, DeleteArgs, ListArgs, OneArgs, RestoreArgs, SnapshotCommand,
};
use super::super::context::Context;
use super::super::error::CliError;
use super::super::human;
use super::super::progress::Settled;
use super::super::table::{Table, details};
use super::all_pages;
use super::group;
use super::volume;

pub(super) async fn run(command: SnapshotCommand, context: &Context<'_>) -> Result<(), CliError> {
    match command {
        SnapshotCommand::Create(args) => create(args, context).await,
        SnapshotCommand::List(args) => list(args, context).await,
        SnapshotCommand::Show(OneArgs { snapshot }) => {
            let snapshot = context.control().await?.get_snapshot(&snapshot).await?;
            let text = describe(&snapshot, context);
            context.show(&SnapshotView::from(snapshot), || text)
        }
        SnapshotCommand::Delete(args) => delete(args, context).await,
        SnapshotCommand::Group(command) => group::run(command, context).await,
        SnapshotCommand::Restore(RestoreArgs { snapshot, name, size, place }) => {
            let mut request = volume::placed(name, place)?;
            request.size = size;
            request.source = Some(SourceRef::Snapshot(snapshot));
            volume::create(request, context).await
        }
    }
}

async fn create(args: CreateArgs, context: &Context<'_>) -> Result<(), CliError> {
    let labels: BTreeMap<_, _> = args.labels.into_iter().collect();
    let labels = Labels::try_from(labels).map_err(Error::from)?;
    let (wanted, volume) = (SnapshotRef::Alias(args.name.clone()), args.volume.clone());
    let request = SnapshotRequest { alias: args.name, volume: args.volume, labels };
    let control = context.control().await?;
    let reply = control.create_snapshot(request, context.first_wait()).await?;
    let settled =
        context.settle(&*control, reply, async || control.get_snapshot(&wanted).await).await?;
    context.report::<_, SnapshotView>(settled, |change| {
        let snapshot = change.get();
        let verb = if change.is_made() { "taken" } else { "is there already" };
        format!("snapshot {} of volume {volume} {verb}", snapshot.alias)
    })
}

async fn list(args: ListArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let volume = args.volume.as_ref();
    let snapshots =
        all_pages(usize::MAX, async |page| control.list_snapshots(volume, &page).await).await?;
    let names: Vec<String> = snapshots.iter().map(|s| s.alias.to_string()).collect();
    let table = table(&snapshots, context);
    context.list(&ListView::<SnapshotView>::whole(snapshots), || names, || table.render())
}

/// Snapshots for people.
pub(super) fn table(snapshots: &[Snapshot], context: &Context<'_>) -> Table {
    let heading = ["NAME", "VOLUME", "SIZE", "ACCESS", "CLASS", "STATE", "GROUP", "AGE"];
    let mut table = Table::new(heading).right(2).right(7);
    for snapshot in snapshots {
        table.row([
            snapshot.alias.to_string(),
            snapshot.volume.to_string(),
            human::size(snapshot.size),
            snapshot.access.to_string(),
            snapshot.class.to_string(),
            state(snapshot).to_owned(),
            group_of(snapshot),
            human::age(context.now, snapshot.created),
        ]);
    }
    table
}

fn group_of(snapshot: &Snapshot) -> String {
    human::or_dash(snapshot.group.as_ref().map(ToString::to_string).unwrap_or_default())
}

fn state(snapshot: &Snapshot) -> &'static str {
    match snapshot.state {
        SnapshotState::Creating => "creating",
        SnapshotState::Ready => "ready",
        SnapshotState::Deleting => "deleting",
    }
}

fn describe(snapshot: &Snapshot, context: &Context<'_>) -> String {
    let age = human::age(context.now, snapshot.created);
    let mut pairs = vec![
        ("name", snapshot.alias.to_string()),
        ("id", snapshot.id.to_string()),
        ("volume", snapshot.volume.to_string()),
        ("class", snapshot.class.to_string()),
        ("size", human::size(snapshot.size)),
        ("access", snapshot.access.to_string()),
        ("state", state(snapshot).to_owned()),
        ("group", group_of(snapshot)),
        ("labels", human::pairs(snapshot.labels.iter())),
        ("handle", snapshot.handle.clone()),
        ("created", format!("{} ({age} ago)", snapshot.created)),
    ];
    pairs.extend(snapshot.place.as_ref().map(|place| ("place", place.to_string())));
    details(&pairs)
}

async fn delete(args: DeleteArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let reply = control.delete_snapshot(&args.snapshot, context.first_wait()).await?;
    let settled = context.settle(&*control, reply, async || Ok(())).await?;
    let what = format!("snapshot {}", args.snapshot);
    if matches!(settled, Settled::Done(Change::Already(()))) && !args.ignore_missing {
        return Err(CliError::Missing { what });
    }
    context.report_gone(settled, |made| {
        if made { format!("{what} deleted") } else { format!("{what} was not there") }
    })
}
