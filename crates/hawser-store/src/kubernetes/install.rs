//! The definition of records, and how it comes into a cluster. Needs the rights of an administrator,
//! once; the store itself needs none beyond its namespace.

use std::time::Duration;

use hawser_core::Result;
use kube::Client;
use tokio::time::{Instant, sleep};

use super::api::Api;
use super::error::KubernetesError;
use super::place::Place;
use super::resource::Resource;
use super::send::REQUEST_LIMIT;

/// The path of the definition on the API server.
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/records.hawser.storage";

/// How often it is tried whether records are served. The API server tells that it has accepted a
/// definition, but not when it begins to serve it.
const PAUSE: Duration = Duration::from_millis(100);

/// The custom resource definition of records, as YAML for `kubectl apply`.
pub fn crd() -> &'static str {
    include_str!("../../../../deploy/crds/records.hawser.storage.yaml")
}

/// Applies [`crd`] to the cluster that a place (what follows `kubernetes:` in a setting) names, and
/// waits until records can be kept there. Applying it again changes nothing.
///
/// Fails with `Denied` for anyone but an administrator.
pub async fn install(place: &str) -> Result<()> {
    let (client, namespace) = Place::parse(place)?.connect().await?;
    Ok(apply(client, namespace).await?)
}

pub(super) async fn apply(client: Client, namespace: String) -> Result<(), KubernetesError> {
    let api = Api::new(client, namespace);
    api.apply(PATH, crd()).await?;
    let deadline = Instant::now() + REQUEST_LIMIT;
    loop {
        match api.page(Resource::Records, None).await {
            Ok(_) => return Ok(()),
            Err(KubernetesError::NotInstalled) if Instant::now() < deadline => sleep(PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}
