//! The parts of a guest in the cache, built where they are missing.

use std::path::PathBuf;

use super::build;
use super::cache::Cache;
use super::error::{LabError, Result};
use super::recipe::Recipe;
use crate::lab::suites::{BENCHES, Image};

/// A guest that can be booted.
#[derive(Debug)]
pub(super) struct Parts {
    /// Folder with `root.img`.
    pub(super) root: PathBuf,
    /// Folder with `vmlinuz`, `modules.img`, and in `boot/` the modules that find the root.
    pub(super) kernel: PathBuf,
}

/// The names of all parts of this recipe.
pub(super) fn names(recipe: &Recipe) -> Result<Vec<String>> {
    let roots = [Image::Core, Image::Full].map(|image| recipe.root_name(image));
    let mut names: Vec<String> = roots.into_iter().chain([recipe.kernel_name()]).collect();
    for list in BENCHES.iter().filter_map(|bench| bench.python) {
        names.push(recipe.python(list)?.1);
    }
    Ok(names)
}

/// The parts of an image; builds them when they are missing, or always when `fresh`.
pub(super) async fn ensure(
    recipe: &Recipe,
    cache: &Cache,
    image: Image,
    fresh: bool,
) -> Result<Parts> {
    let (root_name, kernel_name) = (recipe.root_name(image), recipe.kernel_name());
    let parts = Parts { root: cache.part(&root_name), kernel: cache.part(&kernel_name) };
    if parts.root.is_dir() && parts.kernel.is_dir() && !fresh {
        return Ok(parts);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::NotRoot { cache: cache.path().to_owned() });
    }
    super::needs::check(super::needs::TO_BUILD)?;
    let building = cache.building().await?;
    // Somebody else may have built it while we waited.
    let (root_missing, kernel_missing) = (!parts.root.is_dir(), !parts.kernel.is_dir());
    tokio::try_join!(
        async {
            if root_missing || fresh {
                return build::root(recipe, &building, image, &root_name).await;
            }
            Ok(())
        },
        async {
            if kernel_missing || fresh {
                return build::kernel(recipe, &building, &kernel_name).await;
            }
            Ok(())
        },
    )?;
    Ok(parts)
}

/// The folder with the packages of a list for Python; fetched when it is missing.
pub(super) async fn python(recipe: &Recipe, cache: &Cache, list: &str) -> Result<PathBuf> {
    let (packages, name) = recipe.python(list)?;
    let part = cache.part(&name);
    if !part.is_dir() {
        super::needs::check(super::needs::FOR_PYTHON)?;
        let building = cache.building().await?;
        if !part.is_dir() {
            build::python(&building, &packages, &name).await?;
        }
    }
    Ok(part.join("packages"))
}
