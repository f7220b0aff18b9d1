//! Numbers for Prometheus: how long calls took, and what they were answered with. The labels are
//! those of the sidecars, so that both sides of a call can be laid over each other.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::Result;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

use super::call::word;
use super::error::CsiError;
use super::settings::CsiDriver;

/// From an answer out of memory to the longest wait of a kubelet, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 120.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    driver_name: &'static str,
    method_name: &'static str,
    grpc_status_code: &'static str,
}

/// The numbers of all drivers of a process; shared by its copies.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
}

impl Metrics {
    /// None yet; `version` is shown with them.
    pub fn new(version: &str) -> Self {
        let mut registry = Registry::with_prefix("hawser");
        let new_histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let seconds = Family::new_with_constructor(new_histogram);
        let build = Info::new(vec![("version".to_owned(), version.to_owned())]);
        registry.register("build", "What this is", build);
        registry.register_with_unit(
            "csi_operations",
            "How long calls took, by what they were answered with",
            Unit::Seconds,
            seconds.clone(),
        );
        Self(Arc::new(Inner { registry, seconds }))
    }

    /// Counts one answer.
    pub(super) fn count(
        &self,
        driver: CsiDriver,
        method: &'static str,
        code: Code,
        took: Duration,
    ) {
        let labels = Labels {
            driver_name: driver.name(),
            method_name: method,
            grpc_status_code: word(code),
        };
        self.0.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Everything as text, in the format OpenMetrics 1.0.
    pub fn text(&self) -> Result<String> {
        let mut text = String::new();
        encode(&mut text, &self.0.registry).map_err(CsiError::Metrics)?;
        Ok(text)
    }
}
