//! `hawser volume …`

use clap::{Args, Subcommand};
use hawser_core::ByteSize;
use hawser_core::filesystem::FsKind;
use hawser_core::name::{Alias, ClassName, NodeId};
use hawser_core::place::Place;
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::{Sharing, VolumeRef};

use super::super::parse;

/// What can be done with volumes.
#[derive(Clone, Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume, empty or from a snapshot or another volume.
    #[command(
        after_help = "Asking again for the same volume is no error; the same name with other values is.\n\nExamples:\n  hawser volume create data --size 2GiB --fs ext4\n  hawser volume create raw --size 500M --block --class gold --label team=db\n  hawser volume create copy --from-snapshot s1\n  hawser volume create copy2 --from-volume data --size 4GiB"
    )]
    Create(CreateArgs),

    /// List volumes, oldest first.
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  hawser volume list\n  hawser volume list --class gold --label team=db -o json\n  hawser volume list -q"
    )]
    List(ListArgs),

    /// Show everything about one volume.
    #[command(
        after_help = "Examples:\n  hawser volume show data\n  hawser volume show data -o yaml"
    )]
    Show(OneArgs),

    /// Remove a volume and its data, at once and without asking.
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  hawser volume delete data\n  hawser volume delete data --ignore-missing"
    )]
    Delete(DeleteArgs),

    /// Make a volume larger, also while it is mounted.
    #[command(after_help = "Examples:\n  hawser volume expand data 4GiB")]
    Expand(ExpandArgs),

    /// Make a volume as a copy of another.
    #[command(
        after_help = "Examples:\n  hawser volume clone data copy\n  hawser volume clone data copy --size 8GiB --label team=db"
    )]
    Clone(CloneArgs),

    /// Set labels (key=value) and remove them (key-).
    #[command(after_help = "Examples:\n  hawser volume label data team=db tier=gold old-")]
    Label(LabelArgs),

    /// Tell whether a volume works, at its storage and where it is attached; exit code 1 if not.
    #[command(after_help = "Examples:\n  hawser volume health data")]
    Health(OneArgs),

    /// Give a node the right to use a volume.
    #[command(after_help = "Examples:\n  hawser volume publish data --node host-a --read-only")]
    Publish(UseArgs),

    /// Take that right back; done only when the node can no longer write.
    #[command(after_help = "Examples:\n  hawser volume unpublish data --node host-a")]
    Unpublish(LeaveArgs),

    /// Bring a volume's device to a node, publishing it where needed.
    #[command(
        after_help = "Examples:\n  hawser volume attach raw\n  hawser volume attach raw --node host-a"
    )]
    Attach(UseArgs),

    /// Take a volume's device from a node and unpublish it.
    #[command(after_help = "Examples:\n  hawser volume detach raw")]
    Detach(LeaveArgs),
}

/// `volume create`
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    /// What to call it.
    #[arg(value_parser = parse::name)]
    pub name: Alias,
    /// How large: 10GiB, 500M or a number of bytes. With a source it may be left out.
    #[arg(long, value_parser = parse::size, allow_hyphen_values = true,
        required_unless_present_any = ["from_snapshot", "from_volume"])]
    pub size: Option<ByteSize>,
    /// Used as what.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Where, and with what.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Start with the content of this snapshot.
    #[arg(long, value_name = "SNAPSHOT", value_parser = parse::snapshot, conflicts_with = "from_volume")]
    pub from_snapshot: Option<SnapshotRef>,
    /// Start with the content that this volume has now.
    #[arg(long, value_name = "VOLUME", value_parser = parse::volume)]
    pub from_volume: Option<VolumeRef>,
}

/// What a volume is used as.
#[derive(Args, Clone, Debug, Default)]
pub struct AccessArgs {
    /// With this file system on it: ext4, xfs or btrfs.
    #[arg(long, value_name = "FS", conflicts_with_all = ["block", "folder"])]
    pub fs: Option<FsKind>,
    /// As a raw device.
    #[arg(long, conflicts_with = "folder")]
    pub block: bool,
    /// As a plain folder, which needs no privileges.
    #[arg(long)]
    pub folder: bool,
}

/// Where a volume lives, and what it carries.
#[derive(Args, Clone, Debug, Default)]
pub struct PlaceArgs {
    /// In which class; the default one when left out.
    #[arg(long)]
    pub class: Option<ClassName>,
    /// A label; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    pub labels: Vec<(String, String)>,
    /// A setting for the provider; may be given several times.
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = parse::pair)]
    pub params: Vec<(String, String)>,
    /// Who may use it at the same time: single-writer, many-readers or many-writers.
    #[arg(long, value_parser = parse::sharing)]
    pub sharing: Option<Sharing>,
    /// Where it must be reached from, such as node=host-a; may be given several times, for all that
    /// a place says.
    #[arg(long = "place", value_name = "KEY=VALUE", value_parser = parse::pair)]
    pub pairs: Vec<(String, String)>,
}

impl PlaceArgs {
    /// The place, where one was named.
    pub fn place(&self) -> Option<Place> {
        parse::place(self.pairs.clone())
    }
}

/// `volume list`
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Only of this class.
    #[arg(long)]
    pub class: Option<ClassName>,
    /// Only with this label; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    pub labels: Vec<(String, String)>,
}

/// A command about one volume.
#[derive(Args, Clone, Debug)]
pub struct OneArgs {
    /// Its name or id.
    #[arg(value_parser = parse::volume)]
    pub volume: VolumeRef,
}

/// `volume delete`
#[derive(Args, Clone, Debug)]
pub struct DeleteArgs {
    /// Its name or id.
    #[arg(value_parser = parse::volume)]
    pub volume: VolumeRef,
    /// A volume that is not there is no error.
    #[arg(long)]
    pub ignore_missing: bool,
}

/// `volume expand`
#[derive(Args, Clone, Debug)]
pub struct ExpandArgs {
    /// Its name or id.
    #[arg(value_parser = parse::volume)]
    pub volume: VolumeRef,
    /// How large it shall be: 10GiB, 500M or a number of bytes.
    #[arg(value_parser = parse::size, allow_hyphen_values = true)]
    pub size: ByteSize,
}

/// `volume clone`
#[derive(Args, Clone, Debug)]
pub struct CloneArgs {
    /// What to copy: name or id.
    #[arg(value_parser = parse::volume)]
    pub source: VolumeRef,
    /// What to call the copy.
    #[arg(value_parser = parse::name)]
    pub name: Alias,
    /// How large; as large as the source when left out.
    #[arg(long, value_parser = parse::size, allow_hyphen_values = true)]
    pub size: Option<ByteSize>,
    /// Where, and with what.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// `volume label`
#[derive(Args, Clone, Debug)]
pub struct LabelArgs {
    /// Its name or id.
    #[arg(value_parser = parse::volume)]
    pub volume: VolumeRef,
    /// key=value to set, key- to remove.
    #[arg(required = true, value_name = "KEY=VALUE|KEY-", value_parser = parse::label_change)]
    pub changes: Vec<(String, Option<String>)>,
}

/// `volume publish` and `volume attach`
#[derive(Args, Clone, Debug)]
pub struct UseArgs {
    /// Its name or id.
    #[arg(value_parser = parse::volume)]
    pub volume: VolumeRef,
    /// On which node; this host when left out.
    #[arg(long)]
    pub node: Option<NodeId>,
    /// Without the right to write.
    #[arg(long)]
    pub read_only: bool,
}

/// `volume unpublish` and `volume detach`
#[derive(Args, Clone, Debug)]
pub struct LeaveArgs {
    /// Its name or id.
    #[arg(value_parser = parse::volume)]
    pub volume: VolumeRef,
    /// From which node; this host when left out.
    #[arg(long)]
    pub node: Option<NodeId>,
}
