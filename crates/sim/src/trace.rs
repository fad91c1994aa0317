//! The trace: one line per state change, in columns that an eye and `awk` can read.
//!
//! ```text
//! seconds        node part   what
//! 0.000013250       2 net    <- 1 Request ch1 op4 seq 7 data 8192: dropped
//! ```

use crate::queue::Picos;
use std::fmt;
use std::fmt::Write;
use wire::NodeId;

/// Takes finished lines, without their line end.
pub type Sink = Box<dyn FnMut(&str)>;

/// Destination of the trace's lines, if any.
#[derive(Default)]
pub struct Trace {
    sink: Option<Sink>,
    line: String,
    lines: u64,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} lines)", self.lines)
    }
}

impl Trace {
    /// Every line goes to `sink`.
    pub fn to(sink: Sink) -> Trace {
        Trace { sink: Some(sink), ..Trace::default() }
    }

    /// Whether anybody reads.
    pub fn is_on(&self) -> bool {
        self.sink.is_some()
    }

    /// Lines written.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// One line: when, where, which part of the world, what.
    pub fn line(&mut self, now: Picos, node: NodeId, part: &str, what: fmt::Arguments<'_>) {
        let Some(sink) = &mut self.sink else { return };
        self.line.clear();
        write!(self.line, "{:<15}{:>4} {part:<6} {what}", now.to_string(), node.0)
            .expect("a string takes all");
        self.lines += 1;
        sink(&self.line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn columns_stay_in_place() {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let copy = lines.clone();
        let mut trace = Trace::to(Box::new(move |line| copy.borrow_mut().push(line.to_owned())));
        trace.line(Picos::micros(13), NodeId(2), "net", format_args!("lost {}", 7));
        trace.line(Picos::seconds(100), NodeId(12), "disk", format_args!("full"));
        assert_eq!(
            *lines.borrow(),
            ["0.000013000       2 net    lost 7", "100.000000000    12 disk   full"]
        );
        assert_eq!(trace.lines(), 2);
    }
}
