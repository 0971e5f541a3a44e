//! Decodes a copy of a compressed answer for the meter. The client gets the bytes as they came.

use std::{
    fmt,
    io::{self, Write},
};

use http::{HeaderMap, header};

/// The most bytes one answer may decode to before its metering stops.
///
/// A gigabyte of zeros compresses to a megabyte; decoding is work, so it has a bound.
const DECODED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How the bytes of an answer become the bytes the meter reads.
pub(crate) enum Decoder {
    /// They are the same.
    Identity,
    /// Through a streaming decoder.
    Coded(Box<dyn Decode + Send>),
    /// The coding is unknown or the data was broken: nothing more can be read.
    Unreadable,
}

/// Takes coded bytes in and hands decoded ones out.
pub(crate) trait Decode {
    /// Decodes `coded` and passes everything it yields to `sink`. False: the data is broken.
    fn decode(&mut self, coded: &[u8], sink: &mut dyn FnMut(&[u8])) -> bool;
}

impl Decoder {
    /// The decoder for what `content-encoding` says.
    pub(crate) fn new(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
        let (Some(first), None) = (values.next(), values.next()) else {
            return if headers.contains_key(header::CONTENT_ENCODING) {
                Self::Unreadable
            } else {
                Self::Identity
            };
        };
        match first.to_str().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Self::Identity,
            "gzip" | "x-gzip" => {
                Self::Coded(Box::new(Bounded::new(flate2::write::MultiGzDecoder::new(Collected::default()))))
            }
            "deflate" => {
                Self::Coded(Box::new(Bounded::new(flate2::write::ZlibDecoder::new(Collected::default()))))
            }
            "br" => Self::Coded(Box::new(Bounded::new(brotli::DecompressorWriter::new(
                Collected::default(),
                4096,
            )))),
            "zstd" => zstd_decoder().map_or(Self::Unreadable, |decoder| Self::Coded(Box::new(decoder))),
            _ => Self::Unreadable,
        }
    }

    /// Whether nothing more of the answer can be read.
    pub(crate) const fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable)
    }

    /// Passes the decoded form of `bytes` to `sink`.
    pub(crate) fn decode(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        match self {
            Self::Identity => sink(bytes),
            Self::Coded(decoder) => {
                if !decoder.decode(bytes, &mut sink) {
                    *self = Self::Unreadable;
                }
            }
            Self::Unreadable => {}
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "Identity",
            Self::Coded(_) => "Coded",
            Self::Unreadable => "Unreadable",
        })
    }
}

/// The largest window a zstd frame may ask for, as a power of two: 8 MiB, which every decoder of an
/// HTTP answer should accept and none must exceed (RFC 9659 §3).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

type ZstdDecoder = zstd::stream::write::Decoder<'static, Collected>;

fn zstd_decoder() -> Option<Bounded<ZstdDecoder>> {
    let mut decoder = ZstdDecoder::new(Collected::default()).ok()?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).ok()?;
    Some(Bounded::new(decoder))
}

/// The most bytes that one piece may decode to. Deflate cannot reach it; brotli and zstd reach it only
/// with data made for it.
const DECODED_PIECE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Where a decoder writes: memory for what one piece decodes to, and no more.
#[derive(Default)]
struct Collected(Vec<u8>);

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > DECODED_PIECE_BYTES_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A decoder of the `Write` kind.
trait Collecting: Write {
    fn collected(&mut self) -> &mut Vec<u8>;
}

impl Collecting for flate2::write::MultiGzDecoder<Collected> {
    fn collected(&mut self) -> &mut Vec<u8> {
        &mut self.get_mut().0
    }
}

impl Collecting for flate2::write::ZlibDecoder<Collected> {
    fn collected(&mut self) -> &mut Vec<u8> {
        &mut self.get_mut().0
    }
}

impl Collecting for brotli::DecompressorWriter<Collected> {
    fn collected(&mut self) -> &mut Vec<u8> {
        &mut self.get_mut().0
    }
}

impl Collecting for ZstdDecoder {
    fn collected(&mut self) -> &mut Vec<u8> {
        &mut self.get_mut().0
    }
}

/// Feeds a collecting decoder in small pieces, so that what one piece decodes to stays small.
struct Bounded<D> {
    decoder: D,
    decoded_bytes: u64,
}

const PIECE_BYTES: usize = 1024;

impl<D> Bounded<D> {
    const fn new(decoder: D) -> Self {
        Self { decoder, decoded_bytes: 0 }
    }
}

impl<D: Collecting> Decode for Bounded<D> {
    fn decode(&mut self, coded: &[u8], sink: &mut dyn FnMut(&[u8])) -> bool {
        for piece in coded.chunks(PIECE_BYTES) {
            // A flush makes the decoder hand out all it can, so that usage is read as it arrives.
            let intact = self.decoder.write_all(piece).and_then(|()| self.decoder.flush()).is_ok();
            let collected = self.decoder.collected();
            self.decoded_bytes = self.decoded_bytes.saturating_add(collected.len() as u64);
            sink(collected);
            collected.clear();
            if !intact || self.decoded_bytes > DECODED_BYTES_MAX {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"event: message_delta\ndata: {\"usage\":{\"output_tokens\":47}}\n\n";

    fn coded(coding: &str, text: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::default();
        match coding {
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "deflate" => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "br" => {
                let mut coded = Vec::new();
                brotli::CompressorWriter::new(&mut coded, 4096, 5, 20).write_all(text).unwrap();
                coded
            }
            "zstd" => zstd::encode_all(text, 3).unwrap(),
            other => unreachable!("{other}"),
        }
    }

    fn decoder(coding: &'static str) -> Decoder {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, http::HeaderValue::from_static(coding));
        Decoder::new(&headers)
    }

    #[test]
    fn c106_compressed_answers_are_read_in_every_known_coding_at_any_split() {
        for coding in ["gzip", "deflate", "br", "zstd"] {
            let bytes = coded(coding, TEXT);
            for split in 0..=bytes.len() {
                let mut decoder = decoder(coding);
                let mut read = Vec::new();
                for piece in [&bytes[..split], &bytes[split..]] {
                    decoder.decode(piece, |decoded| read.extend_from_slice(decoded));
                }
                assert_eq!(read, TEXT, "{coding} cut at {split}");
            }
        }
    }

    #[test]
    fn decoding_stops_at_its_bound() {
        let bytes = coded("gzip", &vec![0; usize::try_from(DECODED_BYTES_MAX).unwrap() + 4 * 1024 * 1024]);
        let mut decoder = decoder("gzip");
        let mut read = 0;
        decoder.decode(&bytes, |decoded| read += decoded.len() as u64);
        assert!(matches!(decoder, Decoder::Unreadable));
        assert!(read <= DECODED_BYTES_MAX + 4 * 1024 * 1024, "{read}");
    }

    #[test]
    fn no_piece_decodes_to_more_than_its_bound() {
        let zeros = vec![0; 64 * 1024 * 1024];
        for coding in ["br", "zstd"] {
            let mut decoder = decoder(coding);
            let mut largest = 0;
            decoder.decode(&coded(coding, &zeros), |decoded| largest = largest.max(decoded.len()));
            assert!(largest <= DECODED_PIECE_BYTES_MAX, "{coding}: {largest}");
            assert!(matches!(decoder, Decoder::Unreadable), "{coding}");
        }
    }

    #[test]
    fn broken_data_and_unknown_codings_are_unreadable_not_fatal() {
        let mut decoder = decoder("gzip");
        decoder.decode(b"not gzip at all", |_| {});
        assert!(matches!(decoder, Decoder::Unreadable));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, http::HeaderValue::from_static("dcz"));
        assert!(matches!(Decoder::new(&headers), Decoder::Unreadable));
    }
}
