//! Numbers for Prometheus.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hawser_core::operation::{OperationKind, OperationState};
use http::{Method, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge as StoredGauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::Gauge;
use super::error::RestError;

/// What `/metrics` answers with.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From a read of memory to the longest wait of a change, in seconds.
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 120.0, 600.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabels {
    route: String,
    method: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    kind: &'static str,
    result: &'static str,
}

/// All numbers of one server.
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    operations: Family<OperationLabels, Counter>,
}

impl Metrics {
    pub(super) fn new(version: &str, gauges: Vec<Gauge>) -> Self {
        let mut registry = Registry::default();
        let requests = Family::<RequestLabels, Counter>::default();
        let new_histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let seconds = Family::new_with_constructor(new_histogram);
        let operations = Family::<OperationLabels, Counter>::default();
        let started = StoredGauge::<f64, AtomicU64>::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        started.set(now.as_secs_f64());
        registry.register_with_unit(
            "process_start_time",
            "When this process began, in Unix time",
            Unit::Seconds,
            started,
        );
        let ours = registry.sub_registry_with_prefix("hawser");
        let build = Info::new(vec![("version".to_owned(), version.to_owned())]);
        ours.register("build", "What this is", build);
        ours.register("http_requests", "Requests answered", requests.clone());
        ours.register_with_unit(
            "http_request_duration",
            "How long answers took",
            Unit::Seconds,
            seconds.clone(),
        );
        ours.register("operations", "Operations that ended", operations.clone());
        ours.register_collector(Box::new(Gauges(gauges)));
        Self { registry, requests, seconds, operations }
    }

    /// Counts one answer.
    pub(super) fn count_request(
        &self,
        route: &str,
        method: &Method,
        status: StatusCode,
        took: Duration,
    ) {
        let (route, method) = (route.to_owned(), method_word(method));
        let labels = RequestLabels { route: route.clone(), method, status: status.as_u16() };
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&RouteLabels { route, method }).observe(took.as_secs_f64());
    }

    /// Counts one operation that ended; others are not counted yet.
    pub(super) fn count_operation(&self, kind: OperationKind, state: OperationState) {
        let result = match state {
            OperationState::Succeeded => "succeeded",
            OperationState::Failed => "failed",
            OperationState::Running | OperationState::Waiting => return,
        };
        self.operations.get_or_create(&OperationLabels { kind: kind.as_str(), result }).inc();
    }

    /// Everything as text.
    pub(super) fn text(&self) -> Result<String, RestError> {
        let mut text = String::new();
        encode(&mut text, &self.registry).map_err(RestError::Metrics)?;
        Ok(text)
    }
}

/// A caller may invent methods; a label must not grow with them.
fn method_word(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    known.into_iter().find(|word| *word == method.as_str()).unwrap_or("other")
}

#[derive(Debug)]
struct Gauges(Vec<Gauge>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        for gauge in &self.0 {
            let value = ConstGauge::new((gauge.read)());
            let metric =
                encoder.encode_descriptor(gauge.name, gauge.help, None, value.metric_type())?;
            value.encode(metric)?;
        }
        Ok(())
    }
}
