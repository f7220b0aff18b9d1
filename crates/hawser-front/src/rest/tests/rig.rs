//! A server on a Unix socket in a folder of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hawser_api::{Endpoint, RestClient};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fake::FakeControl;
use crate::rest::{Api, Gauge, Limits, Listener, serve};

pub(super) struct Rig {
    pub(super) control: Arc<FakeControl>,
    pub(super) socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

/// An answer, read whole.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answered {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Rig {
    pub(super) fn start() -> Self {
        Self::with(Limits { grace: Duration::from_millis(300), ..Limits::default() })
    }

    pub(super) fn with(limits: Limits) -> Self {
        Self::listening(limits, Vec::new())
    }

    /// A server that listens on these places too.
    pub(super) fn listening(limits: Limits, mut listeners: Vec<Listener>) -> Self {
        crate::logged::keep();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("hawser.sock");
        listeners.push(Listener::unix(&socket, None).unwrap());
        let control = Arc::new(FakeControl::default());
        let gauge = Gauge { name: "volumes", help: "Volumes", read: Box::new(|| 42) };
        let api = Api::with_gauges(control.clone(), "1.2.3", vec![gauge]);
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(async move {
            let shutdown = async move { drop(stopped.await) };
            serve(listeners, api, limits, shutdown).await.unwrap();
        });
        Self { control, socket, stop: Some(stop), server, _folder: folder }
    }

    pub(super) fn client(&self) -> RestClient {
        RestClient::new(Endpoint::Unix(self.socket.clone()))
    }

    /// Sends JSON, or nothing.
    pub(super) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answered {
        let mut request = Request::builder().method(Method::try_from(method).unwrap()).uri(path);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        self.send(request.body(Full::new(Bytes::from(body))).unwrap()).await
    }

    /// Sends any request on a connection of its own.
    pub(super) async fn send<B>(&self, mut request: Request<B>) -> Answered
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        request.headers_mut().insert("host", http::HeaderValue::from_static("h"));
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        let driver = tokio::spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        driver.abort();
        Answered { status: head.status, headers: head.headers, body }
    }

    /// Stops the server and waits for its end.
    pub(super) async fn stop(mut self) {
        drop(self.stop.take());
        self.server.await.unwrap();
    }
}
