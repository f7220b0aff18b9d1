//! The contract of the store port.
