//! Ranges of bytes of a file, joined where they touch.

use serde::Serialize;

/// Ranges that are kept one by one; of what is behind them only the bytes are counted.
const RANGES_MAX: usize = 1000;

/// Bytes in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    pub offset: u64,
    pub bytes: u64,
}

/// Ascending ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    kept: Vec<Range>,
    bytes: u64,
}

impl Ranges {
    /// Ranges in any order, which may touch but not overlap.
    pub fn joined(mut all: Vec<Range>) -> Ranges {
        all.sort_unstable_by_key(|range| range.offset);
        let mut ranges = Ranges::default();
        all.into_iter().for_each(|range| ranges.push(range));
        ranges
    }

    fn push(&mut self, range: Range) {
        self.bytes += range.bytes;
        let full = self.kept.len() == RANGES_MAX;
        match self.kept.last_mut() {
            Some(last) if last.offset + last.bytes == range.offset => last.bytes += range.bytes,
            _ if full => {}
            _ => self.kept.push(range),
        }
    }

    /// The first of them.
    pub fn kept(&self) -> &[Range] {
        &self.kept
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first `count` as text, and whether there are more.
    pub fn text(&self, count: usize) -> String {
        let first = self.kept.iter().take(count);
        let texts = first.map(|Range { offset, bytes }| format!("{offset}-{}", offset + bytes - 1));
        let more = if self.kept.len() > count { ", ..." } else { "" };
        format!("{}{more}", texts.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, bytes: u64) -> Range {
        Range { offset, bytes }
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let ranges = Ranges::joined(vec![range(8, 4), range(0, 4), range(4, 4), range(20, 1)]);
        assert_eq!(ranges.kept(), [range(0, 12), range(20, 1)]);
        assert_eq!((ranges.bytes(), ranges.text(1)), (13, "0-11, ...".to_string()));
        assert_eq!(ranges.text(2), "0-11, 20-20");
    }

    #[test]
    fn more_ranges_than_are_kept_are_counted() {
        let all = (0..RANGES_MAX as u64 + 5).map(|number| range(number * 2, 1)).collect();
        let ranges = Ranges::joined(all);
        assert_eq!((ranges.kept().len(), ranges.bytes()), (RANGES_MAX, RANGES_MAX as u64 + 5));
    }
}
