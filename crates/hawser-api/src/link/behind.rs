//! Who answers the calls of the other side.

use std::sync::Arc;

use hawser_core::name::NodeId;
use hawser_core::port::{Node, Upstream};

use super::error::LinkError;

/// What stands behind one side of a link.
pub(super) enum Behind {
    /// Nothing: a program that only calls.
    Nobody,
    /// A node.
    Node(Arc<dyn Node>),
    /// A control half.
    Control {
        /// What answers nodes; a control half without it refuses their calls.
        upstream: Option<Arc<dyn Upstream>>,
        /// The node at the other end, which speaks for itself alone.
        node: NodeId,
    },
}

impl Behind {
    /// The node, for calls of the node port.
    pub(super) fn node(&self) -> Result<&dyn Node, LinkError> {
        match self {
            Self::Node(node) => Ok(node.as_ref()),
            Self::Nobody | Self::Control { .. } => Err(LinkError::NoNode),
        }
    }

    /// The control half and the node that asks it, for calls of the upstream port.
    pub(super) fn upstream(&self) -> Result<(&dyn Upstream, &NodeId), LinkError> {
        match self {
            Self::Control { upstream: Some(upstream), node } => Ok((upstream.as_ref(), node)),
            Self::Control { upstream: None, .. } | Self::Nobody | Self::Node(_) => {
                Err(LinkError::NoUpstream)
            }
        }
    }
}
