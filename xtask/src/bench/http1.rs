//! Just enough HTTP/1.1 for the load generator and the prepared upstream: where a message ends.
//!
//! Both share one core, so they cost as little as can be: no header map, no copy of a body.

use std::io;

use memchr::{memchr, memmem};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// No head and no chunk line of these benches comes near it.
const HEAD_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 64 << 10;

/// One message that has been read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Head and body as they came, chunk lines included.
    pub(crate) raw: Vec<u8>,
    /// Where the head ends, blank line included.
    pub(crate) head_bytes: usize,
    /// The body's bytes without chunk lines.
    pub(crate) body_bytes: usize,
    /// Where each chunk ends in `raw`, its line ends included; empty for a body with a length.
    pub(crate) chunk_ends: Vec<usize>,
}

/// Reads messages from one connection, one after another.
#[derive(Debug)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    filled: usize,
    message: Message,
}

enum Framing {
    Length(usize),
    Chunked,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let message = Message { raw: Vec::new(), head_bytes: 0, body_bytes: 0, chunk_ends: Vec::new() };
        Self { buffer: vec![0; READ_BYTES], filled: 0, message }
    }

    /// The next message, or `None` if the other side has closed the connection before it.
    ///
    /// # Errors
    /// The connection breaks in the middle of a message, or what comes is not HTTP/1.1.
    pub(crate) async fn next(&mut self, stream: &mut TcpStream) -> io::Result<Option<&Message>> {
        self.message.chunk_ends.clear();
        let head_end = loop {
            if let Some(at) = memmem::find(self.bytes(), b"\r\n\r\n") {
                break at + 4;
            }
            if self.filled > HEAD_BYTES_MAX {
                return Err(invalid("a head without an end"));
            }
            if !self.fill(stream).await? {
                return if self.filled == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        };
        let end = match framing(&self.buffer[..head_end])? {
            Framing::Length(bytes) => {
                while self.filled < head_end + bytes {
                    self.fill_or_fail(stream).await?;
                }
                self.message.body_bytes = bytes;
                head_end + bytes
            }
            Framing::Chunked => self.chunks(stream, head_end).await?,
        };
        self.message.head_bytes = head_end;
        self.message.raw.clear();
        self.message.raw.extend_from_slice(&self.buffer[..end]);
        self.buffer.copy_within(end..self.filled, 0);
        self.filled -= end;
        Ok(Some(&self.message))
    }

    async fn chunks(&mut self, stream: &mut TcpStream, head_end: usize) -> io::Result<usize> {
        let mut at = head_end;
        self.message.body_bytes = 0;
        loop {
            let line = loop {
                match memchr(b'\n', &self.buffer[at..self.filled]) {
                    Some(length) => break at + length + 1,
                    None if self.filled - at > HEAD_BYTES_MAX => {
                        return Err(invalid("a chunk line without an end"));
                    }
                    None => self.fill_or_fail(stream).await?,
                }
            };
            let size = chunk_size(&self.buffer[at..line])?;
            let end = line.checked_add(size + 2).ok_or_else(|| invalid("a chunk larger than memory"))?;
            while self.filled < end {
                self.fill_or_fail(stream).await?;
            }
            at = end;
            if size == 0 {
                return Ok(end);
            }
            self.message.body_bytes += size;
            self.message.chunk_ends.push(end);
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    async fn fill_or_fail(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        if self.fill(stream).await? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    async fn fill(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        if self.buffer.len() - self.filled < READ_BYTES / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let read = stream.read(&mut self.buffer[self.filled..]).await?;
        self.filled += read;
        Ok(read > 0)
    }
}

impl Message {
    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        let digits = self.raw.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }
}

fn framing(head: &[u8]) -> io::Result<Framing> {
    let mut length = None;
    for line in head.split(|byte| *byte == b'\n') {
        if let Some(value) = header(line, b"content-length:") {
            let digits =
                std::str::from_utf8(value).map_err(|_| invalid("a content-length that is no number"))?;
            length = Some(digits.trim().parse().map_err(|_| invalid("a content-length that is no number"))?);
        } else if header(line, b"transfer-encoding:").is_some() {
            return Ok(Framing::Chunked);
        }
    }
    // A request without either has no body; the answers of these benches all have one.
    Ok(Framing::Length(length.unwrap_or(0)))
}

fn header<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name))?;
    line.get(name.len()..)
}

fn chunk_size(line: &[u8]) -> io::Result<usize> {
    let digits = std::str::from_utf8(line).map_err(|_| invalid("a chunk size that is no number"))?;
    usize::from_str_radix(digits.trim(), 16).map_err(|_| invalid("a chunk size that is no number"))
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests;
