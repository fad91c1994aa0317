//! Layouts of new files: which servers have their columns, and how many there are.

use crate::common::World;
use crate::posix::user;
use names::{IoServer, Policy, Who};
use wire::{Errno, NodeId};

const WHO: Who<'static> = Who::ROOT;

#[test]
fn layouts_are_inherited_and_columns_rotate() {
    let mut world = World::new();
    let d = world.mkdir(&WHO, "d", 0o755).unwrap();
    let policy = Policy { unit_bytes: 1 << 20, width: 2, ..Policy::default() };
    let set = |world: &mut World, who: Who<'_>, policy: Policy| {
        world.change(|t| t.set_directory_layout(&who, d, policy))
    };
    assert_eq!(set(&mut world, user(5), policy.clone()), Err(Errno::EPERM));
    let odd = Policy { unit_bytes: 5000, ..Policy::default() };
    assert_eq!(set(&mut world, WHO, odd), Err(Errno::EINVAL));
    let foreign = Policy { servers: vec![NodeId(9)], ..Policy::default() };
    assert_eq!(set(&mut world, WHO, foreign), Err(Errno::EINVAL));
    assert_eq!(set(&mut world, WHO, policy.clone()), Ok(()));
    let sub = world.mkdir(&WHO, "d/sub", 0o755).unwrap();
    assert_eq!(world.read(|t| t.directory_layout(sub)), Ok(policy));
    let mut firsts = Vec::new();
    for name in ["d/sub/1", "d/sub/2", "d/sub/3"] {
        let file = world.touch(&WHO, name, 0o644).unwrap();
        let layout = world.get(file).unwrap().layout.unwrap();
        assert_eq!((layout.unit_bytes, layout.width(), layout.epoch), (1 << 20, 2, 1));
        firsts.push(layout.server(0));
    }
    firsts.sort();
    assert_eq!(firsts, [1, 2, 3].map(NodeId));
    // A fourth server serves new files at once.
    world.manager.set_servers(&[1, 2, 3, 4].map(|id| IoServer::from(NodeId(id))));
    let file = world.touch(&WHO, "wide", 0o644).unwrap();
    assert_eq!(world.get(file).unwrap().layout.unwrap().width(), 4);
    // Groups share disks: a file has no more columns than there are disks, also where more were asked for.
    world.manager.set_columns_max(3);
    let file = world.touch(&WHO, "narrow", 0o644).unwrap();
    assert_eq!(world.get(file).unwrap().layout.unwrap().width(), 3);
    let wide = Policy { width: 4, ..Policy::default() };
    let all = world.mkdir(&WHO, "all", 0o755).unwrap();
    world.change(|t| t.set_directory_layout(&WHO, all, wide)).unwrap();
    let file = world.touch(&WHO, "all/narrow", 0o644).unwrap();
    assert_eq!(world.get(file).unwrap().layout.unwrap().width(), 3);
    // One that is told to be retired gets nothing new.
    let told = |id| IoServer { retired: id == 2, ..IoServer::from(NodeId(id)) };
    world.manager.set_servers(&[1, 2, 3, 4].map(told));
    for name in ["e", "f", "g", "h"] {
        let file = world.touch(&WHO, name, 0o644).unwrap();
        let layout = world.get(file).unwrap().layout.unwrap();
        assert!(layout.servers().iter().all(|server| *server != NodeId(2)), "{layout:?}");
    }
    world.manager.set_servers(&[]);
    assert_eq!(world.touch(&WHO, "none", 0o644).map(drop), Err(Errno::EHOSTDOWN));
}
