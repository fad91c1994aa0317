//! Tables for people, and the same rows as JSON for programs.

use serde::Serialize;

/// A table with a heading for each column. Numbers are aligned to the right.
#[derive(Debug)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(headings: &[&str]) -> Table {
        Table { headings: headings.iter().map(|h| h.to_string()).collect(), rows: Vec::new() }
    }

    /// Adds a row; it has as many cells as the table has headings.
    pub fn row(&mut self, cells: &[String]) {
        assert_eq!(cells.len(), self.headings.len(), "a cell for each heading");
        self.rows.push(cells.to_vec());
    }

    /// As [`render`](Table::render), in parts below each other where it is wider than `columns`; each begins with the
    /// first column, which says what a row is about.
    pub fn render_within(&self, columns: usize) -> String {
        let widths = self.widths();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let (mut part, mut width) = (vec![0], widths[0]);
        for (column, own) in widths.iter().enumerate().skip(1) {
            if width + 2 + own > columns && part.len() > 1 {
                parts.push(std::mem::replace(&mut part, vec![0]));
                width = widths[0];
            }
            part.push(column);
            width += 2 + own;
        }
        parts.push(part);
        let cut = |part: &Vec<usize>| {
            let of = |row: &Vec<String>| part.iter().map(|column| row[*column].clone()).collect();
            let rows = self.rows.iter().map(of).collect();
            Table { headings: of(&self.headings), rows }.render()
        };
        parts.iter().map(cut).collect::<Vec<String>>().join("\n")
    }

    fn widths(&self) -> Vec<usize> {
        let all = || std::iter::once(&self.headings).chain(&self.rows);
        (0..self.headings.len())
            .map(|column| all().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect()
    }

    /// The table as text, two spaces between columns.
    pub fn render(&self) -> String {
        let widths = self.widths();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let lines = std::iter::once(&self.headings).chain([&rule]).chain(&self.rows);
        lines.map(|row| render_row(row, &widths)).collect()
    }
}

fn render_row(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
        let number = column > 0 && cell.starts_with(|c: char| c.is_ascii_digit());
        if number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    });
    let line = cells.collect::<Vec<_>>().join("  ");
    format!("{}\n", line.trim_end())
}

/// Prints one JSON object on a line of its own.
pub fn print_json(row: &impl Serialize) {
    println!("{}", serde_json::to_string(row).expect("rows of numbers and texts"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["what", "MB/s", "ratio"]);
        table.row(&["read".into(), "1250".into(), "0.98".into()]);
        table.row(&["write".into(), "80".into(), "-".into()]);
        assert_eq!(
            table.render(),
            "what   MB/s  ratio\n-----  ----  -----\nread   1250   0.98\nwrite    80  -\n"
        );
    }
}
