//! The choice of the column among several objects of one, by their own statements. Pure.
//!
//! A column moves by a copy under an epoch that no object had before. At any stage of the move, and with any of the
//! objects lost, each states its [`Role`]:
//!
//! ```text
//! the move is at          the old place      the new place    the column is
//! copying                 Column, earlier    Copy             the old one
//! copying what is left    Left               Copy             the old one: nothing changes it any more
//! copied                  Left               Arrived          the new one: they are the same, until it is changed
//! changed since           Left, or empty     Column           the new one
//! given up                Column, later      any of these     the old one
//! ```
//!
//! Of a file with a block map the layout names the place, and a move tells it to all objects before it ends.
//!
//! So an object alone that was left is not the column: that one is lost. Neither is one alone that arrived, as its move
//! may have been given up, unless its description says that the file had it there.

use crate::describe::latest_layout;
use stripe::Told;
use stripe::protocol::{ObjectReply, Role};
use wire::{Home, Layout, Placement};

/// An object of a column, and what it says of itself.
pub type Candidate<'a> = (Home, &'a ObjectReply, &'a Told);

/// The chosen object of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one.
    At(usize),
    /// None, and none of them tells that there was one.
    Nothing,
    /// None: the one that was it is lost.
    Missing,
}

/// Chooses the object of a column, in a file of which no later layout is known than this one.
pub fn choose(layout: &Layout, column: u16, objects: &[Candidate<'_>]) -> Choice {
    if layout.placement == Placement::Map {
        let at_home = objects.iter().position(|(home, ..)| *home == layout.home(column));
        let elsewhere = if objects.is_empty() { Choice::Nothing } else { Choice::Missing };
        return at_home.map_or(elsewhere, Choice::At);
    }
    let epoch = |at: usize| objects[at].1.epoch;
    let role = |at: usize| objects[at].2.shape.role;
    let has =
        |wanted: Role, of: u32| (0..objects.len()).any(|at| role(at) == wanted && epoch(at) == of);
    let rank = |at: &usize| {
        let (_, reply, _) = objects[*at];
        (reply.epoch, role(*at) == Role::Column, reply.truncations, reply.length)
    };
    // Of two that are alike the first counts.
    let best = |is_one: &dyn Fn(usize) -> bool| {
        (0..objects.len()).rev().filter(|at| is_one(*at)).max_by_key(rank)
    };
    let is_known = |at: usize| {
        let is_left = has(Role::Left, epoch(at));
        epoch(at) >= layout.epoch && (is_left || is_placed(column, &objects[at]))
    };
    let kept = best(&|at| matches!(role(at), Role::Column | Role::Left));
    let arrived = best(&|at| role(at) == Role::Arrived).filter(|new| {
        kept.is_none_or(|kept| (epoch(kept), role(kept) == Role::Column) < (epoch(*new), true))
    });
    match (kept, arrived) {
        (_, Some(new)) if is_known(new) => Choice::At(new),
        (_, Some(_)) => Choice::Missing,
        (Some(kept), None) if role(kept) == Role::Column || has(Role::Copy, epoch(kept)) => {
            Choice::At(kept)
        }
        (Some(_), None) => Choice::Missing,
        (None, None) => Choice::Nothing,
    }
}

/// Whether the object was told that its file has it here, under its epoch or a later one.
fn is_placed(column: u16, (home, reply, told): &Candidate<'_>) -> bool {
    let layout = latest_layout(told.description.iter());
    layout.is_some_and(|(layout, _)| {
        let is_it = column < layout.width() && layout.home(column) == *home;
        is_it && layout.epoch >= reply.epoch
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripe::Description;
    use stripe::protocol::Shape;
    use wire::NodeId;
    use wire::field::encoded;

    type Said = (u16, u32, Role);

    fn home(server: u16) -> Home {
        Home::from(NodeId(server))
    }

    fn layout(epoch: u32, server: u16) -> Layout {
        Layout::new(epoch, 4096, &[home(server)]).unwrap()
    }

    /// The server whose object is the column; 0 where it is lost. The file was told where it was last, if at all.
    fn column(said: &[Said], told: Option<&Layout>) -> Option<u16> {
        let description = |layout: &Layout| {
            let layout = [encoded(layout), encoded(&Vec::<wire::Fragment>::new())].concat();
            Description { layout, ..Description::default() }
        };
        let object = |(server, epoch, role): &Said| {
            let reply = ObjectReply { epoch: *epoch, length: 7, ..ObjectReply::default() };
            let shape = Shape { role: *role, ..Shape::default() };
            let known = told.filter(|layout| layout.home(0) == home(*server));
            (home(*server), reply, Told { shape, description: known.map(description) })
        };
        let objects: Vec<_> = said.iter().map(object).collect();
        let candidates: Vec<Candidate<'_>> =
            objects.iter().map(|(home, reply, told)| (*home, reply, told)).collect();
        match choose(&layout(1, 1), 0, &candidates) {
            Choice::At(at) => Some(said[at].0),
            Choice::Missing => Some(0),
            Choice::Nothing => None,
        }
    }

    use Role::{Arrived, Column, Copy, Left};

    #[test]
    fn a_move_leaves_one_column_wherever_it_ends() {
        let (old, new) = (1, 2);
        for (said, it) in [
            ([(old, 4, Column), (new, 5, Copy)], old),
            ([(old, 5, Left), (new, 5, Copy)], old),
            ([(old, 5, Left), (new, 5, Arrived)], new),
            ([(old, 5, Left), (new, 5, Column)], new),
            // It was given up, at each of these points.
            ([(old, 6, Column), (new, 5, Copy)], old),
            ([(old, 6, Column), (new, 5, Arrived)], old),
            ([(old, 6, Column), (new, 5, Column)], old),
            // The next one goes elsewhere, or back.
            ([(new, 7, Left), (3, 7, Copy)], new),
            ([(old, 7, Copy), (new, 7, Left)], new),
        ] {
            assert_eq!(column(&said, None), Some(it), "{said:?}");
            let [one, other] = said;
            assert_eq!(column(&[other, one], None), Some(it), "{said:?}");
        }
    }

    #[test]
    fn what_is_left_when_the_column_is_lost_is_not_the_column() {
        assert_eq!(column(&[(1, 5, Left)], None), Some(0));
        // Whether it was given up the lost one knew.
        assert_eq!(column(&[(2, 5, Arrived)], None), Some(0));
        assert_eq!(column(&[(1, 4, Left), (2, 5, Arrived)], None), Some(0));
        // One that was begun tells nothing.
        assert_eq!(column(&[(2, 5, Copy)], None), None);
        assert_eq!(column(&[(1, 5, Left), (3, 7, Copy)], None), Some(0));
        assert_eq!(column(&[], None), None);
    }

    #[test]
    fn a_copy_that_the_file_was_told_of_is_the_column_without_the_one_it_is_of() {
        assert_eq!(column(&[(2, 5, Arrived)], Some(&layout(5, 2))), Some(2));
        assert_eq!(column(&[(2, 5, Arrived)], Some(&layout(4, 2))), Some(0), "an earlier stay");
        assert_eq!(column(&[(2, 5, Copy)], Some(&layout(5, 2))), None);
    }
}
