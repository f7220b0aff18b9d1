//! The log: to standard error, for people or for machines.

use tracing_subscriber::EnvFilter;

use hawser_core::error::{Error, Kind, Result, ResultExt};

use crate::settings::LogFormat;

/// Starts the log of this process.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<()> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|source| Error::from_source(Kind::Invalid, source))
        .context(|| {
            format!("{filter:?} is not a log filter, such as info or hawser_engine=debug")
        })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|source| Error::new(Kind::Internal, source.to_string()))
}
