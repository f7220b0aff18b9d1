//! Where Hawser keeps its records: one folder per store, all behind [`Store`].
//!
//! A new store is a folder, its `mod` line and its line in [`STORES`]; it passes
//! `store_contract!` of the testkit. [`transfer`] moves records between stores.

pub mod embedded;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod transfer;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hawser_core::port::Store;
use hawser_core::{Error, Kind, Result};

/// Every store that is built in.
pub const STORES: &[&StoreInfo] = &[
    &embedded::INFO,
    #[cfg(feature = "kubernetes")]
    &kubernetes::INFO,
];

/// The largest value a store is asked to keep: far above any record, below what would stall the
/// other writers. Larger ones are refused as `OutOfRange`.
pub const LARGEST_VALUE: usize = 8 << 20;

/// What keys of secrets begin with: they are never exported, and a store that has a better place for
/// secrets keeps them there.
pub(crate) const SECRETS: &str = "secret/";

/// An open store, once it is awaited.
type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>>;

/// What the table knows of a store.
pub struct StoreInfo {
    /// The word before the colon of a store setting.
    pub name: &'static str,
    /// One line for people who choose.
    pub summary: &'static str,
    open: fn(String) -> Opening,
}

impl StoreInfo {
    /// Opens the store; `place` is what follows the colon of the setting.
    ///
    /// Fails with `Invalid` for a place that can never be one.
    pub async fn open(&self, place: &str) -> Result<Arc<dyn Store>> {
        (self.open)(place.to_owned()).await
    }
}

impl fmt::Debug for StoreInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreInfo").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Opens the store that a setting such as `embedded:/var/lib/hawser/store.redb` names.
///
/// Fails with `Invalid` for a setting that names no store of this build.
pub async fn open(setting: &str) -> Result<Arc<dyn Store>> {
    let (name, place) = setting.split_once(':').unwrap_or((setting, ""));
    let Some(info) = STORES.iter().find(|info| info.name == name) else {
        let known: Vec<_> = STORES.iter().map(|info| info.name).collect();
        let known = known.join(", ");
        let message = format!(
            "there is no store {name:?} for the setting {setting:?}; the stores are: {known}"
        );
        return Err(Error::new(Kind::Invalid, message));
    };
    info.open(place).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_setting_opens_the_store_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");

        let store = open(&format!("embedded:{}", path.display())).await.unwrap();

        assert!(path.exists());
        assert_eq!(store.get(&"a".parse().unwrap()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_setting_without_a_store_or_a_place_is_refused_by_name() {
        for (setting, hint) in
            [("floppy:/dev/fd0", "embedded"), ("", "embedded"), ("embedded:", "/path")]
        {
            let Err(error) = open(setting).await else { panic!("{setting:?} was opened") };
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.sentence().contains(hint), "{error:?}");
        }
    }

    #[test]
    fn every_store_has_its_own_name_and_a_summary() {
        let names: std::collections::BTreeSet<_> = STORES.iter().map(|info| info.name).collect();
        assert_eq!(names.len(), STORES.len());
        assert!(STORES.iter().all(|info| !info.summary.is_empty()));
    }
}
