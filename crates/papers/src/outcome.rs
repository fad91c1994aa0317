//! Results of the points of an experiment: its table and its figure.

use super::experiment::{Expected, Experiment, is_selected};
use super::model::{Level, Value};
use super::raw::RawFigure;
use crate::report::svg::{Axis, BarChart, LineChart, Mark, Series, Style};
use crate::report::{Drawing, Figure, Row, Table};
use toml::Spanned;

/// All of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The numbers; none where the experiment expects nothing.
    pub table: Option<Table>,
    /// The figure, if the experiment has one.
    pub figure: Option<Figure>,
}

/// A point with the measures there: formulas of the first seed, means of what was simulated.
struct MeasuredPoint {
    at: Vec<(&'static str, Level)>,
    values: Vec<Value>,
}

impl Experiment {
    /// The table and the figure of what [`Experiment::points`] came to, in that order.
    pub fn outcome(&self, results: &[Vec<Value>]) -> Outcome {
        let places = self.places(results);
        let rows: Vec<Row> =
            self.expected.iter().flat_map(|expected| self.rows(expected, &places)).collect();
        let table = (!rows.is_empty()).then(|| Table {
            name: self.name.clone(),
            title: self.heading(),
            sentence: self.sentence.clone(),
            constants: self.fitted,
            rows,
        });
        let figure = self.figure.as_ref().map(|figure| Figure {
            name: self.name.clone(),
            title: self.heading(),
            sentence: self.sentence.clone(),
            drawing: self.drawing(figure, &places),
        });
        Outcome { table, figure }
    }

    fn places(&self, results: &[Vec<Value>]) -> Vec<MeasuredPoint> {
        let points = self.points();
        assert_eq!(points.len(), results.len(), "a result for each point");
        let seeds = self.seeds.len();
        let place = |(points, results): (&[super::Point], &[Vec<Value>])| {
            let measures = 0..self.model.measures.len();
            let values = measures.map(|measure| mean(results.iter().map(|values| values[measure])));
            MeasuredPoint { at: points[0].at.clone(), values: values.collect() }
        };
        points.chunks(seeds).zip(results.chunks(seeds)).map(place).collect()
    }

    fn rows(&self, expected: &Expected, places: &[MeasuredPoint]) -> Vec<Row> {
        let here = places.iter().filter(|place| is_selected(&expected.at, &place.at));
        here.map(|place| self.row(expected, place)).collect()
    }

    fn row(&self, expected: &Expected, place: &MeasuredPoint) -> Row {
        let measure = &self.model.measures[expected.measure];
        let value = place.values[expected.measure];
        let at = self.varying(&place.at, measure.ignores);
        let what = match at.is_empty() {
            true => measure.label.to_string(),
            false => format!("{}, {at}", measure.label),
        };
        Row {
            paper: expected.paper,
            formula: value.formula,
            simulated: value.simulated,
            band_percent: expected.band_percent,
            origin: expected.origin,
            note: expected.note.clone(),
            ..Row::new(what, measure.unit)
        }
    }

    /// The levels of a place on the axes that have several, but for some axes.
    fn varying(&self, at: &[(&'static str, Level)], but: &[&str]) -> String {
        let several = |axis: &str| self.levels(axis).len() > 1;
        let shown = at.iter().filter(|(axis, _)| several(axis) && !but.contains(axis));
        let shown = shown.map(|(axis, level)| self.level_name(axis, level));
        shown.collect::<Vec<_>>().join(", ")
    }

    /// A level as people read it: a number with its axis and unit, a name that says little with its axis.
    fn level_name(&self, axis: &str, level: &Level) -> String {
        let kind = self.model.axis(axis);
        let (label, unit) = kind.map_or(("", ""), |kind| (kind.label, kind.unit));
        match level {
            Level::Number(_) => format!("{label} {level} {unit}").trim_end().to_string(),
            Level::Name(name) if name == "on" || name == "off" => format!("{label} {name}"),
            Level::Name(name) => name.clone(),
        }
    }

    fn drawing(&self, figure: &RawFigure, places: &[MeasuredPoint]) -> Drawing {
        match figure {
            RawFigure::Lines { x, y, along, x_least, y_least, y_most, marks } => {
                let (x, y) = (x.get_ref().as_str(), y.get_ref().as_str());
                let along = along.as_ref().map(|along| along.get_ref().as_str());
                let number = |given: &Option<Spanned<f64>>| given.as_ref().map(|n| *n.get_ref());
                let least = |given| number(given).unwrap_or_default();
                let marks = marks
                    .iter()
                    .map(|mark| Mark { at: *mark.at.get_ref(), label: mark.label.clone() });
                Drawing::Lines(LineChart {
                    x: Axis { least: least(x_least), ..self.axis(x) },
                    y: Axis { least: least(y_least), most: number(y_most), ..self.axis(y) },
                    series: self.series(x, y, along.unwrap_or(x), places),
                    marks: marks.collect(),
                })
            }
            RawFigure::Bars { x, y } => {
                Drawing::Bars(self.bars(x.get_ref().as_str(), y.get_ref().as_str(), places))
            }
            RawFigure::Drawing { name } => {
                let drawings = self.model.drawings;
                let found = drawings.iter().find(|(known, _)| known == name.get_ref());
                let (_, draw) = found.expect("a drawing that the loader found");
                draw(&self.constants)
            }
        }
    }

    /// Label and unit of an axis or a measure.
    fn axis(&self, name: &str) -> Axis {
        let axis = self.model.axis(name).map(|kind| (kind.label, kind.unit));
        let measure = || {
            let measure = &self.model.measures[self.model.measure(name)?];
            Some((measure.label, measure.unit))
        };
        let (label, unit) = axis.or_else(measure).expect("a name that the loader found");
        Axis::new(label, unit)
    }

    /// A place's value on an axis or of a measure.
    fn coordinate(&self, name: &str, place: &MeasuredPoint) -> Option<f64> {
        if let Some(measure) = self.model.measure(name) {
            return place.values[measure].formula.or(place.values[measure].simulated);
        }
        match place.at.iter().find(|(axis, _)| *axis == name) {
            Some((_, Level::Number(number))) => Some(*number),
            _ => None,
        }
    }

    /// The axis along which a curve runs: this one, or the one with most levels.
    fn along(&self, x: &str) -> &'static str {
        let drawn = self.axes.iter().find(|(name, _)| *name == x);
        let longest = || self.axes.iter().max_by_key(|(_, levels)| levels.len());
        drawn.or_else(longest).map_or("", |(name, _)| *name)
    }

    fn series(&self, x: &str, y: &str, along: &str, places: &[MeasuredPoint]) -> Vec<Series> {
        let along = self.along(along);
        let measure = self.model.measure(y).expect("a measure that the loader found");
        let mut groups: Vec<(String, Vec<&MeasuredPoint>)> = Vec::new();
        for place in places {
            let name = self.varying(&place.at, &[along]);
            match groups.iter_mut().find(|(known, _)| *known == name) {
                Some((_, group)) => group.push(place),
                None => groups.push((name, vec![place])),
            }
        }
        let mut series: Vec<Series> = Vec::new();
        // the paper's grey is for its values alone
        let colours = (0..).filter(|colour| *colour != crate::report::svg::GREY);
        for (colour, (name, group)) in colours.zip(&groups) {
            let has_formula = group.iter().any(|place| place.values[measure].formula.is_some());
            for (kind, value) in KINDS {
                let point = |place: &&MeasuredPoint| {
                    Some((self.coordinate(x, place)?, value(place.values[measure])?))
                };
                let points: Vec<_> = group.iter().filter_map(point).collect();
                let is_line = kind.is_empty() || !has_formula;
                let style = if is_line { Style::Line } else { Style::Points };
                let kind = if has_formula { kind } else { "" };
                let name = joined(name, kind, y);
                series.push(Series { name, points, style, colour });
            }
        }
        series.extend(self.paper_series(x, measure, places));
        series.retain(|series| !series.points.is_empty());
        series
    }

    /// The paper's values of this measure, as points.
    fn paper_series(&self, x: &str, measure: usize, places: &[MeasuredPoint]) -> Option<Series> {
        let here = self.expected.iter().filter(|expected| expected.measure == measure);
        let point = |expected: &Expected| {
            let place = places.iter().find(|place| is_selected(&expected.at, &place.at))?;
            Some((self.coordinate(x, place)?, expected.paper?))
        };
        let points: Vec<_> = here.filter_map(point).collect();
        let colour = crate::report::svg::GREY;
        Some(Series { name: "the paper".into(), points, style: Style::Points, colour })
    }

    fn bars(&self, x: &str, y: &str, places: &[MeasuredPoint]) -> BarChart {
        let measure = self.model.measure(y).expect("a measure that the loader found");
        let levels = self.levels(x);
        let categories = levels.iter().map(|level| self.level_name(x, level)).collect();
        let (series, papers) = (Vec::new(), Vec::new());
        let mut chart = BarChart { y: self.axis(y), categories, series, papers };
        for place in places {
            let here = place.at.iter().find(|(axis, _)| *axis == x);
            let column = here.and_then(|(_, level)| levels.iter().position(|known| known == level));
            let column = column.expect("a place is on every axis");
            for (kind, value) in KINDS {
                let Some(value) = value(place.values[measure]) else { continue };
                let name = joined(&self.varying(&place.at, &[x]), kind, y);
                let series = series_of(&mut chart, &name);
                chart.series[series].1[column] = Some(value);
                let paper = self.paper_at(measure, place).map(|paper| (column, series, paper));
                chart.papers.extend(paper);
            }
        }
        chart
    }

    /// The paper's value of a measure at a place.
    fn paper_at(&self, measure: usize, place: &MeasuredPoint) -> Option<f64> {
        let mut here = self.expected.iter().filter(|expected| expected.measure == measure);
        here.find(|expected| is_selected(&expected.at, &place.at))?.paper
    }
}

/// The place of the bars with this name, which are added when there are none.
fn series_of(chart: &mut BarChart, name: &str) -> usize {
    let known = chart.series.iter().position(|(known, _)| known == name);
    known.unwrap_or_else(|| {
        chart.series.push((name.to_string(), vec![None; chart.categories.len()]));
        chart.series.len() - 1
    })
}

/// Values drawn: the formula as it is, the simulation's with that word.
const KINDS: [(&str, fn(Value) -> Option<f64>); 2] =
    [("", |value| value.formula), ("simulated", |value| value.simulated)];

fn joined(name: &str, kind: &str, measure: &str) -> String {
    match (name.is_empty(), kind.is_empty()) {
        (true, true) => measure.to_string(),
        (true, false) => kind.to_string(),
        (false, true) => name.to_string(),
        (false, false) => format!("{name}, {kind}"),
    }
}

fn mean(values: impl Iterator<Item = Value> + Clone) -> Value {
    let formula = values.clone().find_map(|value| value.formula);
    let simulated: Vec<f64> = values.filter_map(|value| value.simulated).collect();
    let sum: f64 = simulated.iter().sum();
    let simulated = (!simulated.is_empty()).then(|| sum / simulated.len() as f64);
    Value { formula, simulated }
}
