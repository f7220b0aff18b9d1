//! What `sds_cli` prints.

use std::path::PathBuf;

use crate::shared::error::AttachError;

/// The lines that count.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    code: i64,
    words: String,
    device: Option<String>,
}

impl Answer {
    /// Reads `key=value` lines; an answer without a code is none.
    pub(super) fn read(text: &str) -> Result<Self, AttachError> {
        let value = |key: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once('=')?;
                (name.trim() == key).then(|| value.trim().to_owned())
            })
        };
        let code = value("ret_code").and_then(|code| code.parse().ok());
        let Some(code) = code else {
            return Err(AttachError::Unreachable {
                target: "the Huawei client".into(),
                why: "its program answered nothing that has a ret_code".into(),
            });
        };
        let device = value("dev_addr").filter(|path| path.starts_with("/dev/"));
        Ok(Self { code, words: value("ret_desc").unwrap_or_default(), device })
    }

    /// Where the volume is; only an answer without a complaint tells.
    pub(super) fn device(&self) -> Option<PathBuf> {
        (self.code == 0).then(|| self.device.as_ref().map(PathBuf::from)).flatten()
    }

    /// Refuses every code but these.
    pub(super) fn expect(
        &self,
        codes: &[i64],
        attempt: &str,
        volume: &str,
    ) -> Result<(), AttachError> {
        if codes.contains(&self.code) {
            return Ok(());
        }
        Err(AttachError::Unreachable {
            target: volume.to_owned(),
            why: format!("{attempt} it, the client said {} ({})", self.words, self.code),
        })
    }
}
