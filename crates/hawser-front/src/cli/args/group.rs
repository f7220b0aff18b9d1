//! `hawser snapshot group …`

use clap::{Args, Subcommand};
use hawser_core::group::GroupRef;
use hawser_core::name::Alias;
use hawser_core::volume::VolumeRef;

use super::super::parse;

/// What can be done with groups of snapshots.
#[derive(Clone, Debug, Subcommand)]
pub enum GroupCommand {
    /// Take snapshots of several volumes, all of one instant; mounted file systems are frozen for
    /// that moment.
    #[command(
        after_help = "Examples:\n  hawser snapshot group create nightly data logs\n  hawser snapshot group create g2 data logs --label why=upgrade\n\nThe snapshots are called nightly.data and nightly.logs."
    )]
    Create(CreateGroupArgs),

    /// Show a group and its snapshots.
    #[command(after_help = "Examples:\n  hawser snapshot group show nightly")]
    Show(OneGroupArgs),

    /// Remove a group with all of its snapshots, at once and without asking.
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  hawser snapshot group delete nightly\n  hawser snapshot group delete nightly --ignore-missing"
    )]
    Delete(DeleteGroupArgs),
}

/// `snapshot group create`
#[derive(Args, Clone, Debug)]
pub struct CreateGroupArgs {
    /// What to call it.
    #[arg(value_parser = parse::name)]
    pub name: Alias,
    /// Of which volumes: names or ids.
    #[arg(value_name = "VOLUME", required = true, value_parser = parse::volume)]
    pub volumes: Vec<VolumeRef>,
    /// A label for each snapshot; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    pub labels: Vec<(String, String)>,
}

/// `snapshot group show`
#[derive(Args, Clone, Debug)]
pub struct OneGroupArgs {
    /// Its name or id.
    #[arg(value_parser = parse::group)]
    pub group: GroupRef,
}

/// `snapshot group delete`
#[derive(Args, Clone, Debug)]
pub struct DeleteGroupArgs {
    /// Its name or id.
    #[arg(value_parser = parse::group)]
    pub group: GroupRef,
    /// A group that is not there is no error.
    #[arg(long)]
    pub ignore_missing: bool,
}
