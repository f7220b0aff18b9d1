//! The JSON of `/v1`.
//!
//! Keys are in snake case, sizes are whole bytes, times are RFC 3339 in UTC. Request bodies refuse
//! fields they do not know, so that a misspelt setting is never silently ignored; answers may gain
//! fields, and clients skip what they do not know.

mod mirror;

pub mod classes;
pub mod doctor;
pub mod events;
pub mod groups;
pub mod list;
pub mod nodes;
pub mod operations;
pub mod problem;
pub mod publications;
pub mod reference;
pub mod schema;
pub mod snapshots;
pub mod volumes;
pub mod wait;

#[cfg(test)]
mod tests;

/// The response header that says whether a finished change did something (`made`) or found it done
/// (`already`); the status alone cannot say so for changes that make no new object.
pub const CHANGE_HEADER: &str = "hawser-change";

/// The media type of a refusal, from RFC 9457.
pub const PROBLEM_TYPE: &str = "application/problem+json";
