//! Numbers of volumes: as the kernel counts, as the wire has them, as storage systems write them.

use std::fmt;

use hawser_core::port::connector::Platform;

use crate::shared::scsi::Addressing;

/// The number of a volume at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lun {
    /// As the kernel counts: the first two bytes of the wire lowest.
    kernel: u64,
}

/// The largest number in flat space: 14 bits.
const LARGEST_FLAT: u64 = 0x3fff;

impl Lun {
    /// The largest number that storage systems write: two levels.
    pub(super) const LARGEST: u64 = 0xffff_ffff;

    /// The number that a storage system wrote. On s390x a number of more than two bytes is written
    /// in the order of the wire (`0x4020400a`), elsewhere as the kernel counts.
    pub(super) fn of(
        number: u64,
        mode: Addressing,
        platform: Platform,
    ) -> Result<Self, &'static str> {
        let two_levels = number > 0xffff;
        match mode {
            Addressing::Plain if two_levels && platform == Platform::S390 => {
                Ok(Self { kernel: ((number & 0xffff) << 16) | (number >> 16) })
            }
            Addressing::Plain => Ok(Self { kernel: number }),
            Addressing::FlatAbove255 | Addressing::Flat if number > LARGEST_FLAT => {
                Err("must be at most 16383 in flat space")
            }
            Addressing::FlatAbove255 | Addressing::Flat => Ok(Self { kernel: mode.lun(number) }),
        }
    }

    /// As the kernel counts.
    pub(super) fn kernel(self) -> u64 {
        self.kernel
    }

    /// The eight bytes of the wire, as zfcp takes and shows them: `0x4020400a00000000`.
    pub(super) fn wire(self) -> String {
        let word = |nth: u32| (self.kernel >> (16 * nth)) & 0xffff;
        format!("0x{:04x}{:04x}{:04x}{:04x}", word(0), word(1), word(2), word(3))
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_written_as_each_platform_does() {
        for (number, mode, platform, kernel, wire) in [
            (1, Addressing::Plain, Platform::X86, 1, "0x0001000000000000"),
            (1, Addressing::Plain, Platform::S390, 1, "0x0001000000000000"),
            (300, Addressing::Plain, Platform::X86, 300, "0x012c000000000000"),
            (255, Addressing::FlatAbove255, Platform::X86, 255, "0x00ff000000000000"),
            (256, Addressing::FlatAbove255, Platform::Ppc64, 16640, "0x4100000000000000"),
            (5, Addressing::Flat, Platform::X86, 16389, "0x4005000000000000"),
            (0x4020_400a, Addressing::Plain, Platform::S390, 0x400a_4020, "0x4020400a00000000"),
            (0x400a_4020, Addressing::Plain, Platform::X86, 0x400a_4020, "0x4020400a00000000"),
        ] {
            let lun = Lun::of(number, mode, platform).unwrap();
            assert_eq!((lun.kernel(), lun.wire().as_str()), (kernel, wire), "{number}");
        }
        assert!(Lun::of(16384, Addressing::Flat, Platform::X86).is_err());
    }
}
