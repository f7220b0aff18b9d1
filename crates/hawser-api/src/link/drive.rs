//! Carries a link: the handshake, then reading, writing and keep-alive until it ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

use super::behind::Behind;
use super::error::LinkError;
use super::frame::{FrameReader, encode};
use super::message::{Bye, Frame, Hello, Written};
use super::peer::{Peer, Request, Shared};
use super::tasks::Tasks;

/// How long a peer may take to say who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// How long a farewell may take; a peer that does not read is not waited for.
const BYE_LIMIT: Duration = Duration::from_secs(1);

/// When a silent link is asked for a sign of life, and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Asked after so long without a byte.
    pub ask_after: Duration,
    /// Given up after so long without a byte.
    pub lost_after: Duration,
}

impl Default for KeepAlive {
    /// A dead machine is noticed within half a minute; an idle link costs two frames in ten seconds.
    fn default() -> Self {
        Self { ask_after: Duration::from_secs(10), lost_after: Duration::from_secs(30) }
    }
}

/// A stream on which both sides have said hello.
pub(super) struct Connection<S> {
    reader: FrameReader<ReadHalf<S>>,
    writer: BufWriter<WriteHalf<S>>,
}

/// Says hello, hears hello; a peer that cannot be served is told why.
pub(super) async fn handshake<S: AsyncRead + AsyncWrite>(
    stream: S,
    ours: &Hello,
    check: impl FnOnce(&Hello) -> Result<(), LinkError>,
) -> Result<(Connection<S>, Hello), LinkError> {
    let (reader, writer) = tokio::io::split(stream);
    let mut connection =
        Connection { reader: FrameReader::new(reader), writer: BufWriter::new(writer) };
    let line = encode(&Written::Hello { hello: ours }, || "a hello".to_owned())?;
    let exchange = async {
        let say = async {
            connection.writer.write_all(&line).await.map_err(LinkError::Write)?;
            connection.writer.flush().await.map_err(LinkError::Write)
        };
        let ((), (frame, _)) = tokio::try_join!(say, connection.reader.next(|| ()))?;
        match frame {
            Frame::Hello(hello) => Ok(*hello),
            Frame::Bye(bye) => Err(bye.into()),
            Frame::Request { .. } | Frame::Answer { .. } | Frame::Ping(_) | Frame::Pong => {
                Err(LinkError::HelloMissing)
            }
        }
    };
    let heard = timeout(HELLO_LIMIT, exchange)
        .await
        .unwrap_or(Err(LinkError::HelloLate(HELLO_LIMIT)))
        .and_then(|hello| check(&hello).map(|()| hello));
    match heard {
        Ok(hello) => Ok((connection, hello)),
        Err(error) => {
            connection.farewell(&error).await;
            Err(error)
        }
    }
}

impl<S: AsyncRead + AsyncWrite> Connection<S> {
    /// Says why the link ends, where the other side can still hear it and did not end it itself.
    pub(super) async fn farewell(&mut self, error: &LinkError) {
        farewell(&mut self.writer, error).await;
    }
}

async fn farewell<W: AsyncWrite + Unpin>(writer: &mut W, error: &LinkError) {
    let deaf = matches!(
        error,
        LinkError::Read(_) | LinkError::Write(_) | LinkError::Closed | LinkError::Refused { .. }
    );
    if deaf {
        return;
    }
    let bye = Bye::because(error);
    if let Ok(line) = encode(&Written::Bye { bye: &bye }, || "a farewell".to_owned()) {
        let say = async {
            writer.write_all(&line).await?;
            writer.shutdown().await
        };
        let _ = timeout(BYE_LIMIT, say).await;
    }
}

/// What answers the calls of the other side, and how the link is kept alive.
pub(super) struct Service {
    /// Answers.
    pub(super) behind: Arc<Behind>,
    /// Owns the work.
    pub(super) tasks: Tasks,
    /// `None` for callers, which need not answer pings.
    pub(super) keep_alive: Option<KeepAlive>,
}

/// The signs of life that the writer sends ahead of everything else.
#[derive(Default)]
struct Signs {
    due: Mutex<Due>,
    notify: Notify,
}

#[derive(Default)]
struct Due {
    ping: Option<u64>,
    pong: Option<u64>,
}

impl Signs {
    // One slot each: a peer that sends pings and reads nothing cannot make a queue grow.
    fn set(&self, fill: impl FnOnce(&mut Due)) {
        fill(&mut self.due.lock().unwrap_or_else(PoisonError::into_inner));
        self.notify.notify_one();
    }

    fn take(&self) -> Due {
        std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// When the other side was last heard, in milliseconds since the link began.
struct Heard {
    began: Instant,
    at: AtomicU64,
}

impl Heard {
    fn now(&self) {
        self.at.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.began + Duration::from_millis(self.at.load(Ordering::Relaxed))
    }
}

/// Carries the link until it ends, says why it ended, and tells whoever waits for an answer.
pub(super) async fn drive<S: AsyncRead + AsyncWrite>(
    connection: Connection<S>,
    peer: &Peer,
    mut frames: mpsc::Receiver<Vec<u8>>,
    service: &Service,
) -> LinkError {
    let Connection { mut reader, mut writer } = connection;
    let shared = peer.shared();
    // Also when this future is dropped: nobody may wait for ever.
    let _end = End(shared);
    let signs = Signs::default();
    let heard = Heard { began: Instant::now(), at: AtomicU64::new(0) };
    let error = tokio::select! {
        error = read(&mut reader, shared, service, &signs, &heard) => error,
        error = write(&mut writer, &mut frames, &signs) => error,
        error = watch_over(service.keep_alive, &signs, &heard) => error,
        stop = shared.stopped() => stop.into(),
    };
    shared.end(&sentence(&error));
    farewell(&mut writer, &error).await;
    error
}

struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end("this side closed the node link");
    }
}

/// The error with its cause, in one line.
pub(super) fn sentence(error: &LinkError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

async fn read<R: AsyncRead + Unpin>(
    reader: &mut FrameReader<R>,
    shared: &Shared,
    service: &Service,
    signs: &Signs,
    heard: &Heard,
) -> LinkError {
    loop {
        let frame = match reader.next(|| heard.now()).await {
            Ok(frame) => frame,
            Err(error) => return error,
        };
        match frame {
            (Frame::Request { id, method, params }, bytes) => {
                let request = Request { id, method, params, bytes };
                let served = shared.serve(request, &service.behind, &service.tasks);
                if let Err(error) = served.await {
                    return error;
                }
            }
            (Frame::Answer { id, result }, _) => shared.settle(id, result),
            (Frame::Ping(number), _) => signs.set(|due| due.pong = Some(number)),
            (Frame::Pong, _) => {}
            (Frame::Bye(bye), _) => return bye.into(),
            (Frame::Hello(_), _) => {
                return LinkError::Malformed { reason: "it is a second hello" };
            }
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(
    writer: &mut W,
    frames: &mut mpsc::Receiver<Vec<u8>>,
    signs: &Signs,
) -> LinkError {
    loop {
        let written = tokio::select! {
            biased;
            () = signs.notify.notified() => write_signs(writer, signs.take()).await,
            frame = frames.recv() => match frame {
                Some(line) => writer.write_all(&line).await,
                None => return LinkError::Stopped,
            },
        };
        let flushed = match written {
            Ok(()) if frames.is_empty() => writer.flush().await,
            other => other,
        };
        if let Err(error) = flushed {
            return LinkError::Write(error);
        }
    }
}

async fn write_signs<W: AsyncWrite + Unpin>(writer: &mut W, due: Due) -> std::io::Result<()> {
    let ping = due.ping.map(|ping| Written::Ping { ping });
    let pong = due.pong.map(|pong| Written::Pong { pong });
    for sign in [ping, pong].into_iter().flatten() {
        if let Ok(line) = encode(&sign, || "a sign of life".to_owned()) {
            writer.write_all(&line).await?;
        }
    }
    Ok(())
}

async fn watch_over(keep_alive: Option<KeepAlive>, signs: &Signs, heard: &Heard) -> LinkError {
    let Some(KeepAlive { ask_after, lost_after }) = keep_alive else {
        return std::future::pending().await;
    };
    let mut number = 0;
    loop {
        let asked_about = heard.last();
        sleep_until(asked_about + ask_after).await;
        if heard.last() > asked_about {
            continue;
        }
        number += 1;
        signs.set(|due| due.ping = Some(number));
        sleep_until(asked_about + lost_after).await;
        if heard.last() == asked_about {
            return LinkError::Silent(lost_after);
        }
    }
}
