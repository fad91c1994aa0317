//! Layouts, which place the bytes of a file: the layout formula (HotI'99 section 3: round-robin striping, 32 KiB
//! grain).

use crate::codec::{Decoder, Encoder, Short};
use crate::ids::NodeId;
use crate::limits::{BLOCK_BYTES, OBJECT_BYTES_MAX};

/// Most columns of one file: the papers' 6 servers with 4 disks each are 24. A layout of 32 takes 108 bytes of a record
/// or message.
pub const WIDTH_MAX: usize = 32;
/// The paper's stripe grain.
pub const UNIT_BYTES_DEFAULT: u32 = 32 * 1024;
/// Largest stripe unit.
pub const UNIT_BYTES_MAX: u32 = 4 << 20;

/// Whether placement follows from the formula alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Placement {
    /// Unit `u` is in column `u mod width`.
    #[default]
    Formula = 0,
    /// As the formula, but for the fragments that the file's block map lists.
    Map = 1,
}

/// The place of a column: a disk of a server, by its number there. Stored in the layout rather than computed, so that
/// disks can be added to a server and every object stays where it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    /// The server.
    pub server: NodeId,
    /// The disk.
    pub disk: u8,
}

impl From<NodeId> for Home {
    /// The server's first disk.
    fn from(server: NodeId) -> Home {
        Home { server, disk: 0 }
    }
}

impl core::fmt::Display for Home {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} disk {}", self.server, self.disk)
    }
}

/// A group of replicas, in 24 bits as a [`Home`]; never used again. A number below [`FIRST`](GroupId::FIRST) is of the
/// one disk with that number, and in no table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The first that a table lists: no server has a number as high as that in its upper 16 bits.
    pub const FIRST: GroupId = GroupId(0xc0_0000);

    /// Whether a table of groups lists it.
    pub fn is_listed(self) -> bool {
        self >= GroupId::FIRST
    }

    /// The number after it: as a home, of the next server, so that a list of a server's objects is one of a group.
    pub fn next(self) -> GroupId {
        GroupId(self.0 + 0x100)
    }
}

impl From<Home> for GroupId {
    fn from(home: Home) -> GroupId {
        GroupId(u32::from(home.server.0) << 8 | u32::from(home.disk))
    }
}

impl From<GroupId> for Home {
    fn from(group: GroupId) -> Home {
        Home { server: NodeId((group.0 >> 8) as u16), disk: group.0 as u8 }
    }
}

impl core::fmt::Display for GroupId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.is_listed() {
            true => write!(f, "group {}", (self.0 - GroupId::FIRST.0) >> 8),
            false => Home::from(*self).fmt(f),
        }
    }
}

/// How one file is striped. Every request to an I/O server carries its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Grows with every change of the layout; a server refuses any but its own.
    pub epoch: u32,
    /// Bytes of a stripe unit: a power of two, 4 KiB to 4 MiB.
    pub unit_bytes: u32,
    /// Copies of every unit; 1 until redundancy comes.
    pub copies: u8,
    /// Formula or block map.
    pub placement: Placement,
    width: u8,
    /// The first columns, over which the formula goes; only the block map places units in the others.
    formula_width: u8,
    servers: [NodeId; WIDTH_MAX],
    disks: [u8; WIDTH_MAX],
}

/// A stretch of a file that lies in one column without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The column.
    pub column: u16,
    /// First byte within the column's object.
    pub object_offset: u64,
    /// First byte within the file.
    pub file_offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// These columns, a bit for each.
pub fn column_mask(columns: impl IntoIterator<Item = u16>) -> u32 {
    columns.into_iter().fold(0, |mask, column| mask | 1u32 << column)
}

impl Layout {
    /// A layout over `homes`, in the order of their columns; a server alone is its first disk. `None` unless there
    /// are 1 to [`WIDTH_MAX`] and the unit is a power of two from one block to [`UNIT_BYTES_MAX`].
    pub fn new<P: Copy + Into<Home>>(epoch: u32, unit_bytes: u32, homes: &[P]) -> Option<Layout> {
        let unit_fits = unit_bytes.is_power_of_two()
            && unit_bytes >= BLOCK_BYTES as u32
            && unit_bytes <= UNIT_BYTES_MAX;
        if !unit_fits || homes.is_empty() || homes.len() > WIDTH_MAX {
            return None;
        }
        let (mut servers, mut disks) = ([NodeId::default(); WIDTH_MAX], [0; WIDTH_MAX]);
        for (column, home) in homes.iter().enumerate() {
            let home: Home = (*home).into();
            (servers[column], disks[column]) = (home.server, home.disk);
        }
        let width = homes.len() as u8;
        Some(Layout {
            epoch,
            unit_bytes,
            copies: 1,
            placement: Placement::Formula,
            width,
            formula_width: width,
            servers,
            disks,
        })
    }

    /// The layout after this one with more columns, which a block map fills. `None` when there are too many.
    pub fn with_columns<P: Copy + Into<Home>>(&self, epoch: u32, more: &[P]) -> Option<Layout> {
        let mut grown = Layout { epoch, placement: Placement::Map, ..*self };
        for home in more {
            let (column, home): (usize, Home) = (grown.width.into(), (*home).into());
            *grown.servers.get_mut(column)? = home.server;
            grown.disks[column] = home.disk;
            grown.width += 1;
        }
        Some(grown)
    }

    /// The same placement in another epoch.
    pub fn with_epoch(&self, epoch: u32) -> Layout {
        Layout { epoch, ..*self }
    }

    /// The layout after this one with `column` in another home. `None` when there is no such column.
    pub fn with_home(&self, epoch: u32, column: u16, home: impl Into<Home>) -> Option<Layout> {
        if column >= self.width() {
            return None;
        }
        let (mut moved, home) = (Layout { epoch, ..*self }, home.into());
        moved.servers[usize::from(column)] = home.server;
        moved.disks[usize::from(column)] = home.disk;
        Some(moved)
    }

    /// Columns over which the formula goes: the first ones.
    pub fn formula_width(&self) -> u16 {
        self.formula_width.into()
    }

    /// Columns of the file.
    pub fn width(&self) -> u16 {
        self.width.into()
    }

    /// The servers, by column.
    pub fn servers(&self) -> &[NodeId] {
        &self.servers[..self.width as usize]
    }

    /// The server that keeps `column`. Panics when there is no such column.
    pub fn server(&self, column: u16) -> NodeId {
        self.servers()[column as usize]
    }

    /// The place of `column`. Panics when there is no such column.
    pub fn home(&self, column: u16) -> Home {
        Home { server: self.server(column), disk: self.disks[usize::from(column)] }
    }

    /// The homes, by column.
    pub fn homes(&self) -> impl Iterator<Item = Home> + '_ {
        (0..self.width()).map(|column| self.home(column))
    }

    /// By the formula, the extent that starts at `offset`: to the end of its stripe unit, at most `bytes`.
    pub fn locate(&self, offset: u64, bytes: u64) -> Extent {
        let unit = u64::from(self.unit_bytes);
        let (index, within) = (offset / unit, offset % unit);
        let width = u64::from(self.formula_width);
        Extent {
            column: (index % width) as u16,
            object_offset: index / width * unit + within,
            file_offset: offset,
            bytes: bytes.min(unit - within),
        }
    }

    /// By the formula, the extents of `bytes` bytes from `offset`, in file order.
    pub fn extents(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Extent> + '_ {
        let end = offset.saturating_add(bytes);
        let mut at = offset;
        core::iter::from_fn(move || {
            (at < end).then(|| {
                let extent = self.locate(at, end - at);
                at += extent.bytes;
                extent
            })
        })
    }

    /// By the formula, the longest stretch of the file of at most `most` bytes (a power of two) whose parts in all
    /// columns are alike and a power of two long; `most` when not every column can have a part of it.
    pub fn even_bytes(&self, most: u64) -> u64 {
        let width = u64::from(self.formula_width);
        let part = most / width.next_power_of_two();
        if part < u64::from(self.unit_bytes) { most } else { part * width }
    }

    /// By the formula, bytes that `column` holds of a file of `size` bytes: the length of its object when nothing is a
    /// hole.
    pub fn object_bytes(&self, column: u16, size: u64) -> u64 {
        if column >= self.formula_width() {
            return 0;
        }
        let (unit, width) = (u64::from(self.unit_bytes), u64::from(self.formula_width));
        let (rows, rest) = (size / (unit * width), size % (unit * width));
        rows * unit + rest.saturating_sub(u64::from(column) * unit).min(unit)
    }

    /// By the formula, the least size of a file whose `column` holds `object_bytes` bytes; `u64::MAX` when no file is
    /// that long.
    pub fn file_bytes(&self, column: u16, object_bytes: u64) -> u64 {
        if object_bytes == 0 || column >= self.formula_width() {
            return 0;
        }
        let (unit, width) = (u64::from(self.unit_bytes), u64::from(self.formula_width));
        let (row, within) = ((object_bytes - 1) / unit, (object_bytes - 1) % unit);
        let index = row.saturating_mul(width).saturating_add(column.into());
        index.saturating_mul(unit).saturating_add(within + 1)
    }

    /// The longest that a file may be: its columns are objects, which have a limit.
    pub fn size_max(&self) -> u64 {
        self.file_bytes(0, OBJECT_BYTES_MAX).min(i64::MAX as u64)
    }

    /// Bytes that [`encode`](Layout::encode) writes at most.
    pub const BYTES_MAX: usize = 4 + 4 + 1 + 1 + 1 + 1 + 3 * WIDTH_MAX;

    /// Appends the layout.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.u32(self.epoch).u32(self.unit_bytes).u8(self.copies);
        out.u8(self.placement as u8).u8(self.width).u8(self.formula_width);
        self.homes().for_each(|home| {
            out.u16(home.server.0).u8(home.disk);
        });
    }

    /// Reads what [`encode`](Layout::encode) wrote.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Layout, Short> {
        let (epoch, unit_bytes, copies) = (input.u32()?, input.u32()?, input.u8()?);
        let placement = match input.u8()? {
            0 => Placement::Formula,
            1 => Placement::Map,
            _ => return Err(Short),
        };
        let (width, formula_width) = (usize::from(input.u8()?), input.u8()?);
        if formula_width == 0 || usize::from(formula_width) > width {
            return Err(Short);
        }
        let mut homes = [Home::default(); WIDTH_MAX];
        for home in homes.get_mut(..width).ok_or(Short)? {
            *home = Home { server: NodeId(input.u16()?), disk: input.u8()? };
        }
        let layout = Layout::new(epoch, unit_bytes, &homes[..width]).ok_or(Short)?;
        Ok(Layout { copies, placement, formula_width, ..layout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn layout() -> impl Strategy<Value = Layout> {
        (12u32..=22, 1usize..=WIDTH_MAX).prop_map(|(shift, width)| {
            let servers = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3].map(NodeId);
            let home = |(disk, server)| Home { server, disk };
            let homes: Vec<Home> =
                (0..).zip(servers.into_iter().cycle()).map(home).take(width).collect();
            Layout::new(1, 1 << shift, &homes).unwrap()
        })
    }

    proptest! {
        #[test]
        fn extents_cover_the_range_once(layout in layout(), offset in 0u64..1 << 40, bytes in 0u64..10_000_000) {
            let mut at = offset;
            for extent in layout.extents(offset, bytes) {
                prop_assert_eq!(extent.file_offset, at);
                prop_assert!(extent.bytes > 0);
                prop_assert_eq!(layout.file_bytes(extent.column, extent.object_offset + 1), at + 1);
                at += extent.bytes;
            }
            prop_assert_eq!(at, offset + bytes);
        }

        #[test]
        fn object_lengths_and_the_file_size_tell_each_other(layout in layout(), size in 0u64..100_000_000) {
            let objects = (0..layout.width()).map(|c| (c, layout.object_bytes(c, size)));
            let (sum, most) = objects.fold((0, 0), |(sum, most), (c, bytes)| (sum + bytes, most.max(layout.file_bytes(c, bytes))));
            prop_assert_eq!(sum, size);
            prop_assert_eq!(most, size);
        }

        #[test]
        fn even_stretches_have_equal_parts(layout in layout(), row in 0u64..1000) {
            let bytes = layout.even_bytes(1 << 20);
            prop_assert!(bytes > 1 << 19 && bytes <= 1 << 20);
            let mut parts = [0; WIDTH_MAX];
            let parts = &mut parts[..layout.width().into()];
            let extents = layout.extents(row * bytes, bytes);
            extents.for_each(|extent| parts[usize::from(extent.column)] += extent.bytes);
            let short = bytes == 1 << 20 && parts.contains(&0);
            let alike = parts.iter().all(|part| *part == parts[0] && part.is_power_of_two());
            prop_assert!(short || alike, "{parts:?} of {bytes}");
        }

        #[test]
        fn layouts_survive_the_wire(layout in layout()) {
            let mut bytes = [0; Layout::BYTES_MAX];
            layout.encode(&mut Encoder::new(&mut bytes));
            prop_assert_eq!(Layout::decode(&mut Decoder::new(&bytes)), Ok(layout));
        }
    }

    /// The length of an object comes from its server, which may say anything.
    #[test]
    fn a_length_that_no_file_has_is_the_longest() {
        let layout = Layout::new(1, 4 << 20, &[NodeId(1); 16]).unwrap();
        assert_eq!(layout.file_bytes(15, u64::MAX), u64::MAX);
        assert_eq!(layout.file_bytes(0, u64::MAX), u64::MAX);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Layout::new::<NodeId>(1, 4096, &[]).is_none());
        assert!(Layout::new(1, 5000, &[NodeId(1)]).is_none());
        assert!(Layout::new(1, 4096, &[NodeId(1); WIDTH_MAX + 1]).is_none());
    }
}
