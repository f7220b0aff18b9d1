//! What device mapper tells of a map of several paths.

use hawser_core::port::kernel::MapTarget;

/// One path of a map, as the kernel uses it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathState {
    /// Major and minor number.
    pub(super) number: (u32, u32),
    /// Reads and writes go there.
    pub(super) active: bool,
}

/// The paths of a map by its status; `None` when that is not the status of such a map.
pub(super) fn paths(status: &[MapTarget]) -> Option<Vec<PathState>> {
    let [target] = status else { return None };
    if target.kind != "multipath" {
        return None;
    }
    let mut words = target.parameters.split_whitespace();
    skip_counted(&mut words)?;
    skip_counted(&mut words)?;
    let groups = count(&mut words)?;
    words.next()?;
    let mut paths = Vec::new();
    for _ in 0..groups {
        words.next()?;
        skip_counted(&mut words)?;
        let (number, arguments) = (count(&mut words)?, count(&mut words)?);
        for _ in 0..number {
            paths.push(path(&mut words)?);
            skip(&mut words, arguments)?;
        }
    }
    Some(paths)
}

type Words<'a> = std::str::SplitWhitespace<'a>;

/// `8:16 A 0`: the device, its state, how often it failed.
fn path(words: &mut Words<'_>) -> Option<PathState> {
    let (major, minor) = words.next()?.split_once(':')?;
    let number = (major.parse().ok()?, minor.parse().ok()?);
    let active = words.next()? == "A";
    words.next()?;
    Some(PathState { number, active })
}

fn count(words: &mut Words<'_>) -> Option<usize> {
    words.next()?.parse().ok()
}

fn skip(words: &mut Words<'_>, number: usize) -> Option<()> {
    for _ in 0..number {
        words.next()?;
    }
    Some(())
}

/// A number, and that many words.
fn skip_counted(words: &mut Words<'_>) -> Option<()> {
    let number = count(words)?;
    skip(words, number)
}
