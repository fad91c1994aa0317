//! What the command says: `print!`, `println!` and `eprintln!` of this crate are these and not the standard library's,
//! which panic when nobody reads any more or the disk under a log is full.
//!
//! Invariant: saying something never fails and ends nothing; a mount may still have to be written back. What could not
//! be said on standard output is told at the end, by [`finish`].

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::OnceLock;

/// Why something could not be said on standard output, the first time.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

macro_rules! print {
    ($($text:tt)*) => { $crate::output::out(format_args!($($text)*)) };
}

macro_rules! println {
    () => { print!("\n") };
    ($($text:tt)*) => { print!("{}\n", format_args!($($text)*)) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::tell(format_args!($($text)*)) };
}

/// Writes to standard output.
pub fn out(text: Arguments<'_>) {
    if let Err(error) = io::stdout().write_fmt(text) {
        let _ = FAILURE.set(error);
    }
}

/// Writes a line to standard error; there is nobody to tell when that fails.
pub fn tell(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(format_args!("{text}\n"));
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
