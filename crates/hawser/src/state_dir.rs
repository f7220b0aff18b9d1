//! Where the state folder is when nobody says.

use std::path::{Path, PathBuf};

use hawser_core::error::{Error, Kind, Result};

/// The folder that was given, else `/var/lib/hawser` for root, else the user's own state folder.
#[expect(clippy::disallowed_methods, reason = "the one place that looks for a user's own folders")]
pub(crate) fn find(given: Option<&Path>) -> Result<PathBuf> {
    let (xdg, home) = (std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
    let folder = choose(
        given,
        rustix::process::geteuid().is_root(),
        xdg.map(PathBuf::from),
        home.map(PathBuf::from),
    )?;
    std::path::absolute(folder).map_err(|source| Error::from_source(Kind::Invalid, source))
}

fn choose(
    given: Option<&Path>,
    root: bool,
    xdg: Option<PathBuf>,
    home: Option<PathBuf>,
) -> Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if root {
        return Ok("/var/lib/hawser".into());
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = xdg.filter(absolute);
    let state = state.or(home.filter(absolute).map(|home| home.join(".local/state")));
    state.map(|state| state.join("hawser")).ok_or_else(|| {
        Error::new(Kind::Invalid, "there is no home folder to keep state in; give --state-dir")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_that_was_given_wins() {
        let given = choose(Some(Path::new("/a")), true, Some("/b".into()), None).unwrap();
        assert_eq!(given, Path::new("/a"));
    }

    #[test]
    fn everybody_else_has_a_folder_of_their_own() {
        let home = || Some(PathBuf::from("/users/u"));
        assert_eq!(choose(None, true, None, home()).unwrap(), Path::new("/var/lib/hawser"));
        let xdg = choose(None, false, Some("/x".into()), home()).unwrap();
        assert_eq!(xdg, Path::new("/x/hawser"));
        let plain = choose(None, false, Some("relative".into()), home()).unwrap();
        assert_eq!(plain, Path::new("/users/u/.local/state/hawser"));
        assert!(choose(None, false, None, None).is_err());
    }
}
