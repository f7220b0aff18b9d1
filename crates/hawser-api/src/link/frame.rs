//! Lines on a stream: bounded reading that survives being dropped, and encoding.

use tokio::io::{AsyncRead, AsyncReadExt};

use super::error::LinkError;
use super::message::{Frame, Written};

/// The longest line, its end not counted. Large enough for thousands of attachment records, small
/// enough that a hostile peer cannot use up the memory of a host.
pub const LARGEST_FRAME: usize = 4 << 20;

/// How much is read at once; also what an idle link keeps as its buffer.
const CHUNK: usize = 16 << 10;

/// Cuts a stream into frames. [`FrameReader::next`] may be dropped at any time without losing bytes.
pub(super) struct FrameReader<R> {
    stream: R,
    buffer: Vec<u8>,
    /// Where the unread part of the buffer begins.
    start: usize,
    /// Up to where the unread part is known to hold no line end.
    searched: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames from a stream.
    pub(super) fn new(stream: R) -> Self {
        Self { stream, buffer: Vec::new(), start: 0, searched: 0 }
    }

    /// The next frame, and how many bytes it had; `heard` is called with every piece that arrives.
    pub(super) async fn next(&mut self, heard: impl Fn()) -> Result<(Frame, usize), LinkError> {
        loop {
            if let Some(end) = self.find_end() {
                let line = &self.buffer[self.start..end];
                if line.len() > LARGEST_FRAME {
                    return Err(LinkError::FrameTooLong { most: LARGEST_FRAME });
                }
                let bytes = line.len();
                let blank = line.iter().all(u8::is_ascii_whitespace);
                let frame = if blank { None } else { Some(Frame::parse(line)) };
                self.start = end + 1;
                self.searched = self.start;
                match frame {
                    Some(frame) => return Ok((frame?, bytes)),
                    None => continue,
                }
            }
            if self.buffer.len() - self.start > LARGEST_FRAME {
                return Err(LinkError::FrameTooLong { most: LARGEST_FRAME });
            }
            self.fill().await?;
            heard();
        }
    }

    fn find_end(&mut self) -> Option<usize> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        match found {
            Some(offset) => Some(self.searched + offset),
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }

    async fn fill(&mut self) -> Result<(), LinkError> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
            if self.buffer.len() < CHUNK {
                self.buffer.shrink_to(CHUNK);
            }
        }
        self.buffer.reserve(CHUNK);
        // read_buf is cancel-safe: a dropped call has taken nothing from the stream.
        let read = self.stream.read_buf(&mut self.buffer).await.map_err(LinkError::Read)?;
        match read {
            0 if self.buffer.is_empty() => Err(LinkError::Closed),
            0 => Err(LinkError::CutOff),
            _ => Ok(()),
        }
    }
}

/// One line with its end; `what` names it in errors.
pub(super) fn encode(
    written: &Written<'_>,
    what: impl Fn() -> String,
) -> Result<Vec<u8>, LinkError> {
    let mut line =
        serde_json::to_vec(written).map_err(|source| LinkError::Encode { what: what(), source })?;
    if line.len() > LARGEST_FRAME {
        return Err(LinkError::TooLarge { what: what(), bytes: line.len(), most: LARGEST_FRAME });
    }
    line.push(b'\n');
    Ok(line)
}
