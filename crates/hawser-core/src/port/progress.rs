//! How long work tells how far it is.

/// Hears how far a piece of work has come. Calls are cheap and may be frequent.
pub trait Progress: Send + Sync {
    /// A new step began; its amount is not known yet.
    fn step(&self, what: &str);

    /// So much of the step is done. `total` 0 means that it cannot be said.
    fn amount(&self, done: u64, total: u64);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&self, _what: &str) {}
    fn amount(&self, _done: u64, _total: u64) {}
}
