//! How large something is to be.

use hawser_api::csi::v1::CapacityRange;
use hawser_core::ByteSize;

use crate::csi::error::CsiError;

/// How large something is to be, checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::csi) struct Range {
    /// At least so large.
    pub(in crate::csi) required: Option<ByteSize>,
    /// At most so large.
    pub(in crate::csi) limit: Option<ByteSize>,
}

impl Range {
    /// Reads one; absent is no wish at all. `Kind::Invalid` for negative numbers, `Kind::OutOfRange`
    /// for a range that nothing is in.
    pub(in crate::csi) fn read(given: Option<CapacityRange>) -> Result<Self, CsiError> {
        let Some(CapacityRange { required_bytes, limit_bytes }) = given else {
            return Ok(Self::default());
        };
        let required = size("required_bytes", required_bytes)?;
        let limit = size("limit_bytes", limit_bytes)?;
        match (required, limit) {
            (Some(required), Some(limit)) if required > limit => {
                Err(CsiError::EmptyRange { required, limit })
            }
            (required, limit) => Ok(Self { required, limit }),
        }
    }

    /// The size to ask for, with this one where the caller has no wish.
    pub(in crate::csi) fn size_or(self, default: ByteSize) -> ByteSize {
        let default = self.limit.map_or(default, |limit| limit.min(default));
        self.required.unwrap_or(default)
    }
}

/// 0 is absent.
fn size(field: &'static str, value: i64) -> Result<Option<ByteSize>, CsiError> {
    let bytes = u64::try_from(value).map_err(|_| CsiError::Negative { field, value })?;
    Ok((bytes > 0).then(|| ByteSize::bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use hawser_core::{Classify, Kind};

    use super::*;

    fn read(required_bytes: i64, limit_bytes: i64) -> Result<Range, CsiError> {
        Range::read(Some(CapacityRange { required_bytes, limit_bytes }))
    }

    #[test]
    fn zero_is_no_wish() {
        assert_eq!(read(0, 0).unwrap(), Range::default());
        assert_eq!(Range::read(None).unwrap(), Range::default());
    }

    #[test]
    fn the_size_asked_for_keeps_to_the_range() {
        let default = ByteSize::gib(1);
        assert_eq!(read(5, 9).unwrap().size_or(default), ByteSize::bytes(5));
        assert_eq!(read(0, 9).unwrap().size_or(default), ByteSize::bytes(9));
        assert_eq!(read(0, i64::MAX).unwrap().size_or(default), default);
    }

    #[test]
    fn what_nothing_can_be_is_refused() {
        assert_eq!(read(-1, 0).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(read(0, i64::MIN).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(read(2, 1).unwrap_err().kind(), Kind::OutOfRange);
    }
}
