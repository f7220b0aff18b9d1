//! Tests of the control half.
