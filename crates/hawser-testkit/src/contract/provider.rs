//! The contract of the provider port.
