//! The command line over a control that only remembers.

mod fake;
mod parsing;
mod printing;
mod waiting;
