//! A warm disk moves blocks without allocating on the node's thread.

mod rig;

use node::rings::{DiskFile, DiskOp, DiskReply};
use rig::{each_engine, object, pattern};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn warm_blocks_move_without_allocation() {
    each_engine(|engine| {
        let temporary = tempfile::TempDir::new().unwrap();
        let config = live::disk::DiskConfig::new(temporary.path());
        let mut rig = rig::Rig::open(&config, engine);
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
        let before = ALLOCATIONS.get();
        (0..4).for_each(|_| round(16));
        assert_eq!(ALLOCATIONS.get() - before, 0, "{engine:?}");
    });
}
