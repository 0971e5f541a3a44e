//! How long a recording is.

use super::base64::Decoder;

/// Bytes a second of audio whose rate cannot be read: 16 kbit/s, below what speech codecs use.
const LOWEST_BYTES_PER_SECOND: u64 = 2_000;
/// The densest a WAV can be (192 kHz, 32 bit, 8 channels): a header that claims more shortens nothing.
const HIGHEST_BYTES_PER_SECOND: u64 = 192_000 * 4 * 8;

/// Whether base64 `data` starts like a recording.
pub(super) fn is_audio(data: &[u8]) -> bool {
    let mut head = [0; 12];
    let filled = Decoder::new(data).read(&mut head);
    let head = &head[..filled];
    head.starts_with(b"OggS")
        || head.starts_with(b"fLaC")
        || head.starts_with(b"ID3")
        || (head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WAVE"))
}

/// An upper estimate, in tenths of a second, of base64 `data`, which encodes `size` bytes.
pub(super) fn tenths(data: &[u8], size: u64) -> u64 {
    size.saturating_mul(10).div_ceil(bytes_per_second(data))
}

/// The byte rate that a WAV's format chunk states (bytes 28 to 31, little endian), or the lowest.
fn bytes_per_second(data: &[u8]) -> u64 {
    let mut head = [0; 32];
    let filled = Decoder::new(data).read(&mut head);
    if filled < head.len() || !head.starts_with(b"RIFF") || head[8..16] != *b"WAVEfmt " {
        return LOWEST_BYTES_PER_SECOND;
    }
    let stated = u32::from_le_bytes([head[28], head[29], head[30], head[31]]);
    u64::from(stated).clamp(LOWEST_BYTES_PER_SECOND, HIGHEST_BYTES_PER_SECOND)
}
