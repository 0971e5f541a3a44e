//! What a prompt begins with: what every later call of the same agent loop sends again.
//!
//! A loop sends its system prompt, its tools and its first user message with every call, and more
//! messages behind them. A digest of those three names the loop. It is taken in the walk that sizes the
//! prompt, over the unescaped strings, so that neither whitespace nor escapes nor the order of fields
//! matters; from the first user message on nothing is looked at any more.
//!
//! What agents change between two calls of one loop is left out: cache breakpoints, whether a message is
//! a string or a list of blocks, blocks that an agent puts in by itself (`<system-reminder>`, a billing
//! line), and digits in the system prompt and in tools, which are dates, times and versions there.
//!
//! The first user message is read to the last byte. System prompt and tools, which are long, come in by
//! how many letters, spaces and other characters each of their strings has: that is counted anyway.

use memchr::memmem;

use crate::estimate::Run;

/// The beginning of a prompt, as a digest: equal for the calls of one agent loop.
///
/// It is no secret and keeps none: under a known digest short prompts can be guessed. Who shows it to
/// others mixes in a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PromptPrefix(u64);

impl PromptPrefix {
    /// The digest, the same in every process and version of the same format.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Takes the digest while a prompt is read.
#[derive(Debug, Default)]
pub(crate) struct Prompt {
    system: Digest,
    tools: Digest,
    /// The message that is being read.
    message: Digest,
    /// The first user message that has a text.
    first: Option<Digest>,
    part: Part,
}

/// What is being read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Part {
    /// What later calls need not have, such as an answer or the second user message.
    #[default]
    Other,
    /// The system prompt.
    System,
    /// The definitions of tools.
    Tools,
    /// A message whose role is not known yet, or of another role.
    Message,
    /// A message of the user.
    User,
    /// A message that is a part of the system prompt.
    Instructions,
}

impl Prompt {
    /// A part of the prompt begins.
    pub(crate) fn begin(&mut self, part: Part) {
        self.part = part;
    }

    /// A message begins.
    pub(crate) fn begin_message(&mut self) {
        self.part = if self.first.is_none() { Part::Message } else { Part::Other };
        self.message = Digest::default();
    }

    /// The role of the message that is being read.
    pub(crate) fn role(&mut self, role: &str) {
        if self.part == Part::Message {
            self.part = match role {
                "user" => Part::User,
                "system" | "developer" => Part::Instructions,
                _ => Part::Other,
            };
        }
    }

    /// The message ended.
    pub(crate) fn end_message(&mut self) {
        match self.part {
            Part::User if self.message != Digest::default() => self.first = Some(self.message),
            Part::Instructions => self.system.add_digest(self.message),
            _ => {}
        }
        self.part = Part::Other;
    }

    /// A text of the part that is being read, and what was counted of it.
    pub(crate) fn text(&mut self, text: &str, run: &Run) {
        match self.part {
            Part::Other => {}
            Part::System if is_billing(text) => {}
            Part::System => self.system.add_shape(run),
            Part::Tools => self.tools.add_shape(run),
            Part::Instructions => self.message.add_shape(run),
            Part::Message | Part::User => {
                let said = without_reminders(text);
                if !said.is_empty() {
                    self.message.add(said.as_bytes());
                }
            }
        }
    }

    /// Data that is no text, such as an image: told by its length and its two ends.
    pub(crate) fn data(&mut self, data: &str) {
        const END_BYTES: usize = 128;
        if matches!(self.part, Part::Message | Part::User) {
            let bytes = data.as_bytes();
            self.message.add(&bytes[..bytes.len().min(END_BYTES)]);
            self.message.add(&bytes[bytes.len().saturating_sub(END_BYTES)..]);
            self.message.add_length(bytes.len());
        }
    }

    /// The digest; `None` where no user message has a text.
    pub(crate) fn prefix(&self) -> Option<PromptPrefix> {
        let mut all = self.first?;
        all.add_digest(self.system);
        all.add_digest(self.tools);
        Some(PromptPrefix(all.finish()))
    }
}

/// A line that Claude Code puts before its system prompt; a part of it differs from call to call.
fn is_billing(text: &str) -> bool {
    text.starts_with("x-anthropic-billing-header:")
}

/// `text` without the reminders before it, which agents add, change and leave out as they go.
fn without_reminders(mut text: &str) -> &str {
    const OPEN: &str = "<system-reminder>";
    const CLOSE: &str = "</system-reminder>";
    loop {
        text = text.trim_ascii_start();
        let Some(reminder) = text.strip_prefix(OPEN) else { return text.trim_ascii_end() };
        let close = memmem::find(reminder.as_bytes(), CLOSE.as_bytes());
        text = close.and_then(|at| reminder.get(at.saturating_add(CLOSE.len())..)).unwrap_or_default();
    }
}

/// A digest of texts, by folded 128-bit multiplication as in wyhash
/// (<https://github.com/wangyi-fudan/wyhash>): far faster than the parser that feeds it, and with 64
/// bits good enough to tell the loops of a day apart. It withstands nobody who looks for collisions,
/// who could as well send a session's id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Digest([u64; 2]);

impl Default for Digest {
    /// Not zero, which multiplication would keep.
    fn default() -> Self {
        let [.., one, other] = Self::KEYS;
        Self([one, other])
    }
}

impl Digest {
    /// The first digits of the fractional part of π, in hexadecimal.
    const KEYS: [u64; 4] =
        [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

    /// Two lanes of two words each, so that the multiplications overlap.
    fn add(&mut self, text: &[u8]) {
        let (chunks, rest) = text.as_chunks::<32>();
        chunks.iter().for_each(|chunk| self.add_chunk(chunk));
        if !rest.is_empty() {
            let mut last = [0; 32];
            for (place, byte) in last.iter_mut().zip(rest) {
                *place = *byte;
            }
            self.add_chunk(&last);
        }
        self.add_length(text.len());
    }

    fn add_chunk(&mut self, chunk: &[u8; 32]) {
        let ([a, b, c, d], _) = chunk.as_chunks::<8>() else { return };
        self.mix([a, b, c, d].map(|word| u64::from_le_bytes(*word)));
    }

    fn add_shape(&mut self, run: &Run) {
        self.mix(run.shape_without_digits());
    }

    fn mix(&mut self, [a, b, c, d]: [u64; 4]) {
        let [one, other] = self.0;
        self.0 = [fold(a ^ Self::KEYS[0], b ^ one), fold(c ^ Self::KEYS[1], d ^ other)];
    }

    /// Tells where a text ends, so that `ab`, `c` is not `a`, `bc`.
    fn add_length(&mut self, bytes: usize) {
        let [one, other] = self.0;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.0 = [fold(one ^ Self::KEYS[2], bytes ^ Self::KEYS[3]), other];
    }

    fn add_digest(&mut self, added: Self) {
        let [one, other] = added.0;
        self.mix([one, other, 0, 0]);
    }

    fn finish(self) -> u64 {
        let [one, other] = self.0;
        fold(one ^ Self::KEYS[3], other ^ Self::KEYS[2])
    }
}

/// The two halves of the product, one over the other.
fn fold(one: u64, other: u64) -> u64 {
    let (low, high) = one.carrying_mul(other, 0);
    low ^ high
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(texts: &[&str]) -> u64 {
        let mut digest = Digest::default();
        texts.iter().for_each(|text| digest.add(text.as_bytes()));
        digest.finish()
    }

    proptest! {
        #[test]
        fn one_byte_more_less_or_other_is_another_text(text in "[a-z ]{1,100}", at in any::<prop::sample::Index>()) {
            let at = at.index(text.len());
            let mut other = text.clone();
            other.replace_range(at..=at, "Z");
            prop_assert_ne!(digest(&[&text]), digest(&[&other]));
            prop_assert_ne!(digest(&[&text]), digest(&[&text[..text.len() - 1]]));
            prop_assert_ne!(digest(&[&text]), digest(&[&text[..at], &text[at..]]));
        }
    }

    /// Sessions are found again by it after a restart, also by a later version.
    #[test]
    fn the_digest_stays_what_it_is() {
        let texts = ["a", "You are a careful assistant. Be brief and exact."];
        assert_eq!(texts.map(|text| digest(&[text])), [7_867_486_608_215_900_570, 2_755_827_752_460_055_338]);
    }

    #[test]
    fn reminders_before_a_text_are_no_part_of_it() {
        for (text, said) in [
            ("hello ", "hello"),
            ("<system-reminder>a</system-reminder>\nhello", "hello"),
            ("<system-reminder>a</system-reminder> <system-reminder>b</system-reminder>", ""),
            ("<system-reminder>a", ""),
            ("see <system-reminder>", "see <system-reminder>"),
        ] {
            assert_eq!(without_reminders(text), said, "{text}");
        }
    }
}
