//! What can go wrong on the way to storage on the nodes.

use hawser_core::{ByteSize, Classify, Kind, Outcome};

/// What can go wrong on the way to storage on the nodes; what goes wrong there comes as it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum OnNodesError {
    #[error("{id} is recorded at {place}, which is no node, and class {class} is on the nodes")]
    NoNode { id: String, place: String, class: String },
    #[error("node {node} has no storage of its own")]
    NoStorage { node: String },
    #[error("node {node} answered something else than it was asked for")]
    OtherAnswer { node: String, changes: bool },
    #[error("no node that has class {class} is connected")]
    NoneConnected { class: String },
    #[error("no connected node of class {class} at {places} has room for {size}")]
    NoRoom { class: String, places: String, size: ByteSize },
    #[error("the source is at {source_at}, and a copy stays with it; asked for: {places}")]
    CopyElsewhere { source_at: String, places: String },
    #[error("the source is at {source_at}, and the copy is recorded at {place}")]
    CopyMoved { source_at: String, place: String },
    #[error("volume {id} is on node {node} and cannot be reached from node {user}")]
    OtherUser { id: String, node: String, user: String },
    #[error("the volumes are on several nodes ({nodes}), which have no instant in common")]
    Scattered { nodes: String },
}

impl Classify for OnNodesError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoNode { .. } => Kind::Invalid,
            Self::NoStorage { .. }
            | Self::CopyMoved { .. }
            | Self::OtherUser { .. }
            | Self::Scattered { .. } => Kind::Precondition,
            Self::OtherAnswer { .. } => Kind::Internal,
            Self::NoneConnected { .. } => Kind::Unavailable,
            Self::NoRoom { .. } | Self::CopyElsewhere { .. } => Kind::NoSpace,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::OtherAnswer { changes: true, .. } => Outcome::Unknown,
            Self::OtherAnswer { changes: false, .. }
            | Self::NoNode { .. }
            | Self::NoStorage { .. }
            | Self::NoneConnected { .. }
            | Self::NoRoom { .. }
            | Self::CopyElsewhere { .. }
            | Self::CopyMoved { .. }
            | Self::OtherUser { .. }
            | Self::Scattered { .. } => Outcome::Nothing,
        }
    }
}
