//! The initrd: what finds the guest's root, and the recipe's files that are laid over it.
//!
//! It is made for every run, in a moment; so a changed `lab/init` needs no new image.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::{Attempt, LabError, Result};
use super::image::Parts;
use super::needs;
use super::program::{bound, run};
use super::recipe::Recipe;

/// A program that is not linked statically names this one, which is not in the initrd.
const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2";

/// Makes it in the folder of a run.
pub(super) async fn make(recipe: &Recipe, parts: &Parts, folder: &Path) -> Result<PathBuf> {
    let tree = folder.join("initrd");
    for name in ["bin", "proc", "sys", "dev", "root", "modules", "files/lab"] {
        let path = tree.join(name);
        fs::create_dir_all(&path).attempt(|| format!("making {}", path.display()))?;
    }
    copy(&busybox()?, &tree.join("bin/busybox"))?;
    copy(&recipe.folder.join("initrd"), &tree.join("init"))?;
    copy_tree(&parts.kernel.join("boot"), &tree.join("modules"))?;
    copy_tree(&recipe.folder.join("files"), &tree.join("files"))?;
    copy(&recipe.folder.join("init"), &tree.join("files/lab/init"))?;
    for program in ["init", "files/lab/init", "bin/busybox"] {
        let path = tree.join(program);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .attempt(|| format!("making {} executable", path.display()))?;
    }
    let image = folder.join("initrd.img");
    let mut pack = bound("sh");
    pack.args(["-c", "find . | cpio --quiet -o -H newc -R 0:0 >\"$1\"", "sh"]);
    pack.arg(&image).current_dir(&tree);
    run("packing the initrd", pack).await?;
    Ok(image)
}

fn busybox() -> Result<PathBuf> {
    let missing = || LabError::Missing {
        programs: "busybox that is linked statically (busybox-static)".into(),
    };
    let path = needs::find("busybox").ok_or_else(missing)?;
    let bytes = fs::read(&path).attempt(|| format!("reading {}", path.display()))?;
    let is_static = !bytes.windows(LOADER.len()).any(|window| window == LOADER);
    if is_static { Ok(path) } else { Err(missing()) }
}

/// Copies one file.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::copy(from, to);
    copied.map(drop).attempt(|| format!("copying {} to {}", from.display(), to.display()))
}

/// Copies a folder and all below it.
pub(super) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).attempt(|| format!("making {}", to.display()))?;
    let entries = fs::read_dir(from).attempt(|| format!("listing {}", from.display()))?;
    for entry in entries.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() { copy_tree(&source, &target)? } else { copy(&source, &target)? }
    }
    Ok(())
}
