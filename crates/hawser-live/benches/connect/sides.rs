//! Who attaches: Hawser, os-brick, and a script that does as little as can be done.

use std::path::PathBuf;
use std::time::Duration;

use crate::place::{Volume, Ways};

/// Attaches and detaches; answers how long it took.
pub(crate) trait Side {
    /// Its name in complaints.
    fn name(&self) -> &'static str;

    /// Before its turn, outside of what is measured.
    fn prepare(&mut self) {}

    /// Attaches all of these at once; answers their devices too.
    fn connect(&mut self, volumes: &[&Volume], ways: Ways) -> (Duration, Vec<PathBuf>);

    /// Detaches them at once.
    fn disconnect(&mut self, volumes: &[&Volume], ways: Ways) -> Duration;

    /// After its turn.
    fn finish(&mut self) {}
}
