//! Permitted results of a seek for data or for a hole: a hole is nothing but zeros, so no byte that must be there is in
//! one. Data may be reported where zeros are.

use super::*;
use wire::limits::BLOCK_BYTES;

/// Target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte that is in one.
    Hole,
}

impl DataCheck {
    /// Checks the result of a seek from `offset`; `None`: there is nothing from there on. The error names the
    /// violation.
    pub fn check_seek(
        &mut self,
        reader: &Reader,
        file: FileId,
        (what, offset): (Sought, u64),
        found: Option<u64>,
    ) -> Result<(), String> {
        if self.unchecked.contains(&file) {
            return Ok(());
        }
        self.stretches(file);
        let text = || format!("{file:?}: a seek for {what:?} from {offset} found {found:?}");
        if found.is_some_and(|found| found < offset) {
            return Err(text());
        }
        let block = |at: u64| (at / BLOCK_BYTES as u64 + 1) * BLOCK_BYTES as u64;
        let hole = match (what, found) {
            (Sought::Data, Some(found)) => offset..found,
            (Sought::Hole, Some(found)) => found..block(found),
            (_, None) => offset..u64::MAX,
        };
        let is_behind_end = (what, found) == (Sought::Hole, None);
        if is_behind_end && self.least_size(file, reader) > offset {
            return Err(format!("{}, but a truncation made the file longer", text()));
        }
        for (start, stop, ids) in stretches_in(&self.files[&file], hole.start, hole.end) {
            let may = self.possible(ids, reader);
            let may_be_hole = |id: &WriteId| {
                let write = &self.writes[id.0 as usize];
                if is_behind_end { write.may_lack() } else { write.is_zero() }
            };
            if may.iter().any(may_be_hole) {
                continue;
            }
            // Some bytes of a write are zeros, too; but they are there.
            let is_zero =
                |at: &u64| !is_behind_end && may.iter().any(|id| self.value(*id, *at) == 0);
            if let Some(at) = (start..stop.min(hole.end)).find(|at| !is_zero(at)) {
                let may = self.describe(&may);
                return Err(format!("{}, but byte {at} is {may} ({reader:?})", text()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{A, FILE, at, reader, written};
    use super::*;

    fn seek(check: &mut DataCheck, what: Sought, offset: u64, found: Option<u64>) -> bool {
        check.check_seek(&reader(A, 9, 9), FILE, (what, offset), found).is_ok()
    }

    #[test]
    fn what_was_written_is_in_no_hole() {
        let mut check = DataCheck::default();
        assert!(seek(&mut check, Sought::Data, 0, None));
        written(&mut check, 1);
        assert!(!seek(&mut check, Sought::Data, 0, None));
        assert!(!seek(&mut check, Sought::Data, 10, Some(99)));
        assert!(seek(&mut check, Sought::Data, 10, Some(10)));
        assert!(seek(&mut check, Sought::Data, 100, None));
        assert!(!seek(&mut check, Sought::Data, 100, Some(99)), "before where it began");
        assert!(seek(&mut check, Sought::Hole, 0, Some(100)), "the end of the file");
        assert!(!seek(&mut check, Sought::Hole, 0, Some(0)));
        assert!(!seek(&mut check, Sought::Hole, 0, None));
        assert!(seek(&mut check, Sought::Hole, 100, None), "behind the end");
    }

    #[test]
    fn zeros_may_be_a_hole_and_make_a_file_longer_only_where_they_extend_it() {
        for extends in [false, true] {
            let mut check = DataCheck::default();
            written(&mut check, 1);
            let zeros = check.zeros_begin((A, at(1)), FILE, 0..8192, extends, at(3));
            check.ends(zeros, true, at(4));
            assert!(seek(&mut check, Sought::Data, 0, None));
            assert!(seek(&mut check, Sought::Data, 0, Some(50)));
            assert!(seek(&mut check, Sought::Hole, 0, Some(0)));
            assert_eq!(seek(&mut check, Sought::Hole, 100, None), !extends);
            let size = |check: &mut DataCheck, size| check.check_size(&reader(A, 9, 9), FILE, size);
            assert_eq!(size(&mut check, 100).is_ok(), !extends);
            assert!(size(&mut check, 8192).is_ok());
            assert!(check.check_read(&reader(A, 9, 9), FILE, 0, 100, &[0; 100]).is_ok());
            assert!(check.check_read(&reader(A, 9, 9), FILE, 0, 100, &[1; 100]).is_err());
        }
    }

    /// Data that another mount closed after the file was opened may be behind its end as this one knows it.
    #[test]
    fn a_punch_need_not_reach_what_its_mount_did_not_see() {
        for opened in [2, 5] {
            let mut check = DataCheck::default();
            let data = written(&mut check, 1);
            check.published(A, FILE, 0, at(3), false, at(4));
            let punch = check.zeros_begin((NodeId(2), at(opened)), FILE, 0..4096, false, at(6));
            check.ends(punch, true, at(7));
            check.published(NodeId(2), FILE, 0, at(8), false, at(8));
            let mut bytes = vec![0; 100];
            fill(data, 0, &mut bytes);
            let old = check.check_read(&reader(A, 9, 9), FILE, 0, 100, &bytes);
            assert_eq!(old.is_ok(), opened == 2, "{old:?}");
        }
    }
}
