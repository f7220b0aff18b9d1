//! Faults in the middle of the shipped program, and what is left after them.

mod kills;
mod stage;
mod tool;

pub use kills::Kills;
pub use stage::Stage;
pub use tool::{Asked, MAPS, TWO, Tally};
