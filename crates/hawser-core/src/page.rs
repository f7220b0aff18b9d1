//! Lists in pages.

use serde::{Deserialize, Serialize};

/// The most items one page can have.
pub const LARGEST_PAGE: usize = 1000;

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// How many items at most; 0 means the default of 100, and [`LARGEST_PAGE`] is the most.
    pub limit: usize,
    /// [`Page::next`] of the page before; `None` for the first.
    pub token: Option<String>,
}

impl PageRequest {
    /// The first page, of the largest size.
    pub fn largest() -> Self {
        Self { limit: LARGEST_PAGE, token: None }
    }

    /// The number of items to answer with.
    pub fn limit(&self) -> usize {
        match self.limit {
            0 => 100,
            limit => limit.min(LARGEST_PAGE),
        }
    }
}

/// One part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The items, oldest first.
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}
