//! A plot's area, its axes with ticks, and the legend beside it.

use super::WIDTH;
use super::canvas::{Canvas, width};
use crate::report::number::Ticks;

/// Label and ends of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// In which unit; may be empty.
    pub unit: String,
    /// Least value.
    pub least: f64,
    /// Largest value; what lies above is cut off. None: the largest there is.
    pub most: Option<f64>,
}

impl Axis {
    /// An axis from zero.
    pub fn new(label: &str, unit: &str) -> Axis {
        Axis { label: label.to_string(), unit: unit.to_string(), least: 0.0, most: None }
    }

    /// Label and unit.
    pub fn caption(&self) -> String {
        match self.unit.is_empty() {
            true => self.label.clone(),
            false => format!("{} ({})", self.label, self.unit),
        }
    }

    /// The ticks for these values; an axis without a length gets one.
    pub fn ticks(&self, values: impl Iterator<Item = f64>, count: usize) -> Ticks {
        let most = self.most.or_else(|| values.reduce(f64::max)).unwrap_or(1.0);
        let most = if most > self.least { most } else { self.least + 1.0 };
        Ticks::new(self.least, most, count)
    }
}

/// Where a plot is and what its corners mean.
#[derive(Clone, Debug)]
pub struct Area {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub x: (f64, f64),
    pub y: (f64, f64),
}

/// Most pixels of a legend; longer names end in it.
const LEGEND_MAX: f64 = 250.0;
const SAMPLE: f64 = 30.0;

/// Pixels that a legend with these names needs at the right, gap included.
pub fn legend_width<'n>(names: impl Iterator<Item = &'n str>) -> f64 {
    let widest = names.map(|name| width(name, 12.0)).fold(0.0, f64::max);
    if widest == 0.0 { 24.0 } else { (widest + SAMPLE + 34.0).min(LEGEND_MAX) }
}

impl Area {
    /// An area of this height below `top`, between ticks' labels and a legend.
    pub fn new(top: f64, height: f64, ticks: &Ticks, legend: f64) -> Area {
        let labels = ticks.at.iter().map(|at| width(&ticks.label(*at), 12.0)).fold(0.0, f64::max);
        let (left, right) = (24.0 + labels + 8.0, WIDTH - legend);
        let y = (ticks.least(), ticks.most());
        Area { left, right, top: top + 22.0, bottom: top + 22.0 + height, x: (0.0, 1.0), y }
    }

    pub fn place_x(&self, x: f64) -> f64 {
        self.left + (x - self.x.0) / (self.x.1 - self.x.0) * (self.right - self.left)
    }

    pub fn place_y(&self, y: f64) -> f64 {
        self.bottom - (y - self.y.0) / (self.y.1 - self.y.0) * (self.bottom - self.top)
    }

    pub fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.place_x(x), self.place_y(y))
    }

    /// Grid, labels and caption of the vertical axis.
    pub fn draw_y(&self, canvas: &mut Canvas, axis: &Axis, ticks: &Ticks) {
        canvas.text(24.0, self.top - 12.0, "tz-text", "start", &axis.caption());
        for at in &ticks.at {
            let y = self.place_y(*at);
            canvas.line("tz-grid", (self.left, y), (self.right, y));
            canvas.text(self.left - 8.0, y + 4.0, "tz-muted", "end", &ticks.label(*at));
        }
    }

    /// Ticks, labels and caption of the horizontal axis; returns where the caption ends.
    pub fn draw_x(&self, canvas: &mut Canvas, axis: &Axis, ticks: &Ticks) -> f64 {
        canvas.line("tz-axis", (self.left, self.bottom), (self.right, self.bottom));
        for at in ticks.at.iter().filter(|at| (self.x.0..=self.x.1).contains(at)) {
            let x = self.place_x(*at);
            canvas.line("tz-axis", (x, self.bottom), (x, self.bottom + 5.0));
            canvas.text(x, self.bottom + 19.0, "tz-muted", "middle", &ticks.label(*at));
        }
        let middle = (self.left + self.right) / 2.0;
        canvas.text(middle, self.bottom + 40.0, "tz-text", "middle", &axis.caption());
        self.bottom + 54.0
    }

    /// A legend's line: the middle of the sample, and the name beside it.
    pub fn legend(&self, canvas: &mut Canvas, line: usize, name: &str) -> (f64, f64) {
        let (x, y) = (self.right + 18.0, self.top + 8.0 + 22.0 * line as f64);
        canvas.text(x + SAMPLE + 6.0, y + 4.0, "tz-text", "start", name);
        (x + SAMPLE / 2.0, y)
    }
}
