//! Boxes and arrows: parts of a system, or states and what leads from one to the next.

use super::canvas::{Canvas, SERIES_COLOURS, width};

/// A drawing of boxes; coordinates in pixels from the upper left of the drawing, which is as wide as a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Boxes {
    /// How high the drawing is.
    pub height: f64,
    /// The boxes.
    pub nodes: Vec<Node>,
    /// From one to another, by their places in `nodes`.
    pub arrows: Vec<Arrow>,
    /// Texts by themselves.
    pub words: Vec<Words>,
}

/// One box.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its middle.
    pub at: (f64, f64),
    /// Width and height.
    pub size: (f64, f64),
    /// From top to bottom, the first as its name. A box without lines is a point where arrows begin or end.
    pub lines: Vec<String>,
    /// Colour of its edge; none for the usual one.
    pub colour: Option<usize>,
}

/// One arrow.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrow {
    /// Where it begins.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// Its meaning.
    pub label: String,
    /// Pixels that its middle lies to the left of the straight way, seen along it.
    pub bend: f64,
    /// Pixels from its middle to its label's middle.
    pub label_at: (f64, f64),
}

/// A text by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// Its middle.
    pub at: (f64, f64),
    /// The text.
    pub text: String,
}

impl Boxes {
    /// Draws below `top`; returns the height of the figure.
    pub(super) fn draw(&self, canvas: &mut Canvas, top: f64) -> f64 {
        for arrow in &self.arrows {
            arrow.draw(canvas, top, &self.nodes[arrow.from], &self.nodes[arrow.to]);
        }
        self.nodes.iter().for_each(|node| node.draw(canvas, top));
        for words in &self.words {
            canvas.text(words.at.0, top + words.at.1, "tz-muted", "middle", &words.text);
        }
        top + self.height
    }
}

impl Node {
    fn draw(&self, canvas: &mut Canvas, top: f64) {
        let ((x, y), (wide, high)) = ((self.at.0, self.at.1 + top), self.size);
        if self.lines.is_empty() {
            return;
        }
        let class = match self.colour {
            Some(colour) => format!("tz-box tz-s{}", colour % SERIES_COLOURS),
            None => "tz-box".to_string(),
        };
        canvas.rectangle(&class, (x - wide / 2.0, y - high / 2.0), self.size, "");
        let first = y - 8.5 * (self.lines.len() as f64 - 1.0) + 4.0;
        for (index, line) in self.lines.iter().enumerate() {
            assert!(width(line, 12.0) <= wide, "{line:?} fits into its box");
            let class = if index == 0 { "tz-text" } else { "tz-muted" };
            canvas.text(x, first + 17.0 * index as f64, class, "middle", line);
        }
    }

    /// Where the straight way from the middle towards a point leaves the box.
    fn edge(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let (dx, dy) = (x - self.at.0, y - self.at.1);
        let (half_wide, half_high) = (self.size.0 / 2.0, self.size.1 / 2.0);
        let part = |half: f64, way: f64| if way == 0.0 { f64::INFINITY } else { half / way.abs() };
        let part = part(half_wide, dx).min(part(half_high, dy)).min(1.0);
        (self.at.0 + dx * part, self.at.1 + dy * part)
    }
}

impl Arrow {
    fn draw(&self, canvas: &mut Canvas, top: f64, from: &Node, to: &Node) {
        let towards = self.towards(from.at, to.at);
        let (start, end) = (from.edge(towards), to.edge(towards));
        let down = |(x, y): (f64, f64)| (x, y + top);
        let (start, towards, end) = (down(start), down(towards), down(end));
        canvas.bend("tz-axis", start, towards, end);
        head(canvas, towards, end);
        let middle = |a: f64, b: f64, c: f64| (a + 2.0 * b + c) / 4.0;
        let (x, y) = (middle(start.0, towards.0, end.0), middle(start.1, towards.1, end.1));
        if !self.label.is_empty() {
            let (x, y) = (x + self.label_at.0, y + self.label_at.1);
            canvas.text(x, y, "tz-muted", "middle", &self.label);
        }
    }

    /// The point that the curve is bent towards: twice as far away as its middle is to be.
    fn towards(&self, from: (f64, f64), to: (f64, f64)) -> (f64, f64) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = (dx * dx + dy * dy).sqrt().max(1.0);
        let away = 2.0 * self.bend / length;
        ((from.0 + to.0) / 2.0 + dy * away, (from.1 + to.1) / 2.0 - dx * away)
    }
}

/// The head of an arrow that ends in `tip`.
fn head(canvas: &mut Canvas, from: (f64, f64), tip: (f64, f64)) {
    let (dx, dy) = (tip.0 - from.0, tip.1 - from.1);
    let length = (dx * dx + dy * dy).sqrt().max(1.0);
    let (along, across) =
        ((dx / length * 9.0, dy / length * 9.0), (dy / length * 4.5, dx / length * 4.5));
    let back = (tip.0 - along.0, tip.1 - along.1);
    let sides = [(back.0 + across.0, back.1 - across.1), (back.0 - across.0, back.1 + across.1)];
    canvas.polygon("tz-head", &[tip, sides[0], sides[1]]);
}
