//! Lists and their pages.

use hawser_core::page::Page;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListView<T> {
    /// The items.
    pub items: Vec<T>,
    /// Hand this back as `page_token` for the next part; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

impl<T> ListView<T> {
    /// A list that always comes whole.
    pub fn whole<D: Into<T>>(items: Vec<D>) -> Self {
        Self { items: items.into_iter().map(Into::into).collect(), next_page_token: None }
    }

    /// The items in the words of the domain.
    pub fn into_items<D: From<T>>(self) -> Vec<D> {
        self.items.into_iter().map(D::from).collect()
    }
}

impl<T> ListView<T> {
    /// A page of the domain in the words of the wire.
    pub fn from_page<D: Into<T>>(page: Page<D>) -> Self {
        Self { next_page_token: page.next, ..Self::whole(page.items) }
    }

    /// A page of the wire in the words of the domain.
    pub fn into_page<D: From<T>>(self) -> Page<D> {
        Page { next: self.next_page_token.clone(), items: self.into_items() }
    }
}
