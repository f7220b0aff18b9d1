//! Keeps secrets out of what is logged and reported.

use std::fmt;

use hawser_core::port::host::{Arg, Tool};

/// A shorter secret would blank out half of any text, and is none.
const SHORTEST: usize = 4;

/// Prints a command as it would be typed, hidden arguments as `***`.
pub(crate) struct Shown<'a>(pub(crate) &'a Tool);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.program)?;
        for arg in &self.0.args {
            match arg {
                Arg::Plain(text) => write!(f, " {}", text.to_string_lossy())?,
                Arg::Hidden(_) => f.write_str(" ***")?,
            }
        }
        Ok(())
    }
}

/// Blanks out the secrets of a command in what it complained of: some programs repeat their
/// arguments or their input in error messages.
pub(crate) fn scrub(tool: &Tool, text: String) -> String {
    let hidden = tool.args.iter().filter_map(|arg| match arg {
        Arg::Hidden(secret) => Some(secret.expose()),
        Arg::Plain(_) => None,
    });
    let given = tool.stdin.iter().flat_map(|secret| secret.expose().lines());
    blank_out(hidden.chain(given), text)
}

/// Blanks out secrets in a text of others.
pub(crate) fn blank_out<'a>(secrets: impl Iterator<Item = &'a str>, text: String) -> String {
    secrets
        .map(str::trim)
        .filter(|secret| secret.len() >= SHORTEST)
        .fold(text, |text, secret| text.replace(secret, "***"))
}

#[cfg(test)]
mod tests {
    use hawser_core::secret::Secret;

    use super::*;

    #[test]
    fn a_hidden_argument_is_shown_as_stars() {
        let mut tool = Tool::new("iscsiadm").arg("-v");
        tool.args.push(Arg::Hidden(Secret::new("hunter2")));

        assert_eq!(Shown(&tool).to_string(), "iscsiadm -v ***");
        assert!(!format!("{tool:?}").contains("hunter2"));
    }

    #[test]
    fn a_secret_in_a_complaint_is_blanked_out() {
        let mut tool = Tool::new("x");
        tool.args.push(Arg::Hidden(Secret::new("hunter2")));
        tool.stdin = Some(Secret::new("line one\nline two\n"));

        let text = scrub(&tool, "bad password hunter2 or line two".into());

        assert_eq!(text, "bad password *** or ***");
    }
}
