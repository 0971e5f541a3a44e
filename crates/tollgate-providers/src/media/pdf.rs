//! How many pages a PDF has, without reading its structure.
//!
//! Page objects say `/Type /Page` in the clear, unless the file keeps objects in compressed streams
//! (`/ObjStm`, ISO 32000-1 §7.5.7); then only the size is left to go by.

use memchr::memmem;

use super::base64::Decoder;

/// How much of a file is looked through.
const MAX_SCAN_BYTES: usize = 8 * 1024 * 1024;
/// A page of dense text takes at least about this much, compressed: an estimate by size is high.
const MIN_PAGE_BYTES: u64 = 4096;
/// The most pages a provider takes in one file (Anthropic, long-context models).
pub(super) const MAX_PAGES: u64 = 600;

/// Whether base64 `data` is a PDF.
pub(super) fn is_pdf(data: &[u8]) -> bool {
    let mut head = [0; 5];
    let filled = Decoder::new(data).read(&mut head);
    head[..filled] == *b"%PDF-"
}

/// An upper estimate of the pages of base64 `data`, which encodes `size` bytes.
pub(super) fn pages(data: &[u8], size: u64) -> u64 {
    let scan = Scan::of(data);
    let counted = scan.page_objects.max(scan.largest_count);
    let pages = if counted == 0 || !scan.is_plain { counted.max(by_size(size)) } else { counted };
    pages.clamp(1, MAX_PAGES)
}

/// The pages that a file of `size` bytes can hold.
pub(super) fn by_size(size: u64) -> u64 {
    size.div_ceil(MIN_PAGE_BYTES).clamp(1, MAX_PAGES)
}

struct Scan {
    page_objects: u64,
    largest_count: u64,
    /// All of it was seen and no object stream was met.
    is_plain: bool,
}

impl Scan {
    fn of(data: &[u8]) -> Self {
        /// Longest thing that is looked for, so that none is lost between two pieces.
        const OVERLAP: usize = 64;
        let mut scan = Self { page_objects: 0, largest_count: 0, is_plain: true };
        let mut decoder = Decoder::new(data);
        let mut buffer = [0; 8192 + OVERLAP];
        let mut kept = 0;
        for _ in 0..MAX_SCAN_BYTES / 8192 {
            let filled = kept + decoder.read(&mut buffer[kept..]);
            let is_last = filled < buffer.len();
            // What starts in the overlap is counted with the next piece.
            scan.look_through(&buffer[..filled], if is_last { filled } else { filled - OVERLAP });
            if is_last {
                return scan;
            }
            buffer.copy_within(filled - OVERLAP..filled, 0);
            kept = OVERLAP;
        }
        scan.is_plain = false;
        scan
    }

    /// Counts what starts before `end`.
    fn look_through(&mut self, piece: &[u8], end: usize) {
        let starts = |needle: &'static str| {
            memmem::find_iter(piece, needle)
                .take_while(move |at| *at < end)
                .map(move |at| &piece[at + needle.len()..])
        };
        for rest in starts("/Type") {
            let rest = rest.trim_ascii_start();
            if let Some(after) = rest.strip_prefix(b"/Page")
                && !after.first().is_some_and(u8::is_ascii_alphanumeric)
            {
                self.page_objects = self.page_objects.saturating_add(1);
            }
        }
        for rest in starts("/Count") {
            let digits = rest.trim_ascii_start().iter().take_while(|b| b.is_ascii_digit()).take(9);
            let count = digits.fold(0_u64, |n, b| n * 10 + u64::from(b - b'0'));
            self.largest_count = self.largest_count.max(count);
        }
        self.is_plain &= starts("/ObjStm").next().is_none();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::encode;
    use super::*;

    fn counted(pdf: &[u8]) -> u64 {
        pages(encode(pdf).as_bytes(), pdf.len() as u64)
    }

    #[test]
    fn pages_are_counted_by_their_objects() {
        let page = b"<< /Type /Page /Parent 1 0 R >>\n<</Type/Page>>\n".repeat(7);
        let pdf = [b"%PDF-1.4\n<< /Type /Pages /Kids [] >>\n".as_slice(), &page].concat();
        assert!(is_pdf(encode(&pdf).as_bytes()));
        assert_eq!(counted(&pdf), 14);
    }

    #[test]
    fn the_count_of_the_page_tree_counts_too() {
        assert_eq!(counted(b"%PDF-1.4 << /Type /Pages /Count 31 >> << /Type /Page >>"), 31);
    }

    #[test]
    fn objects_are_found_wherever_pieces_end() {
        for padding in 8100..8300 {
            let mut pdf = b"%PDF-1.4".to_vec();
            pdf.resize(padding, b' ');
            pdf.extend(b"<< /Type /Page >> end of file");
            assert_eq!(counted(&pdf), 1, "{padding}");
        }
    }

    #[test]
    fn compressed_objects_are_estimated_by_size() {
        let mut pdf = b"%PDF-1.7 << /Type /ObjStm >> << /Type /Page >>".to_vec();
        pdf.resize(100_000, b'x');
        assert_eq!(counted(&pdf), 25);
        let mut huge = b"%PDF-1.7".to_vec();
        huge.resize(9 * 1024 * 1024, b'x');
        assert_eq!(counted(&huge), MAX_PAGES);
    }
}
