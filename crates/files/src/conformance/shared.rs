//! Effects of two clients, or two owners of locks, on each other; and survival of a fault.

use super::client::{
    APPEND, Ask, Client, Opened, READ_ONLY, READ_WRITE, WRITE_ONLY, lock, pattern,
};
use node::rings::LockKind;
use std::task::Poll;
use wire::{Errno, FileId};

/// An open sees what the last close left, on another client.
pub async fn close_to_open<A: Ask, B: Ask>(one: &Client<A>, two: &Client<B>, dir: FileId) {
    for round in 0..10u64 {
        let bytes = pattern(round, 0, 1000 + 50_000 * (round as usize % 3));
        if round % 2 == 0 {
            one.put(dir, b"f", &bytes).await.expect("put");
            assert!(two.get(dir, b"f").await.expect("get") == bytes, "round {round}");
        } else {
            two.put(dir, b"f", &bytes).await.expect("put");
            assert!(one.get(dir, b"f").await.expect("get") == bytes, "round {round}");
        }
    }
    let file = one.lookup(dir, b"f").await.expect("lookup").file;
    let open = one.open(file, READ_WRITE).await.expect("open");
    one.write(open, 10, b"in the middle").await.expect("write");
    one.flush(open).await.expect("close of another descriptor");
    let seen = two.get(dir, b"f").await.expect("get");
    assert_eq!(&seen[10..23], b"in the middle");
    one.close(open).await.expect("close");
}

/// While one client writes, the other is told a length that the objects have, and the whole one after the close.
pub async fn length_while_writing<A: Ask, B: Ask>(one: &Client<A>, two: &Client<B>, dir: FileId) {
    let open = one.create(dir, b"f", READ_WRITE).await.expect("create");
    one.write(open, 0, &pattern(5, 0, 300_000)).await.expect("write");
    one.fsync(open).await.expect("fsync");
    let attr = two.lookup(dir, b"f").await.expect("lookup");
    assert_eq!(attr.size, 300_000, "the session is open, and the bytes are at the servers");
    assert!(two.get(dir, b"f").await.expect("get") == pattern(5, 0, 300_000));
    one.write(open, 300_000, &pattern(5, 300_000, 10)).await.expect("write");
    one.close(open).await.expect("close");
    assert_eq!(two.get(dir, b"f").await.expect("get").len(), 300_010);
}

/// Appends from two clients in turns, each closed before the next opens: none is lost.
pub async fn appends_in_turns<A: Ask, B: Ask>(one: &Client<A>, two: &Client<B>, dir: FileId) {
    let mut expected = Vec::new();
    let file = one.put(dir, b"log", b"").await.expect("put");
    for turn in 0..10 {
        let line = format!("turn {turn}\n").into_bytes();
        if turn % 2 == 0 {
            append(one, file, &line).await;
        } else {
            append(two, file, &line).await;
        }
        expected.extend_from_slice(&line);
    }
    assert_eq!(one.get(dir, b"log").await, Ok(expected.clone()));
    assert_eq!(two.get(dir, b"log").await, Ok(expected));
}

async fn append<A: Ask>(client: &Client<A>, file: FileId, line: &[u8]) {
    let open = client.open(file, WRITE_ONLY | APPEND).await.expect("open");
    client.write(open, 0, line).await.expect("write");
    client.close(open).await.expect("close");
}

/// A client that wrote goes on writing after another one truncated the file.
pub async fn truncated_elsewhere<A: Ask, B: Ask>(one: &Client<A>, two: &Client<B>, dir: FileId) {
    let open = one.create(dir, b"f", READ_WRITE).await.expect("create");
    one.write(open, 0, &pattern(1, 0, 100_000)).await.expect("write");
    one.flush(open).await.expect("flush");
    let other = two.open(open.file, READ_WRITE).await.expect("open");
    assert_eq!(two.set_size(other, 50).await.expect("truncate").size, 50);
    two.close(other).await.expect("close");
    one.write(open, 200, b"after").await.expect("write with the old generation");
    one.close(open).await.expect("close");
    let mut expected = pattern(1, 0, 50);
    expected.resize(200, 0);
    expected.extend_from_slice(b"after");
    assert_eq!(two.get(dir, b"f").await, Ok(expected.clone()));
    assert_eq!(one.get(dir, b"f").await, Ok(expected));
}

/// A reader keeps its file when the other client renames another over it.
pub async fn replaced_elsewhere<A: Ask, B: Ask>(one: &Client<A>, two: &Client<B>, dir: FileId) {
    let old = one.put(dir, b"f", b"old").await.expect("put");
    let open = one.open(old, READ_ONLY).await.expect("open");
    two.put(dir, b"g", b"new").await.expect("put");
    two.rename((dir, b"g"), (dir, b"f"), 0).await.expect("rename");
    assert_eq!(one.read(open, 0, 10).await, Ok(b"old".to_vec()));
    one.close(open).await.expect("close");
    assert_eq!(one.get(dir, b"f").await, Ok(b"new".to_vec()));
}

/// Locks of two owners on one client.
pub async fn locks_of_two_owners<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", READ_WRITE).await.expect("create");
    let write = lock(LockKind::Write, 10, 19);
    client.set_lock(open, 1, write, false, false).await.expect("lock");
    assert_eq!(client.set_lock(open, 2, write, false, false).await, Err(Errno::EAGAIN));
    client.set_lock(open, 2, lock(LockKind::Write, 20, 29), false, false).await.expect("beside");
    client.set_lock(open, 1, write, false, false).await.expect("again, by the owner");
    let blocking = client.get_lock(open, 2, lock(LockKind::Read, 0, 15)).await.expect("get");
    assert_eq!((blocking.kind, blocking.start, blocking.end), (LockKind::Write, 10, 19));
    client.set_lock(open, 1, lock(LockKind::Read, 10, 19), false, false).await.expect("downgrade");
    client.set_lock(open, 2, lock(LockKind::Read, 10, 19), false, false).await.expect("share");
    client.flush_as(open, 1).await.expect("a close gives the owner's locks back");
    client.set_lock(open, 2, write, false, false).await.expect("alone");
    client.flush_as(open, 2).await.expect("close");
    client.close(open).await.expect("close");
}

/// A lock that is waited for comes when the other owner gives it back.
pub async fn a_waiting_lock<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", READ_WRITE).await.expect("create");
    let all = lock(LockKind::Write, 0, u64::MAX);
    client.set_lock(open, 1, all, false, true).await.expect("lock");
    let waiting = client.set_lock(open, 2, all, true, true);
    let unlock = lock(LockKind::Unlock, 0, u64::MAX);
    let (waited, unlocked) = both(waiting, client.set_lock(open, 1, unlock, false, true)).await;
    assert_eq!((waited, unlocked), (Ok(()), Ok(())));
    assert_eq!(client.set_lock(open, 1, all, false, true).await, Err(Errno::EAGAIN));
    client.set_lock(open, 2, unlock, false, true).await.expect("unlock");
    // flock(2): who waits to make it another gives up the one it has, so that two who do cannot wait for each other.
    let converts = async |owner| {
        client.set_lock(open, owner, all, true, true).await?;
        client.set_lock(open, owner, unlock, false, true).await
    };
    for owner in [1, 2] {
        let read = lock(LockKind::Read, 0, u64::MAX);
        client.set_lock(open, owner, read, false, true).await.expect("lock");
    }
    assert_eq!(both(converts(1), converts(2)).await, (Ok(()), Ok(())));
    client.close(open).await.expect("close");
}

/// A lock of the open file itself, whose owner no release names, goes with the last descriptor of it and not before.
pub async fn locks_of_open_files<A: Ask>(client: &Client<A>, dir: FileId) {
    let first = client.create(dir, b"f", READ_WRITE).await.expect("create");
    let second = client.open(first.file, READ_WRITE).await.expect("open");
    let all = lock(LockKind::Write, 0, u64::MAX);
    let (of_first, process) = (100, 7);
    client.set_lock(first, of_first, all, false, false).await.expect("lock");
    client.flush_as(first, process).await.expect("flush");
    assert_eq!(client.set_lock(second, process, all, false, false).await, Err(Errno::EAGAIN));
    client.close(first).await.expect("close");
    client.set_lock(second, process, all, false, false).await.expect("lock");
    // A lock that a process took through a handle that is closed later is its own until it closes the file.
    let third = client.open(first.file, READ_WRITE).await.expect("open");
    client.close(third).await.expect("close");
    assert_eq!(client.set_lock(second, 9, all, false, false).await, Err(Errno::EAGAIN));
    client.close(second).await.expect("close");
}

/// Many locks wait at once, of which none is refused, and each gets its turn.
pub async fn many_waiting_locks<A: Ask>(client: &Client<A>, dir: FileId) {
    let open = client.create(dir, b"f", READ_WRITE).await.expect("create");
    let (all, unlock) = (lock(LockKind::Write, 0, u64::MAX), lock(LockKind::Unlock, 0, u64::MAX));
    client.set_lock(open, 0, all, false, false).await.expect("lock");
    let turn = async |owner| {
        client.set_lock(open, owner, all, true, false).await.expect("wait");
        client.set_lock(open, owner, unlock, false, false).await.expect("unlock");
    };
    let mut waiting: Vec<_> = (1..=2000).map(|owner| Box::pin(turn(owner))).collect();
    let mut freed = Box::pin(client.set_lock(open, 0, unlock, false, false));
    let mut is_freed = false;
    std::future::poll_fn(|context| {
        waiting.retain_mut(|turn| turn.as_mut().poll(context).is_pending());
        is_freed = is_freed || freed.as_mut().poll(context).is_ready();
        if is_freed && waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    client.close(open).await.expect("close");
}

/// Locks hold between clients, of both kinds.
pub async fn locks_of_two_clients<A: Ask, B: Ask>(one: &Client<A>, two: &Client<B>, dir: FileId) {
    let file = one.put(dir, b"f", b"").await.expect("put");
    let (first, second) = (open(one, file).await, open(two, file).await);
    let all = lock(LockKind::Write, 0, u64::MAX);
    for whole_file in [false, true] {
        one.set_lock(first, 7, all, false, whole_file).await.expect("lock");
        let refused = two.set_lock(second, 7, all, false, whole_file).await;
        assert_eq!(refused, Err(Errno::EAGAIN), "the same owner number is another owner there");
        let unlock = lock(LockKind::Unlock, 0, u64::MAX);
        one.set_lock(first, 7, unlock, false, whole_file).await.expect("unlock");
        two.set_lock(second, 7, all, false, whole_file).await.expect("lock");
        two.set_lock(second, 7, unlock, false, whole_file).await.expect("unlock");
    }
    one.close(first).await.expect("close");
    two.close(second).await.expect("close");
}

async fn open<A: Ask>(client: &Client<A>, file: FileId) -> Opened {
    client.open(file, READ_WRITE).await.expect("open")
}

/// Bytes that fsync acknowledged are there after `fault` took a server down and up again; so are those that close
/// acknowledged, as long as this client runs.
pub async fn acknowledged_bytes_survive<A: Ask>(
    client: &Client<A>,
    dir: FileId,
    fault: impl AsyncFn(),
) {
    let synced = client.create(dir, b"synced", READ_WRITE).await.expect("create");
    client.write(synced, 0, &pattern(1, 0, 400_000)).await.expect("write");
    client.fsync(synced).await.expect("fsync");
    client.fsync_directory(dir).await.expect("fsync");
    client.put(dir, b"closed", &pattern(2, 0, 300_000)).await.expect("put");
    let unsent = client.create(dir, b"unsent", READ_WRITE).await.expect("create");
    client.write(unsent, 0, &pattern(3, 0, 200_000)).await.expect("write");
    fault().await;
    assert!(client.read(synced, 0, 1 << 20).await.expect("read") == pattern(1, 0, 400_000));
    assert!(client.get(dir, b"closed").await.expect("get") == pattern(2, 0, 300_000));
    client.fsync(unsent).await.expect("fsync goes on");
    client.close(unsent).await.expect("close");
    client.close(synced).await.expect("close");
    let file = client.lookup(dir, b"closed").await.expect("lookup").file;
    let closed = open(client, file).await;
    client.fsync(closed).await.expect("retransmitted and committed");
    fault().await;
    assert!(client.read(closed, 0, 1 << 20).await.expect("read") == pattern(2, 0, 300_000));
    client.close(closed).await.expect("close");
    assert!(client.get(dir, b"unsent").await.expect("get") == pattern(3, 0, 200_000));
}

/// Both outputs of two futures that run side by side.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut from_a, mut from_b) = (None, None);
    std::future::poll_fn(|cx| {
        if from_a.is_none()
            && let std::task::Poll::Ready(value) = a.as_mut().poll(cx)
        {
            from_a = Some(value);
        }
        if from_b.is_none()
            && let std::task::Poll::Ready(value) = b.as_mut().poll(cx)
        {
            from_b = Some(value);
        }
        match (from_a.is_some(), from_b.is_some()) {
            (true, true) => std::task::Poll::Ready(()),
            _ => std::task::Poll::Pending,
        }
    })
    .await;
    (from_a.expect("ready"), from_b.expect("ready"))
}
