//! Content encodings, whole or flushed after each piece.

use std::io::{self, Write};

use bytes::Bytes;

use crate::behaviour::Encoding;

/// The value of `content-encoding`.
pub(crate) fn header(encoding: Encoding) -> Option<&'static str> {
    match encoding {
        Encoding::Identity => None,
        Encoding::Gzip => Some("gzip"),
        Encoding::Brotli => Some("br"),
    }
}

/// Encodes the pieces of one body. Each piece of the result can be decoded with those before it; together
/// they are one compressed stream, whose end is in the last.
///
/// # Errors
/// None is known: the output is memory.
pub(crate) fn encode(encoding: Encoding, pieces: Vec<Bytes>) -> io::Result<Vec<Bytes>> {
    match encoding {
        Encoding::Identity => Ok(pieces),
        Encoding::Gzip => gzip(&pieces),
        Encoding::Brotli => brotli(&pieces),
    }
}

fn gzip(pieces: &[Bytes]) -> io::Result<Vec<Bytes>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut encoded = Vec::with_capacity(pieces.len());
    for piece in pieces {
        encoder.write_all(piece)?;
        encoder.flush()?;
        encoded.push(std::mem::take(encoder.get_mut()));
    }
    append(&mut encoded, &encoder.finish()?);
    Ok(encoded.into_iter().map(Bytes::from).collect())
}

fn brotli(pieces: &[Bytes]) -> io::Result<Vec<Bytes>> {
    const BUFFER_BYTES: usize = 4096;
    const QUALITY: u32 = 4;
    const WINDOW_BITS: u32 = 20;
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), BUFFER_BYTES, QUALITY, WINDOW_BITS);
    let mut encoded = Vec::with_capacity(pieces.len());
    for piece in pieces {
        encoder.write_all(piece)?;
        encoder.flush()?;
        encoded.push(std::mem::take(encoder.get_mut()));
    }
    append(&mut encoded, &encoder.into_inner());
    Ok(encoded.into_iter().map(Bytes::from).collect())
}

fn append(encoded: &mut Vec<Vec<u8>>, end: &[u8]) {
    match encoded.last_mut() {
        Some(last) => last.extend_from_slice(end),
        None => encoded.push(end.to_vec()),
    }
}
