//! What a namespace says of itself, and what it must say.

use hawser_core::attach::Identity;
use uuid::Uuid;

/// The ids of a namespace. Zeroes count as none, as in the specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) uuid: Option<u128>,
    pub(super) nguid: Option<u128>,
    pub(super) eui: Option<u64>,
    /// Its number in the subsystem: an address, not an identity.
    pub(super) nsid: u32,
    /// The kernel's name for it, by which multipathd knows it as well; empty when not known.
    pub(super) wwid: String,
}

impl Ids {
    /// As sysfs tells them. The file `uuid` shows the NGUID where there is no UUID, so the UUID is
    /// taken from `wwid`, which names what it shows.
    pub(super) fn of_sysfs(wwid: &str, nguid: &str, eui: &str, nsid: &str) -> Self {
        Self {
            uuid: wwid.strip_prefix("uuid.").and_then(hex128),
            nguid: hex128(nguid),
            eui: hex64(eui),
            nsid: nsid.trim().parse().unwrap_or(0),
            wwid: wwid.to_owned(),
        }
    }

    /// As the target tells them now: the list of namespace identification descriptors (CNS 3).
    pub(super) fn of_descriptors(list: &[u8]) -> Self {
        let mut ids = Self::default();
        let mut rest = list;
        // Type, length, two reserved bytes, then the id; a length of 0 ends the list.
        while let [kind, length, _, _, more @ ..] = rest {
            let length = usize::from(*length);
            if length == 0 || more.len() < length {
                break;
            }
            let (id, after) = more.split_at(length);
            match (kind, id.len()) {
                (1, 8) => ids.eui = number(id).and_then(|n| u64::try_from(n).ok()),
                (2, 16) => ids.nguid = number(id),
                (3, 16) => ids.uuid = number(id),
                _ => {}
            }
            rest = after;
        }
        ids
    }

    /// As the target tells them now: Identify Namespace (CNS 0), which has no UUID.
    pub(super) fn of_identify(data: &[u8]) -> Self {
        let eui = data.get(120..128).and_then(number).and_then(|n| u64::try_from(n).ok());
        Self { nguid: data.get(104..120).and_then(number), eui, ..Self::default() }
    }

    /// Takes over what is not known yet.
    pub(super) fn add(&mut self, other: Self) {
        self.uuid = self.uuid.or(other.uuid);
        self.nguid = self.nguid.or(other.nguid);
        self.eui = self.eui.or(other.eui);
    }

    /// Whether both say the same, as far as both say something; `None` when that is nothing.
    pub(super) fn agrees(&self, other: &Self) -> Option<bool> {
        let same = [
            compare(self.uuid, other.uuid),
            compare(self.nguid, other.nguid),
            compare(self.eui.map(u128::from), other.eui.map(u128::from)),
        ];
        if same.contains(&Some(false)) {
            return Some(false);
        }
        same.contains(&Some(true)).then_some(true)
    }

    /// The best of them.
    pub(super) fn strongest(&self) -> Option<Identity> {
        let uuid = self.uuid.map(|id| Identity::new("uuid", Uuid::from_u128(id).to_string()));
        let nguid = || self.nguid.map(|id| Identity::new("nguid", format!("{id:032x}")));
        let eui = || self.eui.map(|id| Identity::new("eui", format!("{id:016x}")));
        uuid.or_else(nguid).or_else(eui)
    }

    /// The best of them, or a word for having none.
    pub(super) fn identity(&self) -> Identity {
        self.strongest().unwrap_or_else(|| Identity::new("uuid", "none"))
    }

    /// For errors.
    pub(super) fn words(&self) -> String {
        let id = self.strongest().map_or_else(|| "without an id".to_owned(), |id| id.to_string());
        if self.nsid == 0 { id } else { format!("{id} (namespace {})", self.nsid) }
    }

    /// True when an identity means this namespace. What cannot be read as an id means none.
    pub(super) fn is(&self, identity: &Identity) -> bool {
        let value = identity.value.as_str();
        match identity.scheme.to_ascii_lowercase().as_str() {
            "uuid" => self.has_uuid(value),
            "nguid" => self.has_nguid(value),
            "eui" => self.has_eui(value),
            "wwid" => self.has_wwid(value),
            _ => false,
        }
    }

    /// Storage systems that set no UUID give the NGUID in its place, as the kernel does.
    fn has_uuid(&self, value: &str) -> bool {
        hex128(value).is_some_and(|id| self.uuid.or(self.nguid) == Some(id))
    }

    fn has_nguid(&self, value: &str) -> bool {
        hex128(value).is_some_and(|id| self.nguid == Some(id))
    }

    /// Links of udev call the NGUID `eui` as well.
    fn has_eui(&self, value: &str) -> bool {
        self.has_nguid(value) || hex64(value).is_some_and(|id| self.eui == Some(id))
    }

    fn has_wwid(&self, value: &str) -> bool {
        let value = value.strip_prefix("nvme-").unwrap_or(value);
        if let Some(uuid) = value.strip_prefix("uuid.") {
            return self.has_uuid(uuid);
        }
        if let Some(eui) = value.strip_prefix("eui.") {
            return self.has_eui(eui);
        }
        let same = !self.wwid.is_empty() && self.wwid.eq_ignore_ascii_case(value);
        same || self.has_uuid(value) || self.has_eui(value)
    }
}

fn compare(a: Option<u128>, b: Option<u128>) -> Option<bool> {
    Some(a? == b?)
}

/// Big-endian; zero is none.
fn number(bytes: &[u8]) -> Option<u128> {
    let number = bytes.iter().fold(0_u128, |sum, byte| (sum << 8) | u128::from(*byte));
    (number != 0).then_some(number)
}

/// What is asked for: how the namespace is found, and everything it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// How it is found.
    pub(super) by: Selector,
    /// What it must be beside that.
    pub(super) also: Vec<Identity>,
    /// What the caller calls it; answered as it came.
    pub(super) named: Option<Identity>,
    /// The number that it is said to have, where the identity finds it: to tell what is there
    /// instead.
    pub(super) number: Option<u32>,
    /// Its name in notes, made of the data: what the caller calls it may be learnt after the note
    /// was written.
    pub(super) key: String,
}

/// How a namespace is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    /// By what it is.
    Identity(Identity),
    /// By its number alone. What is found there is asked for its ids, and held to them from then on.
    Number(u32),
}

impl Wanted {
    /// The strongest id finds it; the number only where nothing better is known. `None` when
    /// nothing is known at all.
    pub(super) fn new(
        ids: Vec<Identity>,
        number: Option<u32>,
        named: Option<Identity>,
    ) -> Option<Self> {
        let key = key(&ids, number, named.as_ref())?;
        let also: Vec<Identity> = ids.into_iter().chain(named.clone()).collect();
        let by = match (also.first(), number) {
            (Some(first), _) => Selector::Identity(first.clone()),
            (None, number) => Selector::Number(number?),
        };
        Some(Self { by, also, named, number, key })
    }

    /// True for the namespace that is meant, unless `refuses` objects.
    pub(super) fn selects(&self, ids: &Ids) -> bool {
        match &self.by {
            Selector::Identity(identity) => ids.is(identity),
            Selector::Number(nsid) => ids.nsid == *nsid,
        }
    }

    /// What it should be and is not.
    pub(super) fn refuses(&self, ids: &Ids) -> Option<&Identity> {
        self.also.iter().find(|identity| !ids.is(identity))
    }

    /// The same, held to an identity that was found out.
    #[must_use]
    pub(super) fn pinned(&self, identity: &Identity) -> Self {
        let mut pinned = self.clone();
        if let Selector::Number(_) = pinned.by {
            pinned.by = Selector::Identity(identity.clone());
        }
        if !pinned.also.contains(identity) {
            pinned.also.push(identity.clone());
        }
        pinned
    }

    /// The name by which the kernel and multipathd will know it, where that can be told before.
    pub(super) fn wwid(&self) -> Option<String> {
        let Selector::Identity(identity) = &self.by else { return None };
        let id = hex128(&identity.value)?;
        match identity.scheme.as_str() {
            "uuid" => Some(format!("uuid.{}", Uuid::from_u128(id))),
            "nguid" => Some(format!("eui.{id:032x}")),
            _ => None,
        }
    }

    /// What is answered for the namespace that was found.
    pub(super) fn identity(&self, ids: &Ids) -> Option<Identity> {
        self.named.clone().or_else(|| ids.strongest())
    }
}

/// A name for notes: the same for every spelling of one wish, another for each other wish.
fn key(ids: &[Identity], number: Option<u32>, named: Option<&Identity>) -> Option<String> {
    let id = |identity: &Identity| {
        let value: String = identity.value.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{}:{}", identity.scheme, value.to_ascii_lowercase())
    };
    match (ids, number) {
        ([], Some(nsid)) => Some(format!("nsid:{nsid}")),
        ([], None) => named.map(id),
        (ids, _) => Some(ids.iter().map(id).collect::<Vec<_>>().join("+")),
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.by {
            Selector::Identity(identity) => write!(f, "namespace {identity}"),
            Selector::Number(nsid) => write!(f, "namespace number {nsid}"),
        }
    }
}

/// 32 hexadecimal digits, with or without hyphens, blanks and `0x`; zero is none.
pub(super) fn hex128(text: &str) -> Option<u128> {
    digits(text, 32)
}

/// 16 hexadecimal digits, likewise.
pub(super) fn hex64(text: &str) -> Option<u64> {
    digits(text, 16).and_then(|id| u64::try_from(id).ok())
}

fn digits(text: &str, count: usize) -> Option<u128> {
    let text = text.trim();
    let text = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let bare: String = text.chars().filter(|c| !matches!(c, '-' | ':' | ' ')).collect();
    if bare.len() != count || !bare.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&bare, 16).ok().filter(|id| *id != 0)
}

#[cfg(test)]
hawser_testkit::fuzz_corpus!(values, "nvme_ids", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let mut next = || lines.next().unwrap_or_default();
    let ids = Ids::of_sysfs(next(), next(), next(), next());
    assert_ne!(ids.agrees(&ids), Some(false));
});

#[cfg(test)]
hawser_testkit::fuzz_corpus!(descriptors, "nvme_descriptors", |bytes| {
    let ids = Ids::of_descriptors(bytes);
    assert_ne!(ids.agrees(&ids), Some(false));
});

#[cfg(test)]
hawser_testkit::fuzz_corpus!(identify, "nvme_identify", |bytes| {
    let ids = Ids::of_identify(bytes);
    assert_ne!(ids.agrees(&ids), Some(false));
});
