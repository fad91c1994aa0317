//! Constants: TOML in which every number stands beside its unit and where it comes from, as in the hardware's presets.
//!
//! ```toml
//! [host]
//! bus = ["33 MHz", "fast forwarding, Table 2"]
//! ```

use crate::source::{Fault, Source};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// One constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Table and key, with a dot.
    pub key: String,
    /// In its unit.
    pub value: f64,
    /// As the file has it.
    pub unit: String,
    /// Where it comes from.
    pub source: String,
}

/// The constants of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants(Vec<Constant>);

/// A key and the unit that it must have.
pub type Wanted = (&'static str, &'static str);

#[derive(Deserialize)]
#[serde(transparent)]
struct Raw(BTreeMap<String, BTreeMap<String, Spanned<(String, String)>>>);

impl Constants {
    /// Reads a file that has exactly these constants.
    pub fn parse(source: Source<'_>, wanted: &[Wanted]) -> Result<Constants, Fault> {
        let raw: Raw = toml::from_str(source.text).map_err(|error| source.of_toml(&error))?;
        let mut constants = Vec::new();
        for (table, entries) in &raw.0 {
            for (key, entry) in entries {
                constants.push(constant(source, &format!("{table}.{key}"), entry, wanted)?);
            }
        }
        let missing = |key: &str| constants.iter().all(|constant| constant.key != key);
        match wanted.iter().find(|(key, _)| missing(key)) {
            Some((key, unit)) => {
                Err(source.fault(0..0, format!("`{key}` is missing; a number in {unit}")))
            }
            None => Ok(Constants(constants)),
        }
    }

    /// The value under a key that the model asked for.
    pub fn get(&self, key: &str) -> f64 {
        let found = self.0.iter().find(|constant| constant.key == key);
        found.expect("a constant that the model declares").value
    }

    /// All of them, by their keys.
    pub fn all(&self) -> &[Constant] {
        &self.0
    }
}

fn constant(
    source: Source<'_>,
    key: &str,
    entry: &Spanned<(String, String)>,
    wanted: &[Wanted],
) -> Result<Constant, Fault> {
    let at = || entry.span();
    let Some((_, unit)) = wanted.iter().find(|(wanted, _)| *wanted == key) else {
        let keys: Vec<&str> = wanted.iter().map(|(key, _)| *key).collect();
        return Err(source.unknown(at(), "constant", key, &keys));
    };
    let (text, from) = entry.get_ref();
    let (number, written) = text.split_once(' ').unwrap_or((text, ""));
    if written != *unit {
        return Err(source.unknown(at(), &format!("unit of `{key}`"), written, &[*unit]));
    }
    let value = number.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
    let value = value.ok_or_else(|| {
        let what = format!("`{key}` = `{number}`: a number from 0 on is needed, in {unit}");
        source.fault(at(), what)
    })?;
    if from.trim().is_empty() {
        return Err(source.fault(at(), format!("`{key}` has no source")));
    }
    let (unit, from) = (unit.to_string(), from.clone());
    Ok(Constant { key: key.to_string(), value, unit, source: from })
}
