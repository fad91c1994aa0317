//! Figures as SVG, by a writer of our own: every coordinate has one decimal, every run gives the same bytes.
//!
//! A figure is a title, a sentence that explains it, and one of four drawings: lines over an axis, bars, stripes (what
//! an engine did when), boxes with arrows. Colours are classes with a light and a dark value each; a series also has a
//! dash or a shape of its own, so that readers need not tell colours apart.

mod axes;
mod bars;
mod boxes;
mod canvas;
mod lines;
mod stripes;

pub use axes::Axis;
pub use bars::BarChart;
pub use boxes::{Arrow, Boxes, Node, Words};
pub use lines::{LineChart, Mark, Series, Style};
pub use stripes::{Lane, Span, Stripes};

use canvas::Canvas;

/// The colour for what is not ours: a paper's points.
pub const GREY: usize = canvas::SERIES_COLOURS - 1;
/// Width of every figure, in pixels.
pub const WIDTH: f64 = 780.0;

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Of its file: letters, digits and hyphens.
    pub name: String,
    /// One line.
    pub title: String,
    /// Its message, in a sentence.
    pub sentence: String,
    /// The drawing.
    pub drawing: Drawing,
}

/// Kinds of figures.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawing {
    /// Curves and points.
    Lines(LineChart),
    /// Groups of bars.
    Bars(BarChart),
    /// Activities of engines over time.
    Stripes(Stripes),
    /// Parts and what flows between them.
    Boxes(Boxes),
}

impl Figure {
    /// The figure as a file of its own, or as an element of a page.
    pub fn svg(&self) -> String {
        let mut canvas = Canvas::new();
        let top = self.heading(&mut canvas);
        let bottom = match &self.drawing {
            Drawing::Lines(chart) => chart.draw(&mut canvas, top),
            Drawing::Bars(chart) => chart.draw(&mut canvas, top),
            Drawing::Stripes(stripes) => stripes.draw(&mut canvas, top),
            Drawing::Boxes(boxes) => boxes.draw(&mut canvas, top),
        };
        canvas.finish(&self.title, &self.sentence, bottom)
    }

    /// Title and sentence; returns where the drawing may begin.
    fn heading(&self, canvas: &mut Canvas) -> f64 {
        let mut y = 14.0;
        for line in canvas::wrap(&self.title, WIDTH - 48.0, 16.0) {
            y += 19.0;
            canvas.text(24.0, y, "tz-title", "start", &line);
        }
        y += 4.0;
        for line in canvas::wrap(&self.sentence, WIDTH - 48.0, 12.5) {
            y += 17.0;
            canvas.text(24.0, y, "tz-muted", "start", &line);
        }
        y + 14.0
    }
}
