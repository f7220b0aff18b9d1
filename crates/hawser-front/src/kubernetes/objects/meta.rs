//! What all objects have.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;

/// The metadata of an object.
pub(in crate::kubernetes) type Meta = ObjectMeta;

/// The name of an object among those of its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::kubernetes) struct Key {
    /// Empty for objects of the whole cluster.
    pub(in crate::kubernetes) namespace: String,
    /// Unique in its namespace.
    pub(in crate::kubernetes) name: String,
}

impl Key {
    /// An object of the whole cluster.
    pub(in crate::kubernetes) fn global(name: impl Into<String>) -> Self {
        Self { namespace: String::new(), name: name.into() }
    }

    /// An object of a namespace.
    pub(in crate::kubernetes) fn within(
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// An object of the cluster.
pub(in crate::kubernetes) trait Object:
    Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
    /// Its name.
    fn key(&self) -> Key {
        let meta = self.meta();
        Key {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }

    /// Its name without the namespace.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// What tells it from an object that had its name before.
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// An annotation; an empty one is none.
    fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.meta().annotations.as_ref()?;
        annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All labels.
    fn labels(&self) -> Cow<'_, BTreeMap<String, String>> {
        self.meta().labels.as_ref().map_or_else(|| Cow::Owned(BTreeMap::new()), Cow::Borrowed)
    }

    /// What keeps it from going.
    fn finalizers(&self) -> &[String] {
        self.meta().finalizers.as_deref().unwrap_or_default()
    }

    /// True when this keeps it from going.
    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|there| there == finalizer)
    }

    /// True when somebody has deleted it, and finalizers keep it.
    fn is_going(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// Which state of it this is, as the API server wrote it.
    fn meta_version(&self) -> Option<String> {
        self.meta().resource_version.clone()
    }

    /// Which of two states of it is the newer one.
    fn revision(&self) -> u64 {
        revision(self.meta().resource_version.as_deref())
    }
}

/// A resource version as a number: the API server counts.
fn revision(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Makes a type an object of the cluster.
macro_rules! object {
    ($type:ident, $kind:literal, $group:literal, $version:literal, $plural:literal, $scope:ty) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &$crate::kubernetes::objects::Meta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut $crate::kubernetes::objects::Meta {
                &mut self.metadata
            }
        }

        impl $crate::kubernetes::objects::Object for $type {}
    };
}
pub(super) use object;

/// Nothing where the API server writes `null`, as it does for some empty lists.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    Ok(<Option<T> as serde::Deserialize>::deserialize(deserializer)?.unwrap_or_default())
}
