//! Volumes of storage systems: what lies behind the block devices of fake hosts.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hawser_core::ByteSize;

use super::reservation::Registrations;

/// A volume of a storage system. Clones are the same volume: two fake hosts that have one see the
/// same bytes and the same reservation.
#[derive(Clone)]
pub struct Lun(Arc<Mutex<State>>);

struct State {
    file: Arc<File>,
    size: u64,
    naa: Option<String>,
    pages: BTreeMap<Option<u8>, Vec<u8>>,
    identify: Vec<u8>,
    descriptors: Vec<u8>,
    read_only: bool,
    registrations: Registrations,
}

impl Lun {
    /// A blank volume without a name.
    pub fn new(size: ByteSize) -> Self {
        let fd = rustix::fs::memfd_create("lun", rustix::fs::MemfdFlags::CLOEXEC)
            .expect("memory for a volume");
        let file = File::from(fd);
        file.set_len(size.get()).expect("a volume can be sized");
        Self(Arc::new(Mutex::new(State {
            file: Arc::new(file),
            size: size.get(),
            naa: None,
            pages: BTreeMap::new(),
            identify: Vec::new(),
            descriptors: Vec::new(),
            read_only: false,
            registrations: Registrations::default(),
        })))
    }

    /// A SCSI volume with a NAA name, such as `600140512345678901234567890abcde`.
    pub fn scsi(naa: &str, size: ByteSize) -> Self {
        let lun = Self::new(size);
        lun.set_naa(naa);
        lun
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another NAA name, with the pages that tell it.
    pub fn set_naa(&self, naa: &str) {
        let serial = naa.get(7..).unwrap_or(naa);
        let mut state = self.state();
        state.naa = Some(naa.to_lowercase());
        state.pages.insert(None, standard_inquiry());
        state.pages.insert(Some(0x00), page(0x00, &[0x00, 0x80, 0x83]));
        state.pages.insert(Some(0x80), page(0x80, serial.as_bytes()));
        state.pages.insert(Some(0x83), page(0x83, &designators(&hex(naa), serial)));
    }

    /// One page of vital product data, or the standard answer, as it goes over the wire.
    pub fn set_page(&self, page: Option<u8>, bytes: impl Into<Vec<u8>>) {
        self.state().pages.insert(page, bytes.into());
    }

    /// What it answers to INQUIRY.
    pub fn page(&self, page: Option<u8>) -> Option<Vec<u8>> {
        self.state().pages.get(&page).cloned()
    }

    /// The NAA name, without the prefix `naa.`.
    pub fn naa(&self) -> Option<String> {
        self.state().naa.clone()
    }

    /// What it answers to NVMe Identify Namespace; the size is filled in.
    pub fn set_identify(&self, bytes: Vec<u8>) {
        assert_eq!(bytes.len(), 4096, "an identify answer has 4096 bytes");
        self.state().identify = bytes;
    }

    /// The answer to NVMe Identify Namespace; `None` when it is no namespace.
    pub fn identify(&self) -> Option<Vec<u8>> {
        let state = self.state();
        let mut bytes = state.identify.clone();
        // FLBAS picks the LBA format, whose fourth byte but one is the exponent of the block size.
        let format = usize::from(bytes.get(26)? & 0x0f);
        let exponent = *bytes.get(128 + 4 * format + 2)?;
        let blocks = state.size >> exponent.max(9);
        for at in [0, 8, 16] {
            bytes[at..at + 8].copy_from_slice(&blocks.to_le_bytes());
        }
        Some(bytes)
    }

    /// The NVMe namespace identification descriptors that it answers with.
    pub fn set_descriptors(&self, bytes: Vec<u8>) {
        assert_eq!(bytes.len(), 4096, "an identify answer has 4096 bytes");
        self.state().descriptors = bytes;
    }

    /// The answer to NVMe Identify for its ids; `None` when it is no namespace.
    pub fn descriptors(&self) -> Option<Vec<u8>> {
        Some(self.state().descriptors.clone()).filter(|bytes| !bytes.is_empty())
    }

    /// How large it is now at the storage system.
    pub fn size(&self) -> u64 {
        self.state().size
    }

    /// The storage system makes it larger (or, never asked for, smaller).
    pub fn resize(&self, size: ByteSize) {
        let mut state = self.state();
        state.file.set_len(size.get()).expect("a volume can be sized");
        state.size = size.get();
    }

    /// The storage system lets nobody write.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// True when the storage system lets nobody write.
    pub fn is_read_only(&self) -> bool {
        self.state().read_only
    }

    /// Bytes past every cache.
    pub fn read_at(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let got = self.state().file.read_at(&mut bytes, at).expect("a volume can be read");
        bytes.truncate(got);
        bytes
    }

    /// Changes bytes at the storage system, whoever holds a reservation.
    pub fn write_at(&self, at: u64, bytes: &[u8]) {
        self.state().file.write_all_at(bytes, at).expect("a volume can be written");
    }

    pub(in crate::fake_host) fn backing(&self) -> Arc<File> {
        self.state().file.clone()
    }

    /// Looks at or changes registrations and the reservation.
    pub fn registrations<R>(&self, act: impl FnOnce(&mut Registrations) -> R) -> R {
        act(&mut self.state().registrations)
    }

    /// True when both are the same volume.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What a storage system shows this host at one target: volumes by number. Clones show the same, so
/// several paths lead to the same volumes; what is shown may change while devices are attached.
#[derive(Clone, Default)]
pub struct Target(Arc<Mutex<BTreeMap<u64, Lun>>>);

impl Target {
    /// A target that shows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows a volume under a number, in place of what was there.
    #[must_use]
    pub fn with(self, number: u64, lun: &Lun) -> Self {
        self.show(number, lun);
        self
    }

    /// Shows a volume under a number, in place of what was there: hosts are not told.
    pub fn show(&self, number: u64, lun: &Lun) {
        self.map().insert(number, lun.clone());
    }

    /// Shows nothing under a number any more: hosts are not told.
    pub fn hide(&self, number: u64) {
        self.map().remove(&number);
    }

    /// What is under a number now.
    pub fn get(&self, number: u64) -> Option<Lun> {
        self.map().get(&number).cloned()
    }

    /// The numbers that have a volume.
    pub fn numbers(&self) -> Vec<u64> {
        self.map().keys().copied().collect()
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<u64, Lun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page of vital product data with its header.
fn page(code: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("a page is short");
    [&[0, code], length.to_be_bytes().as_slice(), rest].concat()
}

/// As LIO answers: the name of the volume, its T10 text, and the port, which is not the volume's.
fn designators(naa: &[u8], serial: &str) -> Vec<u8> {
    let t10 = format!("LIO-ORG disk:{serial}");
    let one = |code_set: u8, kind: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).expect("a designator is short");
        [&[code_set, kind, 0, length], bytes].concat()
    };
    [one(1, 3, naa), one(2, 1, t10.as_bytes()), one(1, 0x14, &[0, 0, 0, 1])].concat()
}

fn standard_inquiry() -> Vec<u8> {
    let mut bytes = vec![0, 0, 6, 2, 31, 0, 0, 2];
    bytes.extend_from_slice(b"LIO-ORG disk            4.0 ");
    bytes
}

fn hex(text: &str) -> Vec<u8> {
    assert!([16, 32].contains(&text.len()), "{text:?} is no NAA name: 16 or 32 digits");
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(byte).collect()
}
