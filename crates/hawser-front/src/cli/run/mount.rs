//! `hawser mount` and `hawser unmount`

use std::path::{Component, Path, PathBuf};

use hawser_api::rest::publications::PublicationView;
use hawser_core::publication::MountRequest;

use super::super::args::node::{MountArgs, UnmountArgs};
use super::super::context::Context;
use super::super::error::CliError;
use super::volume::publication;

pub(super) async fn mount(args: MountArgs, context: &Context<'_>) -> Result<(), CliError> {
    let target = absolute(&context.current_dir, &args.target);
    let control = context.control().await?;
    let node = context.node(&*control, args.node).await?;
    let volume = args.volume;
    let request = MountRequest {
        node: node.clone(),
        target: target.clone(),
        read_only: args.read_only,
        flags: args.flags,
    };
    let reply = control.mount(&volume, request, context.first_wait()).await?;
    let fetch = async || publication(&*control, &volume, &node).await;
    let settled = context.settle(&*control, reply, fetch).await?;
    context.report::<_, PublicationView>(settled, |change| {
        let verb = if change.is_made() { "mounted" } else { "is mounted already" };
        format!("volume {volume} {verb} on {}", target.display())
    })
}

pub(super) async fn unmount(args: UnmountArgs, context: &Context<'_>) -> Result<(), CliError> {
    let target = args.target.map(|target| absolute(&context.current_dir, &target));
    let control = context.control().await?;
    let node = context.node(&*control, args.node).await?;
    let volume = args.volume;
    let reply = control.unmount(&volume, &node, target.clone(), context.first_wait()).await?;
    let settled = context.settle(&*control, reply, async || Ok(())).await?;
    let place = match target {
        Some(target) => target.display().to_string(),
        None => format!("node {node}"),
    };
    context.report_gone(settled, |made| {
        let verb = if made { "unmounted from" } else { "was not mounted on" };
        format!("volume {volume} {verb} {place}")
    })
}

/// A folder from the root on, without `.` and `..`. By the letters alone: the folder is on the node,
/// which need not be this host, and links in it are refused there.
pub(super) fn absolute(current: &Path, path: &Path) -> PathBuf {
    let mut whole = PathBuf::from("/");
    for part in current.join(path).components() {
        match part {
            Component::Normal(name) => whole.push(name),
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    whole
}
