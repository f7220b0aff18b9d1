//! The host library: properties, connect, disconnect, extend, lookup, connectors.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::super::parse;

/// What this host tells a storage system.
#[derive(Args, Clone, Debug)]
pub struct PropertiesArgs {
    /// Say that several paths are wanted.
    #[arg(long)]
    pub multipath: bool,
    /// Say that several paths are wanted, or none at all.
    #[arg(long)]
    pub enforce_multipath: bool,
    /// The address that storage systems should know this host by; found out unless given.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,
    /// The name that storage systems should know this host by; the host name unless given.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Say that volumes may be attached without a storage network.
    #[arg(long)]
    pub local_attach: bool,
    /// Refuse unless this host is of this platform: X86, S390, PPC64 or ALL.
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Refuse unless this host has this system: LINUX or ALL.
    #[arg(long, value_name = "OS")]
    pub os_type: Option<String>,
    /// Keys in camel case: osType instead of os_type.
    #[arg(long)]
    pub camel_case: bool,
}

/// What to connect, and how.
#[derive(Args, Clone, Debug)]
pub struct ConnectArgs {
    /// Read the connection info from this file instead of standard input.
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The device must refuse writes.
    #[arg(long)]
    pub read_only: bool,
    /// Over every path there is.
    #[arg(long)]
    pub multipath: bool,
    /// Over every path there is; fail where this host has no multipath.
    #[arg(long)]
    pub enforce_multipath: bool,
    /// Give up after so long, such as 30s or 2m.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "60s")]
    pub deadline: Duration,
    /// A mount option, for protocols that mount; may be given several times.
    #[arg(long, value_name = "OPTION")]
    pub mount_option: Vec<String>,
    /// The volume is encrypted: give the clear side to the user.
    #[arg(long, value_name = "FORMAT", requires = "key_file")]
    pub encryption: Option<EncryptionWord>,
    /// The file with the passphrase: text in UTF-8, of which every byte counts, a newline at its end
    /// too.
    #[arg(long, value_name = "FILE", requires = "encryption")]
    pub key_file: Option<PathBuf>,
    /// Make the encryption header if the device was read and is blank.
    #[arg(long, requires = "encryption")]
    pub format_if_blank: bool,
    /// Keep every other host from writing, by a reservation with this key (a number, not 0).
    #[arg(long, value_name = "KEY", value_parser = parse::key)]
    pub reserve: Option<u64>,
    /// Throw out whoever holds the reservation.
    #[arg(long, requires = "reserve")]
    pub preempt: bool,
}

/// Formats of encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EncryptionWord {
    /// LUKS version 1.
    Luks,
    /// LUKS version 2.
    Luks2,
}

/// Which volume.
#[derive(Args, Clone, Debug)]
pub struct VolumeArgs {
    /// The volume's id, as in its connection info.
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    pub volume: Option<String>,
    /// Read the connection info from this file instead of standard input.
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// What to disconnect, and how.
#[derive(Args, Clone, Debug)]
pub struct DisconnectArgs {
    /// Which volume.
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Go on past a failed write-out; what was not written is lost, and the answer says so.
    #[arg(long)]
    pub force: bool,
    /// With --force: answer success whatever failed.
    #[arg(long, requires = "force")]
    pub ignore_errors: bool,
    /// Give up after so long, such as 30s or 2m.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "60s")]
    pub deadline: Duration,
}

/// How to show the connectors.
#[derive(Args, Clone, Debug)]
pub struct ConnectorsArgs {
    /// The table of the documentation, the same on every host.
    #[arg(long)]
    pub markdown: bool,
}
