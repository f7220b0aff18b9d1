//! `hawser csi --kubernetes`: the controller that leads looks after the cluster's objects itself.

use tracing::info;

use hawser_core::error::{Error, Result};
use hawser_front::csi::{Metrics, Services};
use hawser_front::kubernetes::{Client, KubernetesParts, KubernetesSettings, Leadership, run};
use hawser_store::kubernetes::connect;

use super::{CsiArgs, Stop, controller, monitor};
use crate::settings::Settings;

/// The cluster that this process looks after.
pub(super) struct Cluster {
    client: Client,
    namespace: String,
    /// What tells this process from others.
    instance: String,
    leadership: Leadership,
}

/// Waits until this process leads, then runs until it is told to stop or leads no more.
pub(super) async fn leading(args: &CsiArgs, settings: &Settings) -> Result<()> {
    let cluster = Cluster::reach(args).await?;
    let stop = Stop::when_asked();
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    // From now on: those that wait for the lease are alive, too.
    let alive = monitor(args, metrics.clone(), None, &stop);
    let led = async {
        tokio::select! {
            () = stop.told() => return Ok(()),
            () = cluster.leadership.win() => {}
        }
        // From the first moment on: taking up what was cut off may take longer than the lease lasts.
        let led = tokio::select! {
            led = controller(args, settings, metrics, Some(&cluster), &stop) => led,
            lost = cluster.leadership.keep() => Err(Error::from(lost)),
        };
        stop.tell();
        cluster.leadership.release().await;
        led
    };
    tokio::try_join!(alive, led).map(drop)
}

impl Cluster {
    async fn reach(args: &CsiArgs) -> Result<Self> {
        let namespace = args.namespace.clone().unwrap_or_default();
        let place = match &args.kubeconfig {
            Some(path) => format!("{namespace}?kubeconfig={}", path.display()),
            None => namespace,
        };
        let (client, namespace) = connect(&place).await?;
        let pod = args.pod_name.clone().unwrap_or_else(|| "hawser".to_owned());
        // A pod that is started anew has its old name, and is another process.
        let instance = format!("{pod}_{}", uuid::Uuid::new_v4().simple());
        let leadership = Leadership::new(client.clone(), &namespace, instance.clone());
        info!(namespace, "reaching the cluster");
        Ok(Self { client, namespace, instance, leadership })
    }

    /// Looks after the objects of the drivers, until the stop.
    pub(super) async fn look_after(&self, args: &CsiArgs, drivers: &[Services], stop: &Stop) {
        let parts = KubernetesParts { client: self.client.clone(), drivers: drivers.to_vec() };
        let settings = KubernetesSettings {
            namespace: self.namespace.clone(),
            instance: self.instance.clone(),
            pod: args.pod_name.clone(),
            success_events: args.success_events,
            startup_taint: args.startup_taint.clone(),
        };
        run(parts, settings, stop.told()).await;
    }
}
