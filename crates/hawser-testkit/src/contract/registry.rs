//! The contract of the registry port.
