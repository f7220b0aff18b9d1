//! [`Change`]: whether an idempotent call did something or found it done.

use serde::{Deserialize, Serialize};

/// The answer of an idempotent call: what is now true, and whether this call made it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", content = "value", rename_all = "snake_case")]
pub enum Change<T> {
    /// This call changed the world.
    Made(T),
    /// It was so before; nothing was changed.
    Already(T),
}

impl<T> Change<T> {
    /// True when this call did the work.
    pub fn is_made(&self) -> bool {
        matches!(self, Self::Made(_))
    }

    /// The value, whoever made it.
    pub fn into_inner(self) -> T {
        match self {
            Self::Made(value) | Self::Already(value) => value,
        }
    }

    /// The value by reference.
    pub fn get(&self) -> &T {
        match self {
            Self::Made(value) | Self::Already(value) => value,
        }
    }

    /// Turns the value into another and keeps whether it was made.
    pub fn map<U>(self, turn: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::Made(value) => Change::Made(turn(value)),
            Self::Already(value) => Change::Already(turn(value)),
        }
    }
}
