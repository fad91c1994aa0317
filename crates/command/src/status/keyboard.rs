//! Keys of the terminal while something is watched: `q` ends it.

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetwinsize,
    tcsetattr,
};
use std::io::{stdin, stdout};

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// A terminal whose keys are read one by one. Dropping it gives the terminal back as it was.
#[derive(Debug)]
pub struct Keyboard(Option<Termios>);

impl Keyboard {
    /// Of the terminal at standard input, if there is one.
    pub fn take() -> Keyboard {
        let taken = || {
            let input = stdin();
            let before = isatty(&input).then(|| tcgetattr(&input).ok())??;
            let mut keys = before.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // Reading never waits.
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(&input, OptionalActions::Now, &keys).ok()?;
            Some(before)
        };
        Keyboard(taken())
    }

    /// Whether `q` was pressed since this was asked last.
    pub fn quits(&self) -> bool {
        let mut keys = [0; 16];
        let read = self.0.as_ref().and_then(|_| rustix::io::read(stdin(), &mut keys).ok());
        keys[..read.unwrap_or(0)].iter().any(|key| matches!(key, b'q' | b'Q'))
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

/// Columns of the terminal at standard output.
pub fn columns() -> usize {
    let size = tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col));
    size.filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}
