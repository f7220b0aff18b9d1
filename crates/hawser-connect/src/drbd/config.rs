//! The configuration of a resource: a text of the storage system, with a gap for the secret.

use hawser_core::secret::Secret;

use crate::shared::error::AttachError;
use crate::shared::fields::invalid;

/// The gap, as Python's `%` operator fills it.
const GAP: &str = "%(shared-secret)s";

/// A resource has a few hundred bytes.
const LONGEST: usize = 64 * 1024;

/// What programs that need no secret find in the gap.
const NO_SECRET: &str = "not-needed-here";

/// Sections that make drbdadm run programs or read files of this host, which a text from outside
/// must not.
const REFUSED: [&str; 3] = ["handlers", "include", "template-file"];

/// Refuses a text that would do more than describe a resource.
pub(super) fn check(config: &str) -> Result<(), AttachError> {
    if config.len() > LONGEST {
        return Err(invalid("config", "must have at most 64 KiB"));
    }
    // By one drbdadm sees the end of a quotation elsewhere, and what is quoted decides what runs.
    if config.contains('\\') {
        return Err(invalid("config", "must not have backslashes"));
    }
    match words(config).into_iter().find(|word| REFUSED.contains(&word.as_str())) {
        None => Ok(()),
        Some(word) => Err(invalid("config", &format!("must not have {word}"))),
    }
}

/// The words outside of comments and quotes.
fn words(config: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quoted, mut comment) = (false, false);
    for c in config.chars() {
        match c {
            // A quotation ends with its line, or drbdadm refuses the whole.
            '\n' => (quoted, comment) = (false, false),
            '#' if !quoted => comment = true,
            '"' if !comment => quoted = !quoted,
            _ => {}
        }
        let part_of_word = c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if part_of_word && !quoted && !comment {
            if let Some(word) = words.last_mut() {
                word.push(c);
            }
        } else {
            words.push(String::new());
        }
    }
    words
}

/// The text with the secret in the gap; without one, with something that is no secret.
pub(super) fn fill(config: &str, secret: Option<&Secret>) -> Result<String, AttachError> {
    let secret = match secret {
        Some(secret) => secret.expose(),
        None => NO_SECRET,
    };
    let legal = |c: char| !c.is_control() && c != '"' && c != '\\';
    if !secret.chars().all(legal) {
        return Err(invalid("provider_auth", "must not have quotes, backslashes or line ends"));
    }
    let parts: Vec<String> = config.split(GAP).map(|part| part.replace("%%", "%")).collect();
    Ok(parts.join(secret))
}

/// True when the text needs a secret.
pub(super) fn has_gap(config: &str) -> bool {
    config.contains(GAP)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_secret_goes_into_the_gap_and_nowhere_else() {
        let config = "net { shared-secret \"%(shared-secret)s\"; } # 100%%";

        let filled = fill(config, Some(&Secret::new("s3cret"))).unwrap();

        assert_eq!(filled, "net { shared-secret \"s3cret\"; } # 100%");
        assert!(fill(config, None).unwrap().contains(NO_SECRET));
        assert!(has_gap(config) && !has_gap("resource r0 {}"));
    }

    #[test]
    fn a_secret_that_would_end_its_quotes_is_refused_without_telling_it() {
        let error = fill("%(shared-secret)s", Some(&Secret::new("a\"; hand"))).unwrap_err();

        assert!(error.to_string().contains("provider_auth"), "{error}");
        assert!(!error.to_string().contains("hand"), "{error}");
    }

    #[test]
    fn a_text_that_runs_programs_or_reads_files_is_refused() {
        for bad in [
            "resource r { handlers { split-brain \"rm\"; } }",
            "include \"/etc/x\";",
            "resource r { template-file \"/etc/x\"; }",
            "resource r { device \"\\\"\" handlers { split-brain \"rm\"; }",
            "resource r { device \"\nhandlers { split-brain rm; }",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        for good in ["resource r { } # no handlers", "resource r { device \"include\"; }"] {
            assert!(check(good).is_ok(), "{good}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_checked_and_filled(config in "\\PC{0,60}", secret in "\\PC{0,20}") {
            let _ = check(&config);
            if let Ok(filled) = fill(&config, Some(&Secret::new(secret.clone()))) {
                prop_assert!(!has_gap(&config) || filled.contains(&secret));
            }
        }
    }
}
