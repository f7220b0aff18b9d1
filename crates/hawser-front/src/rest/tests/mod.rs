//! The API over real sockets, with an engine that lives in memory.

mod book;
mod client;
mod fake;
mod hostile;
mod limits;
mod listeners;
mod logs;
mod rig;
mod routes;
