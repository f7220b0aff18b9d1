//! The node half.
