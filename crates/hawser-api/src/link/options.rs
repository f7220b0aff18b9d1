//! How to attach and detach, as it is read from the wire: each field may be left out, and one that
//! is not known is refused. The types themselves are also those of the records, which must stay
//! readable when a field is added to them.

use std::time::Duration;

use hawser_core::attach::{Attach, Detach, Encryption, Multipath, SingleWriter};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(remote = "Attach", default = "Attach::default", deny_unknown_fields)]
struct AttachOptions {
    deadline: Duration,
    read_only: bool,
    mount_flags: Vec<String>,
    multipath: Multipath,
    encryption: Option<Encryption>,
    reservation: Option<SingleWriter>,
}

#[derive(Deserialize)]
#[serde(remote = "Detach", default = "Detach::default", deny_unknown_fields)]
struct DetachOptions {
    deadline: Duration,
    force: bool,
    ignore_errors: bool,
}

#[derive(Deserialize)]
struct GivenAttach(#[serde(with = "AttachOptions")] Attach);

#[derive(Deserialize)]
struct GivenDetach(#[serde(with = "DetachOptions")] Detach);

/// Reads how to attach.
pub(super) fn attach<'de, D: Deserializer<'de>>(from: D) -> Result<Attach, D::Error> {
    let given = Option::<GivenAttach>::deserialize(from)?;
    Ok(given.map_or_else(Attach::default, |given| given.0))
}

/// Reads how to detach.
pub(super) fn detach<'de, D: Deserializer<'de>>(from: D) -> Result<Detach, D::Error> {
    let given = Option::<GivenDetach>::deserialize(from)?;
    Ok(given.map_or_else(Detach::default, |given| given.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_may_be_left_out() {
        let read = attach(json!({ "multipath": "wanted" })).unwrap();
        assert_eq!(read, Attach { multipath: Multipath::Wanted, ..Attach::default() });
        assert_eq!(attach(json!({})).unwrap(), Attach::default());
        assert_eq!(attach(json!(null)).unwrap(), Attach::default());

        let read = detach(json!({ "force": true })).unwrap();
        assert_eq!(read, Detach { force: true, ..Detach::default() });
        assert_eq!(detach(json!({})).unwrap(), Detach::default());
        assert_eq!(detach(json!(null)).unwrap(), Detach::default());
    }

    #[test]
    fn a_misspelt_field_is_refused_and_not_ignored() {
        let error = attach(json!({ "readonly": true })).unwrap_err().to_string();
        assert!(error.contains("readonly"), "{error}");
        assert!(detach(json!({ "forced": true })).is_err());
    }

    #[test]
    fn what_is_written_is_read() {
        let written = Attach {
            read_only: true,
            reservation: Some(SingleWriter { key: 7, preempt: true }),
            ..Attach::default()
        };
        assert_eq!(attach(serde_json::to_value(&written).unwrap()).unwrap(), written);
    }
}
