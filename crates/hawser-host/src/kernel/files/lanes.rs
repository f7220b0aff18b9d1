//! One lane for each file that is changed: changes happen in the order in which they were asked for,
//! also those whose caller has given up and gone. A removal that comes late would otherwise take
//! away what was written after it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Lane, OwnedMutexGuard};

/// The lanes that are in use.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<PathBuf, Arc<Lane<()>>>>);

impl Lanes {
    /// Waits until nobody else changes this file.
    pub(super) async fn enter(&self, file: &Path) -> OwnedMutexGuard<()> {
        let lane = {
            let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody is in, or waits for, a lane that only this map knows.
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
            Arc::clone(lanes.entry(file.to_owned()).or_default())
        };
        lane.lock_owned().await
    }

    /// Waits until nobody changes a file below this folder who began before.
    pub(super) async fn settle(&self, folder: &Path) {
        let below: Vec<_> = {
            let lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let below = lanes.iter().filter(|(file, _)| file.starts_with(folder));
            below.map(|(_, lane)| Arc::clone(lane)).collect()
        };
        for lane in below {
            drop(lane.lock_owned().await);
        }
    }
}
