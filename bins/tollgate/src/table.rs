//! Tables for a terminal.

use tollgate_limiter::ExactAmount;

/// Pico-USD have twelve decimals; a table shows at least those of a micro-USD.
const DECIMALS_MAX: usize = 12;
const DECIMALS_MIN: usize = 6;

/// A column: its title, and whether its cells stand at the right.
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) is_number: bool,
}

impl Column {
    pub(crate) fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), is_number: false }
    }

    pub(crate) fn number(title: impl Into<String>) -> Self {
        Self { title: title.into(), is_number: true }
    }
}

/// The rows below their titles, every column as wide as its widest cell.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let titles: Vec<_> = columns.iter().map(|column| column.title.clone()).collect();
    let rows: Vec<Vec<_>> = std::iter::once(&titles)
        .chain(rows)
        .map(|row| row.iter().map(|cell| shown(cell)).collect())
        .collect();
    let width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for ((cell, column), width) in row.iter().zip(columns).zip(&widths) {
            let cell = if column.is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line.push_str(&cell);
            line.push_str("  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The longest text of a cell. No name that the proxy lets pass is longer; formatting takes no width above 65,535.
const CELL_CHARS_MAX: usize = 1_024;

/// A text that does nothing to a terminal: names of models are chosen by callers.
fn shown(text: &str) -> String {
    let harmless = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    text.chars()
        .take(CELL_CHARS_MAX)
        .map(|c| if harmless(c) { c } else { char::REPLACEMENT_CHARACTER })
        .collect()
}

/// How many decimals show all `costs` exactly.
pub(crate) fn decimals(costs: impl Iterator<Item = ExactAmount>) -> usize {
    let needed = |cost: ExactAmount| {
        let digits = format!("{:06}", cost.remainder());
        DECIMALS_MIN + digits.trim_end_matches('0').len()
    };
    costs.map(needed).max().unwrap_or(DECIMALS_MIN).min(DECIMALS_MAX)
}

/// Dollars with so many decimals, six at least. Exact where [`decimals`] has said how many.
pub(crate) fn usd(cost: ExactAmount, decimals: usize) -> String {
    let micro = cost.units();
    let text = format!("{}.{:06}{:06}", micro / 1_000_000, micro % 1_000_000, cost.remainder());
    let keep = text.len() - (DECIMALS_MAX - decimals.clamp(DECIMALS_MIN, DECIMALS_MAX));
    text.get(..keep).unwrap_or(&text).to_owned()
}

/// Dollars, exact, without needless zeros.
pub(crate) fn exact_usd(cost: ExactAmount) -> String {
    let text = usd(cost, DECIMALS_MAX);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_keeps_every_digit_and_its_place() {
        let costs = [0, 240_000, 1_000_000_000_000, 2_400_000_001].map(ExactAmount::from_millionths);
        assert_eq!(decimals(costs[..1].iter().copied()), 6);
        assert_eq!(decimals(costs[..2].iter().copied()), 8);
        assert_eq!(decimals(costs.into_iter()), 12);
        assert_eq!(costs.map(|cost| usd(cost, 8)), ["0.00000000", "0.00000024", "1.00000000", "0.00240000"]);
        assert_eq!(costs.map(exact_usd), ["0", "0.00000024", "1", "0.002400000001"]);
        assert_eq!(exact_usd(ExactAmount::MAX), "18446744073709.551615999999");
    }

    #[test]
    fn columns_are_aligned_and_no_name_reaches_the_terminal_s_controls() {
        let columns = [Column::text("model"), Column::number("n")];
        let rows = [["a\u{1b}[2J".to_owned(), "7".to_owned()], ["é".to_owned(), "1234".to_owned()]];
        let out = table(&columns, &rows.map(Vec::from));
        assert_eq!(out, "model     n\na\u{fffd}[2J     7\né      1234\n");
        let long = table(&columns, &[vec!["x".repeat(70_000), "1".to_owned()]]);
        assert!(long.len() < 3 * CELL_CHARS_MAX, "a hand-written file does not break the report");
    }
}
