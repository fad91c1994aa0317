//! Bytes of one file on one client.

use super::client::{
    APPEND, Ask, Client, EXCLUSIVE, READ_ONLY, READ_WRITE, SYNCHRONOUS, TRUNCATE, WRITE_ONLY,
    pattern,
};
use crate::flags::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
use node::rings::{Caller, Rights};
use wire::{Errno, FileId, SetAttr, SetTime, Wall};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Bytes come back, whatever the size of the pieces, from the same handle at once and after a close.
pub async fn patterns_across_stripes<A: Ask>(client: &Client<A>, dir: FileId) {
    for (seed, (bytes, piece)) in [
        (1, 1),
        (4095, 100),
        (4097, 4096),
        (100 * KIB, 7 * KIB + 1),
        (3 * MIB + 5, MIB),
        (2 * MIB, 64 * KIB),
    ]
    .into_iter()
    .enumerate()
    {
        let (seed, name) = (seed as u64, format!("f{seed}"));
        let open = client.create(dir, name.as_bytes(), READ_WRITE).await.expect("create");
        let content = pattern(seed, 0, bytes);
        for (index, part) in content.chunks(piece).enumerate() {
            client.write(open, (index * piece) as u64, part).await.expect("write");
        }
        assert_eq!(client.stat(open.file).await.expect("stat").size, bytes as u64);
        assert!(client.read(open, 0, bytes + 10).await == Ok(content.clone()), "before the close");
        client.close(open).await.expect("close");
        assert!(client.get(dir, name.as_bytes()).await == Ok(content.clone()), "after the close");
        read_in_pieces(client, dir, name.as_bytes(), &content).await;
    }
}

async fn read_in_pieces<A: Ask>(client: &Client<A>, dir: FileId, name: &[u8], content: &[u8]) {
    let file = client.lookup(dir, name).await.expect("lookup").file;
    let open = client.open(file, READ_ONLY).await.expect("open");
    for piece in [128 * KIB, 8 * KIB + 3] {
        let mut at = 0;
        while at < content.len() {
            let to = content.len().min(at + piece);
            let read = client.read(open, at as u64, piece).await.expect("read");
            assert!(read == content[at..to], "sequential reads of {piece} bytes differ at {at}");
            at = to;
        }
    }
    let end = content.len() as u64;
    assert_eq!(client.read(open, end, 10).await, Ok(Vec::new()));
    assert_eq!(client.read(open, end + (1 << 40), 10).await, Ok(Vec::new()));
    client.close(open).await.expect("close");
}

/// The newest bytes win, at any offset, with O_DSYNC in between.
pub async fn overwrites_and_unaligned<A: Ask>(client: &Client<A>, dir: FileId) {
    let mut model = pattern(1, 0, 300 * KIB);
    let file = client.put(dir, b"f", &model).await.expect("put");
    let open = client.open(file, READ_WRITE).await.expect("open");
    let stable = client.open(file, READ_WRITE | SYNCHRONOUS).await.expect("open");
    for (seed, (offset, bytes)) in
        [(0, 1), (4095, 2), (32 * KIB - 1, 2), (100_000, 60_000), (99_999, 3), (299 * KIB, 2 * KIB)]
            .into_iter()
            .enumerate()
    {
        let data = pattern(10 + seed as u64, offset as u64, bytes);
        let through = if seed % 2 == 0 { open } else { stable };
        client.write(through, offset as u64, &data).await.expect("write");
        model.resize(model.len().max(offset + bytes), 0);
        model[offset..offset + bytes].copy_from_slice(&data);
        assert!(client.read(open, 0, MIB).await.expect("read") == model, "after write {seed}");
    }
    client.close(open).await.expect("close");
    client.close(stable).await.expect("close");
    assert!(client.get(dir, b"f").await.expect("read") == model);
}

/// Ranges never written read as zeros.
pub async fn holes_are_zeros<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", READ_WRITE).await.expect("create");
    client.write(open, 5 * MIB as u64 + 1, b"end").await.expect("write");
    client.write(open, 40_000, b"middle").await.expect("write");
    for closed in [false, true] {
        let open =
            if closed { client.open(open.file, READ_WRITE).await.expect("open") } else { open };
        let all = client.read(open, 0, 6 * MIB).await.expect("read");
        assert_eq!(all.len(), 5 * MIB + 4);
        assert_eq!((&all[40_000..40_006], &all[5 * MIB + 1..]), (&b"middle"[..], &b"end"[..]));
        let rest = [&all[..40_000], &all[40_006..5 * MIB + 1]];
        assert!(rest.iter().all(|part| part.iter().all(|byte| *byte == 0)));
        client.close(open).await.expect("close");
    }
}

/// Shorter and longer again: what was cut off does not come back.
pub async fn truncation<A: Ask>(client: &Client<A>, dir: FileId) {
    let content = pattern(3, 0, 200 * KIB);
    let file = client.put(dir, b"f", &content).await.expect("put");
    let open = client.open(file, READ_WRITE).await.expect("open");
    for size in [150_001usize, 32 * KIB, 4097, 1, 0] {
        let attr = client.set_size(open, size as u64).await.expect("truncate");
        assert_eq!(attr.size, size as u64);
        assert!(client.read(open, 0, MIB).await.expect("read") == content[..size]);
    }
    client.write(open, 0, &content[..5000]).await.expect("write");
    client.set_size(open, 100).await.expect("truncate");
    client.set_size(open, 70_000).await.expect("extend");
    let mut expected = content[..100].to_vec();
    expected.resize(70_000, 0);
    assert!(client.read(open, 0, MIB).await.expect("read") == expected);
    client.close(open).await.expect("close");
    assert!(client.get(dir, b"f").await.expect("read") == expected);
    let open = client.open(file, WRITE_ONLY | TRUNCATE).await.expect("open");
    assert_eq!(client.stat(file).await.expect("stat").size, 0);
    client.close(open).await.expect("close");
    assert_eq!(client.get(dir, b"f").await, Ok(Vec::new()));
}

/// Truncation meets bytes that are still on their way.
pub async fn truncation_of_unsent<A: Ask>(client: &Client<A>, dir: FileId) {
    let content = pattern(4, 0, 700 * KIB);
    for size in [0usize, 1, 300_000, 900_000] {
        let name = format!("f{size}");
        let open = client.create(dir, name.as_bytes(), READ_WRITE).await.expect("create");
        for (index, part) in content.chunks(64 * KIB).enumerate() {
            client.write(open, (index * 64 * KIB) as u64, part).await.expect("write");
        }
        client.set_size(open, size as u64).await.expect("truncate");
        client.write(open, size as u64, b"tail").await.expect("write");
        let mut expected = content.clone();
        expected.resize(size, 0);
        expected.extend_from_slice(b"tail");
        assert!(client.read(open, 0, MIB).await.expect("read") == expected);
        client.fsync(open).await.expect("fsync");
        client.close(open).await.expect("close");
        assert!(client.get(dir, name.as_bytes()).await.expect("read") == expected);
    }
}

/// O_APPEND goes to the end whatever offset is said, through two handles in turns.
pub async fn append<A: Ask>(client: &Client<A>, dir: FileId) {
    let one = client.create(dir, b"log", WRITE_ONLY | APPEND).await.expect("create");
    let two = client.open(one.file, WRITE_ONLY | APPEND).await.expect("open");
    let mut expected = Vec::new();
    for turn in 0..50u64 {
        let line = format!("line {turn}\n");
        let open = if turn % 3 == 0 { two } else { one };
        client.write(open, 0, line.as_bytes()).await.expect("write");
        expected.extend_from_slice(line.as_bytes());
    }
    client.close(one).await.expect("close");
    client.close(two).await.expect("close");
    assert_eq!(client.get(dir, b"log").await, Ok(expected));
}

/// Small files, each made, written, closed and read back.
pub async fn many_small_files<A: Ask>(client: &Client<A>, dir: FileId) {
    for number in 0..40u64 {
        let name = format!("small {number}");
        let bytes = pattern(number, 0, number as usize * 300);
        client.put(dir, name.as_bytes(), &bytes).await.expect("put");
        let attr = client.lookup(dir, name.as_bytes()).await.expect("lookup");
        assert_eq!(attr.size, bytes.len() as u64);
        assert_eq!(client.get(dir, name.as_bytes()).await, Ok(bytes));
    }
}

/// fallocate(2) and lseek(2).
pub async fn allocation_and_seeking<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", READ_WRITE).await.expect("create");
    client.write(open, 0, &pattern(1, 0, 10_000)).await.expect("write");
    client.allocate(open, 0, 20_000, 0).await.expect("extend");
    assert_eq!(client.stat(open.file).await.expect("stat").size, 20_000);
    client.allocate(open, 5_000, 100, 3).await.expect("punch");
    let mut expected = pattern(1, 0, 10_000);
    expected[5_000..5_100].fill(0);
    expected.resize(20_000, 0);
    assert!(client.read(open, 0, MIB).await.expect("read") == expected);
    client.allocate(open, 0, 50_000, KEEP_SIZE).await.expect("nothing is reserved");
    assert_eq!(client.stat(open.file).await.expect("stat").size, 20_000);
    assert_eq!(client.seek(open, 100, 3).await, Ok(100));
    assert_eq!(client.seek(open, 100, 4).await, Ok(12_288), "behind the last block of data");
    assert_eq!(client.seek(open, 13_000, 3).await, Err(Errno::ENXIO), "no more data");
    assert_eq!(client.seek(open, 20_000, 3).await, Err(Errno::ENXIO));
    for mode in [0x8, 0x20, 0x40, PUNCH_HOLE] {
        let refused = client.allocate(open, 0, 4096, mode).await;
        assert_eq!(refused, Err(Errno::EOPNOTSUPP), "mode {mode:#x}");
    }
    client.close(open).await.expect("close");
}

/// Whole blocks become holes in every way that fallocate(2) knows; what was written before and after is ordered.
pub async fn holes<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", READ_WRITE).await.expect("create");
    let mut expected = pattern(2, 0, 3 << 20);
    client.write(open, 0, &expected).await.expect("write");
    client.allocate(open, 100_000, 1 << 20, PUNCH_HOLE | KEEP_SIZE).await.expect("punch");
    expected[100_000..100_000 + (1 << 20)].fill(0);
    assert_eq!(client.seek(open, 0, 4).await, Ok(102_400));
    assert_eq!(client.seek(open, 102_500, 4).await, Ok(102_500));
    assert_eq!(client.seek(open, 102_500, 3).await, Ok((100_000 + (1 << 20)) / 4096 * 4096));
    let more = pattern(3, 0, 5_000);
    client.write(open, 500_000, &more).await.expect("write into the hole");
    expected[500_000..505_000].copy_from_slice(&more);
    assert_eq!(client.seek(open, 102_500, 3).await.map(|at| at / 4096), Ok(500_000 / 4096));
    client.allocate(open, 2 << 20, 2 << 20, ZERO_RANGE | KEEP_SIZE).await.expect("zero");
    expected[2 << 20..].fill(0);
    assert_eq!(client.stat(open.file).await.expect("stat").size, 3 << 20);
    client.allocate(open, (3 << 20) - 10, 2 << 20, ZERO_RANGE).await.expect("zero beyond the end");
    expected.resize((5 << 20) - 10, 0);
    let size = expected.len() as u64;
    assert_eq!(client.stat(open.file).await.expect("stat").size, size);
    assert_eq!(client.seek(open, 2 << 20, 3).await, Err(Errno::ENXIO));
    client.close(open).await.expect("close");
    assert!(client.get(dir, b"f").await.expect("get") == expected);
    let open = client.open(open.file, READ_WRITE).await.expect("open");
    client.allocate(open, 0, size, PUNCH_HOLE | KEEP_SIZE).await.expect("punch everything");
    let used = client.stat(open.file).await.expect("stat").used;
    assert!(used < 1 << 20, "{used} bytes are left of a hole");
    client.close(open).await.expect("close");
    assert!(client.get(dir, b"f").await.expect("get").iter().all(|byte| *byte == 0));
}

/// Blocks written over again and again take room once, also of a file that begins with a hole.
pub async fn room_of_holes<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", READ_WRITE).await.expect("create");
    let bytes = pattern(4, 0, 64 << 10);
    for _ in 0..24 {
        client.write(open, 1 << 20, &bytes).await.expect("write");
    }
    client.close(open).await.expect("close");
    let used = client.stat(open.file).await.expect("stat").used;
    assert!((64 << 10..1 << 20).contains(&used), "{used} bytes");
}

/// A time set by hand stays, also when bytes written before reach the servers after; a write moves it.
pub async fn times<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", WRITE_ONLY).await.expect("create");
    client.write(open, 0, b"content").await.expect("write");
    let old = Wall { seconds: 1_000_000, nanos: 5 };
    let changes = SetAttr { mtime: Some(SetTime::To(old)), ..SetAttr::default() };
    let attr = client.set_attr(open.file, Some(open.handle), changes).await.expect("utimens");
    assert_eq!(attr.mtime, old);
    client.close(open).await.expect("close");
    assert_eq!(client.lookup(dir, b"f").await.expect("lookup").mtime, old);
    let open = client.open(open.file, WRITE_ONLY).await.expect("open");
    client.write(open, 0, b"C").await.expect("write");
    client.close(open).await.expect("close");
    assert_ne!(client.lookup(dir, b"f").await.expect("lookup").mtime, old);
}

/// A size that no file can have is refused by the call that asks for it, and harms nothing.
pub async fn too_long_files<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", READ_WRITE).await.expect("create");
    client.write(open, 0, b"before").await.expect("write");
    for offset in [i64::MAX as u64 - 5, 1 << 62, 1 << 55] {
        assert_eq!(client.write(open, offset, b"beyond").await, Err(Errno::EFBIG), "{offset}");
        assert_eq!(client.set_size(open, offset).await.map(drop), Err(Errno::EFBIG), "{offset}");
        assert_eq!(client.allocate(open, offset, 9, 0).await, Err(Errno::EFBIG), "{offset}");
    }
    assert_eq!(client.fsync(open).await, Ok(()));
    let far = (16 << 40) - (16 << 30) - 4096;
    client.write(open, far, b"in time").await.expect("write");
    assert_eq!(client.fsync(open).await, Ok(()));
    assert_eq!(client.read(open, far, 100).await, Ok(b"in time".to_vec()));
    client.close(open).await.expect("close");
    assert_eq!(client.lookup(dir, b"f").await.expect("lookup").size, far + 7);
    client.unlink(dir, b"f").await.expect("unlink");
}

/// A caller whose groups are told is a member of each, however many there are.
pub async fn groups_of_callers<A: Ask>(client: &Client<A>, dir: FileId) {
    let user = |groups: u32| {
        let (uid, gid, rights) = (1000, 1000, Rights::of_groups(0..groups));
        let caller = Caller { uid, gid, rights, ..Caller::default() };
        Client { ask: &client.ask, frames: client.frames.clone(), caller }
    };
    let shared = SetAttr { mode: Some(0o2770), gid: Some(500), ..SetAttr::default() };
    client.set_attr(dir, None, shared).await.expect("chgrp");
    let member = user(501);
    let open = member.create(dir, b"f", READ_WRITE | EXCLUSIVE).await.expect("create");
    member.close(open).await.expect("close");
    let attr = client.lookup(dir, b"f").await.expect("lookup");
    assert_eq!((attr.uid, attr.gid), (1000, 500));
    let to_another = SetAttr { gid: Some(7), ..SetAttr::default() };
    assert_eq!(member.set_attr(open.file, None, to_another).await.expect("chgrp").gid, 7);
    let to_foreign = SetAttr { gid: Some(501), ..SetAttr::default() };
    assert_eq!(member.set_attr(open.file, None, to_foreign).await, Err(Errno::EPERM));
    assert_eq!(user(500).lookup(dir, b"f").await, Err(Errno::EACCES));
}

/// A handle may do what it was opened for, whatever the mode of the file.
pub async fn modes_of_opening<A: Ask>(client: &Client<A>, dir: FileId) {
    let mut user =
        Client { ask: &client.ask, frames: client.frames.clone(), caller: client.caller.clone() };
    (user.caller.uid, user.caller.gid) = (1000, 1000);
    let open_to_all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    client.set_attr(dir, None, open_to_all).await.expect("chmod");
    let open = user.create(dir, b"f", READ_WRITE | EXCLUSIVE).await.expect("create");
    let nobody = SetAttr { mode: Some(0), ..SetAttr::default() };
    user.set_attr(open.file, None, nobody).await.expect("chmod");
    user.write(open, 0, b"allowed at open").await.expect("write");
    user.set_size(open, 7).await.expect("truncate");
    user.flush(open).await.expect("flush");
    user.write(open, 7, b"!").await.expect("write after another descriptor was closed");
    user.close(open).await.expect("close");
    assert_eq!(user.open(open.file, READ_ONLY).await, Err(Errno::EACCES));
    assert_eq!(user.create(dir, b"f", READ_WRITE | EXCLUSIVE).await, Err(Errno::EEXIST));
    assert_eq!(client.get(dir, b"f").await, Ok(b"allowed!".to_vec()));
    let reader = client.open(open.file, READ_ONLY).await.expect("open");
    assert_eq!(client.write(reader, 0, b"no").await, Err(Errno::EBADF));
    client.close(reader).await.expect("close");
}
