//! Links over pairs of streams and over TLS, with a node and a control half that only remember.

mod calls;
mod certificates;
mod dialling;
mod fake;
mod fake_control;
mod hostile;
mod hubs;
mod logs;
mod tls;
mod upwards;
