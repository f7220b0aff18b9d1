//! `/metrics` and `/healthz` over plain HTTP, for whoever watches the driver. There is nothing secret
//! in either, and nothing to change.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hawser_core::Result;
use hawser_core::port::Control;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::metrics::Metrics;

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// For a request, and for the control half to say that it is ready.
const LIMIT: Duration = Duration::from_secs(5);
/// Connections at the same time; more wait.
const MOST: usize = 32;

/// What is watched.
struct Monitor {
    metrics: Metrics,
    control: Option<Arc<dyn Control>>,
}

/// Serves until `stop` is done. `/healthz` is 200 while the process answers and, where it is the
/// control half, has come through its recovery; a storage system that is down changes nothing.
pub async fn serve_monitor(
    listener: TcpListener,
    metrics: Metrics,
    control: Option<Arc<dyn Control>>,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let monitor = Arc::new(Monitor { metrics, control });
    let places = Arc::new(Semaphore::new(MOST));
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let place = tokio::select! {
            () = stop.as_mut() => break,
            place = places.clone().acquire_owned() => place,
        };
        let stream = tokio::select! {
            () = stop.as_mut() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let monitor = monitor.clone();
        connections.spawn(async move {
            let service = service_fn(|request| answer(&monitor, request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(LIMIT)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
    connections.shutdown().await;
    Ok(())
}

async fn answer(
    monitor: &Monitor,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    Ok(match (request.method(), path) {
        (&Method::GET, "/metrics") => match monitor.metrics.text() {
            Ok(text) => response(StatusCode::OK, MEDIA_TYPE, text),
            Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "no numbers\n"),
        },
        (&Method::GET, "/healthz") => match monitor.is_ready().await {
            true => plain(StatusCode::OK, "ok\n"),
            false => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        },
        (&Method::GET, _) => plain(StatusCode::NOT_FOUND, "there are /metrics and /healthz\n"),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "GET only\n"),
    })
}

impl Monitor {
    async fn is_ready(&self) -> bool {
        match &self.control {
            None => true,
            Some(control) => {
                matches!(tokio::time::timeout(LIMIT, control.ready()).await, Ok(Ok(true)))
            }
        }
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", text.to_owned())
}

fn response(status: StatusCode, media: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let media = http::HeaderValue::from_static(media);
    response.headers_mut().insert(http::header::CONTENT_TYPE, media);
    response
}
