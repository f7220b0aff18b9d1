//! Who may use the API: checked before a body is read.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hawser_core::secret::Secret;
use http::{HeaderMap, header};
use std::sync::Arc;
use subtle::ConstantTimeEq;

use super::answer::Refusal;
use super::error::RestError;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// A local user who may use the socket.
    Trusted,
    /// A local user who may not.
    Stranger {
        /// Who.
        uid: u32,
    },
    /// Anyone on the network, who must show this token.
    Remote(Arc<Secret>),
}

/// Lets a request pass, or refuses it.
pub(super) async fn check(request: Request, next: Next) -> Response {
    match allow(request.extensions().get::<Peer>(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => Refusal::from(error).into_response(),
    }
}

fn allow(peer: Option<&Peer>, headers: &HeaderMap) -> Result<(), RestError> {
    match peer {
        Some(Peer::Trusted) => Ok(()),
        Some(Peer::Stranger { uid }) => Err(RestError::Stranger { uid: *uid }),
        Some(Peer::Remote(token)) if shows(headers, token) => Ok(()),
        Some(Peer::Remote(_)) => Err(RestError::Unauthenticated),
        None => Err(RestError::Unknown),
    }
}

/// Compares in a time that does not depend on how much of the token is right.
fn shows(headers: &HeaderMap, token: &Secret) -> bool {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return false };
    let Some((scheme, shown)) = value.as_bytes().split_at_checked(7) else { return false };
    scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(shown.ct_eq(token.expose().as_bytes()))
}
