//! `hawser snapshot …`

use clap::{Args, Subcommand};
use hawser_core::ByteSize;
use hawser_core::name::Alias;
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::VolumeRef;

use super::super::parse;
use super::group::GroupCommand;
use super::volume::PlaceArgs;

/// What can be done with snapshots.
#[derive(Clone, Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Take a snapshot; a mounted file system is frozen for that moment.
    #[command(
        after_help = "Examples:\n  hawser snapshot create s1 --volume data\n  hawser snapshot create s2 --volume data --label why=upgrade"
    )]
    Create(CreateArgs),

    /// List snapshots, oldest first.
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  hawser snapshot list\n  hawser snapshot list --volume data"
    )]
    List(ListArgs),

    /// Show everything about one snapshot.
    #[command(after_help = "Examples:\n  hawser snapshot show s1")]
    Show(OneArgs),

    /// Remove a snapshot, at once and without asking.
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  hawser snapshot delete s1\n  hawser snapshot delete s1 --ignore-missing"
    )]
    Delete(DeleteArgs),

    /// Take, look at and remove snapshots of several volumes, all of one instant.
    #[command(
        subcommand,
        after_help = "Examples:\n  hawser snapshot group create nightly data logs\n  hawser snapshot group show nightly"
    )]
    Group(GroupCommand),

    /// Make a new volume with the content of a snapshot.
    #[command(
        after_help = "Examples:\n  hawser snapshot restore s1 data2\n  hawser snapshot restore s1 data2 --size 8GiB"
    )]
    Restore(RestoreArgs),
}

/// `snapshot create`
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    /// What to call it.
    #[arg(value_parser = parse::name)]
    pub name: Alias,
    /// Of which volume: name or id.
    #[arg(long, value_parser = parse::volume)]
    pub volume: VolumeRef,
    /// A label; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    pub labels: Vec<(String, String)>,
}

/// `snapshot list`
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Only of this volume: name or id.
    #[arg(long, value_parser = parse::volume)]
    pub volume: Option<VolumeRef>,
}

/// `snapshot show`
#[derive(Args, Clone, Debug)]
pub struct OneArgs {
    /// Its name or id.
    #[arg(value_parser = parse::snapshot)]
    pub snapshot: SnapshotRef,
}

/// `snapshot delete`
#[derive(Args, Clone, Debug)]
pub struct DeleteArgs {
    /// Its name or id.
    #[arg(value_parser = parse::snapshot)]
    pub snapshot: SnapshotRef,
    /// A snapshot that is not there is no error.
    #[arg(long)]
    pub ignore_missing: bool,
}

/// `snapshot restore`
#[derive(Args, Clone, Debug)]
pub struct RestoreArgs {
    /// Its name or id.
    #[arg(value_parser = parse::snapshot)]
    pub snapshot: SnapshotRef,
    /// What to call the new volume.
    #[arg(value_parser = parse::name)]
    pub name: Alias,
    /// How large; as large as the snapshot when left out.
    #[arg(long, value_parser = parse::size, allow_hyphen_values = true)]
    pub size: Option<ByteSize>,
    /// Where, and with what.
    #[command(flatten)]
    pub place: PlaceArgs,
}
