//! The contract of the host port.
