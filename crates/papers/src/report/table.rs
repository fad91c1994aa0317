//! Tables: what a paper says beside what a formula and a simulation say.

use super::number::{fixed, plain, short};
use serde::Serialize;

/// Where a number of ours comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A constant was chosen so that it fits.
    Fitted,
    /// No constant was chosen to fit it.
    Predicted,
}

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The quantity.
    pub what: String,
    /// Its unit; of all three values.
    pub unit: String,
    /// The paper's value.
    pub paper: Option<f64>,
    /// The closed form's.
    pub formula: Option<f64>,
    /// The simulation's.
    pub simulated: Option<f64>,
    /// Declared: the error may be at most so many per cent. Without one the row is only reported.
    pub band_percent: Option<f64>,
    /// Whether something was fitted to it.
    pub origin: Origin,
    /// A remark: a contradiction in the paper, for example.
    pub note: String,
}

/// Numbers that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Of its files: letters, digits and hyphens.
    pub name: String,
    /// One line.
    pub title: String,
    /// Its message, in a sentence.
    pub sentence: String,
    /// How many constants were fitted to its rows.
    pub constants: usize,
    /// The numbers.
    pub rows: Vec<Row>,
}

const HEADINGS: [&str; 10] = [
    "what",
    "unit",
    "paper",
    "formula",
    "simulated",
    "error %",
    "band %",
    "within",
    "origin",
    "note",
];

impl Row {
    /// A row without values.
    pub fn new(what: impl Into<String>, unit: &str) -> Row {
        Row {
            what: what.into(),
            unit: unit.to_string(),
            paper: None,
            formula: None,
            simulated: None,
            band_percent: None,
            origin: Origin::Predicted,
            note: String::new(),
        }
    }

    /// Of the formula's and the simulation's errors against the paper, the larger one, in per cent. Where the paper has
    /// no number, the simulation's against the formula.
    pub fn error_percent(&self) -> Option<f64> {
        let percent = |value: f64, right: f64| (value / right - 1.0) * 100.0;
        let Some(paper) = self.paper else {
            return Some(percent(self.simulated?, self.formula?));
        };
        let errors = [self.formula, self.simulated].into_iter().flatten();
        errors
            .map(|value| percent(value, paper))
            .reduce(|a, b| if b.abs() > a.abs() { b } else { a })
    }

    /// Whether the error is within the band; a value that is missing is not. None where there is no band.
    pub fn is_within(&self) -> Option<bool> {
        let band = self.band_percent?;
        Some(self.error_percent().is_some_and(|error| error.abs() <= band))
    }

    fn cells(&self) -> [String; 10] {
        let optional = |value: Option<f64>, text: fn(f64) -> String| value.map(text);
        let within = self.is_within().map(|within| if within { "yes" } else { "NO" }.to_string());
        let origin = match self.origin {
            Origin::Fitted => "fitted",
            Origin::Predicted => "predicted",
        };
        let none = Option::unwrap_or_default;
        [
            self.what.clone(),
            self.unit.clone(),
            none(optional(self.paper, plain)),
            none(optional(self.formula, short)),
            none(optional(self.simulated, short)),
            none(self.error_percent().map(|error| fixed(error, 2))),
            none(optional(self.band_percent, plain)),
            none(within),
            origin.to_string(),
            self.note.clone(),
        ]
    }
}

/// Columns whose cells are numbers.
fn is_number(column: usize) -> bool {
    (2..7).contains(&column)
}

impl Table {
    /// Rows that left their bands.
    pub fn outside(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_within() == Some(false))
    }

    /// How many constants explain how many numbers of the paper.
    pub fn honesty(&self) -> String {
        let of_paper = || self.rows.iter().filter(|row| row.paper.is_some());
        let fitted = of_paper().filter(|row| row.origin == Origin::Fitted).count();
        let all = of_paper().count();
        let has_formula = self.rows.iter().any(|row| row.formula.is_some());
        match (self.constants, all) {
            (_, 0) if !has_formula => "Simulated; there is no number of a paper.".into(),
            (_, 0) => "No number of the paper: the simulation is compared with the formula.".into(),
            (0, all) => format!("No constant fitted; {all} numbers of the paper predicted."),
            (constants, all) => format!(
                "{constants} {} fitted for {all} numbers of the paper: {fitted} fitted, {} predicted.",
                if constants == 1 { "constant" } else { "constants" },
                all - fitted
            ),
        }
    }

    /// The columns that have something in them: of all tables the first two.
    fn columns(&self) -> Vec<usize> {
        let cells: Vec<[String; 10]> = self.rows.iter().map(Row::cells).collect();
        let is_compared = self.rows.iter().any(|row| row.paper.or(row.formula).is_some());
        let used = |column: &usize| match HEADINGS[*column] {
            "what" | "unit" => true,
            "origin" => is_compared,
            _ => cells.iter().any(|row| !row[*column].is_empty()),
        };
        (0..HEADINGS.len()).filter(used).collect()
    }

    fn lines(&self) -> Vec<Vec<(usize, String)>> {
        let columns = self.columns();
        let pick = |cells: [String; 10]| {
            columns.iter().map(|column| (*column, cells[*column].clone())).collect()
        };
        let headings = HEADINGS.map(str::to_string);
        std::iter::once(headings).chain(self.rows.iter().map(Row::cells)).map(pick).collect()
    }

    /// Aligned, for a terminal.
    pub fn text(&self) -> String {
        let lines = self.lines();
        let width = |index: usize| lines.iter().map(|line| line[index].1.chars().count()).max();
        let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
        let sentence = if self.sentence.is_empty() { "" } else { &format!("{}\n", self.sentence) };
        let mut text = format!("{}\n{sentence}{}\n\n", self.title, self.honesty());
        for (number, line) in lines.iter().enumerate() {
            text.push_str(&text_line(line, &widths));
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                text.push_str(&format!("{}\n", rule.join("  ")));
            }
        }
        text
    }

    /// With a heading of the third level.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n{} {}\n\n", self.title, self.sentence, self.honesty());
        for (number, line) in self.lines().iter().enumerate() {
            let cells = line.iter().map(|(_, cell)| cell.replace('|', "\\|"));
            text.push_str(&format!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
            if number == 0 {
                let rules = line.iter().map(|(column, _)| rule(*column));
                text.push_str(&format!("| {} |\n", rules.collect::<Vec<_>>().join(" | ")));
            }
        }
        text
    }

    /// RFC 4180: all columns, numbers with all their digits.
    pub fn csv(&self) -> String {
        let mut text = csv_line(HEADINGS.map(str::to_string));
        for row in &self.rows {
            let mut cells = row.cells();
            let full = |value: Option<f64>| value.map(plain).unwrap_or_default();
            let numbers = [row.paper, row.formula, row.simulated, row.error_percent()].map(full);
            cells[2..6].clone_from_slice(&numbers);
            text.push_str(&csv_line(cells));
        }
        text
    }

    /// One object, on several lines.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(&self.value());
        format!("{}\n", text.expect("numbers and texts"))
    }

    /// One object: the fields of the table, `honesty`, and for each row also `error_percent` and `within`.
    pub fn value(&self) -> serde_json::Value {
        let row = |row: &Row| {
            let mut value = serde_json::to_value(row).expect("numbers and texts");
            value["error_percent"] = row.error_percent().into();
            value["within"] = row.is_within().into();
            value
        };
        let mut value = serde_json::to_value(self).expect("numbers and texts");
        value["honesty"] = self.honesty().into();
        value["rows"] = self.rows.iter().map(row).collect();
        value
    }

    /// As `<table>` of a page.
    pub fn html(&self) -> String {
        let mut text = String::from("<div class=\"scroll\"><table>\n");
        for (number, line) in self.lines().iter().enumerate() {
            let tag = if number == 0 { "th" } else { "td" };
            let cell = |(column, cell): &(usize, String)| {
                let class = if is_number(*column) { " class=\"n\"" } else { "" };
                let class = if cell == "NO" { " class=\"bad\"" } else { class };
                format!("<{tag}{class}>{}</{tag}>", super::html::escape(cell))
            };
            text.push_str(&format!("<tr>{}</tr>\n", line.iter().map(cell).collect::<String>()));
        }
        text.push_str("</table></div>\n");
        text
    }
}

fn rule(column: usize) -> &'static str {
    if is_number(column) { "---:" } else { "---" }
}

fn text_line(line: &[(usize, String)], widths: &[usize]) -> String {
    let cells = line.iter().zip(widths).map(|((column, cell), width)| match is_number(*column) {
        true => format!("{cell:>width$}"),
        false => format!("{cell:<width$}"),
    });
    format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
}

fn csv_line(cells: [String; 10]) -> String {
    let quoted = cells.map(|cell| match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    });
    format!("{}\r\n", quoted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(paper: Option<f64>, formula: Option<f64>, simulated: Option<f64>) -> Row {
        Row { paper, formula, simulated, band_percent: Some(1.0), ..Row::new("x", "us") }
    }

    #[test]
    fn the_larger_error_counts() {
        let error = |paper, formula, simulated| {
            row(paper, formula, simulated).error_percent().map(|error| fixed(error, 1))
        };
        assert_eq!(error(Some(100.0), Some(101.0), Some(98.0)).as_deref(), Some("-2.0"));
        assert_eq!(error(Some(100.0), Some(101.0), None).as_deref(), Some("1.0"));
        assert_eq!(error(None, Some(100.0), Some(103.0)).as_deref(), Some("3.0"));
        assert_eq!(error(None, Some(100.0), None), None);
        assert_eq!(error(Some(100.0), None, None), None);
    }

    #[test]
    fn a_band_that_is_left_is_told() {
        assert_eq!(row(Some(100.0), Some(100.9), None).is_within(), Some(true));
        assert_eq!(row(Some(100.0), Some(101.1), None).is_within(), Some(false));
        assert_eq!(row(Some(100.0), None, None).is_within(), Some(false), "no value");
        let free = Row { band_percent: None, ..row(Some(100.0), Some(200.0), None) };
        assert_eq!(free.is_within(), None);
    }
}
