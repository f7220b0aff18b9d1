//! Whom the objects belong to: what this process was installed with. When that is removed, the
//! cluster removes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;

use crate::kubernetes::cluster::Cluster;
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::objects::Meta;

#[derive(Deserialize)]
struct Bare {
    metadata: Meta,
}

/// The Deployment of a pod, or whatever else made it; `None` for a pod of its own.
pub(super) async fn of_pod(
    cluster: &Cluster,
    namespace: &str,
    pod: &str,
) -> Result<Option<OwnerReference>, ClusterError> {
    let pods = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
    let Some(owner) = above(cluster, &pods).await? else { return Ok(None) };
    if owner.kind != "ReplicaSet" {
        return Ok(Some(owner));
    }
    // Each version of a Deployment has one of these, so it must not be the owner itself.
    let set = format!("/apis/apps/v1/namespaces/{namespace}/replicasets/{}", owner.name);
    Ok(above(cluster, &set).await?.or(Some(owner)))
}

async fn above(cluster: &Cluster, path: &str) -> Result<Option<OwnerReference>, ClusterError> {
    let absent = || ClusterError::NotYet(format!("there is nothing at {path}"));
    let text = cluster.text_at(path).await?.ok_or_else(absent)?;
    let unreadable = |_| ClusterError::Wrong(format!("what is at {path} cannot be read"));
    let object: Bare = serde_json::from_str(&text).map_err(unreadable)?;
    let owners = object.metadata.owner_references.unwrap_or_default();
    Ok(owners.into_iter().find(|owner| owner.controller == Some(true)).map(plain))
}

/// Without what would keep the owner from going.
fn plain(owner: OwnerReference) -> OwnerReference {
    OwnerReference { block_owner_deletion: None, ..owner }
}
