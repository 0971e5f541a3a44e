//! The beginning that the values of a stream have in common.
//!
//! An event that brings a piece of text is a frame that stays the same around a few bytes that differ. The
//! frame before the text is read once; of an event that begins with the same bytes only the rest is.

use std::ops::Range;

use crate::scan::{Handler, MAX_PATH, Name, Place};

/// A longer beginning is read each time.
const MAX_PREFIX_BYTES: usize = 1024;
/// Of a beginning with more kept values each is read.
const MAX_KEPT_VALUES: usize = 8;

/// A beginning up to the first string that is counted, and what a scan found in it.
#[derive(Debug)]
pub(crate) struct Prefix {
    /// Its bytes, the string's quote included. Empty: none is known.
    bytes: Vec<u8>,
    /// Where the string stands.
    place: Place,
    /// What is handed over on the way.
    kept: Vec<Kept>,
    is_recording: bool,
}

#[derive(Debug)]
struct Kept {
    path: [Name; MAX_PATH],
    path_keys: usize,
    bytes: Range<usize>,
}

impl Prefix {
    pub(crate) const fn new() -> Self {
        Self { bytes: Vec::new(), place: Place::OUTSIDE, kept: Vec::new(), is_recording: false }
    }

    /// If `value` begins like this: hands over what is in the beginning, and tells where the scan
    /// stands and what is left, from within the string.
    pub(crate) fn replay<'v>(
        &self,
        value: &'v [u8],
        handler: &mut impl Handler,
    ) -> Option<(Place, &'v [u8])> {
        let rest = value.strip_prefix(&*self.bytes).filter(|_| !self.bytes.is_empty())?;
        for kept in &self.kept {
            handler.kept(&kept.path[..kept.path_keys], &self.bytes[kept.bytes.clone()]);
        }
        Some((self.place, rest))
    }

    /// A value that begins otherwise is about to be scanned, in one piece.
    pub(crate) fn begin(&mut self) {
        self.bytes.clear();
        self.kept.clear();
        self.is_recording = true;
    }

    /// A value that lies at `bytes` of the piece was kept.
    pub(crate) fn kept(&mut self, path: &[Name], bytes: Range<usize>) {
        if !self.is_recording {
            return;
        }
        if self.kept.len() == MAX_KEPT_VALUES {
            self.give_up();
            return;
        }
        let mut kept = Kept { path: [Name::Other; MAX_PATH], path_keys: path.len(), bytes };
        kept.path[..path.len()].copy_from_slice(path);
        self.kept.push(kept);
    }

    /// A string is to be counted: `piece` is everything up to its quote.
    pub(crate) fn end(&mut self, piece: &[u8], place: Place) {
        if self.is_recording && piece.len() <= MAX_PREFIX_BYTES {
            self.bytes.extend_from_slice(piece);
            self.place = place;
        }
        self.is_recording = false;
    }

    /// There is no beginning to be recorded, or no more.
    pub(crate) const fn give_up(&mut self) {
        self.is_recording = false;
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::estimate::Run;
    use crate::scan::{Handler, Name, Scanner, Want};

    /// Writes down what it is told.
    #[derive(Debug, Default, PartialEq)]
    struct Log(Vec<(Vec<Name>, Told)>);

    #[derive(Debug, PartialEq)]
    enum Told {
        Kept(Vec<u8>),
        TooLarge,
        Counted(Run),
    }

    impl Handler for Log {
        fn want(&self, path: &[Name]) -> Want {
            match path.last() {
                Some(Name::Type | Name::Model) => Want::Keep,
                Some(Name::Content | Name::Data) => Want::Count,
                _ => Want::Skip,
            }
        }

        fn kept(&mut self, path: &[Name], json: &[u8]) {
            self.0.push((path.to_vec(), Told::Kept(json.to_vec())));
        }

        fn too_large(&mut self, path: &[Name]) {
            self.0.push((path.to_vec(), Told::TooLarge));
        }

        fn counted(&mut self, path: &[Name], run: Run) {
            self.0.push((path.to_vec(), Told::Counted(run)));
        }
    }

    /// Values that often begin alike, and sometimes are broken.
    fn value() -> impl Strategy<Value = String> {
        let text = prop_oneof![r"[a-z ]{0,8}", Just("\\\"".to_owned()), Just("\\u00e9x".to_owned())];
        let kind = prop_oneof![4 => Just("delta"), 1 => Just("start"), 1 => Just("de\\u006cta")];
        let form = prop_oneof![
            6 => Just(r#"{"type":"K","index":1,"delta":{"type":"t","content":"T"}}"#),
            2 => Just(r#"{"type":"K","model":"m","choices":[{"delta":{"content":"T"}},{"data":"T"}]}"#),
            1 => Just(r#"{"type":"K","content":["T",{"content":"T"}],"data":7}"#),
            1 => Just(r#"{"content":"T","type":"K"}"#),
            1 => Just(r#"{"type":"K","delta":{"content":"T"#),
            1 => Just(r#"{"type":"K"}"#),
        ];
        (form, kind, text).prop_map(|(form, kind, text)| form.replace('K', kind).replace('T', &text))
    }

    proptest! {
        #[test]
        fn a_known_beginning_changes_nothing(values in prop::collection::vec(value(), 1..12)) {
            let mut scanner = Scanner::new();
            for value in &values {
                let (mut with, mut without) = (Log::default(), Log::default());
                scanner.scan(value.as_bytes(), &mut with);
                Scanner::new().feed(value.as_bytes(), &mut without);
                prop_assert_eq!(with, without, "{}", value);
            }
        }
    }

    #[test]
    fn a_beginning_is_known_after_one_value_and_its_text_may_be_anything() {
        let event = |text: &str| format!(r#"{{"type":"delta","delta":{{"content":"{text}"}}}}"#);
        let mut scanner = Scanner::new();
        scanner.scan(event("one").as_bytes(), &mut Log::default());
        for text in ["two", "", "\\u00e9", "three\\"] {
            let value = event(text);
            assert!(scanner.prefix().replay(value.as_bytes(), &mut Log::default()).is_some(), "{text}");
        }
        let other = event("x").replace("delta", "start");
        assert!(scanner.prefix().replay(other.as_bytes(), &mut Log::default()).is_none());
    }
}
