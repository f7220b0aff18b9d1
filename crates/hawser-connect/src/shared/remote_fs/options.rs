//! Options of mounts, as callers write them: `-o rw,noatime`.

use super::super::error::AttachError;
use super::super::fields::invalid;

/// Options that make another call of a mount, or another source; nobody who only wants a volume
/// needs them.
const REFUSED: [&str; 17] = [
    "remount",
    "bind",
    "rbind",
    "move",
    "loop",
    "offset",
    "sizelimit",
    "source",
    "shared",
    "rshared",
    "private",
    "rprivate",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
    "addr",
];

/// Words of `fstab` that say when to mount, not how; only mount(8) knows them.
const DROPPED: [&str; 14] = [
    "defaults", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "owner", "group",
    "async", "atime", "bg", "fg",
];

/// The same with values.
const DROPPED_KEYS: [&str; 2] = ["comment", "retry"];

/// Labels of SELinux. Their values have commas, and come in quotes for the sake of mount(8).
const LABELS: [&str; 4] = ["context", "fscontext", "defcontext", "rootcontext"];

/// Checked options, in the order they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    list: Vec<(String, Option<String>)>,
    read_only: Option<bool>,
}

impl Options {
    /// Reads `-o LIST`, `-oLIST`, `--options=LIST`, `-r`, `-w`, or the bare list. Nothing else that
    /// mount(8) takes as an argument.
    pub(crate) fn parse(text: &str) -> Result<Self, AttachError> {
        let mut options = Self::default();
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let list = match word {
                "-o" | "--options" => {
                    words.next().ok_or_else(|| invalid("options", "ends in -o without a list"))?
                }
                "-r" | "--read-only" => "ro",
                "-w" | "--rw" | "--read-write" => "rw",
                _ => match word.strip_prefix("--options=").or_else(|| word.strip_prefix("-o")) {
                    Some(list) => list,
                    None if word.starts_with('-') => {
                        let word: String = word.chars().take(32).collect();
                        return Err(invalid("options", &format!("has {word:?}; only -o is taken")));
                    }
                    None => word,
                },
            };
            for option in list.split(',').filter(|option| !option.is_empty()) {
                options.add(option)?;
            }
        }
        Ok(options)
    }

    /// One more option.
    pub(crate) fn add(&mut self, option: &str) -> Result<(), AttachError> {
        let short: String = option.chars().take(64).collect();
        let refuse = |why: &str| Err(invalid("options", &format!("has {short:?}: {why}")));
        if option.is_empty() || option.len() > 1024 {
            return refuse("an option has 1 to 1024 characters");
        }
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option, None),
        };
        // A user of a domain is written with a backslash.
        let user = ["user", "username"].contains(&key);
        let label = LABELS.contains(&key);
        let value = if label { value.map(without_quotes) } else { value };
        let plain = |b: u8| b.is_ascii_graphic() && !b"\"'".contains(&b) && (user || b != b'\\');
        let alone = |b: u8| plain(b) && b != b',';
        let is_plain = |value: &str| value.bytes().all(|b| if label { plain(b) } else { alone(b) });
        if !key.bytes().all(alone) || !value.is_none_or(is_plain) {
            return refuse("only visible characters without commas, quotes and backslashes");
        }
        if key.is_empty() || key.starts_with('-') {
            return refuse("it has no name");
        }
        if REFUSED.contains(&key) {
            return refuse("it would make this another call than a mount of the export");
        }
        match (key, value) {
            ("ro", None) => self.read_only = Some(true),
            ("rw", None) => self.read_only = Some(false),
            (key, None) if DROPPED.contains(&key) => {}
            (key, Some(_)) if DROPPED_KEYS.contains(&key) => {}
            (key, _) if key.starts_with("x-") || key.starts_with("X-") => {}
            (key, value) => self.list.push((key.into(), value.map(str::to_owned))),
        }
        Ok(())
    }

    /// What they say of writing: true for `ro`.
    pub(crate) fn read_only(&self) -> Option<bool> {
        self.read_only
    }

    /// The value of an option; the last one counts.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.list.iter().rev().find(|(name, _)| name == key).and_then(|(_, value)| value.as_deref())
    }

    /// True when the option is there, with a value or without.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.list.iter().any(|(name, _)| name == key)
    }

    /// Takes every option of these names out, and answers the last value.
    pub(crate) fn take(&mut self, keys: &[&str]) -> Option<String> {
        let mut found = None;
        self.list.retain_mut(|(name, value)| {
            let take = keys.contains(&name.as_str());
            if take {
                found = value.take().or_else(|| found.take());
            }
            !take
        });
        found
    }

    /// Takes every option of these names out, and answers whether there was one.
    pub(crate) fn take_flag(&mut self, keys: &[&str]) -> bool {
        let before = self.list.len();
        self.list.retain(|(name, _)| !keys.contains(&name.as_str()));
        self.list.len() != before
    }

    /// A port number, where the option is there.
    pub(crate) fn port(&self, key: &str) -> Result<Option<u16>, AttachError> {
        let Some(text) = self.value(key) else { return Ok(None) };
        match text.parse() {
            Ok(0) | Err(_) => Err(invalid("options", &format!("has {key}, which is no port"))),
            Ok(port) => Ok(Some(port)),
        }
    }

    /// Each as one word, without `ro` and `rw`; one with a comma in quotes, as mount(8) takes it.
    pub(crate) fn words(&self) -> Vec<String> {
        let word = |(key, value): &(String, Option<String>)| match value {
            Some(value) if value.contains(',') => format!("{key}=\"{value}\""),
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        };
        self.list.iter().map(word).collect()
    }
}

fn without_quotes(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        Options::parse(text).unwrap().words()
    }

    #[test]
    fn all_ways_to_write_a_list_are_read() {
        for text in ["-o a,b=1", "-oa,b=1", "--options=a,b=1", "--options a -o b=1", " a,,b=1 "] {
            assert_eq!(words(text), ["a", "b=1"], "{text}");
        }
        assert!(words("").is_empty());
    }

    #[test]
    fn access_is_told_apart_and_words_of_fstab_are_left_out() {
        let options =
            Options::parse("-r -o _netdev,nofail,x-systemd.automount,retry=2,hard").unwrap();

        assert_eq!(options.read_only(), Some(true));
        assert_eq!(options.words(), ["hard"]);
        assert_eq!(Options::parse("-o ro,rw").unwrap().read_only(), Some(false));
        assert_eq!(Options::parse("-o hard").unwrap().read_only(), None);
    }

    #[test]
    fn arguments_that_are_no_options_of_this_mount_are_refused_by_name() {
        for text in [
            "-t ext4",
            "--bind",
            "-o",
            "-o remount",
            "-o bind",
            "-o addr=1.2.3.4",
            "-o source=/dev/sda",
            "-o context=\"a,b\"",
            "-o sec=\"sys\"",
            "-o =x",
            "-o --fake",
            "-o a\u{7}b",
            "-o a=b\\c",
        ] {
            let said = Options::parse(text).unwrap_err().to_string();
            assert!(said.contains("options"), "{text}: {said}");
        }
    }

    #[test]
    fn a_label_of_selinux_is_one_option_with_commas_and_all() {
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        for given in [format!("context=\"{label}\""), format!("context={label}")] {
            let mut options = Options::default();
            options.add(&given).unwrap();

            assert_eq!(options.value("context"), Some(label), "{given}");
            assert_eq!(options.words(), [format!("context=\"{label}\"")]);
        }
        for bad in ["context=\"a\"b\"", "context=a\\b", "sec=sys,bind", "context=a b"] {
            assert!(Options::default().add(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_value_counts_and_can_be_taken_out() {
        let mut options = Options::parse("-o vers=3,vers=4.1,port=2050,guest").unwrap();

        assert_eq!(options.value("vers"), Some("4.1"));
        assert_eq!(options.port("port").unwrap(), Some(2050));
        assert_eq!(options.take(&["vers", "nfsvers"]).as_deref(), Some("4.1"));
        assert!(options.take_flag(&["guest"]) && !options.take_flag(&["guest"]));
        assert_eq!(options.words(), ["port=2050"]);
        assert!(Options::parse("-o port=x").unwrap().port("port").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            if let Ok(options) = Options::parse(&text) {
                for word in options.words() {
                    prop_assert!(!word.contains([',', ' ', '"']), "{}", word);
                    let key = word.split('=').next().unwrap_or_default();
                    prop_assert!(!REFUSED.contains(&key), "{}", word);
                }
            }
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "mount_options", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = Options::parse(&text);
    });
}
