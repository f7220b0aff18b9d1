//! Rigs for tests of Hawser as a whole.
//!
//! `rig` assembles the engine in this process, over the fake host, with fault points around every
//! port; `stage` makes its process die and its store fail. `process` runs the shipped program instead,
//! and `churn` keeps it busy with random clients while it is killed. `lab` runs tests in a guest with a
//! real kernel and real targets, `cluster` a real Kubernetes, and csi-sanity. `report` prints the figures
//! of benches. The tests are in `tests/`, one file per question.

pub mod book;
mod child;
pub mod churn;
pub mod cluster;
pub mod lab;
pub mod process;
pub mod raw;
pub mod real;
pub mod report;
pub mod rig;
pub mod stage;
pub mod steps;
pub mod traces;
