//! Model families: which tokenizer and which published rules a model follows, by its name.

use super::images::ImageRule;
use super::text::TextRatio;

/// What models of one family have in common.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    /// Claude before 4.7.
    Claude,
    /// Claude 4.7, 5 and later: a tokenizer that makes about 30 % more tokens.
    ClaudeNew,
    /// OpenAI's o200k encoding: GPT-4o, 4.1, 4.5, 5 and later, the o series.
    O200k,
    /// OpenAI's cl100k encoding: GPT-3.5 and 4.
    Cl100k,
    /// Anything else.
    Other,
}

impl Family {
    /// The family of a model name, with or without a vendor's prefix.
    pub(crate) fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        let starts = |prefix: &&str| name.get(..prefix.len()).is_some_and(|n| n.eq_ignore_ascii_case(prefix));
        if let Some(claude) = from_claude(name) {
            if claude_version(claude) >= (4, 7) { Self::ClaudeNew } else { Self::Claude }
        } else if O200K_PREFIXES.iter().any(starts) {
            Self::O200k
        } else if CL100K_PREFIXES.iter().any(starts) {
            Self::Cl100k
        } else {
            Self::Other
        }
    }

    /// A name that no model has.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Claude => "family:claude",
            Self::ClaudeNew => "family:claude-new",
            Self::O200k => "family:o200k",
            Self::Cl100k => "family:cl100k",
            Self::Other => "family:other",
        }
    }

    /// Tokens per 1,000 bytes. OpenAI's from counting prose, code, JSON, logs, ids and ten languages
    /// with the published encodings; Anthropic's, whose encoding is not published, from recorded
    /// exchanges and with more to spare. On the high side.
    pub(crate) const fn text_ratio(self) -> TextRatio {
        match self {
            Self::Claude => CLAUDE_RATIO,
            Self::ClaudeNew => TextRatio {
                letters: CLAUDE_RATIO.letters * 13 / 10,
                marks: CLAUDE_RATIO.marks * 13 / 10,
                random: CLAUDE_RATIO.random * 13 / 10,
                two_byte: CLAUDE_RATIO.two_byte * 13 / 10,
                three_byte: CLAUDE_RATIO.three_byte * 13 / 10,
                four_byte: CLAUDE_RATIO.four_byte * 13 / 10,
            },
            Self::O200k => TextRatio {
                letters: 218,
                marks: 640,
                random: 700,
                two_byte: 190,
                three_byte: 290,
                four_byte: 450,
            },
            Self::Cl100k => TextRatio {
                letters: 224,
                marks: 640,
                random: 720,
                two_byte: 440,
                three_byte: 440,
                four_byte: 720,
            },
            Self::Other => TextRatio {
                letters: 250,
                marks: 700,
                random: 800,
                two_byte: 450,
                three_byte: 500,
                four_byte: 800,
            },
        }
    }

    /// Whether it is one of Anthropic's.
    pub(crate) const fn is_claude(self) -> bool {
        matches!(self, Self::Claude | Self::ClaudeNew)
    }
}

const O200K_PREFIXES: [&str; 13] = [
    "gpt-4o",
    "gpt-4.",
    "gpt-5",
    "gpt-6",
    "gpt-7",
    "gpt-oss",
    "gpt-audio",
    "chatgpt-",
    "o1",
    "o3",
    "o4",
    "codex",
    "computer-use",
];
const CL100K_PREFIXES: [&str; 3] = ["gpt-4", "gpt-3.5", "gpt-35"];

/// The part of a name from `claude` on; a cloud's region and vendor may stand before it.
fn from_claude(name: &str) -> Option<&str> {
    const CLAUDE: &[u8] = b"claude";
    let at = name.as_bytes().windows(CLAUDE.len()).position(|part| part.eq_ignore_ascii_case(CLAUDE))?;
    name.get(at..)
}

const CLAUDE_RATIO: TextRatio =
    TextRatio { letters: 240, marks: 650, random: 740, two_byte: 430, three_byte: 450, four_byte: 720 };

/// The version in a Claude name: `claude-opus-4-7`, `claude-3-5-sonnet-20241022`, `claude-sonnet-5`.
/// `(0, 0)` if there is none.
fn claude_version(name: &str) -> (u32, u32) {
    // Dates are longer than any version number.
    let mut numbers = name
        .as_bytes()
        .split(|byte| !byte.is_ascii_alphanumeric())
        .map(whole_number)
        .skip_while(Option::is_none)
        .map_while(|number| number.filter(|n| *n < 100));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The number that consists of `digits` and nothing else.
fn whole_number(digits: &[u8]) -> Option<u32> {
    let with = |number: u32, digit: &u8| {
        digit.is_ascii_digit().then(|| number.checked_mul(10)?.checked_add(u32::from(digit - b'0')))?
    };
    (!digits.is_empty()).then(|| digits.iter().try_fold(0, with))?
}

/// How a model counts images.
pub(crate) fn image_rule(model: &str, family: Family) -> ImageRule {
    match family {
        Family::Claude => ImageRule::ClaudeSmall,
        Family::ClaudeNew => ImageRule::ClaudeLarge,
        Family::O200k | Family::Cl100k => openai_image_rule(model.rsplit('/').next().unwrap_or(model)),
        Family::Other => ImageRule::Dearest,
    }
}

/// OpenAI's table (images and vision guide; gpt-5-nano's multiplier is disputed, the larger is taken).
fn openai_image_rule(name: &str) -> ImageRule {
    let rules: [(&str, ImageRule); 14] = [
        ("gpt-4o-mini", ImageRule::Tiles { base: 2833, tile: 5667 }),
        ("gpt-4.1-mini", ImageRule::Patches { percent: 162 }),
        ("gpt-4.1-nano", ImageRule::Patches { percent: 246 }),
        ("gpt-5-mini", ImageRule::Patches { percent: 162 }),
        ("gpt-5-nano", ImageRule::Patches { percent: 246 }),
        ("o4-mini", ImageRule::Patches { percent: 172 }),
        ("o1", ImageRule::Tiles { base: 75, tile: 150 }),
        ("o3", ImageRule::Tiles { base: 75, tile: 150 }),
        ("computer-use", ImageRule::Tiles { base: 65, tile: 129 }),
        ("gpt-5.", ImageRule::Dearest),
        ("gpt-5", ImageRule::Tiles { base: 70, tile: 140 }),
        ("gpt-4", ImageRule::Tiles { base: 85, tile: 170 }),
        ("chatgpt-4o", ImageRule::Tiles { base: 85, tile: 170 }),
        ("gpt-3.5", ImageRule::Tiles { base: 85, tile: 170 }),
    ];
    rules.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(ImageRule::Dearest, |(_, rule)| *rule)
}

/// The tokens of the prompt that Anthropic adds when tools are given: with `tool_choice` auto or
/// none, and with any or a named tool (tool use overview, "pricing"). Unknown models: the largest.
pub(crate) fn claude_tool_prompt(model: &str, is_forced: bool) -> u64 {
    let table: [(&str, [u64; 2]); 12] = [
        ("opus-4-8", [290, 410]),
        ("opus-4-7", [675, 804]),
        ("opus-4-6", [497, 589]),
        ("sonnet-4-6", [497, 589]),
        ("opus-4-5", [496, 588]),
        ("sonnet-4-5", [496, 588]),
        ("haiku-4-5", [496, 588]),
        ("sonnet-5", [354, 474]),
        ("opus-4", [313, 315]),
        ("sonnet-4", [313, 315]),
        ("3-7-sonnet", [346, 313]),
        ("3-5-haiku", [264, 340]),
    ];
    let row = table.iter().find(|(part, _)| model.contains(part)).map_or([675, 804], |(_, row)| *row);
    row[usize::from(is_forced)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_find_their_family() {
        for (model, family) in [
            ("claude-3-5-sonnet-20241022", Family::Claude),
            ("claude-3-opus-20240229", Family::Claude),
            ("claude-haiku-4-5-20251001", Family::Claude),
            ("claude-sonnet-4-20250514", Family::Claude),
            ("claude-opus-4-6", Family::Claude),
            ("claude-opus-4-7", Family::ClaudeNew),
            ("anthropic/claude-opus-4.8", Family::ClaudeNew),
            ("claude-sonnet-5", Family::ClaudeNew),
            ("claude-haiku-5-5", Family::ClaudeNew),
            ("us.anthropic.claude-sonnet-5-5-20261001-v1:0", Family::ClaudeNew),
            ("claude-instant-1.2", Family::Claude),
            ("gpt-4o-mini", Family::O200k),
            ("gpt-4.1", Family::O200k),
            ("openai/gpt-5.6", Family::O200k),
            ("o3-mini", Family::O200k),
            ("gpt-4-turbo", Family::Cl100k),
            ("gpt-4", Family::Cl100k),
            ("gpt-3.5-turbo", Family::Cl100k),
            ("glm-5.2", Family::Other),
            ("", Family::Other),
        ] {
            assert_eq!(Family::of(model), family, "{model}");
        }
    }

    #[test]
    fn tool_prompts_are_those_of_the_model() {
        assert_eq!(claude_tool_prompt("claude-haiku-4-5-20251001", false), 496);
        assert_eq!(claude_tool_prompt("claude-opus-4-1-20250805", true), 315);
        assert_eq!(claude_tool_prompt("claude-sonnet-5", false), 354);
        assert_eq!(claude_tool_prompt("claude-of-tomorrow", true), 804);
    }
}
