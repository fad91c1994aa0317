//! A warm disk moves blocks without allocating on the node's thread.

mod disk_rig;

use disk_rig::{Rig, each_engine, object, pattern};
use node::rings::{DiskFile, DiskOp, DiskReply};
use rig::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn warm_blocks_move_without_allocation() {
    each_engine(|engine| {
        let temporary = tempfile::TempDir::new().unwrap();
        let config = live::disk::DiskConfig::new(temporary.path());
        let mut rig = Rig::open(&config, engine);
        let file = DiskFile::Object(object(1));
        let data = rig.frames.copy_of(&pattern(65_536, 1)).unwrap();
        let mut round = |depth: u64| {
            for n in 0..depth {
                let (offset, data) = (n * 65_536, data.clone());
                rig.start(DiskOp::Write { file, offset, data, durable: n % 4 == 0 });
            }
            (0..depth).for_each(|_| assert!(matches!(rig.wait().result, Ok(DiskReply::Done))));
            for n in 0..depth {
                let into = rig.frames.alloc(65_536).unwrap();
                rig.start(DiskOp::Read { file, offset: n * 65_536, into });
            }
            (0..depth).for_each(|_| assert!(rig.wait().result.is_ok()));
        };
        (0..4).for_each(|_| round(32));
        let before = Counting::in_thread();
        (0..4).for_each(|_| round(16));
        assert_eq!(Counting::in_thread() - before, 0, "{engine:?}");
    });
}
