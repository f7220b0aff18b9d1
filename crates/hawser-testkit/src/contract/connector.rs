//! The contract of the connector port.
