//! One call: a request, its deadline, and the answer within bounds.

use std::time::Duration;

use bytes::Bytes;
use hawser_core::port::control::Reply;
use hawser_core::{Change, Error};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::RestClient;
use super::error::ClientError;
use super::pool::Connection;
use crate::rest::operations::OperationView;
use crate::rest::problem::Problem;
use crate::rest::{CHANGE_HEADER, wait};

/// The most a client holds of one answer; a page of 1000 volumes is well below 8 MiB.
const LARGEST_ANSWER: usize = 64 << 20;

/// What the server may need beyond the time it was asked to wait.
const MARGIN: Duration = Duration::from_secs(30);

/// The unreserved characters of RFC 3986 stay; everything else is escaped.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// A request to be sent.
pub(super) struct Call {
    method: Method,
    path: String,
    has_query: bool,
    body: Bytes,
    deadline: Duration,
    change: bool,
    last_event: Option<u64>,
}

/// What came back.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Call {
    /// A read of `/a/b/c` from its segments, which may hold any character.
    pub(super) fn get(segments: &[&str]) -> Self {
        let path = segments.iter().fold(String::new(), |mut path, segment| {
            path.push('/');
            // A segment of dots alone would be taken for a step up by whoever cleans paths.
            if segment.bytes().all(|b| b == b'.') {
                path.push_str(&segment.replace('.', "%2E"));
            } else {
                path.extend(utf8_percent_encode(segment, ESCAPED));
            }
            path
        });
        Self {
            method: Method::GET,
            path,
            has_query: false,
            body: Bytes::new(),
            deadline: MARGIN,
            change: false,
            last_event: None,
        }
    }

    /// A change, which the server works on for so long before it answers with the operation.
    pub(super) fn change(method: Method, segments: &[&str], wait: Duration) -> Self {
        let call = Self { method, change: true, ..Self::get(segments) };
        call.waiting(wait)
    }

    /// Asks the server to wait; the deadline follows.
    pub(super) fn waiting(self, wait: Duration) -> Self {
        let wait = wait.min(wait::LONGEST_WAIT);
        let mut call = self.query("wait", &wait::text(wait));
        call.deadline = wait + MARGIN;
        call
    }

    /// Gives up after so long instead of the usual time.
    pub(super) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Adds `key=value` to the query.
    pub(super) fn query(mut self, key: &str, value: &str) -> Self {
        self.path.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.path.push_str(key);
        self.path.push('=');
        self.path.extend(utf8_percent_encode(value, ESCAPED));
        self
    }

    /// The same when there is a value.
    pub(super) fn maybe(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.query(key, value),
            None => self,
        }
    }

    /// Sends this as the body.
    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        // Bodies are plain structs with text keys, which always have a JSON form.
        self.body = Bytes::from(serde_json::to_vec(body).unwrap_or_default());
        self
    }

    /// Asks for events after this one.
    pub(super) fn after(mut self, sequence: Option<u64>) -> Self {
        self.last_event = sequence;
        self
    }

    /// Method and path without the query, for messages.
    fn what(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

impl RestClient {
    /// Sends a call that answers with a value.
    pub(super) async fn read<V: DeserializeOwned>(&self, call: Call) -> Result<V, Error> {
        let answer = self.send(&call).await?;
        if !answer.status.is_success() {
            return Err(self.refusal(&call, &answer));
        }
        Ok(self.decode(&call, &answer)?)
    }

    /// Sends a change that answers with an object.
    pub(super) async fn make<V: DeserializeOwned, D: From<V>>(
        &self,
        call: Call,
    ) -> Result<Reply<D>, Error> {
        match self.settle(&call).await? {
            Settled::Pending(operation) => Ok(Reply::Pending(operation.into())),
            Settled::Done(answer) => {
                let value: V = self.decode(&call, &answer)?;
                Ok(Reply::Done(answer.changed(D::from(value))))
            }
        }
    }

    /// Sends a change that answers with nothing.
    pub(super) async fn remove(&self, call: Call) -> Result<Reply<()>, Error> {
        match self.settle(&call).await? {
            Settled::Pending(operation) => Ok(Reply::Pending(operation.into())),
            Settled::Done(answer) => Ok(Reply::Done(answer.changed(()))),
        }
    }

    async fn settle(&self, call: &Call) -> Result<Settled, Error> {
        let answer = self.send(call).await?;
        if answer.status == StatusCode::ACCEPTED {
            return Ok(Settled::Pending(self.decode(call, &answer)?));
        }
        if answer.status.is_success() {
            return Ok(Settled::Done(answer));
        }
        Err(self.refusal(call, &answer))
    }

    /// The error that a failed answer carries.
    pub(super) fn refusal(&self, call: &Call, answer: &Answer) -> Error {
        match serde_json::from_slice::<Problem>(&answer.body) {
            Ok(problem) => problem.into(),
            Err(_) => ClientError::Foreign {
                at: self.endpoint().to_string(),
                what: call.what(),
                change: call.change,
                status: answer.status.as_u16(),
            }
            .into(),
        }
    }

    fn decode<V: DeserializeOwned>(&self, call: &Call, answer: &Answer) -> Result<V, ClientError> {
        serde_json::from_slice(&answer.body).map_err(|source| ClientError::Malformed {
            at: self.endpoint().to_string(),
            what: call.what(),
            change: call.change,
            source,
        })
    }

    /// Sends a call and reads the whole answer, within its deadline.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, ClientError> {
        let exchange = async {
            let (connection, response) = self.start(call).await?;
            let answer = self.collect(call, response).await?;
            self.pool.put(connection);
            Ok(answer)
        };
        self.in_time(call, exchange).await
    }

    /// Sends a call whose answer does not end; the deadline is for its beginning.
    pub(super) async fn open_stream(
        &self,
        call: &Call,
    ) -> Result<(Connection, Response<Incoming>), ClientError> {
        self.in_time(call, self.start(call)).await
    }

    async fn in_time<T>(
        &self,
        call: &Call,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match tokio::time::timeout(call.deadline, work).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::Late {
                at: self.endpoint().to_string(),
                what: call.what(),
                change: call.change,
                waited: call.deadline,
            }),
        }
    }

    /// A kept connection may have been closed by the server in the same moment. Calls are idempotent,
    /// so a failure there is tried again on a new connection, where a failure is final. If there is no
    /// new connection to be had, the request may still have gone out on the old one.
    async fn start(&self, call: &Call) -> Result<(Connection, Response<Incoming>), ClientError> {
        let mut before = None;
        if let Some(mut kept) = self.pool.take().await {
            match kept.sender.send_request(self.request(call)?).await {
                Ok(response) => return Ok((kept, response)),
                // Cancelled means that it was never written.
                Err(error) if error.is_canceled() => {}
                Err(error) => before = Some(error),
            }
        }
        let mut connection = match (self.connect().await, before) {
            (Ok(connection), _) => connection,
            (Err(_), Some(source)) => return Err(self.lost(call, Box::new(source))),
            (Err(error), None) => return Err(error),
        };
        let sent = connection.sender.send_request(self.request(call)?).await;
        let response = sent.map_err(|source| self.lost(call, Box::new(source)))?;
        Ok((connection, response))
    }

    pub(super) async fn collect(
        &self,
        call: &Call,
        response: Response<Incoming>,
    ) -> Result<Answer, ClientError> {
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, LARGEST_ANSWER).collect().await {
            Ok(body) => body.to_bytes(),
            Err(source) if source.is::<LengthLimitError>() => {
                return Err(ClientError::TooLarge {
                    at: self.endpoint().to_string(),
                    what: call.what(),
                    most: LARGEST_ANSWER,
                    change: call.change,
                });
            }
            Err(source) => return Err(self.lost(call, source)),
        };
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    fn lost(&self, call: &Call, source: Box<dyn std::error::Error + Send + Sync>) -> ClientError {
        ClientError::Lost {
            at: self.endpoint().to_string(),
            what: call.what(),
            change: call.change,
            source,
        }
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header(header::HOST, self.endpoint().authority());
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(sequence) = call.last_event {
            request = request.header("last-event-id", sequence);
        }
        request
            .body(Full::new(call.body.clone()))
            .map_err(|source| ClientError::Request { what: call.what(), source })
    }
}

enum Settled {
    Done(Answer),
    Pending(OperationView),
}

impl Answer {
    fn changed<T>(&self, value: T) -> Change<T> {
        let word = self.headers.get(CHANGE_HEADER).map(http::HeaderValue::as_bytes);
        if word == Some(b"made") || (word.is_none() && self.status == StatusCode::CREATED) {
            Change::Made(value)
        } else {
            Change::Already(value)
        }
    }
}
