//! Elements as text, and how wide words are.

use super::WIDTH;
use crate::report::html::escape;
use std::fmt::Write;

/// Light and dark value of each series' colour; each has a contrast of at least 4.5 with its background.
const COLOURS: [(&str, &str); 7] = [
    ("#0b62a4", "#6cb2eb"),
    ("#b8430a", "#ff9b73"),
    ("#24762a", "#7fd382"),
    ("#8338a8", "#d6a2e8"),
    ("#7d6200", "#e5c85c"),
    ("#b0206a", "#ff8fc0"),
    ("#57606a", "#b4bcc4"),
];
/// So many series have a colour of their own.
pub const SERIES_COLOURS: usize = COLOURS.len();

const LIGHT: &str = "\
.tz-bg{fill:#fff}.tz-text,.tz-title{fill:#1d2329}.tz-muted{fill:#57606a}.tz-on{fill:#fff}
.tz-grid{stroke:#e3e7ea}.tz-axis{stroke:#57606a}.tz-mark{stroke:#57606a}
.tz-head{fill:#57606a}.tz-over{fill:#1d2329;stroke:#fff}.tz-box{fill:#f3f6f8;stroke:#57606a}
";
const DARK: &str = "\
.tz-bg{fill:#14181c}.tz-text,.tz-title{fill:#e2e6ea}.tz-muted{fill:#a3acb5}.tz-on{fill:#14181c}
.tz-grid{stroke:#2b3239}.tz-axis{stroke:#a3acb5}.tz-mark{stroke:#a3acb5}
.tz-head{fill:#a3acb5}.tz-over{fill:#e2e6ea;stroke:#14181c}.tz-box{fill:#1e252b;stroke:#a3acb5}
";
const SHAPES: &str = "\
.tz-text,.tz-title,.tz-muted,.tz-on{font-size:12px;
font-family:system-ui,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif}
.tz-title{font-size:16px;font-weight:600}.tz-mark{stroke-dasharray:5 4}.tz-line{fill:none;stroke-width:2}
";

/// Elements of one figure, back to front.
#[derive(Debug, Default)]
pub struct Canvas {
    elements: String,
}

impl Canvas {
    pub fn new() -> Canvas {
        Canvas::default()
    }

    /// A text; `anchor` is start, middle or end.
    pub fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// A rectangle, its corners a little round. `hint` is shown where a pointer rests.
    pub fn rectangle(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), hint: &str) {
        let ((x, y), (width, height)) = (corner, size);
        let hint = match hint.is_empty() {
            true => "/>".to_string(),
            false => format!("><title>{}</title></rect>", escape(hint)),
        };
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"{hint}"
        ));
    }

    /// Points joined by straight lines, in a series' colour and dash.
    pub fn curve(&mut self, colour: usize, points: &[(f64, f64)]) {
        let class = colour % SERIES_COLOURS;
        let dash = dash(colour);
        let points = coordinates(points);
        self.add(format_args!(
            "<polyline class=\"tz-line tz-s{class}\"{dash} points=\"{points}\"/>"
        ));
    }

    /// A filled shape.
    pub fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        let points = coordinates(points);
        self.add(format_args!("<polygon class=\"{class}\" points=\"{points}\"/>"));
    }

    /// A curved line from and to a point, bent towards another.
    pub fn bend(&mut self, class: &str, from: (f64, f64), towards: (f64, f64), to: (f64, f64)) {
        let ((x, y), (cx, cy), (tx, ty)) = (from, towards, to);
        self.add(format_args!(
            "<path class=\"{class}\" fill=\"none\" d=\"M{x:.1} {y:.1}Q{cx:.1} {cy:.1} {tx:.1} {ty:.1}\"/>"
        ));
    }

    /// The shape of a series' points: circle, square, triangle or diamond.
    pub fn point(&mut self, colour: usize, (x, y): (f64, f64)) {
        let fill = format!("tz-f{}", colour % SERIES_COLOURS);
        match colour % 4 {
            0 => self.add(format_args!(
                "<circle class=\"{fill}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"
            )),
            1 => self.rectangle(&fill, (x - 4.0, y - 4.0), (8.0, 8.0), ""),
            2 => self.polygon(&fill, &[(x, y - 5.5), (x + 5.0, y + 4.0), (x - 5.0, y + 4.0)]),
            _ => {
                let corners = [(x, y - 5.5), (x + 5.5, y), (x, y + 5.5), (x - 5.5, y)];
                self.polygon(&fill, &corners);
            }
        }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.elements, "{element}").expect("a string takes everything");
    }

    /// The whole element, `height` pixels high.
    pub fn finish(self, title: &str, sentence: &str, height: f64) -> String {
        let colours = |dark: bool| {
            let rule = |(index, (light, night)): (usize, &(&str, &str))| {
                let colour = if dark { night } else { light };
                format!(".tz-s{index}{{stroke:{colour}}}.tz-f{index}{{fill:{colour}}}")
            };
            COLOURS.iter().enumerate().map(rule).collect::<String>()
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n\
             <style>\n{SHAPES}{LIGHT}{}\n@media(prefers-color-scheme:dark){{\n{DARK}{}\n}}\n</style>\n\
             <rect class=\"tz-bg\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{}</svg>\n",
            escape(title),
            escape(sentence),
            colours(false),
            colours(true),
            self.elements
        )
    }
}

/// The dash of a series: the first is solid, the next differ.
fn dash(colour: usize) -> &'static str {
    match colour % 4 {
        0 => "",
        1 => " stroke-dasharray=\"8 3\"",
        2 => " stroke-dasharray=\"3 3\"",
        _ => " stroke-dasharray=\"10 3 2 3\"",
    }
}

fn coordinates(points: &[(f64, f64)]) -> String {
    let pairs: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    pairs.join(" ")
}

/// Pixels that a text is wide at most, in any of the usual fonts.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| character_width(character) * size).sum()
}

/// In parts of the font's size, after DejaVu Sans, which is the widest.
fn character_width(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | 'I' => 0.33,
        'f' | 't' | 'r' | '(' | ')' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.97,
        'A'..='Z' => 0.7,
        _ => 0.62,
    }
}

/// The text in lines that are at most so many pixels wide; a longer word has a line of its own.
pub fn wrap(text: &str, pixels: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + 0.33 * size <= pixels => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_wrapped_and_nothing_is_lost() {
        let text = "The smallest pulse that still pays for its own transfer is about one kilobyte.";
        let lines = wrap(text, 200.0, 12.0);
        assert!(lines.len() > 2);
        assert!(lines.iter().all(|line| width(line, 12.0) <= 200.0));
        assert_eq!(lines.join(" "), text);
    }
}
