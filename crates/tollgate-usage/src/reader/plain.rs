//! Usage events as the writer writes them, read at a fraction of what a JSON parser costs.
//!
//! Such a line has no spaces between its fields, escapes only where a name needs them, and whole numbers. What is
//! plain in this way is read here; of anything else, right or wrong, nothing is said.

use std::borrow::Cow;

use super::line::{Attributes, RawEvent, Text};

/// The event that is `text`; `None`: it is not plain, or none.
pub(super) fn event(text: &str) -> Option<RawEvent<'_>> {
    let bytes = text.as_bytes();
    // Without escapes a text ends at the next quote.
    if memchr::memchr(b'\\', bytes).is_some() || has_control(bytes) {
        return None;
    }
    let mut plain = Plain { rest: text };
    let mut event = RawEvent::default();
    plain.expect(b'{')?;
    fields(&mut plain, &mut event)?;
    plain.rest.is_empty().then_some(event)
}

/// Looks at all bytes, many at a time: a search that may end early looks at each by itself.
fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | (*byte < b' '))
}

/// Declares the fields in the order in which the writer has them. Each is compared with a name that is known
/// when this is compiled. Those that nothing reads are skipped; no event is without those that are required.
macro_rules! fields {
    ($($name:literal $(=> $field:ident: $read:path)? $(, $required:ident)?;)*) => {
        /// Reads the fields, up to the end of the object.
        fn fields<'a>(plain: &mut Plain<'a>, event: &mut RawEvent<'a>) -> Option<()> {
            let mut is_over = false;
            $(
                if !is_over && plain.take(concat!("\"", $name, "\":")) {
                    fields!(@value plain event $($field $read)?);
                    is_over = plain.ends(b'}')?;
                } $(else {
                    fields!(@$required);
                })?
            )*
            is_over.then_some(())
        }
    };
    (@value $plain:ident $event:ident $field:ident $read:path) => { $event.$field = $read($plain)? };
    (@value $plain:ident $event:ident) => { $plain.skip()? };
    (@required) => { return None };
}

fields! {
    "v" => v: Plain::number, required;
    "type" => kind: Plain::cow, required;
    "ts" => ts: Plain::cow, required;
    "request_id" => request_id: Plain::cow, required;
    "tenant" => tenant: Plain::cow, required;
    "key" => key: Plain::cow;
    "attributes" => attributes: Plain::attributes;
    "caller_attributes" => caller_attributes: Plain::texts;
    "session" => session: Plain::some_text;
    "session_derived";
    "provider" => provider: Plain::cow;
    "model" => model: Plain::cow;
    "requested_model" => requested_model: Plain::some_text;
    "path" => path: Plain::cow;
    "stream" => stream: Plain::flag;
    "status" => status: Plain::number;
    "outcome" => outcome: Plain::cow;
    "input_tokens" => input_tokens: Plain::number;
    "cache_read_tokens" => cache_read_tokens: Plain::number;
    "cache_write_5m_tokens" => cache_write_5m_tokens: Plain::number;
    "cache_write_1h_tokens" => cache_write_1h_tokens: Plain::number;
    "output_tokens" => output_tokens: Plain::number;
    "reasoning_tokens" => reasoning_tokens: Plain::number;
    "cache_write_tokens" => cache_write_tokens: Plain::number;
    "audio_input_tokens" => audio_input_tokens: Plain::number;
    "cached_audio_input_tokens" => cached_audio_input_tokens: Plain::number;
    "image_input_tokens" => image_input_tokens: Plain::number;
    "audio_output_tokens" => audio_output_tokens: Plain::number;
    "image_output_tokens" => image_output_tokens: Plain::number;
    "web_search_requests" => web_search_requests: Plain::number;
    "web_fetch_requests" => web_fetch_requests: Plain::number;
    "usage_estimated" => usage_estimated: Plain::flag;
    "service_tier" => service_tier: Plain::some_text;
    "reserved_micro_usd" => reserved_micro_usd: Plain::number;
    "reserved_output_tokens" => reserved_output_tokens: Plain::some_number;
    "first_reserved_micro_usd" => first_reserved_micro_usd: Plain::some_number;
    "first_reserved_output_tokens" => first_reserved_output_tokens: Plain::some_number;
    "cost_micro_usd" => cost_micro_usd: Plain::number, required;
    "cost_pico_usd" => cost_pico_usd: Plain::some_number;
    "estimated_input_tokens" => estimated_input_tokens: Plain::number;
    "uncorrected_input_tokens" => uncorrected_input_tokens: Plain::some_number;
    "duration_ms" => duration_ms: Plain::number;
    "ttfb_ms";
    "flags";
}

/// What is left of a line. Where it is not plain, what reads it says `None`.
struct Plain<'a> {
    rest: &'a str,
}

impl<'a> Plain<'a> {
    /// Whether `name` comes next: then it is taken. Inlined, so that it is compared a few words at a time.
    #[inline(always)]
    fn take(&mut self, name: &'static str) -> bool {
        let rest = self.rest.strip_prefix(name);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.rest = self.rest.strip_prefix(char::from(byte))?;
        Some(())
    }

    /// Whether a list goes on behind a comma or ends with `end`.
    fn ends(&mut self, end: u8) -> Option<bool> {
        let is_end = self.expect(end).is_some();
        (is_end || self.expect(b',').is_some()).then_some(is_end)
    }

    fn text(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        // Most are shorter than what a faster search takes to begin.
        let length = self.rest.bytes().position(|byte| byte == b'"')?;
        let text = self.rest.get(..length)?;
        self.rest = self.rest.get(length + 1..)?;
        Some(text)
    }

    fn cow(&mut self) -> Option<Cow<'a, str>> {
        self.text().map(Cow::Borrowed)
    }

    fn some_text(&mut self) -> Option<Option<Text<'a>>> {
        self.cow().map(|text| Some(Text(text)))
    }

    /// A whole number without a sign. What is none by JSON's rules is not followed by a comma either.
    fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        let bytes = self.rest.as_bytes();
        let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = bytes.get(..length).filter(|digits| length == 1 || !digits.starts_with(b"0"))?;
        if !(1..=DIGITS_MAX).contains(&length) {
            return None;
        }
        self.rest = self.rest.get(length..)?;
        T::try_from(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))).ok()
    }

    fn some_number<T: TryFrom<u64>>(&mut self) -> Option<Option<T>> {
        self.number().map(Some)
    }

    fn flag(&mut self) -> Option<bool> {
        let (flag, rest) = match self.rest.strip_prefix("true") {
            Some(rest) => (true, rest),
            None => (false, self.rest.strip_prefix("false")?),
        };
        self.rest = rest;
        Some(flag)
    }

    fn texts(&mut self) -> Option<Vec<Text<'a>>> {
        self.expect(b'[')?;
        let mut texts = Vec::new();
        if self.expect(b']').is_some() {
            return Some(texts);
        }
        loop {
            texts.push(Text(self.cow()?));
            if self.ends(b']')? {
                return Some(texts);
            }
        }
    }

    fn attributes(&mut self) -> Option<Attributes<'a>> {
        self.expect(b'{')?;
        let mut attributes = Vec::new();
        if self.expect(b'}').is_some() {
            return Some(Attributes(attributes));
        }
        loop {
            let name = self.cow()?;
            self.expect(b':')?;
            attributes.push((name, self.cow()?));
            if self.ends(b'}')? {
                return Some(Attributes(attributes));
            }
        }
    }

    fn skip(&mut self) -> Option<()> {
        match self.rest.as_bytes().first()? {
            b'"' => self.text().map(drop),
            b'[' => self.texts().map(drop),
            b't' | b'f' => self.flag().map(drop),
            _ => self.number::<u64>().map(drop),
        }
    }
}

/// So many digits are a `u64` whatever they are.
const DIGITS_MAX: usize = 19;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = concat!(
        r#"{"v":1,"type":"usage","ts":"2026-11-29T10:04:00.123Z","request_id":"r-1","tenant":"acmé","key":"ci","#,
        r#""attributes":{"team":"ml","user":"u"},"caller_attributes":["user","team"],"session":"s-1","session_derived":true,"#,
        r#""provider":"anthropic","model":"claude-sonnet-5-5","requested_model":"sonnet","path":"/v1/messages","stream":true,"#,
        r#""status":200,"outcome":"complete","input_tokens":12,"cache_read_tokens":0,"cache_write_5m_tokens":3,"#,
        r#""cache_write_1h_tokens":4,"output_tokens":34,"reasoning_tokens":5,"cache_write_tokens":6,"audio_input_tokens":7,"#,
        r#""cached_audio_input_tokens":8,"image_input_tokens":9,"audio_output_tokens":10,"image_output_tokens":11,"#,
        r#""web_search_requests":12,"web_fetch_requests":13,"usage_estimated":false,"service_tier":"standard","#,
        r#""reserved_micro_usd":41000,"reserved_output_tokens":4096,"first_reserved_micro_usd":2050,"#,
        r#""first_reserved_output_tokens":1024,"cost_micro_usd":364,"cost_pico_usd":363000007,"estimated_input_tokens":11,"#,
        r#""uncorrected_input_tokens":10,"duration_ms":1840,"ttfb_ms":320,"flags":["price_fallback","clamped"]}"#,
    );

    fn by_json(text: &str) -> Option<String> {
        serde_json::from_str::<RawEvent<'_>>(text).ok().map(|event| format!("{event:?}"))
    }

    fn by_us(text: &str) -> Option<String> {
        event(text).map(|event| format!("{event:?}"))
    }

    #[test]
    fn a_line_with_every_field_is_plain_and_reads_as_json() {
        assert_eq!((by_us(LINE), by_us(LINE).is_some()), (by_json(LINE), true));
        let empty = LINE.replace(r#"{"team":"ml","user":"u"}"#, "{}").replace(r#"["user","team"]"#, "[]");
        assert_eq!((by_us(&empty), by_us(&empty).is_some()), (by_json(&empty), true));
    }

    proptest! {
        /// Whatever becomes of a line, what is read here is what a JSON parser reads.
        #[test]
        fn what_is_plain_reads_as_json(
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..6, "[-0-9a-z\"\\\\{}\\[\\],:. é\u{1}]{0,3}"), 0..4),
        ) {
            let mut line = LINE.to_owned();
            for (place, removed, put_in) in edits {
                let boundary = |at: usize| (at..=line.len()).find(|at| line.is_char_boundary(*at)).unwrap_or(line.len());
                let start = boundary(place.index(line.len() + 1));
                let end = boundary((start + removed).min(line.len()));
                line.replace_range(start..end, &put_in);
            }
            if let Some(read) = by_us(&line) {
                prop_assert_eq!(Some(read), by_json(&line), "{}", line);
            }
        }

        /// Fields that are twice there, or missing.
        #[test]
        fn fields_in_any_order_and_number_read_as_json(order in prop::collection::vec(0_usize..44, 0..60)) {
            let fields: Vec<&str> = LINE[1..LINE.len() - 1].split(",\"").collect();
            let fields: Vec<String> = order.iter().filter_map(|at| fields.get(*at)).map(|field| format!("\"{}", field.trim_start_matches('"'))).collect();
            let line = format!("{{{}}}", fields.join(","));
            if let Some(read) = by_us(&line) {
                prop_assert_eq!(Some(read), by_json(&line), "{}", line);
            }
        }
    }
}
