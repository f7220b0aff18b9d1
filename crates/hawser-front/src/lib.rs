//! Front ends: they translate, the engine decides.
//!
//! A front end parses what a caller says, makes one call of the `Control` or `Node` port, and writes
//! the answer in the caller's own form. One folder per front end, one line each in [`FRONTS`]; the
//! error kinds become HTTP and gRPC codes in [`status`] alone.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "csi")]
pub mod csi;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(test)]
mod logged;
#[cfg(feature = "rest")]
pub mod rest;
#[cfg(any(feature = "csi", feature = "rest"))]
mod shared;
pub mod status;

/// Every front end that is built in.
pub static FRONTS: &[&Front] = &[
    #[cfg(feature = "cli")]
    &cli::FRONT,
    #[cfg(feature = "csi")]
    &csi::FRONT,
    #[cfg(feature = "kubernetes")]
    &kubernetes::FRONT,
    #[cfg(feature = "rest")]
    &rest::FRONT,
];

/// What a front end is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// The word in settings and logs.
    pub name: &'static str,
    /// Who speaks to it, in one line.
    pub about: &'static str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::FRONTS;

    #[test]
    fn every_front_end_has_a_name_of_its_own() {
        let names: BTreeSet<_> = FRONTS.iter().map(|front| front.name).collect();
        assert_eq!(names.len(), FRONTS.len());
    }
}
