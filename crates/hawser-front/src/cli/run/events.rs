//! `hawser events`

use std::time::Duration;

use futures_util::StreamExt;
use hawser_api::rest::events::EventView;
use hawser_core::event::{Event, EventKind};

use super::super::args::node::EventsArgs;
use super::super::context::Context;
use super::super::error::CliError;
use super::super::human::plain;

/// Without `--follow` the list is whole when nothing more has come for so long: kept events arrive
/// at once.
const IDLE: Duration = Duration::from_millis(300);

pub(super) async fn run(args: EventsArgs, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    let after = if args.follow { args.after } else { args.after.or(Some(0)) };
    let mut events = control.events(after).await?;
    loop {
        let next = if args.follow {
            events.next().await
        } else {
            tokio::time::timeout(IDLE, events.next()).await.unwrap_or(None)
        };
        let Some(event) = next else { return Ok(()) };
        let line = line(&event);
        context.item(&EventView::from(event), || line)?;
    }
}

fn line(event: &Event) -> String {
    let Event { sequence, at, kind, subject, message } = event;
    format!(
        "{sequence:>6}  {at:.0}  {:<19} {}\n",
        word(*kind),
        plain(&format!("{subject}  {message}"))
    )
}

fn word(kind: EventKind) -> &'static str {
    match kind {
        EventKind::VolumeChanged => "volume changed",
        EventKind::VolumeDeleted => "volume deleted",
        EventKind::SnapshotChanged => "snapshot changed",
        EventKind::SnapshotDeleted => "snapshot deleted",
        EventKind::OperationStarted => "operation started",
        EventKind::OperationFinished => "operation finished",
        EventKind::NodeChanged => "node changed",
        EventKind::Compacted => "earlier ones are gone",
    }
}
