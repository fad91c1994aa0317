//! A file of an experiment, of its constants or of a preset, and what is wrong in it.

use std::fmt;
use std::ops::Range;

/// A fault in a file, with its place. Shown as `FILE:LINE: WHAT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The fault, and the allowed values.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl std::error::Error for Fault {}

/// A file's name and text.
#[derive(Clone, Copy, Debug)]
pub struct Source<'s> {
    /// As errors show it.
    pub file: &'s str,
    /// TOML.
    pub text: &'s str,
}

impl<'s> From<&'s str> for Source<'s> {
    /// A text that is in no file.
    fn from(text: &'s str) -> Source<'s> {
        Source { file: "text", text }
    }
}

impl Source<'_> {
    /// A fault at these bytes of the text.
    pub fn fault(&self, at: Range<usize>, what: impl Into<String>) -> Fault {
        let before = self.text.as_bytes().iter().take(at.start);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        Fault { file: self.file.to_string(), line, what: what.into() }
    }

    /// A fault at the line of this key, in whatever table it is.
    pub fn fault_at(&self, key: &str, what: impl Into<String>) -> Fault {
        let written = |line: &str| line.split('=').next().is_some_and(|word| word.trim() == key);
        let line = self.text.lines().position(written).map_or(1, |index| index + 1);
        Fault { file: self.file.to_string(), line, what: what.into() }
    }

    /// An error of the TOML library, at its line.
    pub fn of_toml(&self, error: &toml::de::Error) -> Fault {
        self.fault(error.span().unwrap_or(0..0), error.message().trim_end())
    }

    /// A name that is not among those that are allowed.
    pub fn unknown(&self, at: Range<usize>, what: &str, name: &str, allowed: &[&str]) -> Fault {
        let allowed = match allowed.is_empty() {
            true => "none".to_string(),
            false => allowed.join(", "),
        };
        self.fault(at, format!("unknown {what} `{name}`; allowed: {allowed}"))
    }
}
