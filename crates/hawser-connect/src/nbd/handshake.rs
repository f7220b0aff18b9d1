//! The conversation with a server before the kernel takes the connection over.

use std::io::{self, Read, Write};

use super::error::NbdError;
use super::wire::{self, Ask, Refusal, Reply};
use crate::shared::error::AttachError;

/// More replies to one option are nonsense.
const MOST_REPLIES: usize = 64;

/// The kernel reads pages, and no less.
const LEAST_REQUEST: u64 = 4096;

/// What a server says about an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    pub(super) flags: u16,
    /// The least block that it takes.
    pub(super) least_block: u32,
    /// The longest request that it takes.
    pub(super) longest_request: u32,
}

impl Export {
    fn new(size: u64, flags: u16) -> Self {
        // Without a word about block sizes, any request up to 32 MiB is taken, by the protocol.
        Self { size, flags, least_block: 1, longest_request: 32 << 20 }
    }

    pub(super) fn read_only(&self) -> bool {
        self.flags & wire::READ_ONLY != 0
    }

    pub(super) fn takes_many(&self) -> bool {
        self.flags & wire::CAN_MULTI_CONN != 0
    }
}

/// A conversation over one connection.
pub(super) struct Talk<'a, S> {
    stream: S,
    server: &'a str,
    export: &'a str,
}

impl<'a, S: Read + Write> Talk<'a, S> {
    pub(super) fn new(stream: S, server: &'a str, export: &'a str) -> Self {
        Self { stream, server, export }
    }

    /// Takes the export: the connection that comes back is in the transmission phase.
    pub(super) fn take(mut self) -> Result<(S, Export), NbdError> {
        let flags = self.greet()?;
        if flags & wire::FIXED_NEWSTYLE != 0
            && let Some(export) = self.ask(Ask::Go)?
        {
            self.check(&export)?;
            return Ok((self.stream, export));
        }
        let export = self.take_by_name(flags)?;
        self.check(&export)?;
        Ok((self.stream, export))
    }

    /// Asks about the export and says goodbye.
    pub(super) fn learn(mut self) -> Result<Export, NbdError> {
        let flags = self.greet()?;
        if flags & wire::FIXED_NEWSTYLE != 0
            && let Some(export) = self.ask(Ask::Info)?
        {
            self.part(&Ask::Abort.option(""));
            return self.check(&export).map(|()| export);
        }
        let export = self.take_by_name(flags)?;
        self.part(&wire::end_of_transmission());
        self.check(&export).map(|()| export)
    }

    /// Refuses numbers that no kernel can do anything with.
    fn check(&self, export: &Export) -> Result<(), NbdError> {
        if i64::try_from(export.size).is_err() {
            return Err(self.nonsense(format!("the export has {} bytes", export.size)));
        }
        let longest = export.longest_request;
        if u64::from(longest) < export.size.min(LEAST_REQUEST) {
            return Err(self.nonsense(format!("it takes {longest} bytes at a time")));
        }
        Ok(())
    }

    /// A goodbye is a courtesy: the answer is known, whatever becomes of it.
    fn part(&mut self, goodbye: &[u8]) {
        let _ = self.stream.write_all(goodbye);
    }

    /// Both greetings; answers the server's flags.
    fn greet(&mut self) -> Result<u16, NbdError> {
        let magic = u64::from_be_bytes(self.read()?);
        if magic != wire::GREETING {
            return Err(self.nonsense(format!("it begins with {magic:#018x}")));
        }
        let style = u64::from_be_bytes(self.read()?);
        if style == wire::OLD_STYLE {
            return Err(NbdError::OldStyle { server: self.server.into() });
        }
        if style != wire::HAVE_OPTION {
            return Err(self.nonsense(format!("its handshake is {style:#018x}")));
        }
        let flags = u16::from_be_bytes(self.read()?);
        let ours = u32::from(flags & (wire::FIXED_NEWSTYLE | wire::NO_ZEROES));
        self.write(&ours.to_be_bytes())?;
        Ok(flags)
    }

    /// Asks with an option that is answered in replies; `None` when the server does not know it.
    fn ask(&mut self, ask: Ask) -> Result<Option<Export>, NbdError> {
        self.write(&ask.option(self.export))?;
        let mut export: Option<Export> = None;
        let mut blocks = None;
        for _ in 0..MOST_REPLIES {
            match self.reply(ask)? {
                Reply::Export { size, flags } => export = Some(Export::new(size, flags)),
                Reply::Blocks { least, longest } => blocks = Some((least, longest)),
                Reply::Other => {}
                Reply::Refused { why: Refusal::Unsupported, .. } => return Ok(None),
                Reply::Refused { why, message } => return Err(self.refused(why, message)),
                Reply::Acknowledged => {
                    let missing = || self.nonsense("it does not tell the size".into());
                    let mut export = export.ok_or_else(missing)?;
                    if let Some((least, longest)) = blocks {
                        (export.least_block, export.longest_request) = (least, longest);
                    }
                    return Ok(Some(export));
                }
            }
        }
        Err(self.nonsense("its answer never ends".into()))
    }

    fn reply(&mut self, ask: Ask) -> Result<Reply, NbdError> {
        let head = self.read()?;
        let head = wire::reply_head(&head, ask).map_err(|why| self.nonsense(why))?;
        let mut data = vec![0; head.length as usize];
        self.read_into(&mut data)?;
        wire::reply(head.kind, &data).map_err(|why| self.nonsense(why))
    }

    /// The way of servers without [`Ask::Go`]: they hang up when they have no such export.
    fn take_by_name(&mut self, flags: u16) -> Result<Export, NbdError> {
        self.write(&Ask::ExportName.option(self.export))?;
        let answer: [u8; 10] = match self.read() {
            Ok(answer) => answer,
            Err(NbdError::Talk { source, .. }) if hung_up(&source) => {
                return Err(self.unknown());
            }
            Err(error) => return Err(error),
        };
        let parsed = wire::take_u64(&answer)
            .and_then(|(size, rest)| Some(Export::new(size, wire::take_u16(rest)?.0)));
        if flags & wire::NO_ZEROES == 0 {
            self.read::<124>()?;
        }
        parsed.ok_or_else(|| self.nonsense("its answer ends early".into()))
    }

    fn refused(&self, why: Refusal, message: String) -> NbdError {
        let (server, export) = (self.server.to_owned(), self.export.to_owned());
        match why {
            Refusal::TlsRequired => NbdError::TlsRequired { server },
            Refusal::Unknown => self.unknown(),
            Refusal::Policy => NbdError::Forbidden { server, export, message },
            Refusal::Shutdown => {
                NbdError::Refused { server, export, why: "is about to end", message }
            }
            Refusal::Other(why) => NbdError::Refused { server, export, why, message },
            Refusal::Unsupported => {
                NbdError::Refused { server, export, why: "does not know the option", message }
            }
        }
    }

    fn unknown(&self) -> NbdError {
        let target = format!("{:?} among its exports", self.export);
        AttachError::TargetNotFound { portal: self.server.into(), target }.into()
    }

    fn nonsense(&self, why: String) -> NbdError {
        NbdError::Nonsense { server: self.server.into(), why }
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], NbdError> {
        let mut bytes = [0; N];
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&mut self, bytes: &mut [u8]) -> Result<(), NbdError> {
        self.stream.read_exact(bytes).map_err(|source| self.lost(source))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), NbdError> {
        self.stream.write_all(bytes).map_err(|source| self.lost(source))
    }

    fn lost(&self, source: io::Error) -> NbdError {
        NbdError::Talk { server: self.server.into(), source }
    }
}

fn hung_up(error: &io::Error) -> bool {
    [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe]
        .contains(&error.kind())
}
