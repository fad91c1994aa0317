//! A file from what its objects say. Pure.

use names::{Candidate, Choice, Salvaged, choose, latest_layout};
use std::collections::BTreeMap;
use stripe::protocol::{ObjectReply, Role};
use stripe::{Description, Told};
use wire::layout::{UNIT_BYTES_DEFAULT, column_mask};
use wire::{Attr, BlockMap, FileId, Fragment, Home, Layout, Wall};

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

    fn role(&self) -> Role {
        self.told.as_ref().map_or(Role::Column, |(_, told)| told.shape.role)
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
        None => match by_shape(objects) {
            Some(layout) => (layout, Vec::new()),
            None => return Assembled::Unknown("how it is striped is not known"),
        },
    };
    // Bytes of an earlier layout were given up with it.
    let has_bytes = |reply: &ObjectReply| reply.length > 0 && reply.epoch > layout.epoch;
    let has_more =
        |object: &Object| object.column >= layout.width() && object.reply().is_none_or(has_bytes);
    if objects.iter().any(has_more) {
        return Assembled::Unknown("it has bytes in columns that its objects were not told of");
    }
    let columns = columns_of(&layout, objects);
    if columns.is_empty() && description.is_none() {
        return Assembled::Unknown("its columns are lost, and it has no name");
    }
    let epoch = epoch_of(objects).unwrap_or(layout.epoch);
    let mut found = layout.with_epoch(epoch);
    for (column, object) in &columns {
        found = found.with_home(epoch, *column, object.home).expect("a column of it");
    }
    let salvaged = salvaged(file, (found, fragments), description, &columns);
    // An object stays for as long as the file: what any of them was told once is so.
    let described = descriptions().fold(0, |mask, description| mask | description.present);
    let path = path.unwrap_or_default().into();
    Assembled::File(Salvaged { path, present: salvaged.present | described, ..salvaged })
}

/// The file's object of each column. One that cannot be read may be it where no other is.
fn columns_of<'a>(layout: &Layout, objects: &'a [Object]) -> BTreeMap<u16, &'a Object> {
    let column = |column: u16| {
        let of_it = || objects.iter().filter(move |object| object.column == column);
        let readable: Vec<&Object> = of_it().filter(|object| object.told.is_some()).collect();
        let candidates = readable.iter().filter_map(|object| {
            let (reply, told) = object.told.as_ref()?;
            Some((object.home, reply, told))
        });
        let candidates: Vec<Candidate<'_>> = candidates.collect();
        let found = match choose(layout, column, &candidates) {
            Choice::At(at) => Some(readable[at]),
            Choice::Nothing | Choice::Missing => of_it().find(|object| object.told.is_none()),
        };
        found.map(|found| (column, found))
    };
    (0..layout.width()).filter_map(column).collect()
}

/// The epoch that all objects have. Where they differ, or one is still what a move made of it, it is below one of them:
/// then the manager looks at all of them, and gives them another.
fn epoch_of(objects: &[Object]) -> Option<u32> {
    let epochs = objects.iter().filter_map(|object| {
        let epoch = object.reply()?.epoch;
        Some(if object.role() == Role::Column { epoch } else { epoch.saturating_sub(1) })
    });
    epochs.min()
}

/// Whether the objects are only those of a file that was opened and never written. An object of a move is none of them:
/// its column was elsewhere.
fn is_nothing(objects: &[Object], description: Option<&Description>) -> bool {
    let is_empty = |object: &Object| object.reply().is_some_and(|reply| reply.length == 0);
    let is_fresh = |reply: &ObjectReply| reply.truncations == 0 && reply.mtime == Wall::default();
    let all_fresh = objects.iter().filter_map(Object::reply).all(is_fresh);
    objects.iter().all(is_empty)
        && objects.iter().all(|object| object.role() == Role::Column)
        && description.is_none_or(|description| description.size > 0 && all_fresh)
}

/// The layout by what objects say of it in short.
fn by_shape(objects: &[Object]) -> Option<Layout> {
    let told = || objects.iter().filter_map(|object| object.told.as_ref());
    let shaped = told().filter(|(_, told)| told.shape.width > 0);
    let shape = shaped.max_by_key(|(reply, _)| reply.epoch).map(|(_, told)| told.shape);
    let (width, unit_bytes) = match shape {
        Some(shape) => (u16::from(shape.width), 1u32.checked_shl(shape.unit_shift.into())?),
        // Of one column the unit says nothing.
        None if objects.iter().all(|object| object.column == 0) => (1, UNIT_BYTES_DEFAULT),
        None => return None,
    };
    // It is as early as any of them, and where columns are is still to be found.
    let epoch = told().map(|(reply, _)| reply.epoch).min()?;
    let homes = vec![objects.first()?.home; width.into()];
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
    let lost = columns.is_empty() || description.is_none() && (0..layout.width()).any(is_absent);
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
        let shape = Shape { unit_shift: 12, width: 3, copies: 1, ..Shape::default() };
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
        assert_eq!((found.layout.epoch, found.fragments), (4, vec![fragment]));
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

    fn of_role(mut object: Object, role: Role) -> Object {
        object.told.as_mut().unwrap().1.shape.role = role;
        object
    }

    /// The homes of the columns, and the epoch.
    fn homes(objects: &[Object]) -> (Vec<Home>, u32) {
        let layout = file(objects).layout;
        (layout.homes().collect(), layout.epoch)
    }

    #[test]
    fn a_copy_that_was_begun_is_no_column_and_what_was_left_of_one_that_moved_is_none_either() {
        let whole = [object(1, 0, 4, 4096), object(3, 2, 4, 100)];
        let with = |more: &[Object]| [&whole, more].concat();
        let copied = [object(2, 1, 4, 4096), of_role(object(9, 1, 5, 50), Role::Copy)];
        assert_eq!(homes(&with(&copied)), (vec![home(1), home(2), home(3)], 4));
        // Nothing is acknowledged there any more; the manager is to give it an epoch of its own.
        let fenced =
            [of_role(object(2, 1, 5, 4096), Role::Left), of_role(object(9, 1, 5, 50), Role::Copy)];
        assert_eq!(homes(&with(&fenced)), (vec![home(1), home(2), home(3)], 4));
        let left = of_role(object(2, 1, 5, 4096), Role::Left);
        let arrived = [left.clone(), of_role(object(9, 1, 5, 4096), Role::Arrived)];
        assert_eq!(homes(&with(&arrived)), (vec![home(1), home(9), home(3)], 4));
        // The one that it moved to is lost: that is not where it was.
        let found = file(&with(&[left]));
        assert!(found.lost && found.present == 0b101, "{found:?}");
    }

    #[test]
    fn a_file_of_which_only_what_a_move_left_is_there_is_lost_and_not_nothing() {
        let left = of_role(object(1, 0, 5, 0), Role::Left);
        assert!(matches!(assemble(FILE, std::slice::from_ref(&left)), Assembled::Unknown(_)));
        let copy = of_role(object(1, 0, 5, 0), Role::Copy);
        assert!(matches!(assemble(FILE, &[copy]), Assembled::Unknown(_)));
        let found = file(&[described(left, 9000, 1)]);
        assert_eq!((found.lost, &*found.path, found.attr.size), (true, &b"/at/1"[..], 9000));
    }

    #[test]
    fn objects_without_a_byte_are_no_file_and_an_empty_file_is_one() {
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
