//! The known name that a misspelt one was probably meant to be.

/// Longer names are compared by their beginning only, which bounds the work.
const COMPARED_CHARS_MAX: usize = 64;

/// The candidate with the smallest edit distance to `name`, the first of several.
pub fn nearest<'c>(name: &str, candidates: &[&'c str]) -> Option<&'c str> {
    candidates.iter().copied().min_by_key(|candidate| distance(name, candidate))
}

/// Insertions, deletions and replacements that turn `a` into `b` (Levenshtein), row by row.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(COMPARED_CHARS_MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (index, from) in a.chars().take(COMPARED_CHARS_MAX).enumerate() {
        let mut left = index + 1;
        let mut next = vec![left];
        for (to, pair) in b.iter().zip(row.windows(2)) {
            let &[diagonal, above] = pair else { continue };
            left = (diagonal + usize::from(from != *to)).min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        for (a, b, edits) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn finds_what_was_meant() {
        let known = ["listen", "admin_listen", "drain_seconds"];
        assert_eq!(nearest("listne", &known), Some("listen"));
        assert_eq!(nearest("admin_lsten", &known), Some("admin_listen"));
        assert_eq!(nearest("drain_second", &known), Some("drain_seconds"));
        assert_eq!(nearest("x", &[]), None);
    }
}
