//! Preset files: TOML in which every number stands beside where it comes from.
//!
//! ```toml
//! kind = "link"
//! about = "Myrinet SAN, 1.28 Gb/s each way"
//! [link]
//! rate = ["160 MB/s", "HPDC'97 section 4: 1.28 Gb/s"]
//! ```
//!
//! A mistake is an error with file, line and what is allowed: an unknown key, a missing one, a unit, a value out of its
//! range, a number without a source.

use super::flow::Rate;
use super::units::{self, Kind};
use crate::queue::Picos;
use crate::source::{Fault, Source};
use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One number of a preset, as `trapeze` shows it: section, key, value as written, source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Table and key, with a dot.
    pub key: String,
    /// As the file has it.
    pub value: String,
    /// Its source.
    pub source: String,
}

/// A file that was read as TOML.
#[derive(Debug)]
pub struct File<'t> {
    source: Source<'t>,
    root: Spanned<DeTable<'t>>,
    stated: RefCell<Vec<Stated>>,
}

impl<'t> File<'t> {
    /// Reads `text`, which `name` says where it is from.
    pub fn parse(name: &'t str, text: &'t str) -> Result<File<'t>, Fault> {
        let source = Source { file: name, text };
        let root = DeTable::parse(text).map_err(|error| source.of_toml(&error))?;
        Ok(File { source, root, stated: RefCell::default() })
    }

    /// The table `name`, which must be there.
    pub fn section(&self, name: &'static str) -> Result<Section<'_>, Fault> {
        self.find(name)?.ok_or_else(|| self.error(0, format!("the table [{name}] is missing")))
    }

    /// The table `name`, if it is there.
    pub fn find(&self, name: &'static str) -> Result<Option<Section<'_>>, Fault> {
        let Some((key, value)) = self.root.get_ref().get_key_value(name) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(Section {
                file: self,
                name,
                table,
                at: key.span(),
                asked: RefCell::default(),
            })),
            _ => Err(self.error(key.span().start, format!("`{name}` must be a table"))),
        }
    }

    /// The text under `key` outside all tables.
    pub fn text(&self, key: &str) -> Result<&str, Fault> {
        let value = self.root.get_ref().get(key);
        let value = value.ok_or_else(|| self.error(0, format!("`{key} = \"...\"` is missing")))?;
        let not_text = || self.error(value.span().start, format!("`{key}` must be a text"));
        value.get_ref().as_str().ok_or_else(not_text)
    }

    /// Refuses every key outside the tables, and every table, that is not in `allowed`.
    pub fn only(&self, allowed: &[&str]) -> Result<(), Fault> {
        let unknown =
            self.root.get_ref().keys().find(|key| !allowed.contains(&key.get_ref().as_ref()));
        unknown.map_or(Ok(()), |key| {
            let what = format!("unknown key `{}`; allowed: {}", key.get_ref(), allowed.join(", "));
            Err(self.error(key.span().start, what))
        })
    }

    /// An error at the key outside all tables named `key`.
    pub fn error_at(&self, key: &str, what: String) -> Fault {
        let at = self.root.get_ref().get_key_value(key).map_or(0, |(key, _)| key.span().start);
        self.error(at, what)
    }

    /// Every number read so far with its source.
    pub fn stated(&self) -> Vec<Stated> {
        self.stated.borrow().clone()
    }

    fn error(&self, at: usize, what: String) -> Fault {
        self.source.fault(at..at, what)
    }
}

/// One table of a file. It remembers the keys that were read; `close` refuses the rest.
#[derive(Debug)]
pub struct Section<'f> {
    file: &'f File<'f>,
    name: &'static str,
    table: &'f DeTable<'f>,
    at: Range<usize>,
    asked: RefCell<Vec<&'static str>>,
}

impl Section<'_> {
    /// A rate, from `range` bytes a second.
    pub fn rate(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<Rate, Fault> {
        self.quantity(key, units::RATE, range).map(Rate)
    }

    /// A span of time, up to `most`.
    pub fn time(&self, key: &'static str, most: Picos) -> Result<Picos, Fault> {
        self.quantity(key, units::TIME, 0..=most.0).map(Picos)
    }

    /// A clock, in cycles a second.
    pub fn clock(&self, key: &'static str) -> Result<Rate, Fault> {
        self.quantity(key, units::CLOCK, 1_000_000..=10_000_000_000).map(Rate)
    }

    /// A size, in bytes.
    pub fn size(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        self.quantity(key, units::SIZE, range)
    }

    /// A share, in parts of a million.
    pub fn share(&self, key: &'static str) -> Result<u32, Fault> {
        self.quantity(key, units::SHARE, 0..=1_000_000).map(|share| share as u32)
    }

    /// A number from 0 on in just this unit; without one, a number by itself.
    pub fn number(&self, key: &'static str, unit: &str) -> Result<f64, Fault> {
        let (text, at) = self.stated(key)?;
        let (number, written) = text.split_once(' ').unwrap_or((&text, ""));
        let number =
            number.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.filter(|_| written == unit).ok_or_else(|| {
            let unit = if unit.is_empty() { "without a unit".into() } else { format!("in {unit}") };
            self.wrong(key, at, &text, format!("a number from 0 on, {unit}"))
        })
    }

    /// A number without a unit.
    pub fn count(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        let (value, at) = self.stated(key)?;
        let number = value.replace('_', "").parse().ok();
        match number {
            Some(number) if range.contains(&number) => Ok(number),
            _ => Err(self.wrong(key, at, &value, format!("{} to {}", range.start(), range.end()))),
        }
    }

    /// A yes or no.
    pub fn flag(&self, key: &'static str) -> Result<bool, Fault> {
        let word = self.word(key, &["yes", "no"])?;
        Ok(word == 0)
    }

    /// One of `words`: its place among them.
    pub fn word(&self, key: &'static str, words: &[&str]) -> Result<usize, Fault> {
        let (value, at) = self.stated(key)?;
        let place = words.iter().position(|word| *word == value);
        place.ok_or_else(|| self.wrong(key, at, &value, words.join(", ")))
    }

    /// Whether the table has `key`.
    pub fn has(&self, key: &'static str) -> bool {
        self.asked.borrow_mut().push(key);
        self.table.get(key).is_some()
    }

    /// Refuses the keys that were not read.
    pub fn close(self) -> Result<(), Fault> {
        let mut asked = self.asked.borrow_mut();
        let unknown = self.table.keys().find(|key| !asked.contains(&key.get_ref().as_ref()));
        let Some(key) = unknown else { return Ok(()) };
        asked.sort_unstable();
        asked.dedup();
        let (name, allowed) = (self.name, asked.join(", "));
        let what = format!("unknown key `{}` in [{name}]; allowed: {allowed}", key.get_ref());
        Err(self.file.error(key.span().start, what))
    }

    /// An error at `key`: a value that no machine has beside its others.
    pub fn impossible(&self, key: &'static str, what: String) -> Fault {
        let at = self.table.get_key_value(key).map_or(self.at.start, |(key, _)| key.span().start);
        self.file.error(at, what)
    }

    fn quantity(
        &self,
        key: &'static str,
        kind: Kind,
        range: RangeInclusive<u64>,
    ) -> Result<u64, Fault> {
        let (text, at) = self.stated(key)?;
        let value = kind.read(&text);
        let value = value.map_err(|what| self.file.error(at, format!("`{key}`: {what}")))?;
        if range.contains(&value) {
            return Ok(value);
        }
        let allowed = format!("{} to {}", kind.show(*range.start()), kind.show(*range.end()));
        Err(self.wrong(key, at, &text, allowed))
    }

    fn wrong(&self, key: &str, at: usize, value: &str, allowed: String) -> Fault {
        self.file.error(at, format!("`{key}` = {value}; allowed: {allowed}"))
    }

    /// Value and place of `key`, which must be a pair of value and source.
    fn stated(&self, key: &'static str) -> Result<(String, usize), Fault> {
        self.asked.borrow_mut().push(key);
        let value = self.table.get(key);
        let missing =
            || self.file.error(self.at.start, format!("`{key}` is missing in [{}]", self.name));
        let value = value.ok_or_else(missing)?;
        let at = value.span().start;
        let (text, source) = pair(value.get_ref()).ok_or_else(|| {
            self.file.error(
                at,
                format!(
                    "`{key}` must be [\"value\", \"source\"]: every number says where it is from"
                ),
            )
        })?;
        let name = format!("{}.{key}", self.name);
        let stated = Stated { key: name, value: text.clone(), source };
        self.file.stated.borrow_mut().push(stated);
        Ok((text, at))
    }
}

/// Value and source of `["value", "source"]`; the value may be a number, the source is not empty.
fn pair(value: &DeValue<'_>) -> Option<(String, String)> {
    let array = value.as_array()?;
    let [value, source] = [array.first()?.get_ref(), array.get(1)?.get_ref()];
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_string(),
        _ => return None,
    };
    let source = source.as_str()?.trim();
    (array.len() == 2 && !source.is_empty()).then(|| (text, source.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "kind = \"link\"\n\n[link]\nrate = [\"160 MB/s\", \"seen\"]\nports = [8, \"counted\"]\n";

    fn rate_of(text: &str) -> Result<Rate, String> {
        let read = || {
            let file = File::parse("my.toml", text)?;
            file.only(&["kind", "link"])?;
            let link = file.section("link")?;
            let rate = link.rate("rate", 1_000..=1_000_000_000)?;
            link.count("ports", 1..=64)?;
            link.close()?;
            Ok(rate)
        };
        read().map_err(|error: Fault| error.to_string())
    }

    #[test]
    fn numbers_come_with_their_sources() {
        let file = File::parse("my.toml", TEXT).unwrap();
        let link = file.section("link").unwrap();
        assert_eq!(link.rate("rate", 1..=u64::MAX), Ok(Rate::mega(160)));
        assert_eq!(link.count("ports", 1..=64), Ok(8));
        assert_eq!(link.close(), Ok(()));
        let stated = file.stated();
        assert_eq!((stated[1].key.as_str(), stated[1].source.as_str()), ("link.ports", "counted"));
    }

    #[test]
    fn what_is_wrong_is_named_with_file_line_and_what_is_allowed() {
        let cases = [
            (TEXT.replace("rate", "raet"), "my.toml:3: `rate` is missing in [link]"),
            (TEXT.replace("ports", "prots"), "my.toml:3: `ports` is missing in [link]"),
            (
                format!("{TEXT}speed = [1, \"x\"]\n"),
                "my.toml:6: unknown key `speed` in [link]; allowed: ports, rate",
            ),
            (TEXT.replace("MB/s", "knots"), "my.toml:4: `rate`: unit `knots`"),
            (
                TEXT.replace("160 MB", "0 MB"),
                "my.toml:4: `rate` = 0 MB/s; allowed: 1 KB/s to 1 GB/s",
            ),
            (TEXT.replace("[8,", "[80,"), "my.toml:5: `ports` = 80; allowed: 1 to 64"),
            (TEXT.replace(", \"seen\"", ""), "my.toml:4: `rate` must be [\"value\", \"source\"]"),
            (TEXT.replace("\"seen\"", "\"\""), "my.toml:4: `rate` must be [\"value\", \"source\"]"),
            (
                TEXT.replace("[link]", "[lnik]"),
                "my.toml:3: unknown key `lnik`; allowed: kind, link",
            ),
            (format!("{TEXT}="), "my.toml:6: "),
        ];
        for (text, expected) in cases {
            let error = rate_of(&text).unwrap_err();
            assert!(error.starts_with(expected), "{error}\nexpected: {expected}");
        }
        assert_eq!(rate_of(TEXT), Ok(Rate::mega(160)));
    }
}
