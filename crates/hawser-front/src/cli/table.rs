//! Aligned columns.

use super::human::plain;

/// Rows under a heading; every column as wide as its widest cell.
pub(super) struct Table {
    heading: Vec<&'static str>,
    right: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub(super) fn new<const N: usize>(heading: [&'static str; N]) -> Self {
        Self { heading: heading.to_vec(), right: Vec::new(), rows: Vec::new() }
    }

    /// Aligns a column to the right, as numbers are read.
    pub(super) fn right(mut self, column: usize) -> Self {
        self.right.push(column);
        self
    }

    /// Adds a row.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| plain(cell)).collect());
    }

    /// The whole table; nothing of a row's end is padded.
    pub(super) fn render(&self) -> String {
        let heading: Vec<String> = self.heading.iter().map(ToString::to_string).collect();
        let lines = || std::iter::once(&heading).chain(&self.rows);
        let widths: Vec<usize> = (0..heading.len())
            .map(|column| lines().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for line in lines() {
            let cells = line.iter().enumerate().map(|(column, cell)| {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                if self.right.contains(&column) {
                    format!("{pad}{cell}")
                } else {
                    format!("{cell}{pad}")
                }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// `name: value` lines, the values aligned.
pub(super) fn details(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    pairs
        .iter()
        .map(|(name, value)| format!("{:<width$} {}\n", format!("{name}:"), plain(value)))
        .collect()
}
