//! Callers that are slow on purpose, with a clock that does not wait for them.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequest;
use axum::response::IntoResponse;
use bytes::Bytes;
use hawser_api::rest::volumes::CreateVolume;
use http::{Request, StatusCode};
use hyper::body::Frame;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::rest::extract::JsonBody;
use crate::rest::stall::Stall;

/// Announces itself and never comes.
struct Never;

impl hyper::body::Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up_after_30_s() {
    let request = Request::post("/").header("content-type", "application/json");
    let request = request.body(Body::new(Never)).unwrap();
    let begun = Instant::now();

    let refused = JsonBody::<CreateVolume>::from_request(request, &()).await.err().unwrap();

    assert_eq!(refused.into_response().status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(begun.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_is_given_up() {
    let (near, _far) = tokio::io::duplex(16);
    let mut near = Stall::new(near, Duration::from_secs(60));
    let begun = Instant::now();

    let error = near.write_all(&[0; 64]).await.unwrap_err();

    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(begun.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_slow_but_reads_is_kept() {
    use tokio::io::AsyncReadExt;

    let (near, mut far) = tokio::io::duplex(16);
    let mut near = Stall::new(near, Duration::from_secs(60));
    let reader = tokio::spawn(async move {
        let mut buffer = [0; 16];
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            far.read_exact(&mut buffer).await.unwrap();
        }
    });

    near.write_all(&[0; 64]).await.unwrap();

    reader.await.unwrap();
}
