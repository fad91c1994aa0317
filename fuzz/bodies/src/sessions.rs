//! Both protocols of keys and values: any bytes, in pieces of any size, over a table that is soon full.

use endpoint::Frames;
use endpoint::memory::HeapRegion;
use kv::{Items, ItemsConfig, Moment, Out, Progress, Protocol, Session, TenantConfig, TenantNo};

const MEMORY_BYTES: usize = 1 << 20;

fn items() -> (Items, Frames) {
    let frames = Frames::new(HeapRegion::new(MEMORY_BYTES / 4096));
    let tenant =
        TenantConfig { name: "a".into(), min_bytes: 0, max_bytes: MEMORY_BYTES, away_max_bytes: 0 };
    let config = ItemsConfig {
        memory_bytes: MEMORY_BYTES,
        value_bytes_max: MEMORY_BYTES / 4,
        seed: 1,
        tenants: vec![tenant],
    };
    (Items::new(config, frames.clone()).expect("a tenant that fits"), frames)
}

/// One read: into the session's gap, or behind what it kept. How many bytes, and whether it goes on.
fn read(
    session: &mut Session,
    bytes: &[u8],
    items: &mut Items,
    out: &mut Out,
    ms: u64,
) -> Option<usize> {
    let mut input = vec![0; kv::limits::INPUT_BYTES];
    let gap = session.gap();
    let (count, len) = if gap.is_empty() {
        let kept = session.begin_input(&mut input);
        let count = bytes.len().min(input.len() - kept);
        input[kept..kept + count].copy_from_slice(&bytes[..count]);
        (count, kept + count)
    } else {
        let count = bytes.len().min(gap.len());
        gap[..count].copy_from_slice(&bytes[..count]);
        session.filled(count);
        (count, 0)
    };
    let moment = Moment { now_ms: ms, wall_ms: 1_700_000_000_000 + ms };
    let progress = session.run(&input[..len], items, moment, out);
    assert!(session.kept_bytes() < kv::limits::INPUT_BYTES || progress == Progress::Full);
    (progress != Progress::Ended).then_some(count)
}

/// The first byte says how long the pieces are; all memory is free again when everything is gone.
fn talk(protocol: Protocol, bytes: &[u8]) {
    let Some((step, text)) = bytes.split_first() else { return };
    let (mut items, frames) = items();
    let mut session = Session::new(protocol, TenantNo(0), 1);
    let mut out = Out::default();
    let (mut at, mut turns) = (0, 0);
    while at < text.len() {
        let end = text.len().min(at + 1 + usize::from(*step) * 16);
        let piece = &text[at..end];
        let Some(count) = read(&mut session, piece, &mut items, &mut out, turns) else { break };
        at += count;
        turns += 1;
        let waiting = out.len();
        assert_eq!(out.pieces().map(<[u8]>::len).sum::<usize>(), waiting);
        out.written(waiting);
        assert!(items.holds(TenantNo(0)).1 <= MEMORY_BYTES);
    }
    drop((session, out));
    items.flush(TenantNo(0));
    assert_eq!(items.holds(TenantNo(0)), (0, 0));
    assert_eq!(frames.free_pages(), frames.pages());
}

/// memcached's protocols.
pub fn memcached(bytes: &[u8]) {
    talk(Protocol::Memcached, bytes);
}

/// Redis's protocol.
pub fn resp(bytes: &[u8]) {
    talk(Protocol::Resp, bytes);
}
