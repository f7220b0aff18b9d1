//! Passwords inside of other fields, as file protocols carry them: among the options of a mount
//! (`-o username=u,password=p`, `user=u%p`), or at the end of an export (`CLUSTER:PASSWORD`).

use crate::secret::Secret;

/// A text without its password, and the password.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// What is left; empty when nothing is.
    pub(crate) rest: String,
    /// The password.
    pub(crate) secret: Secret,
}

/// Options of mounts that are passwords.
const PASSWORD_OPTIONS: [&str; 3] = ["password", "pass", "passwd"];
/// Options of mounts that are user names; `user%password` is an old way to say both.
const USER_OPTIONS: [&str; 2] = ["user", "username"];

/// Splits the password off the options of a mount; `None` when there is none.
pub(crate) fn of_options(options: &str) -> Option<Split> {
    let mut secret = None;
    let mut words: Vec<String> = Vec::new();
    for word in options.split_whitespace() {
        let (lead, list) = split_lead(word);
        let kept: Vec<String> =
            list.split(',').filter_map(|option| keep(option, &mut secret)).collect();
        if !kept.is_empty() {
            words.push(format!("{lead}{}", kept.join(",")));
        } else if words.last().is_some_and(|last| last == "-o" || last == "--options") {
            words.pop();
        }
    }
    secret.map(|secret| Split { rest: words.join(" "), secret })
}

/// `-orw` and `--options=rw` carry a list in the same word.
fn split_lead(word: &str) -> (&str, &str) {
    ["--options=", "-o"]
        .into_iter()
        .find_map(|lead| word.strip_prefix(lead).filter(|list| !list.is_empty()).map(|l| (lead, l)))
        .unwrap_or(("", word))
}

/// The option without a password, if anything is left of it.
fn keep(option: &str, secret: &mut Option<Secret>) -> Option<String> {
    let Some((key, value)) = option.split_once('=') else { return Some(option.into()) };
    if PASSWORD_OPTIONS.contains(&key) {
        *secret = Some(Secret::new(value));
        return None;
    }
    match value.split_once('%') {
        Some((user, password)) if USER_OPTIONS.contains(&key) => {
            *secret = Some(Secret::new(password));
            Some(format!("{key}={user}"))
        }
        Some(_) | None => Some(option.into()),
    }
}

/// Splits the password off `[MDS1[,MDS2]:/]CLUSTER[:PASSWORD]`; `None` when there is none.
pub(crate) fn of_cluster_export(export: &str) -> Option<Split> {
    // What stands before the last `:/` are servers, as os-brick reads it.
    let cluster = export.rfind(":/").map_or(0, |at| at + 2);
    let at = cluster + export[cluster..].find(':')?;
    let secret = Secret::new(&export[at + 1..]);
    Some(Split { rest: export[..at].into(), secret })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(text: &str) -> Option<(String, String)> {
        of_options(text).map(|split| (split.rest, split.secret.expose().to_owned()))
    }

    #[test]
    fn passwords_leave_the_options_of_a_mount() {
        for (text, rest, secret) in [
            ("-o username=u,password=p,rw", "-o username=u,rw", "p"),
            ("-o password=a=b", "", "a=b"),
            ("-opass=p,ro", "-oro", "p"),
            ("--options=ro,passwd=p", "--options=ro", "p"),
            ("user=DOM/u%p%q,seal", "user=DOM/u,seal", "p%q"),
            ("-o rw -o pass=", "-o rw", ""),
        ] {
            assert_eq!(options(text), Some((rest.into(), secret.into())), "{text}");
        }
        for text in ["", "-o rw,noatime", "-o username=u,credentials=/etc/c", "-o"] {
            assert_eq!(options(text), None, "{text}");
        }
    }

    #[test]
    fn a_password_leaves_the_export_of_a_cluster() {
        for (text, rest, secret) in [
            ("c1:p", "c1", "p"),
            ("mds1,mds2:/c1:p:q", "mds1,mds2:/c1", "p:q"),
            ("10.0.0.1:2510:/c1:p", "10.0.0.1:2510:/c1", "p"),
        ] {
            let split = of_cluster_export(text).unwrap();
            assert_eq!((split.rest.as_str(), split.secret.expose()), (rest, secret), "{text}");
        }
        for text in ["", "c1", "mds1:/c1", ":/"] {
            assert_eq!(of_cluster_export(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = (of_options(&text), of_cluster_export(&text));
        }

        #[test]
        fn what_is_left_has_no_password(lead in "(-o )?(rw,)?", secret in "[a-z]{8}") {
            let split = of_options(&format!("{lead}password={secret},vers=3.1.1")).unwrap();
            prop_assert_eq!(split.secret.expose(), &secret);
            prop_assert_eq!(split.rest, format!("{lead}vers=3.1.1"));
        }
    }
}
