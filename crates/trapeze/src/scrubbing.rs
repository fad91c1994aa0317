//! How often everything that a machine keeps is read, as configurations and command lines say it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const DAY_SECONDS: f64 = 24.0 * 3600.0;
/// The longest period, in days: what is read more rarely is as good as off, which has a word of its own.
const DAYS_MAX: f64 = 3650.0;

/// In which time everything is read once: a number of days, or `off`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period(Option<f64>);

/// The flag: of `serve` and `up` in place of what configurations say; `init` and `join` write it to theirs.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Scrubbing {
    /// Days in which all data of a machine, objects and names, is read once and compared with its
    /// checksums; or off. Default: what the configuration says, else 7
    #[arg(long, value_name = "DAYS|off")]
    pub scrub: Option<Period>,
}

/// The text is no period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no period: write a number of days, such as 7 or 0.5 and at most 3650, or off")]
pub struct BadPeriod(String);

impl Period {
    /// The time; `None` when nothing is to be read.
    pub fn span(self) -> Option<Duration> {
        self.0.map(|days| Duration::from_secs_f64(days * DAY_SECONDS))
    }
}

impl Default for Period {
    fn default() -> Period {
        Period(Some(node::limits::SCRUB_PERIOD.as_secs_f64() / DAY_SECONDS))
    }
}

impl Eq for Period {}

impl FromStr for Period {
    type Err = BadPeriod;

    fn from_str(text: &str) -> Result<Period, BadPeriod> {
        if text.trim() == "off" {
            return Ok(Period(None));
        }
        let days = text.trim().parse().ok().filter(|days| *days > 0.0 && *days <= DAYS_MAX);
        days.map(|days| Period(Some(days))).ok_or_else(|| BadPeriod(text.to_string()))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(days) => write!(f, "{days}"),
            None => f.write_str("off"),
        }
    }
}

/// In a file: a number, or a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Days(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Period, D::Error> {
        let text = match Written::deserialize(from)? {
            Written::Days(days) => days.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(days) => to.serialize_f64(days),
            None => to.serialize_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_of_days_or_off() {
        let span = |text: &str| text.parse::<Period>().map(Period::span);
        assert_eq!(span("7"), Ok(Some(Duration::from_secs(7 * 24 * 3600))));
        assert_eq!(span("0.5"), Ok(Some(Duration::from_secs(12 * 3600))));
        assert_eq!(span("off"), Ok(None));
        for bad in ["0", "-1", "NaN", "inf", "1e9", "", "weekly", "7d"] {
            let error = span(bad).unwrap_err().to_string();
            assert!(error.contains("a number of days") && error.contains(bad), "{error}");
        }
    }

    #[test]
    fn a_file_has_it_as_a_number_or_a_text() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct File {
            scrub: Period,
        }
        for (text, period) in [("7", "7"), ("0.5", "0.5"), ("\"off\"", "off"), ("\"3\"", "3")] {
            let file: File = toml::from_str(&format!("scrub = {text}")).unwrap();
            assert_eq!(file.scrub, period.parse().unwrap());
            assert_eq!(toml::from_str::<File>(&toml::to_string(&file).unwrap()).unwrap(), file);
        }
        assert!(toml::from_str::<File>("scrub = 0").is_err());
    }
}
