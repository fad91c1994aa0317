//! Curves and points over a horizontal axis.

use super::axes::{Area, Axis, legend_width};
use super::canvas::{Canvas, width};

/// A chart of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Curves and points, the first at the back.
    pub series: Vec<Series>,
    /// Horizontal lines with a name.
    pub marks: Vec<Mark>,
}

/// One curve, or one kind of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// As the legend shows it, if it is the first of its colour.
    pub name: String,
    /// In the order of x.
    pub points: Vec<(f64, f64)>,
    /// A line or points.
    pub style: Style,
    /// Of the colours; series of one colour are one line of the legend: a curve and points on it, mostly.
    pub colour: usize,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Joined: a formula.
    Line,
    /// Each by itself: measured, simulated, or from a paper.
    Points,
}

/// A horizontal line.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// Its label.
    pub label: String,
}

const HEIGHT: f64 = 320.0;

impl LineChart {
    /// Draws below `top`; returns the height of the figure.
    pub(super) fn draw(&self, canvas: &mut Canvas, top: f64) -> f64 {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let marks = self.marks.iter().map(|mark| mark.at);
        let y_ticks = self.y.ticks(points().map(|point| point.1).chain(marks), 6);
        let x_ticks = self.x.ticks(points().map(|point| point.0), 8);
        let names = self.entries().into_iter().map(|(name, _)| name);
        let mut area = Area::new(top, HEIGHT, &y_ticks, legend_width(names));
        let most = points().map(|point| point.0).fold(self.x.least, f64::max);
        area.x = (x_ticks.least(), self.x.most.unwrap_or(most).max(x_ticks.at[1]));
        area.draw_y(canvas, &self.y, &y_ticks);
        self.marks.iter().for_each(|mark| mark.draw(canvas, &area));
        self.series.iter().for_each(|series| series.draw(canvas, &area));
        let entries = self.entries();
        for (line, (name, colour)) in entries.iter().enumerate() {
            let sample = area.legend(canvas, line, name);
            let mine = self.series.iter().filter(|series| series.colour == *colour);
            mine.for_each(|series| series.sample(canvas, sample));
        }
        let legend_end = area.top + 8.0 + 22.0 * entries.len() as f64;
        area.draw_x(canvas, &self.x, &x_ticks).max(legend_end)
    }

    /// Entries of the legend, in the order of first appearance: one line for all series of a colour.
    fn entries(&self) -> Vec<(&str, usize)> {
        let mut entries: Vec<(&str, usize)> = Vec::new();
        for series in &self.series {
            if entries.iter().all(|(_, colour)| *colour != series.colour) {
                entries.push((&series.name, series.colour));
            }
        }
        entries
    }
}

impl Series {
    fn draw(&self, canvas: &mut Canvas, area: &Area) {
        match self.style {
            Style::Line => {
                for piece in below(&self.points, area.y.1) {
                    let places: Vec<_> = piece.into_iter().map(|point| area.place(point)).collect();
                    canvas.curve(self.colour, &places);
                }
            }
            Style::Points => {
                let inside = self.points.iter().filter(|point| point.1 <= area.y.1);
                inside.for_each(|point| canvas.point(self.colour, area.place(*point)));
            }
        }
    }

    fn sample(&self, canvas: &mut Canvas, (x, y): (f64, f64)) {
        match self.style {
            Style::Line => canvas.curve(self.colour, &[(x - 15.0, y), (x + 15.0, y)]),
            Style::Points => canvas.point(self.colour, (x, y)),
        }
    }
}

/// The pieces of a curve that lie at most at `most`, with the points where it crosses.
fn below(points: &[(f64, f64)], most: f64) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut last: Option<(f64, f64)> = None;
    for point in points.iter().copied() {
        let is_inside = point.1 <= most;
        let was_inside = last.map(|last| last.1 <= most);
        let crossing = last.map(|last| {
            let part = (most - last.1) / (point.1 - last.1);
            (last.0 + part * (point.0 - last.0), most)
        });
        match (was_inside, crossing) {
            (Some(true), Some(crossing)) if !is_inside => extend(&mut pieces, crossing),
            (Some(false), Some(crossing)) if is_inside => pieces.push(vec![crossing, point]),
            (None, _) if is_inside => pieces.push(vec![point]),
            _ if is_inside => extend(&mut pieces, point),
            _ => {}
        }
        last = Some(point);
    }
    pieces
}

fn extend(pieces: &mut [Vec<(f64, f64)>], point: (f64, f64)) {
    pieces.last_mut().expect("the curve is inside").push(point);
}

impl Mark {
    fn draw(&self, canvas: &mut Canvas, area: &Area) {
        let y = area.place_y(self.at);
        canvas.line("tz-mark", (area.left, y), (area.right, y));
        let end = area.left + 8.0 + width(&self.label, 12.0);
        assert!(end < area.right, "the name of a mark fits beside its line");
        canvas.text(area.left + 8.0, y - 5.0, "tz-muted", "start", &self.label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_it_leaves_the_plot_and_goes_on_where_it_comes_back() {
        let points = [(0.0, 0.0), (1.0, 10.0), (2.0, 30.0), (3.0, 30.0), (4.0, 10.0)];
        let pieces = [vec![(0.0, 0.0), (1.0, 10.0), (1.5, 20.0)], vec![(3.5, 20.0), (4.0, 10.0)]];
        assert_eq!(below(&points, 20.0), pieces);
        assert_eq!(below(&points[2..], 20.0), pieces[1..]);
        assert_eq!(below(&points, 30.0), [points.to_vec()]);
        assert!(below(&[], 1.0).is_empty());
    }
}
