//! Records over streams that come in any pieces.

use endpoint::limits::PAGE_BYTES;
use endpoint::{Frame, Frames, HeapRegion};
use nfs::limits::{CALL_HEAD_BYTES_MAX, FRAGMENTS_MAX, IO_BYTES_MAX, STAGING_BYTES};
use nfs::record::{Outgoing, Plan, Progress, Reader, Record, RecordError, Writer, begin};
use proptest::prelude::*;

const TAG: u8 = 0xd0;

/// Heads of the test: a byte that says whether there is data, one with the bytes of head in words, two more, a length.
fn plan(head: &[u8]) -> Plan {
    match head {
        [TAG, words, _, _, length @ ..] if length.len() >= 4 => {
            let head_bytes = usize::from(*words) * 4;
            let data_bytes = u32::from_be_bytes(length[..4].try_into().unwrap()) as usize;
            if head.len() < head_bytes { Plan::More } else { Plan::Data { head_bytes, data_bytes } }
        }
        [TAG, ..] | [] => Plan::More,
        _ => Plan::Head,
    }
}

fn with_data(words: u8, data: &[u8]) -> Vec<u8> {
    let mut record = vec![TAG, words, 0, 0];
    record.extend((data.len() as u32).to_be_bytes());
    record.resize(usize::from(words) * 4, 7);
    record.extend(data);
    record.resize(record.len().next_multiple_of(4), 0);
    record
}

fn framed(record: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = record;
    for cut in cuts {
        let (now, later) = rest.split_at((*cut).min(rest.len()));
        out.extend((now.len() as u32).to_be_bytes());
        out.extend(now);
        rest = later;
    }
    out.extend((rest.len() as u32 | 1 << 31).to_be_bytes());
    out.extend(rest);
    out
}

/// Pours bytes into a reader, at most `step` at a time, and counts what it had to copy of them.
fn pour(reader: &mut Reader, frames: &Frames, bytes: &mut &[u8], step: usize) -> usize {
    let mut taken = 0;
    for mut slice in reader.slices(frames) {
        let part = slice.len().min(bytes.len()).min(step - taken);
        slice[..part].copy_from_slice(&bytes[..part]);
        *bytes = &bytes[part..];
        taken += part;
    }
    reader.filled(taken);
    taken
}

fn read_all(
    reader: &mut Reader,
    frames: &Frames,
    stream: &[u8],
    steps: &[usize],
) -> Result<Vec<Record>, RecordError> {
    let (mut rest, mut records) = (stream, Vec::new());
    let mut steps = steps.iter().copied().cycle();
    loop {
        match reader.poll(frames, &mut plan)? {
            Progress::Record(record) => records.push(record),
            Progress::Bytes if rest.is_empty() => return Ok(records),
            Progress::Bytes => {
                assert!(pour(reader, frames, &mut rest, steps.next().unwrap()) > 0);
            }
            Progress::Frames => panic!("the pool is large enough"),
        }
    }
}

fn bytes_of(frames: &[Frame]) -> Vec<u8> {
    frames.iter().flat_map(|frame| frame.to_vec()).collect()
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

#[test]
fn the_data_of_like_records_comes_with_one_read_each_where_it_stays() {
    let frames = Frames::new(HeapRegion::new(1024));
    let mut reader = Reader::new(CALL_HEAD_BYTES_MAX);
    let data = pattern(64 * 1024, 1);
    let stream = framed(&with_data(30, &data), &[]);
    read_all(&mut reader, &frames, &stream, &[usize::MAX]).unwrap();
    for _ in 0..3 {
        let mut rest = &stream[..];
        assert_eq!(pour(&mut reader, &frames, &mut rest, usize::MAX), stream.len());
        let Ok(Progress::Record(record)) = reader.poll(&frames, &mut plan) else { panic!() };
        assert_eq!(record.data.len(), 1);
        assert_eq!(record.data[0].offset() % PAGE_BYTES, 0);
        assert!(record.data[0][..] == data);
        assert!(reader.is_at_rest());
    }
}

#[test]
fn many_small_calls_come_with_one_read() {
    let frames = Frames::new(HeapRegion::new(16));
    let mut reader = Reader::new(CALL_HEAD_BYTES_MAX);
    let stream = framed(&[1; 100], &[]).repeat(50);
    let mut rest = &stream[..];
    pour(&mut reader, &frames, &mut rest, usize::MAX);
    assert!(rest.is_empty());
    let records = read_all(&mut reader, &frames, &[], &[1]).unwrap();
    assert_eq!(records.len(), 50);
    assert!(records.iter().all(|record| record.head == [1; 100]));
}

#[test]
fn without_frames_the_reader_waits_and_goes_on() {
    let frames = Frames::new(HeapRegion::new(20));
    let all = frames.alloc(16 * PAGE_BYTES).unwrap();
    let mut reader = Reader::new(CALL_HEAD_BYTES_MAX);
    let data = pattern(8 * PAGE_BYTES, 3);
    let stream = framed(&with_data(4, &data), &[]);
    let mut rest = &stream[..];
    pour(&mut reader, &frames, &mut rest, 1000);
    for _ in 0..3 {
        assert!(matches!(reader.poll(&frames, &mut plan), Ok(Progress::Frames)));
        assert_eq!(reader.slices(&frames).count(), 0);
        reader.filled(0);
    }
    drop(all);
    let records = read_all(&mut reader, &frames, rest, &[usize::MAX]).unwrap();
    assert_eq!(bytes_of(&records[0].data), data);
}

#[test]
fn what_is_too_long_ends_the_stream_before_it_takes_memory() {
    let frames = Frames::new(HeapRegion::new(512));
    let read = |stream: &[u8]| {
        let mut reader = Reader::new(CALL_HEAD_BYTES_MAX);
        let outcome = read_all(&mut reader, &frames, stream, &[usize::MAX]);
        assert!(reader.memory_bytes() <= 2 * (STAGING_BYTES + CALL_HEAD_BYTES_MAX));
        outcome.map(|records| records.len())
    };
    let endless = [&(u32::MAX).to_be_bytes()[..], &[1; 100_000]].concat();
    assert_eq!(read(&endless), Err(RecordError::HeadTooLong(CALL_HEAD_BYTES_MAX)));
    let mut long = framed(&with_data(4, &[]), &[]);
    long[8..12].copy_from_slice(&(IO_BYTES_MAX as u32 + 1).to_be_bytes());
    assert_eq!(read(&long), Err(RecordError::DataTooLong(IO_BYTES_MAX + 1)));
    let mut wrong = framed(&with_data(4, &[1; 100]), &[]);
    wrong[8..12].copy_from_slice(&99u32.to_be_bytes());
    assert_eq!(read(&wrong), Ok(1));
    wrong[8..12].copy_from_slice(&90u32.to_be_bytes());
    assert_eq!(read(&wrong), Err(RecordError::WrongLength));
    let empty = [0; 4].repeat(FRAGMENTS_MAX as usize + 1);
    assert_eq!(read(&empty), Err(RecordError::Fragments));
}

#[test]
fn an_idle_stream_has_no_memory_once_it_is_released() {
    let frames = Frames::new(HeapRegion::new(512));
    let mut reader = Reader::new(CALL_HEAD_BYTES_MAX);
    let stream = framed(&with_data(4, &pattern(100_000, 1)), &[]);
    read_all(&mut reader, &frames, &stream, &[usize::MAX]).unwrap();
    reader.release();
    assert_eq!(reader.memory_bytes(), 0);
    assert_eq!(frames.free_pages(), 512);
    assert_eq!(read_all(&mut reader, &frames, &stream, &[7000]).unwrap().len(), 1);
}

#[test]
fn a_reply_is_head_frames_and_padding() {
    let frames = Frames::new(HeapRegion::new(16));
    let data = frames.copy_of(&pattern(5000, 9)).unwrap();
    let mut head = begin(8);
    head.extend(b"headhead");
    let reply = Outgoing::with_data(head, vec![data.slice(0..4096), data.slice(4096..5000)], 4999);
    assert_eq!(reply.bytes(), 4 + 8 + 5000);
    assert_eq!(reply.head(), b"headhead");
    let mut writer = Writer::default();
    writer.push(reply);
    let written: Vec<u8> = writer.slices().flat_map(|slice| slice.to_vec()).collect();
    assert_eq!(written[..4], (5008u32 | 1 << 31).to_be_bytes());
    assert_eq!(written[12..5011], data[..4999]);
    assert_eq!(written[5011..], [0]);
    writer.wrote(5012);
    assert_eq!((writer.bytes(), writer.slices().count()), (0, 0));
}

fn records() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<usize>)>> {
    let cuts = prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(0usize..5000, 1..4)];
    let head = prop::collection::vec(Just(1u8), 0..300);
    let data = (2u8..60, prop_oneof![0usize..40, 4000usize..9000, Just(65536)], any::<u8>());
    let data = data.prop_map(|(words, bytes, seed)| with_data(words, &pattern(bytes, seed)));
    let record = (prop_oneof![head, data], cuts);
    let like = (record, 1usize..4).prop_map(|(record, times)| vec![record; times]);
    prop::collection::vec(like, 1..5).prop_map(|all| all.concat())
}

proptest! {
    /// Any pieces and fragments: the records come out whole, the data page-aligned, all frames come back.
    #[test]
    fn records_come_out_as_they_went_in(
        records in records(),
        steps in prop::collection::vec(prop_oneof![1usize..20, 100usize..9000, Just(usize::MAX)], 1..6),
    ) {
        let frames = Frames::new(HeapRegion::new(2048));
        let mut reader = Reader::new(CALL_HEAD_BYTES_MAX);
        let stream: Vec<u8> = records.iter().flat_map(|(record, cuts)| framed(record, cuts)).collect();
        let found = read_all(&mut reader, &frames, &stream, &steps).unwrap();
        prop_assert_eq!(found.len(), records.len());
        for (found, (wanted, _)) in found.iter().zip(&records) {
            let data = bytes_of(&found.data);
            prop_assert!(found.data.iter().all(|frame| frame.offset() % PAGE_BYTES == 0));
            let whole: Vec<u8> = found.head.iter().chain(&data).copied().collect();
            prop_assert!(wanted.starts_with(&whole));
            prop_assert!(wanted.len() - whole.len() < 4);
            prop_assert_eq!(found.data_bytes(), data.len());
        }
        prop_assert!(reader.is_at_rest());
        prop_assert!(reader.memory_bytes() < STAGING_BYTES + 2 * IO_BYTES_MAX);
        drop((found, reader));
        prop_assert_eq!(frames.free_pages(), 2048);
    }

    #[test]
    fn garbage_takes_bounded_memory(bytes in prop::collection::vec(any::<u8>(), 0..2000), step in 1usize..600) {
        let frames = Frames::new(HeapRegion::new(512));
        let mut reader = Reader::new(CALL_HEAD_BYTES_MAX);
        let _ = read_all(&mut reader, &frames, &bytes, &[step]);
        prop_assert!(reader.memory_bytes() <= 2 * (STAGING_BYTES + CALL_HEAD_BYTES_MAX));
    }

    #[test]
    fn what_is_written_in_any_pieces_is_what_was_pushed(
        all in prop::collection::vec((0usize..50, 0usize..9000), 0..6),
        steps in prop::collection::vec(1usize..4000, 1..5),
    ) {
        let frames = Frames::new(HeapRegion::new(64));
        let (mut writer, mut wanted) = (Writer::default(), Vec::new());
        for (head_bytes, data_bytes) in all {
            let (head, data) = (pattern(head_bytes * 4, 1), pattern(data_bytes, 2));
            let mut begun = begin(0);
            begun.extend(&head);
            let pieces = frames.copy_of(&data).filter(|_| !data.is_empty()).into_iter().collect();
            writer.push(Outgoing::with_data(begun, pieces, data.len()));
            wanted.extend(framed(&[&head[..], &data, &vec![0; nfs::xdr::padding(data.len())]].concat(), &[]));
        }
        let (mut written, mut steps) = (Vec::<u8>::new(), steps.into_iter().cycle());
        while writer.bytes() > 0 {
            let step = steps.next().unwrap().min(writer.bytes());
            let next: Vec<u8> = writer.slices().flat_map(|slice| slice.to_vec()).take(step).collect();
            written.extend(&next);
            writer.wrote(next.len());
        }
        prop_assert!(written == wanted);
        prop_assert_eq!(frames.free_pages(), 64);
    }
}
