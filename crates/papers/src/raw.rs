//! The file as it is written; what depends on the model is checked by the loader.

#![allow(missing_docs)] // the names are those of the file; the loader's documentation shows one

use super::model::Level;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawExperiment {
    #[serde(default = "no_paper")]
    pub paper: String,
    #[serde(default)]
    pub what: String,
    pub title: String,
    #[serde(default)]
    pub sentence: String,
    pub model: Spanned<String>,
    pub preset: Option<Spanned<String>>,
    #[serde(default)]
    pub fitted: usize,
    #[serde(default = "one_seed")]
    pub seeds: Spanned<Vec<u64>>,
    #[serde(default)]
    pub axis: Vec<RawAxis>,
    pub simulate: Option<RawSimulate>,
    #[serde(default)]
    pub expect: Vec<RawExpect>,
    pub figure: Option<RawFigure>,
}

/// The heading of what is in no paper.
fn no_paper() -> String {
    "Experiments of one's own".to_string()
}

fn one_seed() -> Spanned<Vec<u64>> {
    Spanned::new(0..0, vec![1])
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawAxis {
    pub name: Spanned<String>,
    pub unit: Option<Spanned<String>>,
    pub values: Option<Vec<Level>>,
    pub from: Option<f64>,
    pub to: Option<f64>,
    pub step: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSimulate {
    pub amount: Spanned<u64>,
    #[serde(default, deserialize_with = "entries")]
    pub at: Entries,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawExpect {
    pub measure: Spanned<String>,
    #[serde(default, deserialize_with = "entries")]
    pub at: Entries,
    #[serde(alias = "measured")]
    pub paper: Option<Spanned<f64>>,
    pub unit: Option<Spanned<String>>,
    pub band_percent: Option<Spanned<f64>>,
    pub origin: Option<Spanned<String>>,
    #[serde(default)]
    pub note: String,
}

/// The figure of an experiment: one of the tables `[figure.lines]`, `[figure.bars]`, `[figure.drawing]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum RawFigure {
    /// A curve for each combination of the other axes; what was simulated and what the paper says as points.
    Lines {
        /// An axis or a measure.
        x: Spanned<String>,
        /// A measure.
        y: Spanned<String>,
        /// The axis along which a curve runs; without it `x`, or the longest axis where `x` is a measure.
        along: Option<Spanned<String>>,
        /// Where the horizontal axis begins.
        x_least: Option<Spanned<f64>>,
        /// Where the vertical axis begins.
        y_least: Option<Spanned<f64>>,
        /// Where the vertical axis ends.
        y_most: Option<Spanned<f64>>,
        /// Horizontal lines.
        #[serde(default)]
        marks: Vec<RawMark>,
    },
    /// A group of bars for each level of an axis, a bar for each combination of the others.
    Bars {
        /// An axis.
        x: Spanned<String>,
        /// A measure.
        y: Spanned<String>,
    },
    /// A drawing that the model makes.
    Drawing {
        /// Its name.
        name: Spanned<String>,
    },
}

/// A horizontal line of a figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawMark {
    /// Where.
    pub at: Spanned<f64>,
    /// Its label.
    pub label: String,
}

/// A table of axis and levels, in the order of the file; one level may stand by itself.
pub type Entries = Vec<(Spanned<String>, Vec<Level>)>;

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number or a name, or a list of them")]
enum Levels {
    One(Level),
    Several(Vec<Level>),
}

fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
    struct Table;
    impl<'de> Visitor<'de> for Table {
        type Value = Entries;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of axes and their values")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
            let mut entries = Entries::new();
            while let Some((axis, levels)) = map.next_entry()? {
                let levels = match levels {
                    Levels::One(level) => vec![level],
                    Levels::Several(levels) => levels,
                };
                entries.push((axis, levels));
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_map(Table)
}
