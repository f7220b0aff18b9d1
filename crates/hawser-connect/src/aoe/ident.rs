//! What a target says of its disk: the 512 bytes of ATA IDENTIFY DEVICE, as the driver tells them.

use hawser_core::attach::Identity;

/// How long it is.
pub(super) const LENGTH: usize = 512;

/// What of it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ident {
    pub(super) serial: String,
}

impl Ident {
    /// Reads it; a short or empty answer has no serial number.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        // Words 10 to 19.
        Self { serial: text(bytes.get(20..40).unwrap_or_default()) }
    }

    /// The serial number as an identity, where the target tells one.
    pub(super) fn identity(&self) -> Option<Identity> {
        (!self.serial.is_empty()).then(|| Identity::new("serial", &self.serial))
    }
}

/// Texts of ATA have blanks at the end. Their characters are swapped on the wire; the driver has put
/// them right.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).filter(char::is_ascii_graphic).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_serial_number_is_read_as_the_target_meant_it() {
        let mut bytes = vec![0; LENGTH];
        bytes[20..40].copy_from_slice(b"7.1:lab             ");

        let ident = Ident::parse(&bytes);

        assert_eq!(ident.serial, "7.1:lab");
        assert_eq!(ident.identity(), Some(Identity::new("serial", "7.1:lab")));
        assert_eq!(Ident::parse(&[0; LENGTH]).identity(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let serial = Ident::parse(&bytes).serial;
            prop_assert!(serial.len() <= 20 && serial.is_ascii());
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "ata_identify", |bytes| {
        let serial = Ident::parse(bytes).serial;
        assert!(serial.len() <= 20 && serial.is_ascii(), "{serial:?}");
    });
}
