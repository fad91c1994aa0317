//! Models that an experiment may run, each with the axes that it knows, the constants that it needs, and its measures.
//!
//! A model is a row of a table ([`super::models::ALL`]), so that an experiment's mistakes can be told with all that
//! would be allowed, before anything runs.

use super::constants::{Constants, Wanted};
use crate::report::{Drawing, Origin};
use sim::hardware::catalogue;

/// One model.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// As experiments name it.
    pub name: &'static str,
    /// The axes; an experiment has every one of them.
    pub axes: &'static [AxisKind],
    /// Its results, in this order.
    pub measures: &'static [Measure],
    /// The constants that a preset must have.
    pub constants: &'static [Wanted],
    /// Drawings of its own, by name.
    pub drawings: &'static [(&'static str, fn(&Constants) -> Drawing)],
    /// Refuses a point whose levels are each allowed: the axis, and the problem there.
    pub refuse: fn(&Point, &Constants) -> Option<(&'static str, String)>,
    /// One point.
    pub run: fn(&Point, &Constants) -> Vec<Value>,
}

impl Model {
    /// The defaults of most models: no constants, no drawings of their own, no point that is refused.
    pub const BARE: Model = Model {
        name: "",
        axes: &[],
        measures: &[],
        constants: &[],
        drawings: &[],
        refuse: |_, _| None,
        run: |_, _| Vec::new(),
    };

    /// The axis with this name.
    pub fn axis(&self, name: &str) -> Option<&'static AxisKind> {
        self.axes.iter().find(|kind| kind.name == name)
    }

    /// The place of the measure with this name.
    pub fn measure(&self, name: &str) -> Option<usize> {
        self.measures.iter().position(|measure| measure.name == name)
    }
}

/// An axis that a model knows.
#[derive(Clone, Copy, Debug)]
pub struct AxisKind {
    /// As experiments name it.
    pub name: &'static str,
    /// As figures show it.
    pub label: &'static str,
    /// Of its numbers; empty for names.
    pub unit: &'static str,
    /// Levels allowed on it.
    pub allowed: Allowed,
}

/// Levels allowed on an axis.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// One of these.
    Names(&'static [&'static str]),
    /// A number from the first to the second.
    Numbers(f64, f64),
    /// A preset of this kind: a name of those that are built in, or the path of a file from the experiment's folder.
    Presets(&'static str),
}

/// Whether a preset's name is the path of a user's own file.
pub fn is_file(name: &str) -> bool {
    name.ends_with(".toml")
}

/// Something that comes out of a model.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// As experiments name it.
    pub name: &'static str,
    /// As tables and figures show it.
    pub label: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Axes that it does not depend on; its rows do not name them.
    pub ignores: &'static [&'static str],
}

impl Measure {
    /// A measure that may depend on every axis.
    pub const fn new(name: &'static str, label: &'static str, unit: &'static str) -> Measure {
        Measure { name, label, unit, ignores: &[] }
    }
}

/// A place on an axis.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(untagged, expecting = "a number or a name")]
pub enum Level {
    /// A number, in the axis' unit.
    Number(f64),
    /// A name.
    Name(String),
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Level::Number(number) => f.write_str(&crate::report::number::plain(*number)),
            Level::Name(name) => f.write_str(name),
        }
    }
}

/// One point of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Axis and level, in the order of the file.
    pub at: Vec<(&'static str, Level)>,
    /// Of this run.
    pub seed: u64,
    /// How much to simulate: packets, in most models; none for the formula only.
    pub simulate: Option<u64>,
}

impl Point {
    /// The level on an axis of the model.
    pub fn level(&self, axis: &str) -> &Level {
        let found = self.at.iter().find(|(name, _)| *name == axis);
        &found.expect("an axis that the model declares").1
    }

    /// The number on an axis of numbers.
    pub fn number(&self, axis: &str) -> f64 {
        match self.level(axis) {
            Level::Number(number) => *number,
            Level::Name(_) => unreachable!("the loader let only numbers onto this axis"),
        }
    }

    /// The name on an axis of names.
    pub fn name(&self, axis: &str) -> &str {
        match self.level(axis) {
            Level::Name(name) => name,
            Level::Number(_) => unreachable!("the loader let only names onto this axis"),
        }
    }
}

/// One measure at one point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Value {
    /// In closed form.
    pub formula: Option<f64>,
    /// As simulated.
    pub simulated: Option<f64>,
}

impl Value {
    /// In closed form only.
    pub fn formula(value: f64) -> Value {
        Value { formula: Some(value), simulated: None }
    }

    /// As simulated only.
    pub fn simulated(value: f64) -> Value {
        Value { formula: None, simulated: Some(value) }
    }
}

impl AxisKind {
    /// An axis of names.
    pub const fn names(
        name: &'static str,
        label: &'static str,
        names: &'static [&'static str],
    ) -> AxisKind {
        AxisKind { name, label, unit: "", allowed: Allowed::Names(names) }
    }

    /// An axis of numbers from `least` to `most`, in `unit`.
    pub const fn numbers(
        name: &'static str,
        label: &'static str,
        unit: &'static str,
        least: f64,
        most: f64,
    ) -> AxisKind {
        AxisKind { name, label, unit, allowed: Allowed::Numbers(least, most) }
    }

    /// An axis of presets of a kind, which it is named after.
    pub const fn presets(kind: &'static str, label: &'static str) -> AxisKind {
        AxisKind { name: kind, label, unit: "", allowed: Allowed::Presets(kind) }
    }

    /// The error of a level on this axis, if any.
    pub fn refuse(&self, level: &Level) -> Option<String> {
        let fits = match (self.allowed, level) {
            (Allowed::Names(names), Level::Name(name)) => names.contains(&name.as_str()),
            (Allowed::Numbers(least, most), Level::Number(number)) => {
                (least..=most).contains(number)
            }
            (Allowed::Presets(kind), Level::Name(name)) => {
                is_file(name) || catalogue::names(Some(kind)).contains(&name.as_str())
            }
            _ => false,
        };
        let (name, allowed) = (self.name, self.allowed());
        (!fits).then(|| format!("`{level}` cannot be on axis `{name}`; allowed: {allowed}"))
    }

    /// Levels allowed on it, in words.
    pub fn allowed(&self) -> String {
        match self.allowed {
            Allowed::Names(names) => names.join(", "),
            Allowed::Numbers(least, most) => {
                format!("a number from {least} to {most} {}", self.unit).trim_end().to_string()
            }
            Allowed::Presets(kind) => {
                format!("{}, or a file of your own", catalogue::names(Some(kind)).join(", "))
            }
        }
    }
}

/// The two origins as experiments name them.
pub const ORIGINS: [(&str, Origin); 2] =
    [("fitted", Origin::Fitted), ("predicted", Origin::Predicted)];
