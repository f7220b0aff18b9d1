//! Fakes that behave like the real thing, and the contract suites that both must pass.
//!
//! Only ever a dev-dependency.

pub mod contract;
pub mod fake_host;
pub mod fault;
pub mod fuzz;
pub mod mem_store;
pub mod sim;
pub mod skip;

pub use skip::skip;
