//! Rust source, read as closely as the checks need: comments, literals, tests and functions.
//!
//! A check on words or sizes must not stumble over a brace in a string or a path in a comment, and
//! must not need the file to compile. So this is a lexer for the few tokens that hide others, and
//! nothing more.

mod blank;
mod shape;

pub(crate) use blank::blank;
pub(crate) use shape::{Function, functions, line_of, without_tests};
