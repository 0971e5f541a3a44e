//! A scanner for answers: JSON in pieces, wherever they are cut, without keeping it.
//!
//! An answer's body can be large and comes when it comes. The scanner follows its structure byte by
//! byte, asks the handler about each value and keeps only what the handler wants, which is bounded.
//! It is made for speed and for broken input: it accepts more than JSON and never fails. What it
//! found is worth something only where [`Scanner::is_done`] says that the value ended.

use memchr::memchr2;

use crate::estimate::Run;
use crate::prefix::Prefix;

/// A key that means something in an answer of some protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Name {
    Choices,
    Citations,
    Content,
    ContentBlock,
    Data,
    Delta,
    Error,
    FinishReason,
    Id,
    Index,
    Input,
    Logprobs,
    Message,
    Model,
    Role,
    ServiceTier,
    StopReason,
    Type,
    Usage,
    Other,
}

impl Name {
    /// Longer keys are [`Name::Other`].
    const MAX_BYTES: usize = 16;

    fn of(key: &[u8]) -> Self {
        match key {
            b"choices" => Self::Choices,
            b"citation" | b"citations" | b"annotations" => Self::Citations,
            b"content" => Self::Content,
            b"content_block" => Self::ContentBlock,
            // An image in the answer is a URL that holds it whole (OpenRouter's `images`).
            b"data" | b"url" => Self::Data,
            b"delta" => Self::Delta,
            b"error" => Self::Error,
            b"finish_reason" => Self::FinishReason,
            b"id" | b"tool_use_id" => Self::Id,
            b"index" => Self::Index,
            b"input" => Self::Input,
            b"logprobs" => Self::Logprobs,
            b"message" => Self::Message,
            b"model" => Self::Model,
            b"role" => Self::Role,
            b"service_tier" => Self::ServiceTier,
            b"stop_reason" => Self::StopReason,
            b"type" => Self::Type,
            b"usage" => Self::Usage,
            _ => Self::Other,
        }
    }
}

/// What a handler wants of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Want {
    /// Nothing. The values inside a container are asked about one by one.
    Skip,
    /// The size of a string.
    Count,
    /// The whole value as JSON, containers included.
    Keep,
}

/// Takes what a scan finds. A path is the keys that lead to a value, outermost first; arrays add
/// nothing to it, and it ends after [`MAX_PATH`] keys.
pub(crate) trait Handler {
    /// A value begins. The answer depends on the path alone.
    fn want(&self, path: &[Name]) -> Want;
    /// A value that was to be kept.
    fn kept(&mut self, path: &[Name], json: &[u8]);
    /// A value that was to be kept ended, and was larger than what is kept.
    fn too_large(&mut self, path: &[Name]);
    /// A string that was to be counted.
    fn counted(&mut self, path: &[Name], run: Run);
}

/// The longest path that is told apart.
pub(crate) const MAX_PATH: usize = 6;
/// The largest value that is kept; of a larger one only that it was there is told. Usage is a few hundred bytes.
const MAX_KEPT_BYTES: usize = 64 * 1024;
/// Down to here containers are told apart. Below, strings count as values, never as keys.
const MAX_DEPTH: u32 = u64::BITS;

/// Where a scan stands between two pieces.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    place: Place,
    is_done: bool,
    key: [u8; Name::MAX_BYTES],
    key_bytes: usize,
    /// The depth of the value that is being kept.
    keeping_at: Option<u32>,
    kept: Vec<u8>,
    is_too_large: bool,
    /// The string that is being counted.
    run: Option<Run>,
    prefix: Prefix,
}

/// Which containers are open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    depth: u32,
    /// One bit a level: the container there is an object.
    objects: u64,
    /// The innermost container is an object.
    is_in_object: bool,
    /// How many objects are open, of the levels that are told apart.
    open_objects: usize,
    path: [Name; MAX_PATH],
    awaits_key: bool,
}

impl Place {
    pub(crate) const OUTSIDE: Self = Self {
        depth: 0,
        objects: 0,
        is_in_object: false,
        open_objects: 0,
        path: [Name::Other; MAX_PATH],
        awaits_key: false,
    };

    fn path(&self) -> &[Name] {
        &self.path[..self.open_objects.min(MAX_PATH)]
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Structure,
    Key,
    KeyEscape,
    Text,
    TextEscape,
    /// Hexadecimal digits of a `\u` escape that are still to come.
    TextUnicode(u8),
    Scalar,
}

impl Scanner {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Structure,
            place: Place::OUTSIDE,
            is_done: false,
            key: [0; Name::MAX_BYTES],
            key_bytes: 0,
            keeping_at: None,
            kept: Vec::new(),
            is_too_large: false,
            run: None,
            prefix: Prefix::new(),
        }
    }

    /// Scans a value that is there as a whole, whatever came before. Of the values of one stream most
    /// begin alike, up to the text that they bring: what is known of that beginning is not read again.
    pub(crate) fn scan(&mut self, value: &[u8], handler: &mut impl Handler) {
        self.restart();
        match self.prefix.replay(value, handler) {
            Some((place, rest)) => {
                self.place = place;
                self.state = State::Text;
                self.run = Some(Run::default());
                self.feed(rest, handler);
            }
            None => {
                self.prefix.begin();
                self.feed(value, handler);
                self.prefix.give_up();
            }
        }
    }

    #[cfg(test)]
    pub(crate) const fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Begins anew, for the next value.
    pub(crate) fn restart(&mut self) {
        self.state = State::Structure;
        self.place = Place::OUTSIDE;
        self.is_done = false;
        self.key_bytes = 0;
        self.keeping_at = None;
        self.kept.clear();
        self.is_too_large = false;
        self.run = None;
    }

    /// Whether an object or array has begun and ended. What follows it is not looked at.
    pub(crate) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// The string that is being counted, as far as it came.
    pub(crate) const fn open_run(&self) -> Option<Run> {
        self.run
    }

    /// Nothing more comes: a string that is being counted counts as far as it came.
    pub(crate) fn cut(&mut self, handler: &mut impl Handler) {
        if let Some(run) = self.run.take() {
            handler.counted(self.place.path(), run);
        }
    }

    /// Scans the next piece. Returns how much of it was looked at: less than all only once done.
    pub(crate) fn feed(&mut self, piece: &[u8], handler: &mut impl Handler) -> usize {
        let mut cursor = Cursor { piece, at: 0, keep_from: 0 };
        while cursor.at < piece.len() && !self.is_done {
            match self.state {
                State::Structure => self.structure(&mut cursor, handler),
                State::Key => self.key(&mut cursor),
                State::KeyEscape => {
                    cursor.at += 1;
                    // Providers do not escape their keys: this one is not among the known.
                    self.key_bytes = usize::MAX;
                    self.state = State::Key;
                }
                State::Text => self.text(&mut cursor, handler),
                State::TextEscape => self.text_escape(&mut cursor),
                State::TextUnicode(left) => {
                    cursor.at += 1;
                    self.state = if left > 1 { State::TextUnicode(left - 1) } else { State::Text };
                }
                State::Scalar => self.scalar(&mut cursor, handler),
            }
        }
        if self.keeping_at.is_some() {
            self.keep(&piece[cursor.keep_from..cursor.at]);
        }
        cursor.at
    }

    /// Follows the structure, with keys and strings that lie whole in the piece, until another state.
    fn structure(&mut self, cursor: &mut Cursor<'_>, handler: &mut impl Handler) {
        while let Some(&byte) = cursor.piece.get(cursor.at) {
            match byte {
                b'"' if self.place.awaits_key => self.begin_key(cursor),
                b'"' => {
                    self.begin_value(cursor, handler, true);
                    cursor.at += 1;
                    self.state = State::Text;
                    self.text(cursor, handler);
                }
                b':' => {
                    self.place.awaits_key = false;
                    cursor.at += 1;
                }
                b',' => {
                    self.place.awaits_key = self.place.is_in_object;
                    cursor.at += 1;
                }
                b' ' | b'\t' | b'\r' | b'\n' => cursor.at += 1,
                b'{' | b'[' => {
                    self.begin_value(cursor, handler, false);
                    self.open(byte == b'{');
                    cursor.at += 1;
                }
                b'}' | b']' => {
                    cursor.at += 1;
                    self.close(cursor, handler);
                }
                _ => {
                    self.begin_value(cursor, handler, false);
                    self.state = State::Scalar;
                    self.scalar(cursor, handler);
                }
            }
            if self.state != State::Structure || self.is_done {
                return;
            }
        }
    }

    fn begin_key(&mut self, cursor: &mut Cursor<'_>) {
        cursor.at += 1;
        let rest = &cursor.piece[cursor.at..];
        let end = string_end(rest);
        if rest.get(end) == Some(&b'"') {
            cursor.at += end + 1;
            self.name_value(Name::of(&rest[..end]));
        } else {
            self.key_bytes = 0;
            self.state = State::Key;
        }
    }

    fn begin_value(&mut self, cursor: &mut Cursor<'_>, handler: &mut impl Handler, is_text: bool) {
        if self.keeping_at.is_some() || self.place.depth == 0 {
            return;
        }
        match handler.want(self.place.path()) {
            Want::Skip => {}
            Want::Count => {
                self.run = is_text.then(Run::default);
                if is_text {
                    self.prefix.end(&cursor.piece[..=cursor.at], self.place);
                }
            }
            Want::Keep => {
                self.keeping_at = Some(self.place.depth);
                cursor.keep_from = cursor.at;
            }
        }
    }

    fn end_value(&mut self, cursor: &Cursor<'_>, handler: &mut impl Handler) {
        if self.run.is_some() || self.keeping_at == Some(self.place.depth) {
            self.hand_over(cursor, handler);
        }
    }

    fn hand_over(&mut self, cursor: &Cursor<'_>, handler: &mut impl Handler) {
        let path = self.place.path();
        if let Some(run) = self.run.take() {
            handler.counted(path, run);
            return;
        }
        self.keeping_at = None;
        self.prefix.kept(path, cursor.keep_from..cursor.at);
        let rest = &cursor.piece[cursor.keep_from..cursor.at];
        if self.kept.is_empty() && !self.is_too_large && rest.len() <= MAX_KEPT_BYTES {
            handler.kept(path, rest);
        } else {
            self.keep(rest);
            let path = self.place.path();
            if self.is_too_large {
                handler.too_large(path);
            } else {
                handler.kept(path, &self.kept);
            }
        }
        self.kept.clear();
        self.is_too_large = false;
    }

    fn keep(&mut self, part: &[u8]) {
        if self.is_too_large || self.kept.len().saturating_add(part.len()) > MAX_KEPT_BYTES {
            self.is_too_large = true;
            self.kept.clear();
        } else {
            self.kept.extend_from_slice(part);
        }
    }

    fn open(&mut self, is_object: bool) {
        self.place.depth = self.place.depth.saturating_add(1);
        self.place.is_in_object = is_object && self.place.depth <= MAX_DEPTH;
        self.place.awaits_key = self.place.is_in_object;
        if let Some(bit) = level_bit(self.place.depth) {
            if is_object {
                self.place.objects |= bit;
                self.place.open_objects += 1;
                self.name_value(Name::Other);
                self.place.awaits_key = true;
            } else {
                self.place.objects &= !bit;
            }
        }
    }

    fn close(&mut self, cursor: &Cursor<'_>, handler: &mut impl Handler) {
        if self.place.depth == 0 {
            return;
        }
        if self.place.is_in_object {
            self.place.open_objects = self.place.open_objects.saturating_sub(1);
        }
        self.place.depth -= 1;
        self.place.is_in_object =
            level_bit(self.place.depth).is_some_and(|bit| self.place.objects & bit != 0);
        self.place.awaits_key = false;
        self.end_value(cursor, handler);
        self.is_done = self.place.depth == 0;
    }

    /// The key of the value to come has been read.
    fn name_value(&mut self, name: Name) {
        if let Some(slot) =
            self.place.open_objects.checked_sub(1).and_then(|level| self.place.path.get_mut(level))
        {
            *slot = name;
        }
        self.place.awaits_key = false;
    }

    fn key(&mut self, cursor: &mut Cursor<'_>) {
        let rest = &cursor.piece[cursor.at..];
        let end = string_end(rest);
        let room = self.key.get_mut(self.key_bytes..).and_then(|key| key.get_mut(..end));
        if let Some(room) = room {
            room.copy_from_slice(&rest[..end]);
        }
        self.key_bytes = self.key_bytes.saturating_add(end);
        cursor.at += end + usize::from(end < rest.len());
        match rest.get(end) {
            Some(b'"') => {
                let name = self.key.get(..self.key_bytes).map_or(Name::Other, Name::of);
                self.name_value(name);
                self.state = State::Structure;
            }
            Some(_) => self.state = State::KeyEscape,
            None => {}
        }
    }

    fn text(&mut self, cursor: &mut Cursor<'_>, handler: &mut impl Handler) {
        let rest = &cursor.piece[cursor.at..];
        let end = string_end(rest);
        if let Some(run) = &mut self.run {
            run.add(&rest[..end]);
        }
        cursor.at += end + usize::from(end < rest.len());
        match rest.get(end) {
            Some(b'"') => {
                self.state = State::Structure;
                self.end_value(cursor, handler);
            }
            Some(_) => self.state = State::TextEscape,
            None => {}
        }
    }

    fn text_escape(&mut self, cursor: &mut Cursor<'_>) {
        let is_unicode = cursor.piece[cursor.at] == b'u';
        cursor.at += 1;
        if let Some(run) = &mut self.run {
            if is_unicode { run.add_escaped_character() } else { run.add(b"\n") }
        }
        self.state = if is_unicode { State::TextUnicode(4) } else { State::Text };
    }

    fn scalar(&mut self, cursor: &mut Cursor<'_>, handler: &mut impl Handler) {
        let rest = &cursor.piece[cursor.at..];
        match rest.iter().position(|byte| ENDS_SCALAR[usize::from(*byte)]) {
            Some(end) => {
                cursor.at += end;
                self.state = State::Structure;
                self.end_value(cursor, handler);
            }
            None => cursor.at = cursor.piece.len(),
        }
    }
}

/// What ends a number or a word.
const ENDS_SCALAR: [bool; 256] = {
    let mut table = [false; 256];
    let ends = b" \t\r\n,:]}[{\"";
    let mut i = 0;
    while i < ends.len() {
        table[ends[i] as usize] = true;
        i += 1;
    }
    table
};

/// Where a string ends or an escape begins, else the length. Most strings are short: calling for the
/// vectorised search would cost more than it finds, so the beginning is searched eight bytes at once.
fn string_end(rest: &[u8]) -> usize {
    const SHORT_BYTES: usize = 32;
    let mut at = 0;
    while at < SHORT_BYTES
        && let Some(word) = rest[at..].first_chunk::<8>()
    {
        let word = u64::from_le_bytes(*word);
        let hits = zero_bytes(word ^ (EACH_BYTE * 0x22)) | zero_bytes(word ^ (EACH_BYTE * 0x5C));
        if hits != 0 {
            // At most 7.
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    memchr2(b'"', b'\\', &rest[at..]).map_or(rest.len(), |end| at + end)
}

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// The high bit of each byte that is zero; bytes above the lowest of them may be marked wrongly.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(EACH_BYTE) & !word & (EACH_BYTE << 7)
}

/// The piece in hand.
struct Cursor<'p> {
    piece: &'p [u8],
    at: usize,
    /// Where what is being kept begins in this piece.
    keep_from: usize,
}

/// The bit of a level that is told apart; levels count from one.
fn level_bit(depth: u32) -> Option<u64> {
    depth.checked_sub(1).and_then(|level| 1_u64.checked_shl(level))
}
