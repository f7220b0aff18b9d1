//! `hawser volume …`

use std::collections::BTreeMap;

use hawser_api::rest::list::ListView;
use hawser_api::rest::publications::{AttachedView, PublicationView};
use hawser_api::rest::volumes::{HealthView, VolumeView};
use hawser_core::attach::Attached;
use hawser_core::name::{Labels, NodeId};
use hawser_core::port::Control;
use hawser_core::port::control::VolumeFilter;
use hawser_core::publication::{Publication, PublicationState, PublishRequest};
use hawser_core::volume::{Access, SourceRef, Volume, VolumeRef, VolumeRequest, VolumeState};
use hawser_core::{Change, Error, Kind, Result};

use super::super::args::volume::{
    AccessArgs, CloneArgs, CreateArgs, DeleteArgs, ExpandArgs, LabelArgs, LeaveArgs, ListArgs,
    OneArgs, PlaceArgs, UseArgs, VolumeCommand,
};
use super::super::context::Context;
use super::super::error::CliError;
use super::super::human;
use super::super::progress::Settled;
use super::super::table::{Table, details};
use super::all_pages;

pub(super) async fn run(command: VolumeCommand, context: &Context<'_>) -> Result<(), CliError> {
    match command {
        VolumeCommand::Create(args) => {
            let CreateArgs { name, size, access, place, from_snapshot, from_volume } = args;
            let source = from_snapshot
                .map(SourceRef::Snapshot)
                .or_else(|| from_volume.map(SourceRef::Volume));
            let mut request = placed(name, place)?;
            request.size = size;
            request.access = access_of(&access);
            request.source = source;
            create(request, context).await
        }
        VolumeCommand::Clone(CloneArgs { source, name, size, place }) => {
            let mut request = placed(name, place)?;
            request.size = size;
            request.source = Some(SourceRef::Volume(source));
            create(request, context).await
        }
        VolumeCommand::List(args) => list(args, context).await,
        VolumeCommand::Show(OneArgs { volume }) => {
            let volume = context.control().await?.get_volume(&volume).await?;
            let text = describe(&volume, context);
            context.show(&VolumeView::from(volume), || text)
        }
        VolumeCommand::Delete(args) => delete(args, context).await,
        VolumeCommand::Expand(args) => expand(args, context).await,
        VolumeCommand::Label(args) => label(args, context).await,
        VolumeCommand::Health(args) => health(args, context).await,
        VolumeCommand::Publish(args) => publish(args, context).await,
        VolumeCommand::Unpublish(args) => unpublish(args, context).await,
        VolumeCommand::Attach(args) => attach(args, context).await,
        VolumeCommand::Detach(args) => detach(args, context).await,
    }
}

/// A request for a volume at a place, without size and source.
pub(super) fn placed(
    alias: hawser_core::name::Alias,
    place: PlaceArgs,
) -> Result<VolumeRequest, CliError> {
    let places = place.place().into_iter().collect();
    let labels: BTreeMap<_, _> = place.labels.into_iter().collect();
    Ok(VolumeRequest {
        alias,
        class: place.class,
        size: None,
        access: None,
        sharing: place.sharing.unwrap_or_default(),
        source: None,
        labels: Labels::try_from(labels).map_err(Error::from)?,
        parameters: place.params.into_iter().collect(),
        places,
        limit: None,
    })
}

fn access_of(args: &AccessArgs) -> Option<Access> {
    match (args.fs, args.block, args.folder) {
        (Some(fs), _, _) => Some(Access::Filesystem(fs)),
        (None, true, _) => Some(Access::Block),
        (None, false, true) => Some(Access::Folder),
        (None, false, false) => None,
    }
}

/// Makes a volume and says what it became.
pub(super) async fn create(request: VolumeRequest, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let wanted = VolumeRef::Alias(request.alias.clone());
    let reply = control.create_volume(request, context.first_wait()).await?;
    let settled =
        context.settle(&*control, reply, async || control.get_volume(&wanted).await).await?;
    context.report::<_, VolumeView>(settled, |change| {
        let volume = change.get();
        let verb = if change.is_made() { "created" } else { "is there already" };
        format!("volume {} {verb}: {}", volume.display_name(), summary(volume))
    })
}

fn summary(volume: &Volume) -> String {
    format!("{} {} in class {}", human::size(volume.size), volume.access, volume.class)
}

async fn list(args: ListArgs, context: &Context<'_>) -> Result<(), CliError> {
    let labels: BTreeMap<_, _> = args.labels.into_iter().collect();
    let labels = Labels::try_from(labels).map_err(Error::from)?;
    let filter = VolumeFilter { class: args.class, labels };
    let control = context.control().await?;
    let volumes =
        all_pages(usize::MAX, async |page| control.list_volumes(&filter, &page).await).await?;
    let names: Vec<String> = volumes.iter().map(Volume::display_name).collect();
    let mut table = Table::new(["NAME", "SIZE", "ACCESS", "CLASS", "STATE", "USED BY", "AGE"])
        .right(1)
        .right(6);
    for volume in &volumes {
        table.row([
            volume.display_name(),
            human::size(volume.size),
            volume.access.to_string(),
            volume.class.to_string(),
            state(volume).to_owned(),
            human::or_dash(users(volume)),
            human::age(context.now, volume.created),
        ]);
    }
    context.list(&ListView::<VolumeView>::whole(volumes), || names, || table.render())
}

fn state(volume: &Volume) -> &'static str {
    match volume.state {
        VolumeState::Creating => "creating",
        VolumeState::Ready => "ready",
        VolumeState::Deleting => "deleting",
    }
}

fn users(volume: &Volume) -> String {
    let nodes: Vec<_> = volume.publications.iter().map(|p| p.node.as_str()).collect();
    nodes.join(",")
}

fn describe(volume: &Volume, context: &Context<'_>) -> String {
    let dash = || "-".to_owned();
    let mut pairs = vec![
        ("name", volume.display_name()),
        ("id", volume.id.to_string()),
        ("class", volume.class.to_string()),
        ("size", human::size(volume.size)),
        ("access", volume.access.to_string()),
        ("sharing", volume.sharing.as_str().replace('_', " ")),
        ("state", state(volume).to_owned()),
        ("source", volume.source.as_ref().map_or_else(dash, ToString::to_string)),
        ("labels", human::pairs(volume.labels.iter())),
        ("parameters", {
            human::pairs(volume.parameters.iter().map(|(k, v)| (k.as_str(), v.as_str())))
        }),
        ("handle", volume.handle.clone()),
        ("identity", volume.identity.as_ref().map_or_else(dash, ToString::to_string)),
        ("operation", volume.operation.as_ref().map_or_else(dash, ToString::to_string)),
        (
            "created",
            format!("{} ({} ago)", volume.created, human::age(context.now, volume.created)),
        ),
    ];
    pairs.extend(volume.place.as_ref().map(|place| ("place", place.to_string())));
    for publication in &volume.publications {
        pairs.push(("used by", use_of(publication)));
    }
    details(&pairs)
}

fn use_of(publication: &Publication) -> String {
    let state = match publication.state {
        PublicationState::Publishing => "publishing",
        PublicationState::Published => "published",
        PublicationState::Unpublishing => "unpublishing",
    };
    let mut text = format!("{} ({state}", publication.node);
    if publication.read_only {
        text.push_str(", read-only");
    }
    text.push(')');
    if let Some(attached) = &publication.attached {
        text.push_str(&format!(" as {}", attached.path().display()));
    }
    for mount in &publication.mounts {
        text.push_str(&format!(" on {}", mount.target.display()));
        if !mount.ready {
            text.push_str(" (not ready)");
        }
    }
    text
}

async fn delete(args: DeleteArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let reply = control.delete_volume(&args.volume, context.first_wait()).await?;
    let settled = context.settle(&*control, reply, async || Ok(())).await?;
    let what = format!("volume {}", args.volume);
    if matches!(settled, Settled::Done(Change::Already(()))) && !args.ignore_missing {
        return Err(CliError::Missing { what });
    }
    context.report_gone(settled, |made| {
        if made { format!("{what} deleted") } else { format!("{what} was not there") }
    })
}

async fn expand(args: ExpandArgs, context: &Context<'_>) -> Result<(), CliError> {
    let ExpandArgs { volume, size } = args;
    let control = context.control().await?;
    let reply = control.expand_volume(&volume, size, context.first_wait()).await?;
    let settled =
        context.settle(&*control, reply, async || control.get_volume(&volume).await).await?;
    context.report::<_, VolumeView>(settled, |change| {
        let now = change.get();
        let verb = if change.is_made() { "expanded to" } else { "has already" };
        format!("volume {} {verb} {}", now.display_name(), human::size(now.size))
    })
}

async fn label(args: LabelArgs, context: &Context<'_>) -> Result<(), CliError> {
    let LabelArgs { volume, changes } = args;
    let control = context.control().await?;
    let patch = changes.into_iter().collect();
    let reply = control.label_volume(&volume, patch, context.first_wait()).await?;
    let settled =
        context.settle(&*control, reply, async || control.get_volume(&volume).await).await?;
    context.report::<_, VolumeView>(settled, |change| {
        let now = change.get();
        let verb = if change.is_made() { "labelled" } else { "has already" };
        format!("volume {} {verb} {}", now.display_name(), human::pairs(now.labels.iter()))
    })
}

async fn health(args: OneArgs, context: &Context<'_>) -> Result<(), CliError> {
    let health = context.control().await?.volume_health(&args.volume).await?;
    let what = format!("volume {}", args.volume);
    let text = format!("{what} is healthy\n");
    if health.healthy {
        return context.show(&HealthView::from(health), || text);
    }
    let why = health.message.clone();
    context.show(&HealthView::from(health), String::new)?;
    Err(CliError::Unhealthy { what, why })
}

async fn publish(args: UseArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let node = context.node(&*control, args.node).await?;
    let volume = args.volume;
    let request = PublishRequest::new(node.clone(), args.read_only);
    let reply = control.publish(&volume, request, context.first_wait()).await?;
    let fetch = async || publication(&*control, &volume, &node).await;
    let settled = context.settle(&*control, reply, fetch).await?;
    context.report::<_, PublicationView>(settled, |change| {
        let verb = if change.is_made() { "published" } else { "is published already" };
        format!("volume {volume} {verb} to node {node}")
    })
}

/// What a node has of a volume, read after the change that made it.
pub(super) async fn publication(
    control: &dyn Control,
    volume: &VolumeRef,
    node: &NodeId,
) -> Result<Publication> {
    let found = control.get_volume(volume).await?.publications.into_iter();
    found.into_iter().find(|publication| publication.node == *node).ok_or_else(|| {
        Error::new(Kind::NotFound, format!("volume {volume} is no longer published to node {node}"))
    })
}

async fn unpublish(args: LeaveArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let node = context.node(&*control, args.node).await?;
    let reply = control.unpublish(&args.volume, &node, context.first_wait()).await?;
    let settled = context.settle(&*control, reply, async || Ok(())).await?;
    context.report_gone(settled, |made| {
        let verb = if made { "unpublished from" } else { "was not published to" };
        format!("volume {} {verb} node {node}", args.volume)
    })
}

async fn attach(args: UseArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let node = context.node(&*control, args.node).await?;
    let volume = args.volume;
    let request = PublishRequest::new(node.clone(), args.read_only);
    let reply = control.attach(&volume, request, context.first_wait()).await?;
    let fetch = async || attached(&*control, &volume, &node).await;
    let settled = context.settle(&*control, reply, fetch).await?;
    context.report::<_, AttachedView>(settled, |change| {
        let verb = if change.is_made() { "attached" } else { "is attached already" };
        format!("volume {volume} {verb} to node {node} as {}", change.get().path().display())
    })
}

async fn attached(control: &dyn Control, volume: &VolumeRef, node: &NodeId) -> Result<Attached> {
    publication(control, volume, node).await?.attached.ok_or_else(|| {
        Error::new(Kind::NotFound, format!("volume {volume} is no longer attached to node {node}"))
    })
}

async fn detach(args: LeaveArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let node = context.node(&*control, args.node).await?;
    let reply = control.detach(&args.volume, &node, context.first_wait()).await?;
    let settled = context.settle(&*control, reply, async || Ok(())).await?;
    context.report_gone(settled, |made| {
        let verb = if made { "detached from" } else { "was not attached to" };
        format!("volume {} {verb} node {node}", args.volume)
    })
}
