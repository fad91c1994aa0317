//! Groups of bars: one group for each category, one bar in it for each series.

use super::axes::{Area, Axis, legend_width};
use super::canvas::{Canvas, SERIES_COLOURS, width, wrap};
use crate::report::number::short;

/// A chart of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// The vertical axis, from zero.
    pub y: Axis,
    /// Names below the groups.
    pub categories: Vec<String>,
    /// Name and one value for each category, where there is one.
    pub series: Vec<(String, Vec<Option<f64>>)>,
    /// Category, series and value of lines across bars: what a paper says.
    pub papers: Vec<(usize, usize, f64)>,
}

const PAPER: &str = "the paper";
const HEIGHT: f64 = 300.0;

impl BarChart {
    /// Draws below `top`; returns the height of the figure.
    pub(super) fn draw(&self, canvas: &mut Canvas, top: f64) -> f64 {
        let values = self.series.iter().flat_map(|(_, values)| values.iter().flatten().copied());
        let papers = self.papers.iter().map(|(_, _, value)| *value);
        let ticks = self.y.ticks(values.chain(papers), 6);
        let names = self.series.iter().map(|(name, _)| name.as_str());
        let legend = legend_width(names.chain([PAPER]));
        let area = Area::new(top, HEIGHT, &ticks, legend);
        area.draw_y(canvas, &self.y, &ticks);
        for (colour, (name, values)) in self.series.iter().enumerate() {
            let (x, y) = area.legend(canvas, colour, name);
            canvas.rectangle(&fill(colour), (x - 7.0, y - 7.0), (14.0, 14.0), "");
            for (category, value) in values.iter().enumerate() {
                self.bar(canvas, &area, (category, colour), *value);
            }
        }
        self.paper_lines(canvas, &area);
        canvas.line("tz-axis", (area.left, area.bottom), (area.right, area.bottom));
        area.bottom + 12.0 + 16.0 * self.captions(canvas, &area) as f64
    }

    fn group(&self, area: &Area) -> f64 {
        (area.right - area.left) / self.categories.len().max(1) as f64
    }

    fn bar(&self, canvas: &mut Canvas, area: &Area, at: (usize, usize), value: Option<f64>) {
        let (category, colour) = at;
        let Some(value) = value else { return };
        let (x, wide) = self.column(area, at);
        let y = area.place_y(value);
        let hint = format!("{}: {}", self.series[colour].0, short(value));
        canvas.rectangle(&fill(colour), (x + 1.0, y), (wide - 2.0, area.bottom - y), &hint);
        let text = short(value);
        let paper = self.papers.iter().find(|paper| (paper.0, paper.1) == (category, colour));
        let above = paper.map_or(y, |paper| area.place_y(paper.2).min(y));
        if width(&text, 12.0) <= wide + 4.0 {
            canvas.text(x + wide / 2.0, above - 7.0, "tz-text", "middle", &text);
        }
    }

    /// Where a bar begins, and how wide it is.
    fn column(&self, area: &Area, (category, series): (usize, usize)) -> (f64, f64) {
        let group = self.group(area);
        let wide = group * 0.8 / self.series.len() as f64;
        (area.left + group * (category as f64 + 0.1) + wide * series as f64, wide)
    }

    fn paper_lines(&self, canvas: &mut Canvas, area: &Area) {
        for (category, series, value) in &self.papers {
            let (x, wide) = self.column(area, (*category, *series));
            let hint = format!("{PAPER}: {}", short(*value));
            let corner = (x - 3.0, area.place_y(*value) - 1.5);
            canvas.rectangle("tz-over", corner, (wide + 6.0, 3.0), &hint);
        }
        if !self.papers.is_empty() {
            let (x, y) = area.legend(canvas, self.series.len(), PAPER);
            canvas.rectangle("tz-over", (x - 12.0, y - 1.5), (24.0, 3.0), "");
        }
    }

    /// The categories' names, wrapped; returns the most lines of one.
    fn captions(&self, canvas: &mut Canvas, area: &Area) -> usize {
        let group = self.group(area);
        let mut most = 0;
        for (index, name) in self.categories.iter().enumerate() {
            let lines = wrap(name, group - 6.0, 12.0);
            for (line, text) in lines.iter().enumerate() {
                let x = area.left + group * (index as f64 + 0.5);
                canvas.text(x, area.bottom + 18.0 + 16.0 * line as f64, "tz-text", "middle", text);
            }
            most = most.max(lines.len());
        }
        most
    }
}

fn fill(colour: usize) -> String {
    format!("tz-f{}", colour % SERIES_COLOURS)
}
