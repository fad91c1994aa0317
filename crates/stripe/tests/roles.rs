//! Roles of the objects of a column that moves: after a crash at any point, one of the two is the column, and has its
//! bytes.

use crate::common::*;
use node::race;
use std::time::Duration;
use stripe::protocol::Role;
use stripe::{Client, FileRef, Kept};
use wire::{Errno, Home, NodeId, ObjectId};

const BYTES: usize = 200_000;

/// A file on the first of two servers, which moves to the second.
struct Move {
    old: FileRef,
    fenced: FileRef,
    new: FileRef,
}

impl Move {
    fn of(old: FileRef) -> Move {
        let home = Home { server: NodeId(2), disk: 0 };
        let new = FileRef { layout: old.layout.with_home(2, 0, home).unwrap(), ..old };
        let fenced = FileRef { layout: old.layout.with_epoch(2), ..old };
        Move { old, fenced, new }
    }

    async fn run(&self, client: &Client) -> Result<(), Errno> {
        client.copy_column(&self.old, &self.new, 0, 0, false).await?;
        client.leave_column(&self.fenced, 0).await?;
        client.copy_column(&self.fenced, &self.new, 0, 0, true).await?;
        client.vacate_column(&self.fenced, 0).await
    }
}

/// Layout epoch, role and length of an object.
fn said(world: &mut World, file: &FileRef) -> Option<(u32, Role, u64)> {
    let (client, home) = (world.client.clone(), file.layout.home(0));
    let object = ObjectId { volume: VOLUME, file: file.file, column: 0 };
    let kept = Kept { object, disk: home.disk };
    match world.run(async move { client.description(home.server, kept).await }) {
        Ok((reply, told)) => Some((reply.epoch, told.shape.role, reply.length)),
        Err(Errno::ENOENT) => None,
        Err(errno) => panic!("{errno:?}"),
    }
}

#[test]
fn a_move_that_crashes_cut_off_anywhere_leaves_one_column_with_all_bytes() {
    let mut seen = Vec::new();
    for millis in 0..40 {
        let mut world = World::new(2, 1);
        let file = world.single(9);
        let content = pattern(millis, BYTES);
        world.write(&file, 0, &content).unwrap();
        world.commit(&file).unwrap();
        let moving = Move::of(file);
        let (client, cx) = (world.client.clone(), world.cx());
        let moved = Move::of(file);
        world.run(async move {
            race(moved.run(&client), cx.sleep(Duration::from_millis(millis))).await;
        });
        world.servers.iter_mut().for_each(|server| server.crash());
        let (old, new) = (said(&mut world, &moving.old), said(&mut world, &moving.new));
        let (old, length) = (old.expect("it was stable"), BYTES as u64);
        let column = match (old, new) {
            ((1, Role::Column, _), None | Some((2, Role::Copy, _))) => moving.old,
            ((2, Role::Left, _), Some((2, Role::Copy, _))) => moving.fenced,
            ((2, Role::Left, _), Some((2, Role::Arrived, _))) => moving.new,
            other => panic!("after {millis} ms: {other:?}"),
        };
        assert!(world.read(&column, 0, BYTES).unwrap() == content, "after {millis} ms");
        assert!(old.2 == length || (old.2 == 0 && column == moving.new));
        seen.push((old.1, new.map(|new| new.1), old.2 == 0));
        seen.dedup();
    }
    assert!(seen.len() >= 4, "each of its steps is cut off: {seen:?}");
}

#[test]
fn a_copy_that_arrived_is_the_column_from_its_first_change_on() {
    for change in 0..4 {
        let mut world = World::new(2, 1);
        let file = world.single(9);
        world.write(&file, 0, &pattern(1, 10_000)).unwrap();
        world.commit(&file).unwrap();
        let moving = Move::of(file);
        let (client, moved) = (world.client.clone(), Move::of(file));
        world.run(async move { moved.run(&client).await }).unwrap();
        world.servers.iter_mut().for_each(|server| server.crash());
        assert_eq!(said(&mut world, &moving.old), Some((2, Role::Left, 0)));
        assert_eq!(said(&mut world, &moving.new), Some((2, Role::Arrived, 10_000)));
        let (client, new) = (world.client.clone(), moving.new);
        match change {
            0 => {
                world.write(&new, 0, b"changed").unwrap();
                world.commit(&new).unwrap();
            }
            1 => world.truncate(&FileRef { truncations: 1, ..new }, 10_000).unwrap(),
            2 => world.run(async move { client.punch(&new, 0..4096).await }).unwrap(),
            _ => {
                let next = FileRef { layout: new.layout.with_epoch(3), ..new };
                world.run(async move { client.set_layout(&next).await }).unwrap();
            }
        }
        world.servers.iter_mut().for_each(|server| server.crash());
        let role = said(&mut world, &moving.new).map(|(_, role, _)| role);
        assert_eq!(role, Some(Role::Column), "change {change}");
    }
}
