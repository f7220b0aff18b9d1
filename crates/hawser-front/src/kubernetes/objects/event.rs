//! Events, of which nothing is read.

use kube::core::NamespaceResourceScope;
use serde::Deserialize;

use super::Meta;
use super::meta::object;

/// Something that happened to an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Event {
    pub(in crate::kubernetes) metadata: Meta,
}

object!(Event, "Event", "", "v1", "events", NamespaceResourceScope);
