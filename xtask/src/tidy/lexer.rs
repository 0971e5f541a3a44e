//! Rust text without its comments, strings and character literals, so that a search finds code.

/// `text` with every comment, string and character literal blanked out. Lines keep their numbers.
pub(super) fn code_only(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        let blank = if after_word { 0 } else { raw_string_len(rest) };
        let blank = [blank, comment_len(rest), quoted_len(rest)].into_iter().max().unwrap_or(0);
        let (taken, remaining) = rest.split_at(blank.max(first.len_utf8()));
        if blank == 0 {
            code.push(first);
        } else {
            code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        after_word = blank == 0 && (first.is_alphanumeric() || first == '_');
        rest = remaining;
    }
    code
}

/// The length of the comment at the start of `text`, 0 if there is none. Block comments nest.
fn comment_len(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if !text.starts_with("/*") {
        return 0;
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth = depth.saturating_add(1);
            at += 2;
        } else if rest.starts_with("*/") {
            depth = depth.saturating_sub(1);
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of `r"…"`, `r#"…"#` or their byte and C forms at the start of `text`, or 0.
fn raw_string_len(text: &str) -> usize {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix));
    let Some(body) = prefix.and_then(|prefix| text.strip_prefix(prefix)) else { return 0 };
    let hashes = body.len() - body.trim_start_matches('#').len();
    let (marks, body) = body.split_at(hashes);
    let Some(body) = body.strip_prefix('"') else { return 0 };
    let end = format!("\"{marks}");
    let inside = body.find(&end).map_or(body.len(), |at| at + end.len());
    text.len() - body.len() + inside
}

/// The length of the string or character literal at the start of `text`, or 0. A lifetime is none.
fn quoted_len(text: &str) -> usize {
    let mut chars = text.char_indices();
    let quote = match chars.next() {
        Some((_, quote @ ('"' | '\''))) => quote,
        _ => return 0,
    };
    if quote == '\'' && !is_char_literal(text) {
        return 0;
    }
    let mut escaped = false;
    for (at, c) in chars {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

fn is_char_literal(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = "a // one\nb /* two /* nested */\n */ c \"three \\\" four\" d\nr#\"five \" six\"# e";
        let code = code_only(text);
        assert_eq!(code.lines().count(), text.lines().count());
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(words, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn lifetimes_stay_and_characters_go() {
        assert_eq!(code_only("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(code_only("['\"', '\\'', 'x'];").replace(' ', ""), "[,,];");
    }

    #[test]
    fn a_word_that_ends_in_r_starts_no_raw_string() {
        assert_eq!(code_only("for x").trim(), "for x");
        assert_eq!(code_only("writer\"in\"after"), "writer    after");
    }
}
