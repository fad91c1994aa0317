//! Stripes: a lane for each engine, a bar for each thing that it did, over time (Figure 3 of HotI'99 is one).

use super::axes::Axis;
use super::canvas::{Canvas, SERIES_COLOURS, width};
use super::{WIDTH, axes::Area};
use crate::report::number::{Ticks, fixed};
use sim::queue::Picos;

/// A diagram of stripes; time is shown in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Stripes {
    /// From top to bottom.
    pub lanes: Vec<Lane>,
    /// Names of the kinds, in the order of their colours.
    pub kinds: Vec<String>,
}

/// Activities of one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// The engine.
    pub name: String,
    /// In the order of time, none over another.
    pub spans: Vec<Span>,
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// When it began.
    pub start: Picos,
    /// When it ended; not before it began.
    pub end: Picos,
    /// Which of the kinds.
    pub kind: usize,
    /// Written on it where there is room; may be empty.
    pub label: String,
}

const LANE: f64 = 34.0;
const BAR: f64 = 24.0;

fn us(time: Picos) -> f64 {
    time.0 as f64 / 1e6
}

impl Stripes {
    /// Draws below `top`; returns the height of the figure.
    pub(super) fn draw(&self, canvas: &mut Canvas, top: f64) -> f64 {
        let top = self.legend(canvas, top);
        let spans = || self.lanes.iter().flat_map(|lane| &lane.spans);
        let most = spans().map(|span| us(span.end)).fold(1.0, f64::max);
        let names = self.lanes.iter().map(|lane| width(&lane.name, 12.0)).fold(0.0, f64::max);
        let bottom = top + LANE * self.lanes.len() as f64;
        let (left, right) = (24.0 + names + 10.0, WIDTH - 30.0);
        let area = Area { left, right, top, bottom, x: (0.0, most), y: (0.0, 1.0) };
        let ticks = Ticks::new(0.0, most, 9);
        for at in ticks.at.iter().filter(|at| **at <= most) {
            canvas.line("tz-grid", (area.place_x(*at), top), (area.place_x(*at), bottom));
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            lane.draw(canvas, &area, top + LANE * index as f64, &self.kinds);
        }
        area.draw_x(canvas, &Axis::new("time", "µs"), &ticks)
    }

    /// The kinds in rows above the lanes; returns where the lanes begin.
    fn legend(&self, canvas: &mut Canvas, top: f64) -> f64 {
        let (mut x, mut y) = (24.0, top + 8.0);
        for (kind, name) in self.kinds.iter().enumerate() {
            let wide = 20.0 + width(name, 12.0) + 18.0;
            if x + wide > WIDTH - 24.0 && x > 24.0 {
                (x, y) = (24.0, y + 20.0);
            }
            canvas.rectangle(&fill(kind), (x, y - 7.0), (14.0, 14.0), "");
            canvas.text(x + 20.0, y + 4.0, "tz-text", "start", name);
            x += wide;
        }
        y + 20.0
    }
}

impl Lane {
    fn draw(&self, canvas: &mut Canvas, area: &Area, y: f64, kinds: &[String]) {
        let middle = y + LANE / 2.0;
        canvas.text(area.left - 10.0, middle + 4.0, "tz-text", "end", &self.name);
        canvas.line("tz-grid", (area.left, y + LANE), (area.right, y + LANE));
        for span in &self.spans {
            assert!(span.start <= span.end, "what is done ends after it begins");
            let (from, to) = (area.place_x(us(span.start)), area.place_x(us(span.end)));
            let (start, end) = (fixed(us(span.start), 2), fixed(us(span.end), 2));
            let hint = format!("{} {}: {start} to {end} µs", kinds[span.kind], span.label);
            let corner = (from + 0.4, middle - BAR / 2.0);
            let size = ((to - from - 0.8).max(0.6), BAR);
            canvas.rectangle(&fill(span.kind), corner, size, &hint);
            if width(&span.label, 12.0) + 4.0 <= to - from {
                let centre = (from + to) / 2.0;
                canvas.text(centre, middle + 4.0, "tz-on", "middle", &span.label);
            }
        }
    }
}

fn fill(kind: usize) -> String {
    format!("tz-f{}", kind % SERIES_COLOURS)
}
