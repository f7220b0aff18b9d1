//! The lab's outside: builds guests, boots them, runs suites in them and counts.
//!
//! Every step is a future whose drop undoes it: a program that it started is killed, a folder that
//! it filled is removed. So an interrupt is nothing but a drop. Programs die with this process even
//! when it is killed without a chance to clean up; folders of such a run go with the next one.

mod apt;
mod build;
mod cache;
mod cargo;
mod error;
mod image;
mod initrd;
mod job;
mod needs;
mod program;
mod qemu;
mod recipe;
mod run;
mod tally;
mod vm;

use std::ffi::OsString;
use std::path::PathBuf;

pub use cargo::Build;
pub use error::{LabError, Result};
pub use job::Stage;
pub use run::{bench, run, shell};

use super::suites::Image;
use cache::Cache;
use recipe::Recipe;

/// Where the lab finds and keeps things.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The top of the source tree.
    pub repo: PathBuf,
    /// Images and everything that a run writes; see [`Lab::clean`].
    pub cache: PathBuf,
    /// The cargo that builds what goes into a guest.
    pub cargo: OsString,
}

impl Lab {
    /// Builds what is missing for these images; with `fresh` also what is there, from the newest
    /// packages.
    pub async fn build(&self, images: &[Image], fresh: bool) -> Result<()> {
        let recipe = Recipe::read(&self.repo.join("lab"))?;
        let cache = Cache::open(&self.cache)?;
        for image in images {
            image::ensure(&recipe, &cache, *image, fresh).await?;
        }
        Ok(())
    }

    /// Removes the images of earlier recipes, or all of them; says what it removed.
    pub fn clean(&self, all: bool) -> Result<()> {
        let recipe = Recipe::read(&self.repo.join("lab"))?;
        let cache = Cache::open(&self.cache)?;
        let keep = if all { Vec::new() } else { image::names(&recipe)? };
        cache.clean(&keep)
    }
}

/// Progress of steps that take longer than a moment. On standard error, beside the tests' output.
pub(crate) fn say(line: &str) {
    eprintln!("lab: {line}");
}
