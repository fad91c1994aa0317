//! Block maps: where the stripe units of a file are that the layout's formula cannot place.
//!
//! A fragment stripes a range of units over columns that the formula does not use, as densely as the formula does.
//! Units without a fragment are where the formula says. Invariant: no two units share a place, and within a column
//! places are in the order of units, so that cutting the objects cuts the file.

use crate::layout::{Extent, Layout};

/// Most fragments of one file: the whole map is 27 bytes each, 1.7 KiB.
pub const MAP_FRAGMENTS_MAX: usize = 64;

/// Units in a row, in turns over columns in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The first unit, counted within the file.
    pub unit: u64,
    /// Number of units.
    pub units: u64,
    /// The column of the first.
    pub column: u16,
    /// Over how many columns, from that one on.
    pub width: u8,
    /// Position of the first unit, in units from the start of its column's object.
    pub object_unit: u64,
}

impl Fragment {
    /// The first unit behind it.
    pub fn end(&self) -> u64 {
        self.unit.saturating_add(self.units)
    }

    /// Units of its columns that it takes: the first that is free behind it.
    pub fn object_end(&self) -> u64 {
        self.object_unit.saturating_add(self.units.div_ceil(self.width.max(1).into()))
    }

    fn has_column(&self, column: u16) -> bool {
        column >= self.column && column - self.column < self.width.into()
    }

    fn shares_column(&self, other: &Fragment) -> bool {
        let (end, other_end) =
            (self.column + u16::from(self.width), other.column + u16::from(other.width));
        self.column < other_end && other.column < end
    }

    /// Column and object unit of a unit that it has.
    fn place(&self, unit: u64) -> (u16, u64) {
        let (index, width) = (unit - self.unit, u64::from(self.width));
        (self.column + (index % width) as u16, self.object_unit + index / width)
    }

    /// The unit at a place, if it has one there.
    fn unit_at(&self, column: u16, object_unit: u64) -> Option<u64> {
        let row = object_unit.checked_sub(self.object_unit)?;
        let index =
            row.checked_mul(self.width.into())?.checked_add((column - self.column).into())?;
        (index < self.units).then(|| self.unit + index)
    }
}

/// A layout with its fragments, ascending by unit.
#[derive(Clone, Copy, Debug)]
pub struct BlockMap<'a> {
    layout: &'a Layout,
    fragments: &'a [Fragment],
}

impl<'a> BlockMap<'a> {
    /// The map; with no fragments, the formula.
    pub fn new(layout: &'a Layout, fragments: &'a [Fragment]) -> BlockMap<'a> {
        BlockMap { layout, fragments }
    }

    /// Whether the invariant holds: ascending, disjoint, in columns of the map alone, each place once and in order.
    pub fn is_valid(&self) -> bool {
        let fits = |fragment: &Fragment| {
            let columns = fragment.column..fragment.column.saturating_add(fragment.width.into());
            let own =
                columns.start >= self.layout.formula_width() && columns.end <= self.layout.width();
            let finite = fragment.unit.checked_add(fragment.units).is_some();
            own && finite && fragment.units > 0 && fragment.width > 0
        };
        let follows = |(index, later): (usize, &Fragment)| {
            self.fragments[..index].iter().all(|earlier| {
                let behind = earlier.object_end() <= later.object_unit;
                earlier.end() <= later.unit && (behind || !earlier.shares_column(later))
            })
        };
        let few = self.fragments.len() <= MAP_FRAGMENTS_MAX;
        few && self.fragments.iter().all(fits) && self.fragments.iter().enumerate().all(follows)
    }

    /// The extent that starts at `offset`: to the end of its stripe unit, at most `bytes`.
    pub fn locate(&self, offset: u64, bytes: u64) -> Extent {
        let by_formula = self.layout.locate(offset, bytes);
        let unit_bytes = u64::from(self.layout.unit_bytes);
        let unit = offset / unit_bytes;
        let behind = self.fragments.partition_point(|fragment| fragment.unit <= unit);
        let fragment = behind.checked_sub(1).map(|index| self.fragments[index]);
        let Some(fragment) = fragment.filter(|fragment| unit < fragment.end()) else {
            return by_formula;
        };
        let (column, object_unit) = fragment.place(unit);
        Extent {
            column,
            object_offset: object_unit * unit_bytes + offset % unit_bytes,
            ..by_formula
        }
    }

    /// The extents of `bytes` bytes from `offset`, in file order.
    pub fn extents(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Extent> + use<'a> {
        let (map, end) = (*self, offset.saturating_add(bytes));
        let mut at = offset;
        core::iter::from_fn(move || {
            (at < end).then(|| {
                let extent = map.locate(at, end - at);
                at += extent.bytes;
                extent
            })
        })
    }

    /// Length of the object of `column` in a file of `size` bytes: all its bytes of the file are within, none behind.
    pub fn object_bytes(&self, column: u16, size: u64) -> u64 {
        let unit_bytes = u64::from(self.layout.unit_bytes);
        let units = size.div_ceil(unit_bytes);
        let own = self.fragments.iter().rev().filter(|fragment| fragment.has_column(column));
        let mut lengths = own.filter_map(|fragment| {
            let count = fragment.end().min(units).checked_sub(fragment.unit)?;
            let turn = u64::from(column - fragment.column);
            let row = count.checked_sub(turn + 1)? / u64::from(fragment.width);
            let unit = fragment.unit + row * u64::from(fragment.width) + turn;
            let within = (size - unit * unit_bytes).min(unit_bytes);
            Some((fragment.object_unit + row) * unit_bytes + within)
        });
        lengths.next().unwrap_or_else(|| self.layout.object_bytes(column, size))
    }

    /// The byte of the file at a place of `column`, or else at the first place behind it that is one: with the place.
    /// `None` when there is none.
    pub fn byte_from(&self, column: u16, object_offset: u64) -> Option<(u64, u64)> {
        let unit_bytes = u64::from(self.layout.unit_bytes);
        let (object_unit, within) = (object_offset / unit_bytes, object_offset % unit_bytes);
        let (place, unit) = match column < self.layout.formula_width() {
            true => self.formula_unit_from(column, object_unit)?,
            false => self.fragment_unit_from(column, object_unit)?,
        };
        let within = if place == object_unit { within } else { 0 };
        let byte = |unit: u64| unit.checked_mul(unit_bytes)?.checked_add(within);
        Some((byte(place)?, byte(unit)?))
    }

    /// The first unit that the formula has in a column from a place on.
    fn formula_unit_from(&self, column: u16, object_unit: u64) -> Option<(u64, u64)> {
        let width = u64::from(self.layout.formula_width());
        let mut unit = object_unit.checked_mul(width)?.checked_add(column.into())?;
        for fragment in self.fragments {
            if unit >= fragment.unit && unit < fragment.end() {
                let rows = (fragment.end() - unit).div_ceil(width);
                unit = rows.checked_mul(width)?.checked_add(unit)?;
            }
        }
        Some((unit / width, unit))
    }

    /// The first unit that fragments have in a column from a place on.
    fn fragment_unit_from(&self, column: u16, object_unit: u64) -> Option<(u64, u64)> {
        let own = self.fragments.iter().filter(|fragment| fragment.has_column(column));
        let mut places = own.filter_map(|fragment| {
            let place = object_unit.max(fragment.object_unit);
            Some((place, fragment.unit_at(column, place)?))
        });
        places.next()
    }

    /// The least size of a file whose `column` holds `object_bytes` bytes.
    pub fn file_bytes(&self, column: u16, object_bytes: u64) -> u64 {
        if column < self.layout.formula_width() || object_bytes == 0 {
            return self.layout.file_bytes(column, object_bytes);
        }
        let unit_bytes = u64::from(self.layout.unit_bytes);
        let (object_unit, within) =
            ((object_bytes - 1) / unit_bytes, (object_bytes - 1) % unit_bytes);
        let mut own = self.fragments.iter().filter(|fragment| fragment.has_column(column));
        let unit = own.find_map(|fragment| fragment.unit_at(column, object_unit));
        unit.map_or(0, |unit| unit * unit_bytes + within + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    extern crate std;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    const UNIT: u64 = 4096;

    /// A formula over 1 to 4 columns and up to 6 more, with fragments that follow one another with gaps.
    fn maps() -> impl Strategy<Value = (Layout, Vec<Fragment>)> {
        let fragment = (0u64..5, 1u64..9, 0u16..6, 1u8..6);
        (1usize..=4, 1usize..=6, prop::collection::vec(fragment, 0..6)).prop_map(
            |(formula, more, wanted)| {
                let servers: Vec<NodeId> = (1..=(formula + more) as u16).map(NodeId).collect();
                let layout = Layout::new(1, UNIT as u32, &servers[..formula]).unwrap();
                let layout = layout.with_columns(2, &servers[formula..]).unwrap();
                let (mut unit, mut rows, mut fragments) = (0, vec![0; more], Vec::new());
                for (gap, units, column, width) in wanted {
                    let column = usize::from(column) % more;
                    let width = usize::from(width).min(more - column);
                    let columns = column..column + width;
                    let object_unit = *rows[columns.clone()].iter().max().unwrap();
                    let (place, width) = ((formula + column) as u16, width as u8);
                    unit += gap;
                    let fragment = Fragment { unit, units, column: place, width, object_unit };
                    rows[columns].fill(fragment.object_end());
                    unit += units;
                    fragments.push(fragment);
                }
                (layout, fragments)
            },
        )
    }

    proptest! {
        #[test]
        fn every_unit_has_a_place_of_its_own_and_is_found_there((layout, fragments) in maps()) {
            let map = BlockMap::new(&layout, &fragments);
            prop_assert!(map.is_valid());
            let mut places = BTreeMap::new();
            for unit in 0..100 {
                let extent = map.locate(unit * UNIT + 5, 10);
                prop_assert_eq!((extent.file_offset, extent.bytes), (unit * UNIT + 5, 10));
                let place = (extent.column, extent.object_offset);
                prop_assert_eq!(places.insert(place, unit), None);
                prop_assert_eq!(map.file_bytes(extent.column, extent.object_offset + 1), unit * UNIT + 6);
                let found = map.byte_from(extent.column, extent.object_offset);
                prop_assert_eq!(found, Some((extent.object_offset, unit * UNIT + 5)));
            }
            // From any place on the next one that is one, in a file of 100 units.
            for (column, object_unit) in (0..layout.width()).flat_map(|c| (0..120).map(move |o| (c, o))) {
                let mut behind = places.range((column, object_unit * UNIT)..(column + 1, 0));
                let next = behind.next().map(|((_, place), unit)| (place - 5, unit * UNIT));
                let found = map.byte_from(column, object_unit * UNIT);
                prop_assert!(next.is_none() || found == next, "{column} {object_unit}: {found:?} {next:?}");
                let is_inside = found.is_some_and(|(_, byte)| byte < 100 * UNIT);
                prop_assert!(next.is_some() || !is_inside, "{column} {object_unit}: {found:?}");
            }
        }

        #[test]
        fn lengths_hold_the_file_and_nothing_behind_it((layout, fragments) in maps(), size in 1u64..60 * UNIT) {
            let map = BlockMap::new(&layout, &fragments);
            let lengths: Vec<u64> = (0..layout.width()).map(|c| map.object_bytes(c, size)).collect();
            for (column, length) in (0..).zip(&lengths) {
                prop_assert!(map.file_bytes(column, *length) <= size);
            }
            let found = (0..).zip(&lengths).map(|(c, length)| map.file_bytes(c, *length)).max();
            prop_assert_eq!(found, Some(size));
            for extent in map.extents(0, 100 * UNIT) {
                let inside = extent.file_offset < size;
                let length = lengths[usize::from(extent.column)];
                // A formula column may keep room for units that the map placed elsewhere.
                let formula = extent.column < layout.formula_width();
                prop_assert_eq!(extent.object_offset < length, inside, "{:?} {}", extent, formula);
            }
        }

        #[test]
        fn extents_cover_the_range_once(
            (layout, fragments) in maps(),
            offset in 0u64..1 << 20,
            bytes in 0u64..1 << 18,
        ) {
            let mut at = offset;
            for extent in BlockMap::new(&layout, &fragments).extents(offset, bytes) {
                prop_assert_eq!(extent.file_offset, at);
                at += extent.bytes;
            }
            prop_assert_eq!(at, offset + bytes);
        }
    }

    #[test]
    fn maps_that_would_share_a_place_are_refused() {
        let servers = [1, 2, 3, 4].map(NodeId);
        let layout =
            Layout::new(1, 4096, &servers[..2]).unwrap().with_columns(2, &servers[2..]).unwrap();
        let good = Fragment { unit: 5, units: 4, column: 2, width: 2, object_unit: 0 };
        let valid = |fragments: &[Fragment]| BlockMap::new(&layout, fragments).is_valid();
        assert!(valid(&[good]));
        assert!(valid(&[good, Fragment { unit: 9, object_unit: 2, ..good }]));
        assert!(!valid(&[good, Fragment { unit: 9, object_unit: 1, ..good }]));
        assert!(!valid(&[good, Fragment { unit: 8, object_unit: 2, ..good }]));
        assert!(!valid(&[Fragment { column: 1, ..good }]));
        assert!(!valid(&[Fragment { column: 3, ..good }]));
        assert!(!valid(&[Fragment { units: 0, ..good }]));
        assert!(valid(&[Fragment { unit: 5, units: u64::MAX - 5, ..good }]));
    }
}
