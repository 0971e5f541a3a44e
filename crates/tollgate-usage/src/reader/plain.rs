//! Usage events as the writer writes them, read at about half of what a JSON parser costs.
//!
//! Such a line has no spaces between its fields, escapes only where a name needs them, and whole numbers. What is
//! plain in this way is read here; of anything else, right or wrong, nothing is said.

use std::borrow::Cow;

use super::line::{Attributes, RawEvent, Text};

/// The fields that no event is without: those with the first numbers.
const REQUIRED: u64 = (1 << 6) - 1;

/// The number of a field that nobody wants.
const UNWANTED: u32 = u64::BITS;

/// The event that is `text`; `None`: it is not plain, or none.
pub(super) fn event(text: &str) -> Option<RawEvent<'_>> {
    let bytes = text.as_bytes();
    // Without escapes a text ends at the next quote.
    if memchr::memchr(b'\\', bytes).is_some() || has_control(bytes) {
        return None;
    }
    let mut plain = Plain { text, at: 0 };
    let (mut event, mut seen) = (RawEvent::default(), 0_u64);
    plain.expect(b'{')?;
    loop {
        let name = plain.text()?;
        plain.expect(b':')?;
        let place = 1_u64.checked_shl(field(&mut plain, &mut event, name)?).unwrap_or(0);
        if seen & place != 0 {
            return None;
        }
        seen |= place;
        if plain.ends(b'}')? {
            break;
        }
    }
    (plain.at == bytes.len() && seen & REQUIRED == REQUIRED).then_some(event)
}

/// Looks at all bytes, many at a time: a search that may end early looks at each by itself.
fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | (*byte < b' '))
}

/// Reads the value of the field `name`; the number of the field.
fn field<'a>(plain: &mut Plain<'a>, event: &mut RawEvent<'a>, name: &str) -> Option<u32> {
    Some(match name {
        "v" => set(&mut event.v, plain.number()?, 0),
        "type" => set(&mut event.kind, plain.cow()?, 1),
        "ts" => set(&mut event.ts, plain.cow()?, 2),
        "request_id" => set(&mut event.request_id, plain.cow()?, 3),
        "tenant" => set(&mut event.tenant, plain.cow()?, 4),
        "cost_micro_usd" => set(&mut event.cost_micro_usd, plain.number()?, 5),
        "key" => set(&mut event.key, plain.cow()?, 6),
        "attributes" => set(&mut event.attributes, plain.attributes()?, 7),
        "caller_attributes" => set(&mut event.caller_attributes, plain.texts()?, 8),
        "session" => set(&mut event.session, Some(Text(plain.cow()?)), 9),
        "provider" => set(&mut event.provider, plain.cow()?, 10),
        "model" => set(&mut event.model, plain.cow()?, 11),
        "requested_model" => set(&mut event.requested_model, Some(Text(plain.cow()?)), 12),
        "path" => set(&mut event.path, plain.cow()?, 13),
        "stream" => set(&mut event.stream, plain.flag()?, 14),
        "status" => set(&mut event.status, plain.number()?, 15),
        "outcome" => set(&mut event.outcome, plain.cow()?, 16),
        "service_tier" => set(&mut event.service_tier, Some(Text(plain.cow()?)), 17),
        "usage_estimated" => set(&mut event.usage_estimated, plain.flag()?, 18),
        "cost_pico_usd" => set(&mut event.cost_pico_usd, Some(plain.number()?), 19),
        _ => return count(plain, event, name),
    })
}

/// The same for counts.
fn count(plain: &mut Plain<'_>, event: &mut RawEvent<'_>, name: &str) -> Option<u32> {
    Some(match name {
        "input_tokens" => set(&mut event.input_tokens, plain.number()?, 20),
        "cache_read_tokens" => set(&mut event.cache_read_tokens, plain.number()?, 21),
        "cache_write_5m_tokens" => set(&mut event.cache_write_5m_tokens, plain.number()?, 22),
        "cache_write_1h_tokens" => set(&mut event.cache_write_1h_tokens, plain.number()?, 23),
        "cache_write_tokens" => set(&mut event.cache_write_tokens, plain.number()?, 24),
        "output_tokens" => set(&mut event.output_tokens, plain.number()?, 25),
        "reasoning_tokens" => set(&mut event.reasoning_tokens, plain.number()?, 26),
        "audio_input_tokens" => set(&mut event.audio_input_tokens, plain.number()?, 27),
        "cached_audio_input_tokens" => set(&mut event.cached_audio_input_tokens, plain.number()?, 28),
        "image_input_tokens" => set(&mut event.image_input_tokens, plain.number()?, 29),
        "audio_output_tokens" => set(&mut event.audio_output_tokens, plain.number()?, 30),
        "image_output_tokens" => set(&mut event.image_output_tokens, plain.number()?, 31),
        "web_search_requests" => set(&mut event.web_search_requests, plain.number()?, 32),
        "web_fetch_requests" => set(&mut event.web_fetch_requests, plain.number()?, 33),
        "reserved_micro_usd" => set(&mut event.reserved_micro_usd, plain.number()?, 34),
        "reserved_output_tokens" => set(&mut event.reserved_output_tokens, Some(plain.number()?), 35),
        "first_reserved_micro_usd" => set(&mut event.first_reserved_micro_usd, Some(plain.number()?), 36),
        "first_reserved_output_tokens" => {
            set(&mut event.first_reserved_output_tokens, Some(plain.number()?), 37)
        }
        "estimated_input_tokens" => set(&mut event.estimated_input_tokens, plain.number()?, 38),
        "uncorrected_input_tokens" => set(&mut event.uncorrected_input_tokens, Some(plain.number()?), 39),
        "duration_ms" => set(&mut event.duration_ms, plain.number()?, 40),
        _ => {
            plain.skip()?;
            UNWANTED
        }
    })
}

fn set<T>(field: &mut T, value: T, number: u32) -> u32 {
    *field = value;
    number
}

/// A line, read up to some byte. Where it is not plain, what reads it says `None`.
struct Plain<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Plain<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let is_there = self.peek()? == byte;
        self.at += 1;
        is_there.then_some(())
    }

    /// Whether a list goes on behind a comma or ends with `end`.
    fn ends(&mut self, end: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        if byte == end { Some(true) } else { (byte == b',').then_some(false) }
    }

    /// Whether a list ends where it has begun.
    fn is_empty(&mut self, end: u8) -> Option<bool> {
        let is_end = self.peek()? == end;
        self.at += usize::from(is_end);
        Some(is_end)
    }

    fn text(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let rest = self.text.get(self.at..)?;
        let length = memchr::memchr(b'"', rest.as_bytes())?;
        self.at += length + 1;
        rest.get(..length)
    }

    fn cow(&mut self) -> Option<Cow<'a, str>> {
        self.text().map(Cow::Borrowed)
    }

    /// A whole number without a sign. What is none by JSON's rules is not followed by a comma either.
    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        let rest = self.text.get(self.at..)?;
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let digits = rest.get(..length).filter(|digits| length == 1 || !digits.starts_with('0'))?;
        self.at += length;
        digits.parse().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        let rest = self.text.get(self.at..)?;
        let (flag, length) = if rest.starts_with("true") { (true, 4) } else { (false, 5) };
        self.at += length;
        (flag || rest.starts_with("false")).then_some(flag)
    }

    fn texts(&mut self) -> Option<Vec<Text<'a>>> {
        self.expect(b'[')?;
        let mut texts = Vec::new();
        if self.is_empty(b']')? {
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
        if self.is_empty(b'}')? {
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
        match self.peek()? {
            b'"' => self.text().map(drop),
            b'[' => self.texts().map(drop),
            b't' | b'f' => self.flag().map(drop),
            _ => self.number::<u64>().map(drop),
        }
    }
}

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
