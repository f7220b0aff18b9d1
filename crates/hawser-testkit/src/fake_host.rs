//! A host in memory.
