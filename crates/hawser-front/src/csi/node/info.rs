//! NodeGetInfo.

use hawser_api::csi::v1::NodeGetInfoResponse;
use hawser_core::Result;
use hawser_core::place::Place;

use super::NodeService;
use crate::csi::wire;

/// Who this node is, how many volumes it takes, and where it is.
pub(super) async fn get(service: &NodeService) -> Result<NodeGetInfoResponse> {
    let settings = &service.driver.settings;
    let mut pairs = service.node.describe().await?.topology;
    // Every node is a place of its own, whatever it says of itself.
    pairs.insert(Place::NODE.to_owned(), settings.node_id.to_string());
    Ok(NodeGetInfoResponse {
        node_id: settings.node_id.to_string(),
        max_volumes_per_node: settings.max_volumes_per_node.into(),
        accessible_topology: Some(wire::topology(&Place::new(pairs))),
    })
}
