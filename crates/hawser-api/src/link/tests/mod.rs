//! Links over pairs of streams, with a node that only remembers.

mod calls;
mod dialling;
mod fake;
mod hostile;
mod hubs;
