//! Which models a key or a route is for.

use std::collections::BTreeSet;
use std::sync::Arc;

/// A list of globs over model ids: `*` is any text, `?` one character, everything else is itself.
///
/// `*` crosses `/`: ids such as `meta-llama/Llama-3` are one name. Cheap to clone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelGlobs(Arc<[Box<str>]>);

impl ModelGlobs {
    /// The list of `patterns`. An empty one matches nothing.
    pub fn new(patterns: impl IntoIterator<Item = Box<str>>) -> Self {
        Self(patterns.into_iter().collect())
    }

    /// Whether one of the globs matches the whole of `model`. Case counts: this is for what opens a way.
    pub fn matches(&self, model: &str) -> bool {
        self.0.iter().any(|pattern| glob(pattern.as_bytes(), model.as_bytes(), |a, b| a == b))
    }

    /// The same without regard to the case of ASCII letters, which some providers ignore: this is for
    /// what closes one.
    pub fn matches_any_case(&self, model: &str) -> bool {
        let same = |a: &u8, b: &u8| a.eq_ignore_ascii_case(b);
        self.0.iter().any(|pattern| glob(pattern.as_bytes(), model.as_bytes(), same))
    }

    /// Whether some name is matched by both lists, the case of ASCII letters aside.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|ours| other.0.iter().any(|theirs| overlap(ours, theirs)))
    }

    /// The globs as a set, in lower case: sorted, each once. Two lists with the same set match the same
    /// models in any case.
    pub fn as_set(&self) -> BTreeSet<String> {
        self.0.iter().map(|pattern| pattern.to_ascii_lowercase()).collect()
    }

    /// The globs as they were written.
    pub fn patterns(&self) -> &[Box<str>] {
        &self.0
    }
}

/// Whether `pattern` matches the whole of `text`, in at most the product of their lengths in steps.
///
/// Of several `*` only the last one passed is tried again: what an earlier one could take more, the
/// later one can take too.
fn glob(pattern: &[u8], text: &[u8], same: impl Fn(&u8, &u8) -> bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // After the last `*` passed, and where in the text what follows it was tried.
    let mut retry: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(t) {
        match (pattern.get(p), retry) {
            (Some(b'*'), _) => {
                p += 1;
                retry = Some((p, t));
            }
            (Some(b'?'), _) => (p, t) = (p + 1, character_end(text, t)),
            (Some(expected), _) if same(expected, byte) => (p, t) = (p + 1, t + 1),
            (_, Some((after, tried))) => {
                let next = character_end(text, tried);
                (p, t, retry) = (after, next, Some((after, next)));
            }
            (_, None) => return false,
        }
    }
    pattern.iter().skip(p).all(|rest| *rest == b'*')
}

/// Whether some text is matched by both patterns, in as many steps as the product of their lengths.
fn overlap(one: &str, other: &str) -> bool {
    let other: Vec<char> = other.chars().collect();
    // From the ends: whether what is left of `one` and `other` from each character on have a text in common.
    let mut after: Vec<bool> = (0..=other.len()).map(|b| rest(&other, b).iter().all(|c| *c == '*')).collect();
    for a in one.chars().rev() {
        let mut row = vec![a == '*' && after.last() == Some(&true); other.len() + 1];
        for (b, char) in other.iter().enumerate().rev() {
            let at = |row: &[bool], index: usize| row.get(index).copied().unwrap_or(false);
            let both = match (a, *char) {
                ('*', _) | (_, '*') => at(&after, b) || at(&row, b + 1),
                (a, b_char) => {
                    let is_same = a == '?' || b_char == '?' || a.eq_ignore_ascii_case(&b_char);
                    is_same && at(&after, b + 1)
                }
            };
            row.get_mut(b).into_iter().for_each(|place| *place = both);
        }
        after = row;
    }
    after.first() == Some(&true)
}

fn rest(pattern: &[char], from: usize) -> &[char] {
    pattern.get(from..).unwrap_or_default()
}

/// Where the UTF-8 character that starts at `start` ends.
fn character_end(text: &[u8], start: usize) -> usize {
    let continued = text.iter().skip(start + 1).take_while(|byte| **byte & 0xc0 == 0x80).count();
    start + 1 + continued
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        ModelGlobs::new([pattern.into()]).matches(text)
    }

    #[test]
    fn the_usual_patterns() {
        let yes = [
            ("claude-*", "claude-sonnet-5-5"),
            ("claude-*", "claude-"),
            ("*", ""),
            ("*", "meta-llama/Llama-3"),
            ("gpt-?", "gpt-5"),
            ("gpt-?", "gpt-é"),
            ("*-mini*", "gpt-5-mini-2026-01-01"),
            ("a*b*c", "aXbXbc"),
            ("[x]{y}", "[x]{y}"),
            ("**", "x"),
        ];
        let no = [
            ("claude-*", "Claude-sonnet"),
            ("claude-*", "x-claude-3"),
            ("gpt-?", "gpt-"),
            ("gpt-?", "gpt-55"),
            ("gpt-5", "gpt-5-mini"),
            ("", "x"),
            ("a*b", "abc"),
        ];
        yes.iter().for_each(|(pattern, text)| assert!(matches(pattern, text), "{pattern} {text}"));
        no.iter().for_each(|(pattern, text)| assert!(!matches(pattern, text), "{pattern} {text}"));
        assert!(!ModelGlobs::new([]).matches("x"));
        assert!(ModelGlobs::new(["Claude-*".into()]).matches_any_case("cLAUDE-sonnet"));
    }

    #[test]
    fn a_bad_pattern_does_not_take_for_ever() {
        assert!(!matches(&"*a".repeat(100), &"a".repeat(50_000).replace("aaaaa", "aaaab")));
    }

    /// By definition: every way to split the text at a `*`.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some((first, rest)) => text
                .split_first()
                .is_some_and(|(head, tail)| (*first == '?' || first == head) && naive(rest, tail)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Two patterns overlap where some short text matches both.
        #[test]
        fn patterns_overlap_where_a_text_matches_both(one in "[abB*?]{0,4}", other in "[abA*?]{0,4}") {
            let globs = |pattern: &str| ModelGlobs::new([pattern.into()]);
            let mut texts = vec![String::new()];
            for length in 0..7 {
                let longer = texts.iter().filter(|text| text.len() == length);
                let longer: Vec<_> = longer.flat_map(|text| [format!("{text}a"), format!("{text}b")]).collect();
                texts.extend(longer);
            }
            let both = |text: &String| globs(&one).matches_any_case(text) && globs(&other).matches_any_case(text);
            prop_assert_eq!(globs(&one).overlaps(&globs(&other)), texts.iter().any(both));
        }

        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?é]{0,7}", text in "[abé]{0,9}") {
            let expected = naive(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>());
            prop_assert_eq!(matches(&pattern, &text), expected);
        }
    }
}
