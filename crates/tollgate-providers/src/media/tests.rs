//! Headers of every format, whole and damaged.

use super::*;
use proptest::prelude::*;

/// Standard base64 with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, b| (bits << 8) | u32::from(*b)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let sextet = (bits >> (18 - 6 * i)) & 63;
            text.push(if i <= group.len() { ALPHABET[sextet as usize] as char } else { '=' });
        }
    }
    text
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend([8, 6, 0, 0, 0]);
    bytes
}

fn jpeg(width: u16, height: u16, metadata_bytes: usize) -> Vec<u8> {
    let mut bytes = b"\xFF\xD8".to_vec();
    let mut left = metadata_bytes;
    while left > 0 {
        let part = left.min(65_000);
        bytes.extend(b"\xFF\xE1");
        bytes.extend(u16::try_from(part + 2).unwrap().to_be_bytes());
        bytes.extend(vec![0xAB; part]);
        left -= part;
    }
    bytes.extend(b"\xFF\xC4\0\x03\0\xFF\xFF\xC2\0\x11\x08");
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([3, 1, 0x22, 0]);
    bytes
}

fn webp(chunk: &[u8]) -> Vec<u8> {
    [b"RIFF\x24\0\0\0WEBP".as_slice(), chunk].concat()
}

fn read(bytes: &[u8]) -> Media {
    classify(&encode(bytes), Kind::Unknown)
}

fn image(width: u32, height: u32) -> Media {
    Media::Image(Some(Dimensions { width, height }))
}

#[test]
fn dimensions_are_read_from_every_format() {
    assert_eq!(read(&png(1001, 77)), image(1001, 77));
    assert_eq!(read(b"GIF89a\x2C\x01\x40\x00\xF7\0\0"), image(300, 64));
    assert_eq!(read(&jpeg(4032, 3024, 0)), image(4032, 3024));
    assert_eq!(read(&jpeg(640, 480, 200_000)), image(640, 480));
    assert_eq!(read(&webp(b"VP8X\x0A\0\0\0\0\0\0\0\x7F\x02\0\xDF\x01\0")), image(640, 480));
    assert_eq!(read(&webp(b"VP8L\x10\0\0\0\x2F\x7F\xC2\x77\0")), image(640, 480));
    assert_eq!(read(&webp(b"VP8 \x10\0\0\0\x30\x01\0\x9D\x01\x2A\x80\x02\xE0\x01")), image(640, 480));
}

#[test]
fn a_header_that_cannot_be_read_is_an_image_of_unknown_size() {
    assert_eq!(read(&png(0, 10)), Media::Image(None));
    assert_eq!(read(&png(10, 10)[..18]), Media::Image(None));
    assert_eq!(read(b"\xFF\xD8\xFF\xD9"), Media::Image(None));
    assert_eq!(read(&jpeg(640, 480, 600_000)), Media::Image(None));
    assert_eq!(classify("!!!", Kind::Image), Media::Image(None));
}

#[test]
fn what_the_bytes_are_outranks_what_is_announced() {
    assert_eq!(classify(&encode(&png(3, 4)), Kind::Pdf), image(3, 4));
    assert_eq!(classify(&encode(b"%PDF-1.4 /Type /Page"), Kind::Image), Media::Pdf { pages: 1 });
}

#[test]
fn the_length_of_a_wav_is_read_from_its_rate() {
    let mut wav =
        b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1F\0\0\x40\x1F\0\0\x01\0\x08\0data".to_vec();
    wav.resize(80_000, 0);
    assert_eq!(read(&wav), Media::Audio { tenths: 101 });
    let mp3 = vec![0_u8; 6000];
    assert_eq!(classify(&encode(&mp3), Kind::Audio), Media::Audio { tenths: 30 });
}

#[test]
fn data_urls_are_taken_apart() {
    assert_eq!(data_url("data:image/png;base64,QUJD"), Some((Kind::Image, "QUJD")));
    assert_eq!(data_url("DATA:application/pdf;base64,"), Some((Kind::Pdf, "")));
    assert_eq!(data_url("https://example.com/a,b"), None);
    assert_eq!(data_url("data:"), None);
    assert_eq!(data_url("dat\u{e9}:,"), None);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC*", start in 0..4_usize) {
        let magic: [&[u8]; 4] = [b"\x89PNG\r\n\x1a\n", b"\xFF\xD8\xFF", b"RIFF\0\0\0\0WEBPVP8", b"%PDF-"];
        read(&[magic[start], &bytes].concat());
        for kind in [Kind::Image, Kind::Pdf, Kind::Audio, Kind::Text, Kind::Unknown] {
            classify(&text, kind);
        }
        data_url(&text);
    }
}
