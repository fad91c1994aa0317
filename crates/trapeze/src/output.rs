//! Output to standard output and standard error: `print!`, `println!` and `eprintln!` of this crate are these and not
//! the standard library's, which panic when nothing reads any more or the disk under a log is full. The command has
//! them by `#[macro_use] extern crate trapeze`.
//!
//! Invariant: printing never fails and ends nothing; a mount may still have to be written back. A failure of standard
//! output is told at the end, by [`finish`].

use std::cell::RefCell;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why something could not be said on standard output, the first time.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// As the standard library's, without its panic.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::output::out(format_args!($($text)*)) };
}

/// As the standard library's, without its panic.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($($text:tt)*) => { $crate::print!("{}\n", format_args!($($text)*)) };
}

/// As the standard library's, without its panic.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::tell(format_args!($($text)*)) };
}

/// Writes to standard output.
pub fn out(text: Arguments<'_>) {
    if let Err(error) = io::stdout().write_fmt(text) {
        let _ = FAILURE.set(error);
    }
}

/// A log beside standard error.
static LOG: OnceLock<Mutex<File>> = OnceLock::new();
/// Whether lines of standard error have the time in front, where that is no terminal.
static TIMES: OnceLock<bool> = OnceLock::new();

/// From now on this is a process that runs on and on: its lines on standard error say when, unless a person reads them
/// as they come, or the system's journal does, which says that itself.
pub fn say_when() {
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let _ = TIMES.set(!journal && !io::stderr().is_terminal());
}

/// From now on, what is told on standard error goes to this file as well.
pub fn log_to(path: &Path) -> io::Result<()> {
    let file = File::options().create(true).append(true).open(path)?;
    let _ = LOG.set(Mutex::new(file));
    Ok(())
}

/// Writes a line to standard error, and to the log; nothing can be done when that fails.
pub fn tell(text: Arguments<'_>) {
    let when = match TIMES.get() {
        Some(true) => format!("{} ", time()),
        _ => String::new(),
    };
    let _ = io::stderr().write_fmt(format_args!("{when}{text}\n"));
    if let Some(Ok(mut log)) = LOG.get().map(Mutex::lock) {
        let _ = log.write_fmt(format_args!("{} {text}\n", time()));
    }
}

/// Says a line on standard error above what is drawn there.
type Above = Box<dyn Fn(&str)>;

thread_local! {
    /// Of what this thread draws, if anything.
    static ABOVE: RefCell<Option<Above>> = const { RefCell::new(None) };
}

/// From now on this thread draws on standard error, a bar of progress perhaps: lines above it are said like this.
pub fn say_above_by(say: impl Fn(&str) + 'static) {
    ABOVE.with(|above| *above.borrow_mut() = Some(Box::new(say)));
}

/// Says a line on standard error, above what this thread draws there.
pub fn tell_above(text: &str) {
    ABOVE.with(|above| match &*above.borrow() {
        Some(say) => say(text),
        None => tell(format_args!("{text}")),
    });
}

/// Now, as logs have it (UTC).
fn time() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    at(now.as_secs(), now.subsec_millis())
}

/// A time since 1970 in the form of RFC 3339.
pub fn at(seconds: u64, millis: u32) -> String {
    // Days are counted from the first of March of the year 0, so that a leap day is the last of its year; 400 years
    // have 146,097 days.
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Whether something could not be said on standard output.
pub fn has_failed() -> bool {
    FAILURE.get().is_some()
}

/// Writes out what is left; the error of anything that could not be said.
pub fn finish() -> Result<(), String> {
    if let Err(error) = io::stdout().flush() {
        let _ = FAILURE.set(error);
    }
    FAILURE.get().map_or(Ok(()), |error| Err(format!("standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_log_are_those_of_the_calendar() {
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 7), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_764_115_199, 999), "2025-11-25T23:59:59.999Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
