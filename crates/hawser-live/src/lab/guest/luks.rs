//! LUKS above the device of any protocol.

use std::fs;
use std::path::Path;
use std::time::Duration;

use hawser_core::attach::{Attach, Encryption, EncryptionFormat};
use hawser_core::connection::ConnectionInfo;
use hawser_core::secret::Secret;
use serde_json::Value;

use super::library::{Host, info};
use super::{cmd, san, settle};

/// The info with the key to its volume.
pub fn with_key(mut info: ConnectionInfo, key: &str) -> ConnectionInfo {
    info.secrets.insert("encryption_key".into(), Secret::new(key));
    info
}

/// Attaches the clear side. Its deadline suits a guest that has no acceleration.
pub fn encrypted(format: EncryptionFormat, format_if_blank: bool) -> Attach {
    let encryption =
        Encryption { format, cipher: None, key_size: None, format_if_blank, discards: false };
    Attach { encryption: Some(encryption), deadline: Duration::from_secs(300), ..Attach::default() }
}

/// A header whose key is cheap to try: the guest is slow, and strength is not what is tested.
#[track_caller]
pub fn make_header(path: &Path, format: EncryptionFormat, key: &str) {
    let word = match format {
        EncryptionFormat::Luks => "luks1",
        EncryptionFormat::Luks2 => "luks2",
    };
    cmd("cryptsetup")
        .args(["luksFormat", "--batch-mode", "--type", word, "--key-file=-"])
        .args(["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"])
        .arg(path)
        .input(key)
        .ok();
}

/// Makes a volume of 32 MiB or more a LUKS2 one, writes through its clear side, detaches it and reads
/// that again; `plain` is how the volume is attached without LUKS. Nothing is attached afterwards, and
/// at the storage there is something else than what was written.
#[track_caller]
pub fn keeps_a_secret(protocol: &str, data: Value, plain: &Attach) {
    const KEY: &str = "correct horse";
    let text = b"battery staple ".repeat(512);
    let host = Host::new();
    let below = info(protocol, data);
    let device = host.connect(&below, plain).expect("attached as it is");
    make_header(&device, EncryptionFormat::Luks2, KEY);
    // Who writes to a device makes udev look at it once more, and it is busy while udev looks.
    settle();
    host.disconnect(&below).expect("detached as it is");

    let attach = Attach { multipath: plain.multipath, ..encrypted(EncryptionFormat::Luks2, false) };
    let secret = with_key(below.clone(), KEY);
    let clear = host.connect(&secret, &attach).expect("attached");
    let node = clear.canonicalize().expect("a node");
    let name = node.file_name().expect("a device").to_string_lossy().into_owned();
    let uuid = fs::read_to_string(format!("/sys/block/{name}/dm/uuid")).expect("a map");
    assert!(uuid.starts_with("CRYPT-LUKS2"), "{} leads to {uuid}", clear.display());
    let begin = begin_of(&name);
    san::write(&clear, 0, &text);
    settle();
    host.disconnect(&secret).expect("detached");

    let clear = host.connect(&secret, &attach).expect("attached again");
    assert_eq!(san::read(&clear, 0, text.len()), text, "what was written before");
    settle();
    host.disconnect(&secret).expect("detached again");

    let device = host.connect(&below, plain).expect("attached as it is");
    let stored = san::read(&device, begin, text.len());
    settle();
    host.disconnect(&below).expect("detached as it is");
    assert_ne!(stored, text, "plain text at the storage");
    assert_ne!(stored, vec![0; text.len()], "nothing at the storage");
}

/// Where the data of an open LUKS device begins: cryptsetup goes by what the disk says of itself.
#[track_caller]
fn begin_of(node: &str) -> u64 {
    let name = fs::read_to_string(format!("/sys/block/{node}/dm/name")).expect("a map");
    let table = cmd("dmsetup").args(["table", name.trim()]).ok();
    // start length "crypt" cipher key iv-offset device offset
    let sectors = table.split_whitespace().nth(7).and_then(|word| word.parse::<u64>().ok());
    sectors.unwrap_or_else(|| panic!("no offset in {table:?}")) * 512
}
