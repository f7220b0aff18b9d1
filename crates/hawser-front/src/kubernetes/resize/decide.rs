//! Which size a volume is to have next.
//!
//! A claim may ask for another size while an earlier wish is being fulfilled. What is at work, with
//! the driver or on a node, comes to its end first; what has failed for good makes way. The rules
//! are those of the sidecar, so that either can go on where the other stopped.

use crate::kubernetes::objects::{Amounts, Claim, STORAGE, Volume};
use crate::kubernetes::quantity;

/// The condition of a claim whose file system a node has to grow.
pub(super) const NODE_PENDING: &str = "FileSystemResizePending";

/// How far the expansion of a claim is, by its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It says nothing of it.
    None,
    /// The driver is at work, or was.
    Controller,
    /// The driver cannot do it.
    ControllerInfeasible,
    /// A node has to go on, or is at work.
    Node,
    /// No node can do it.
    NodeInfeasible,
    /// Words that came later than this was written.
    Unheard,
}

impl Progress {
    /// The driver's part has begun.
    pub(super) const CONTROLLER: &'static str = "ControllerResizeInProgress";
    /// The driver cannot do it.
    pub(super) const CONTROLLER_INFEASIBLE: &'static str = "ControllerResizeInfeasible";
    /// The node's part is to begin.
    pub(super) const NODE: &'static str = "NodeResizePending";

    pub(super) fn of(claim: &Claim) -> Self {
        let word = claim.status.allocated_resource_statuses.get(STORAGE);
        match word.map(String::as_str).unwrap_or_default() {
            "" => Self::None,
            Self::CONTROLLER => Self::Controller,
            Self::CONTROLLER_INFEASIBLE => Self::ControllerInfeasible,
            Self::NODE | "NodeResizeInProgress" => Self::Node,
            "NodeResizeInfeasible" => Self::NodeInfeasible,
            _ => Self::Unheard,
        }
    }
}

/// A size, as somebody wrote it and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount<'a> {
    pub(super) text: &'a str,
    pub(super) bytes: u64,
}

impl<'a> Amount<'a> {
    pub(super) fn of(amounts: &'a Amounts) -> Option<Self> {
        let text = amounts.get(STORAGE)?;
        Some(Self { text, bytes: quantity::bytes(text)? })
    }
}

/// What is to be done about the size of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// It is as large as it is to be, or others have to go on.
    Nothing,
    /// The driver has to make it this large.
    Expand {
        /// How large.
        to: Amount<'a>,
        /// How large the claim has been so far.
        from: Amount<'a>,
        /// True when the claim says already that this is being done.
        begun: bool,
    },
}

/// What is to be done. `failed`: the driver has failed at the last size that it was asked for, and
/// is not at work.
pub(super) fn next<'a>(claim: &'a Claim, volume: &Volume, failed: bool) -> Step<'a> {
    let requested = Amount::of(&claim.spec.resources.requests);
    let (Some(requested), Some(from)) = (requested, Amount::of(&claim.status.capacity)) else {
        return Step::Nothing;
    };
    if requested.bytes <= from.bytes {
        return Step::Nothing;
    }
    let volume = Amount::of(&volume.spec.capacity).map_or(0, |amount| amount.bytes);
    let allocated = Amount::of(&claim.status.allocated_resources);
    let progress = Progress::of(claim);
    let to = if volume < requested.bytes {
        growing(progress, requested, allocated, volume, failed)
    } else {
        grown(progress, requested, allocated, claim.has_condition(NODE_PENDING))
    };
    let Some(to) = to else { return Step::Nothing };
    let begun = progress != Progress::None && allocated.is_some_and(|size| size.bytes == to.bytes);
    Step::Expand { to, from, begun }
}

/// The size for a volume that is smaller than its claim asks for.
fn growing<'a>(
    progress: Progress,
    requested: Amount<'a>,
    allocated: Option<Amount<'a>>,
    volume: u64,
    failed: bool,
) -> Option<Amount<'a>> {
    match progress {
        Progress::NodeInfeasible => Some(allocated.unwrap_or(requested)),
        // The node ends what it has begun; then the claim is looked at again.
        Progress::Node => Some(allocated.unwrap_or(requested)).filter(|to| volume < to.bytes),
        Progress::Controller if failed => Some(requested),
        // It may be done still; asking for less meanwhile would leave it larger than anybody knows.
        Progress::Controller => Some(allocated.unwrap_or(requested)),
        Progress::None | Progress::ControllerInfeasible | Progress::Unheard => Some(requested),
    }
}

/// The size for a volume that is as large as its claim asks for, while the claim is not.
fn grown<'a>(
    progress: Progress,
    requested: Amount<'a>,
    allocated: Option<Amount<'a>>,
    node_pending: bool,
) -> Option<Amount<'a>> {
    match progress {
        Progress::Node => None,
        // Either it was done and not written down, or the node is to try again.
        Progress::NodeInfeasible | Progress::Controller | Progress::ControllerInfeasible => {
            Some(allocated.unwrap_or(requested))
        }
        Progress::None if allocated.is_some() => allocated,
        // Clusters that do not keep these words have the condition alone.
        Progress::None | Progress::Unheard => (!node_pending).then_some(requested),
    }
}
