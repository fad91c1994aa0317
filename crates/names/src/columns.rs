//! The objects that are the columns of a file, by their own statements. Pure.
//!
//! A store that was restored may know a layout that is not the file's any more. Each object says its layout epoch, and
//! most were told the layout itself: one with a block map all of them, on stable storage, before a byte came by it
//! ([`blockmap`](crate::blockmap)). So of the layouts that are known the latest places every byte of the file:
//!
//! ```text
//! the layout of an object's epoch   is
//! earlier                           left behind, by a move or a layout that was given up
//! the latest                        the file's, if its column is one of the layout
//! later                             moved since, which its place says; or made for a change that was given up
//! later, bytes, no such column      a layout that no object was told: it cannot be decided where its bytes are
//! ```
//!
//! Of a file with a block map that layout says where its columns are, too: a move tells it before it ends. An object
//! elsewhere under a later epoch is a copy that was not finished. Without a map no object need have been told of a
//! move.

use crate::describe::latest_layout;
use crate::roles::{Candidate, Choice, choose};
use stripe::Told;
use stripe::protocol::ObjectReply;
use wire::{BlockMap, Fragment, Home, Layout};

/// An object of a file.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub home: Home,
    pub column: u16,
    pub reply: ObjectReply,
    pub told: Told,
}

/// The reply of a column's object, with its disk; `None`: there is none.
pub(crate) type Column = Option<(Home, ObjectReply)>;

/// A layout with its block map.
pub(crate) type Placed = (Layout, Vec<Fragment>);

/// The file's layout, by what is known and what objects were told.
pub(crate) fn latest_of(known: Placed, objects: &[Object]) -> Placed {
    let told = objects.iter().filter_map(|object| object.told.description.as_ref());
    let later = latest_layout(told).filter(|(layout, fragments)| {
        layout.epoch > known.0.epoch && BlockMap::new(layout, fragments).is_valid()
    });
    later.unwrap_or(known)
}

/// Whether there are bytes of which no known layout says where in the file they are.
pub(crate) fn is_undecided(layout: &Layout, objects: &[Object]) -> bool {
    objects.iter().any(|object| {
        let ObjectReply { epoch, length, .. } = object.reply;
        object.column >= layout.width() && epoch > layout.epoch && length > 0
    })
}

/// The file's object of each column, if there is one; and the columns that are lost, although objects of them are there
/// or the others tell so.
pub(crate) fn columns_of(layout: &Layout, objects: &[Object]) -> (Vec<Column>, Vec<Missing>) {
    let mut missing = Vec::new();
    let column = |column: u16| {
        let (found, is_missing) = column_of(layout, objects, column);
        let is_one = |object: &&Object| object.column == column && object.reply.length > 0;
        let stale: Vec<(Home, ObjectReply)> =
            objects.iter().filter(is_one).map(|object| (object.home, object.reply)).collect();
        if found.is_none() && (is_missing || !stale.is_empty()) {
            missing.push(Missing { column, stale });
        }
        found
    };
    ((0..layout.width()).map(column).collect(), missing)
}

/// A column that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub column: u16,
    /// Objects of it with bytes that are not the column.
    pub stale: Vec<(Home, ObjectReply)>,
}

/// The object of a column; whether it is known to be lost.
fn column_of(layout: &Layout, objects: &[Object], column: u16) -> (Column, bool) {
    let of_it: Vec<&Object> = objects.iter().filter(|object| object.column == column).collect();
    let candidates: Vec<Candidate<'_>> =
        of_it.iter().map(|object| (object.home, &object.reply, &object.told)).collect();
    match choose(layout, column, &candidates) {
        Choice::At(at) => (Some((of_it[at].home, of_it[at].reply)), false),
        missing => (None, missing == Choice::Missing),
    }
}

/// The length at which to end a truncation that reached only those columns that are `cut`: all bytes that were to stay
/// are before it, and so is some byte of a column, right before it. The columns say their lengths.
pub(crate) fn unfinished_at(
    layout: &Layout,
    fragments: &[Fragment],
    columns: &[Column],
    cut: impl Fn(&ObjectReply) -> bool,
) -> Option<u64> {
    let map = BlockMap::new(layout, fragments);
    let told = || (0..).zip(columns).filter_map(|(column, told)| Some((column, (*told)?.1)));
    if told().all(|(_, told)| cut(&told)) {
        return None;
    }
    // No further than the first byte that a column lacks which was cut, and not behind all that there is.
    let lacked = told().filter(|(_, told)| cut(told)).filter_map(|(column, told)| {
        map.file_bytes(column, told.length.checked_add(1)?).checked_sub(1)
    });
    let ends = told().map(|(column, told)| map.file_bytes(column, told.length));
    let end = ends.max().unwrap_or(0);
    Some(lacked.fold(end, u64::min))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripe::Description;
    use wire::NodeId;
    use wire::field::encoded;

    const UNIT: u64 = 4096;

    fn home(server: u16) -> Home {
        Home::from(NodeId(server))
    }

    fn formula(epoch: u32) -> Placed {
        (Layout::new(epoch, UNIT as u32, &[home(1), home(2)]).unwrap(), Vec::new())
    }

    /// Two columns more from this unit on.
    fn grown(epoch: u32, unit: u64) -> Placed {
        let layout = formula(1).0.with_columns(epoch, &[home(3), home(4)]).unwrap();
        let units = u64::MAX - unit;
        (layout, vec![Fragment { unit, units, column: 2, width: 2, object_unit: 0 }])
    }

    fn object(column: u16, server: u16, epoch: u32, length: u64) -> Object {
        let reply = ObjectReply { epoch, length, ..ObjectReply::default() };
        Object { home: home(server), column, reply, told: Told::default() }
    }

    fn told(object: Object, (layout, fragments): &Placed) -> Object {
        let layout = [encoded(layout), encoded(fragments)].concat();
        let description = Some(Description { layout, ..Description::default() });
        Object { told: Told { description, ..Told::default() }, ..object }
    }

    #[test]
    fn the_latest_layout_that_any_object_was_told_places_the_file() {
        let (early, late) = (grown(3, 4), grown(7, 9));
        let objects =
            [told(object(0, 1, 8, 9), &early), told(object(1, 2, 8, 9), &late), object(2, 3, 8, 5)];
        let found = latest_of(formula(2), &objects);
        assert_eq!(found, late);
        assert!(!is_undecided(&found.0, &objects));
        // The store's layout is later than all of them.
        assert_eq!(latest_of(formula(8), &objects), formula(8));
    }

    #[test]
    fn bytes_of_a_later_layout_that_no_object_was_told_are_not_decided() {
        let (layout, _) = formula(2);
        assert!(is_undecided(&layout, &[object(2, 3, 3, 1)]));
        // Empty: made for a change that was given up. Earlier: given up with its layout.
        assert!(!is_undecided(&layout, &[object(2, 3, 3, 0), object(3, 4, 2, 9)]));
        assert_eq!(latest_of((layout, Vec::new()), &[object(2, 3, 3, 1)]).0, layout);
    }

    #[test]
    fn a_map_that_would_place_two_units_at_one_place_is_not_believed() {
        let (layout, mut fragments) = grown(5, 4);
        fragments.push(Fragment { unit: 9, ..fragments[0] });
        let objects = [told(object(0, 1, 5, 9), &(layout, fragments))];
        assert_eq!(latest_of(formula(2), &objects), formula(2));
    }

    #[test]
    fn a_column_is_where_its_latest_object_is() {
        let objects =
            [object(1, 2, 3, 0), object(1, 9, 4, 5), object(1, 8, 4, 5), object(3, 4, 9, 9)];
        let (found, _) = columns_of(&formula(4).0, &objects);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].map(|(home, told)| (home, told.length)), Some((home(9), 5)));
        assert!(found[0].is_none());
    }

    #[test]
    fn a_copy_that_was_not_finished_is_no_column_of_a_file_with_a_block_map() {
        let (layout, _) = grown(6, 2);
        // A copy of column 0 was begun, and one of column 2 left behind, which has lost its object.
        let objects = [object(0, 1, 6, 14_362), object(0, 9, 7, 0), object(2, 8, 5, 70)];
        let (found, _) = columns_of(&layout, &objects);
        assert_eq!(found[0].map(|(home, told)| (home, told.length)), Some((home(1), 14_362)));
        assert!(found[2].is_none());
    }

    /// The columns of a file of this size, of which some were cut to another.
    fn cut_columns(
        map: &BlockMap<'_>,
        width: u16,
        reached: u32,
        (old, new): (u64, u64),
    ) -> Vec<Column> {
        let column = |column: u16| {
            let is_cut = reached >> column & 1 == 1;
            let length = map.object_bytes(column, if is_cut { new } else { old });
            let truncations = is_cut.into();
            Some((home(column), ObjectReply { truncations, length, ..ObjectReply::default() }))
        };
        (0..width).map(column).collect()
    }

    #[test]
    fn a_truncation_that_did_not_reach_every_column_cuts_off_what_is_behind_it_and_nothing_else() {
        for (layout, fragments) in [formula(3), grown(3, 4)] {
            let (map, width) = (BlockMap::new(&layout, &fragments), layout.width());
            let sizes = || (0..12 * UNIT).step_by(1000);
            for sizes in sizes().flat_map(|old| sizes().map(move |new| (old, new))) {
                for reached in 1..(1 << width) - 1 {
                    let columns = cut_columns(&map, width, reached, sizes);
                    let end =
                        unfinished_at(&layout, &fragments, &columns, |told| told.truncations == 1);
                    let (old, new) = sizes;
                    let fits = (old.min(new)..=old.max(new)).contains(&end.unwrap());
                    assert!(fits, "{old} to {new}, {reached:b} reached: {end:?}");
                }
            }
        }
    }
}
