//! Media inside a body: what it is and how large, never by the length of its base64.

mod audio;
mod base64;
mod image;
mod pdf;
#[cfg(test)]
mod tests;

pub(crate) use image::Dimensions;

/// What a blob of base64 is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Media {
    /// An image; `None` if its dimensions cannot be read.
    Image(Option<Dimensions>),
    /// A PDF with at most this many pages.
    Pdf { pages: u64 },
    /// A recording of at most this many tenths of a second.
    Audio { tenths: u64 },
    /// Something else, of this many bytes.
    Other { bytes: u64 },
}

/// What a MIME type announces.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Kind {
    Image,
    Pdf,
    Audio,
    Text,
    /// Anything else, or nothing announced.
    #[default]
    Unknown,
}

impl Kind {
    /// The kind of a MIME type (`image/png`), or of a bare format name (`wav`).
    pub(crate) fn of_mime(mime: &str) -> Self {
        let starts = |prefix: &str| mime.get(..prefix.len()).is_some_and(|m| m.eq_ignore_ascii_case(prefix));
        if starts("image/") {
            Self::Image
        } else if starts("application/pdf") {
            Self::Pdf
        } else if starts("audio/") {
            Self::Audio
        } else if starts("text/") {
            Self::Text
        } else {
            Self::Unknown
        }
    }
}

/// A `data:` URL taken apart: what it announces and its base64 (or percent-encoded) part.
pub(crate) fn data_url(url: &str) -> Option<(Kind, &str)> {
    let rest =
        url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).and_then(|_| url.get(5..))?;
    // A MIME type and its parameters are short; a comma far behind is not theirs.
    let head_end = memchr::memchr(b',', &rest.as_bytes()[..rest.len().min(512)])?;
    Some((Kind::of_mime(&rest[..head_end]), &rest[head_end + 1..]))
}

/// What base64 `data` is: by its first bytes, else by what is `announced`.
pub(crate) fn classify(data: &str, announced: Kind) -> Media {
    let bytes = data.as_bytes();
    let size = decoded_bytes(bytes);
    if let image::Header::Image(dimensions) = image::header(bytes) {
        return Media::Image(dimensions);
    }
    if pdf::is_pdf(bytes) {
        return Media::Pdf { pages: pdf::pages(bytes, size) };
    }
    if audio::is_audio(bytes) {
        return Media::Audio { tenths: audio::tenths(bytes, size) };
    }
    of_size(size, announced)
}

/// What `bytes` that say nothing about themselves are, by what is announced.
pub(crate) fn of_size(bytes: u64, announced: Kind) -> Media {
    match announced {
        Kind::Image => Media::Image(None),
        Kind::Pdf => Media::Pdf { pages: pdf::by_size(bytes) },
        Kind::Audio => Media::Audio { tenths: audio::tenths(b"", bytes) },
        Kind::Text | Kind::Unknown => Media::Other { bytes },
    }
}

/// How many bytes base64 text stands for, at most.
fn decoded_bytes(text: &[u8]) -> u64 {
    let characters = u64::try_from(text.len()).unwrap_or(u64::MAX);
    characters.div_ceil(4).saturating_mul(3)
}
