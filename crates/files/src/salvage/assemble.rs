//! A file from what its objects say. Pure.

use names::{Salvaged, latest_layout};
use std::collections::BTreeMap;
use stripe::protocol::ObjectReply;
use stripe::{Description, Told};
use wire::layout::{UNIT_BYTES_DEFAULT, column_mask};
use wire::{Attr, BlockMap, FileId, Fragment, Home, Layout, Placement, Wall};

/// Of a file without a description only its owner may read.
const UNKNOWN_MODE: u32 = 0o600;

/// An object of a column on a disk.
#[derive(Clone, Debug)]
pub struct Object {
    pub home: Home,
    pub column: u16,
    /// Its attributes and description; nothing when it cannot be read.
    pub told: Option<(ObjectReply, Told)>,
}

impl Object {
    fn reply(&self) -> Option<&ObjectReply> {
        self.told.as_ref().map(|(reply, _)| reply)
    }

    /// Which of two objects of one column is the file's: the later layout, the later cut, the longer one. An object
    /// that cannot be read may be it, and comes last.
    fn rank(&self) -> Option<(u32, u32, u64)> {
        self.reply().map(|reply| (reply.epoch, reply.truncations, reply.length))
    }
}

/// The file that objects make.
#[derive(Debug, PartialEq, Eq)]
pub enum Assembled {
    /// They are empty, as moved columns leave them.
    Nothing,
    /// Why they cannot be put together.
    Unknown(&'static str),
    File(Salvaged),
}

/// The file that has these objects.
pub fn assemble(file: FileId, objects: &[Object]) -> Assembled {
    let columns = best(objects.iter());
    let told = || objects.iter().filter_map(|object| object.told.as_ref());
    let descriptions = || told().filter_map(|(_, told)| told.description.as_ref());
    let description = descriptions().max_by_key(|description| description.ctime);
    // An object that is as new as the last description may have been told no path.
    let named = descriptions().filter(|description| !description.path.is_empty());
    let path = named.max_by_key(|description| description.ctime).map(|known| &known.path[..]);
    if is_nothing(objects, description) {
        return Assembled::Nothing;
    }
    let (layout, fragments) = match description {
        Some(_) => match latest_layout(descriptions()) {
            Some(known) => known,
            None => return Assembled::Unknown("its block map was too long to be kept with it"),
        },
        None => match by_shape(&columns) {
            Some(layout) => (layout, Vec::new()),
            None => return Assembled::Unknown("how it is striped is not known"),
        },
    };
    // What is of an earlier layout was given up with it.
    let has_bytes = |reply: &ObjectReply| reply.length > 0 && reply.epoch > layout.epoch;
    let has_more =
        |object: &&Object| object.column >= layout.width() && object.reply().is_none_or(has_bytes);
    if columns.values().any(has_more) {
        return Assembled::Unknown("it has bytes in columns that its objects were not told of");
    }
    let columns = match layout.placement {
        Placement::Formula => columns,
        // Objects were told of every move that ended: what is elsewhere is a copy that was not finished.
        Placement::Map => best(objects.iter().filter(|object| is_at_home(&layout, object))),
    };
    let epoch = told().map(|(reply, _)| reply.epoch).fold(layout.epoch, u32::max);
    let mut found = layout.with_epoch(epoch);
    for (column, object) in columns.range(..layout.width()) {
        found = found.with_home(epoch, *column, object.home).expect("a column of it");
    }
    let salvaged = salvaged(file, (found, fragments), description, &columns);
    // An object stays for as long as the file: what any of them was told once is so.
    let described = descriptions().fold(0, |mask, description| mask | description.present);
    let path = path.unwrap_or_default().into();
    Assembled::File(Salvaged { path, present: salvaged.present | described, ..salvaged })
}

fn is_at_home(layout: &Layout, object: &Object) -> bool {
    object.column < layout.width() && layout.home(object.column) == object.home
}

/// The file's object of each column.
fn best<'a>(objects: impl Iterator<Item = &'a Object>) -> BTreeMap<u16, &'a Object> {
    let mut columns: BTreeMap<u16, &Object> = BTreeMap::new();
    for object in objects {
        let known = columns.entry(object.column).or_insert(object);
        if object.rank() > known.rank() {
            *known = object;
        }
    }
    columns
}

/// Whether the objects are only what moved columns left behind, or what was opened and never written.
fn is_nothing(objects: &[Object], description: Option<&Description>) -> bool {
    let is_empty = |object: &Object| object.reply().is_some_and(|reply| reply.length == 0);
    let is_fresh = |reply: &ObjectReply| reply.truncations == 0 && reply.mtime == Wall::default();
    let all_fresh = objects.iter().filter_map(Object::reply).all(is_fresh);
    objects.iter().all(is_empty)
        && description.is_none_or(|description| description.size > 0 && all_fresh)
}

/// The layout by what objects say of it in short.
fn by_shape(columns: &BTreeMap<u16, &Object>) -> Option<Layout> {
    let told = || columns.values().filter_map(|object| object.told.as_ref());
    let shaped = told().filter(|(_, told)| told.shape.width > 0);
    let shape = shaped.max_by_key(|(reply, _)| reply.epoch).map(|(_, told)| told.shape);
    let (width, unit_bytes) = match shape {
        Some(shape) => (u16::from(shape.width), 1u32.checked_shl(shape.unit_shift.into())?),
        // Of one column the unit says nothing.
        None if columns.keys().eq([&0]) => (1, UNIT_BYTES_DEFAULT),
        None => return None,
    };
    let epoch = told().map(|(reply, _)| reply.epoch).max()?;
    let any = columns.values().next()?.home;
    let home = |column: u16| columns.get(&column).map_or(any, |object| object.home);
    let homes: Vec<Home> = (0..width).map(home).collect();
    Layout::new(epoch, unit_bytes, &homes)
}

fn salvaged(
    file: FileId,
    (layout, fragments): (Layout, Vec<Fragment>),
    description: Option<&Description>,
    columns: &BTreeMap<u16, &Object>,
) -> Salvaged {
    let map = BlockMap::new(&layout, &fragments);
    let told = || columns.values().filter_map(|object| object.reply());
    let ends = columns
        .iter()
        .filter_map(|(column, object)| Some(map.file_bytes(*column, object.reply()?.length)));
    let size = ends.max().unwrap_or(0);
    let attr = match description {
        Some(known) => Attr {
            file,
            size: known.size,
            used: known.used,
            mode: known.mode,
            uid: known.uid,
            gid: known.gid,
            mtime: known.mtime,
            ctime: known.ctime,
            ..Attr::default()
        },
        None => {
            let mtime = told().map(|reply| reply.mtime).max().unwrap_or_default();
            Attr { file, size, mode: UNKNOWN_MODE, mtime, ..Attr::default() }
        }
    };
    // Without a description a hole's column looks like one that is lost.
    let is_absent =
        |column: u16| !columns.contains_key(&column) && map.object_bytes(column, size) > 0;
    let lost = description.is_none() && (0..layout.width()).any(is_absent);
    Salvaged {
        attr,
        layout,
        fragments,
        truncations: told().map(|reply| reply.truncations).max().unwrap_or(0),
        present: column_mask(columns.range(..layout.width()).map(|(column, _)| *column)),
        lost,
        described: description.is_some(),
        path: Box::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripe::protocol::Shape;
    use wire::NodeId;
    use wire::codec::Encoder;

    const FILE: FileId = FileId(77);

    fn home(server: u16) -> Home {
        Home::from(NodeId(server))
    }

    fn object(server: u16, column: u16, epoch: u32, length: u64) -> Object {
        let reply = ObjectReply { epoch, length, ..ObjectReply::default() };
        let shape = Shape { unit_shift: 12, width: 3, copies: 1 };
        let told = Told { shape, description: None };
        Object { home: home(server), column, told: Some((reply, told)) }
    }

    fn described(object: Object, size: u64, seconds: i64) -> Object {
        let layout = Layout::new(1, 4096, &[home(1), home(2), home(3)]).unwrap();
        let object = of_layout(object, &layout, &[]);
        let (reply, mut told) = object.told.unwrap();
        let description = told.description.as_mut().unwrap();
        (description.size, description.used) = (size, size);
        description.ctime.seconds = seconds;
        description.path = format!("/at/{seconds}").into();
        Object { told: Some((reply, told)), ..object }
    }

    /// It was told this layout.
    fn of_layout(mut object: Object, layout: &Layout, fragments: &[Fragment]) -> Object {
        let mut bytes = [0; 1000];
        let mut out = Encoder::new(&mut bytes);
        layout.encode(&mut out);
        out.u32(fragments.len() as u32);
        for Fragment { unit, units, column, width, object_unit } in fragments {
            out.u64(*unit).u64(*units).u16(*column).u8(*width).u64(*object_unit);
        }
        let length = out.len();
        let layout = bytes[..length].to_vec();
        let description = Some(Description { uid: 9, layout, ..Description::default() });
        object.told.as_mut().unwrap().1.description = description;
        object
    }

    fn file(objects: &[Object]) -> Salvaged {
        match assemble(FILE, objects) {
            Assembled::File(found) => found,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn columns_are_where_they_are_now_and_the_latest_description_counts() {
        // Column 1 moved from server 2 to server 4; what it left is empty and has the same epoch.
        let found = file(&[
            described(object(1, 0, 5, 4096), 9000, 10),
            described(object(2, 1, 5, 0), 9000, 10),
            described(object(4, 1, 5, 4096), 9000, 20),
            object(3, 2, 5, 808),
        ]);
        let homes: Vec<Home> = found.layout.homes().collect();
        assert_eq!(homes, [home(1), home(4), home(3)]);
        assert_eq!((found.layout.epoch, &*found.path), (5, &b"/at/20"[..]));
        assert_eq!((found.attr.size, found.attr.uid, found.lost), (9000, 9, false));
    }

    #[test]
    fn a_copy_that_was_not_finished_is_no_column_of_a_file_with_a_block_map() {
        let layout = Layout::new(3, 4096, &[home(1), home(2)]).unwrap();
        let layout = layout.with_columns(4, &[home(3)]).unwrap();
        let fragment =
            Fragment { unit: 2, units: u64::MAX - 2, column: 2, width: 1, object_unit: 0 };
        let told = |object| of_layout(object, &layout, &[fragment]);
        let found = file(&[
            told(object(1, 0, 4, 4096)),
            // Its move was cut short.
            object(9, 0, 5, 0),
            told(object(2, 1, 4, 4096)),
            told(object(3, 2, 4, 808)),
        ]);
        let homes: Vec<Home> = found.layout.homes().collect();
        assert_eq!(homes, [home(1), home(2), home(3)]);
        assert_eq!((found.layout.epoch, found.fragments), (5, vec![fragment]));
    }

    #[test]
    fn a_column_that_was_told_no_path_leaves_the_path_of_the_others() {
        let mut new = described(object(2, 1, 1, 4096), 9000, 20);
        new.told.as_mut().unwrap().1.description.as_mut().unwrap().path.clear();
        let found = file(&[described(object(1, 0, 1, 4096), 9000, 10), new]);
        assert_eq!((&*found.path, found.attr.ctime.seconds), (&b"/at/10"[..], 20));
    }

    #[test]
    fn a_file_without_a_description_has_its_length_from_its_columns() {
        let found = file(&[object(1, 0, 2, 4096), object(2, 1, 2, 100)]);
        assert_eq!((found.attr.size, found.layout.width(), found.lost), (4196, 3, false));
        assert_eq!((found.attr.mode, found.described, &*found.path), (0o600, false, &b""[..]));
        // Column 0 is nowhere: its bytes are not zeros.
        assert!(file(&[object(2, 1, 2, 100)]).lost);
    }

    #[test]
    fn what_moved_columns_leave_is_no_file_and_an_empty_file_is_one() {
        assert_eq!(assemble(FILE, &[object(1, 0, 2, 0)]), Assembled::Nothing);
        let left = described(object(1, 0, 2, 0), 9000, 1);
        assert_eq!(assemble(FILE, &[left]), Assembled::Nothing);
        assert_eq!(file(&[described(object(1, 0, 2, 0), 0, 1)]).attr.size, 0);
    }

    #[test]
    fn what_is_not_known_is_said_and_not_guessed() {
        let grown = [described(object(1, 0, 2, 10), 10, 1), object(4, 3, 2, 10)];
        assert!(matches!(assemble(FILE, &grown), Assembled::Unknown(_)));
        let mut long = described(object(1, 0, 2, 10), 10, 1);
        long.told.as_mut().unwrap().1.description.as_mut().unwrap().layout.clear();
        assert!(matches!(assemble(FILE, &[long]), Assembled::Unknown(_)));
        let damaged = Object { told: None, ..object(2, 1, 0, 0) };
        assert!(matches!(assemble(FILE, &[damaged]), Assembled::Unknown(_)));
    }
}
