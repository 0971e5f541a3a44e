//! The dimensions of an image, from its header.
//!
//! Formats as their specifications have them: PNG (ISO/IEC 15948), GIF89a, JPEG (ITU-T T.81), WebP
//! (RFC 9649). Nothing is decompressed.

use super::base64::Decoder;

/// Width and height in pixels, neither of them zero.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Dimensions {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Dimensions {
    fn new(width: u32, height: u32) -> Option<Self> {
        (width > 0 && height > 0).then_some(Self { width, height })
    }
}

/// What a header says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Header {
    /// An image; `None` if its size could not be read.
    Image(Option<Dimensions>),
    /// Not a known image format.
    Other,
}

/// How far into a JPEG its frame header is looked for: metadata and thumbnails come before it.
const MAX_JPEG_BYTES: usize = 512 * 1024;

/// Reads the header of base64 `data`.
pub(super) fn header(data: &[u8]) -> Header {
    let mut head = [0; 32];
    let mut decoder = Decoder::new(data);
    let filled = decoder.read(&mut head);
    let head = &head[..filled];
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        Header::Image(be32(head, 16).zip(be32(head, 20)).and_then(|(w, h)| Dimensions::new(w, h)))
    } else if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        Header::Image(le16(head, 6).zip(le16(head, 8)).and_then(|(w, h)| Dimensions::new(w, h)))
    } else if head.starts_with(b"\xFF\xD8\xFF") {
        Header::Image(jpeg(Decoder::new(data)))
    } else if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        Header::Image(webp(head))
    } else {
        Header::Other
    }
}

/// Walks the segments up to the frame header (SOF), which holds the size.
fn jpeg(decoder: Decoder<'_>) -> Option<Dimensions> {
    let mut bytes = decoder.take(MAX_JPEG_BYTES).skip(2);
    loop {
        if bytes.next()? != 0xFF {
            return None;
        }
        // Any number of fill bytes may stand before a marker.
        let mut marker = bytes.next()?;
        while marker == 0xFF {
            marker = bytes.next()?;
        }
        match marker {
            0x01 | 0xD0..=0xD7 => {}
            // Start of frame, except DHT (C4), JPG (C8) and DAC (CC), which share the range.
            0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                let mut frame = [0; 7];
                for slot in &mut frame {
                    *slot = bytes.next()?;
                }
                let height = u32::from(u16::from_be_bytes([frame[3], frame[4]]));
                let width = u32::from(u16::from_be_bytes([frame[5], frame[6]]));
                return Dimensions::new(width, height);
            }
            // End of image or start of scan without a frame header.
            0xD9 | 0xDA => return None,
            _ => {
                let length = usize::from(u16::from_be_bytes([bytes.next()?, bytes.next()?]));
                // The length counts its own two bytes.
                for _ in 0..length.checked_sub(2)? {
                    bytes.next()?;
                }
            }
        }
    }
}

/// The three kinds of WebP: extended, lossless, lossy.
fn webp(head: &[u8]) -> Option<Dimensions> {
    match head.get(12..16)? {
        b"VP8X" => {
            let size = |at: usize| {
                let bytes = head.get(at..at + 3)?;
                Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) + 1)
            };
            Dimensions::new(size(24)?, size(27)?)
        }
        b"VP8L" => {
            let bytes = head.get(21..25)?;
            let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            Dimensions::new((bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
        }
        b"VP8 " => Dimensions::new(le16(head, 26)? & 0x3FFF, le16(head, 28)? & 0x3FFF),
        _ => None,
    }
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}
