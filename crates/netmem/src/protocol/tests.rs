use super::*;
use crate::directory::{Holder, Role};
use crate::epoch::{Digest, Epoch, Share};
use crate::limits::EXTENT_PAGES;
use crate::page::{SpaceId, Wanted};
use proptest::prelude::*;
use std::time::Duration;
use wire::Encoder;

/// A message decodes to what was encoded, and every truncation that matters is refused.
fn survives<M: Message + PartialEq + std::fmt::Debug>(message: &M) {
    let mut bytes = [0; 128];
    let mut out = Encoder::new(&mut bytes);
    message.put(&mut out);
    let len = out.len();
    assert!(len <= BODY_BYTES, "{len} bytes: {message:?}");
    assert_eq!(M::decode(&bytes[..len]).as_ref(), Ok(message));
    assert_eq!(M::decode(&message.encode()).as_ref(), Ok(message));
    assert!((0..len).all(|cut| M::decode(&bytes[..cut]).is_err()), "{message:?}");
}

fn page() -> impl Strategy<Value = PageId> {
    any::<(u64, u64)>().prop_map(|(space, index)| PageId { space: SpaceId(space), index })
}

fn version() -> impl Strategy<Value = Version> {
    any::<u64>().prop_map(Version)
}

fn node() -> impl Strategy<Value = NodeId> {
    any::<u16>().prop_map(NodeId)
}

fn some_node() -> impl Strategy<Value = Option<NodeId>> {
    prop::option::of((1..=u16::MAX).prop_map(NodeId))
}

fn stale() -> impl Strategy<Value = Stale> {
    (node(), any::<u64>(), version()).prop_map(|(node, incarnation, version)| Stale {
        node,
        incarnation,
        version,
    })
}

fn stamp() -> impl Strategy<Value = PageStamp> {
    (page(), version(), any::<(u32, u32)>())
        .prop_map(|(id, version, (bytes, checksum))| PageStamp { id, version, bytes, checksum })
}

fn get() -> impl Strategy<Value = Get> {
    let rest = (node(), any::<u8>(), any::<bool>(), prop::option::of(stale()));
    (page(), version(), any::<u32>(), rest).prop_map(
        |(id, at_least, bytes, (requester, hops, forwarded, stale))| Get {
            id,
            at_least,
            bytes,
            requester,
            hops,
            forwarded,
            stale,
        },
    )
}

fn get_reply() -> impl Strategy<Value = GetReply> {
    let data = (stamp(), node(), any::<[bool; 4]>()).prop_map(|(stamp, node, flags)| {
        let [kept, leased, clean, swapped] = flags;
        GetReply::Data(Data { stamp, node, kept, leased, clean, swapped })
    });
    prop_oneof![
        data,
        (stale(), some_node()).prop_map(|(stale, hint)| GetReply::NotHere { stale, hint }),
        (stale(), some_node()).prop_map(|(stale, hint)| GetReply::Older { stale, hint }),
        version().prop_map(GetReply::Lost),
        any::<bool>().prop_map(|settled| GetReply::Unknown { settled }),
        Just(GetReply::Freed),
        any::<u64>().prop_map(GetReply::NotHome),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let role = prop_oneof![Just(Role::Clean), Just(Role::Mirror)];
    let holder = (node(), any::<u64>(), role).prop_map(|(node, incarnation, role)| Holder {
        node,
        incarnation,
        role,
    });
    (page(), version(), holder, any::<(u8, bool, bool)>()).prop_map(
        |(id, version, holder, (copies, lost, writer))| Record {
            id,
            version,
            holder,
            copies,
            lost,
            writer,
        },
    )
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Done),
        version().prop_map(Verdict::Stale),
        Just(Verdict::Outlived),
        Just(Verdict::Enough),
        Just(Verdict::Full),
        Just(Verdict::Freed),
        Just(Verdict::NotHome),
        Just(Verdict::Later),
    ]
}

fn digest() -> impl Strategy<Value = Digest> {
    let ages = prop::collection::vec((any::<u64>(), 1u32..1000), 0..9);
    let rest = any::<(u16, u32, u32, u32, u64, u32, u32)>();
    (ages.clone(), ages, rest).prop_map(|(local, hosted, rest)| {
        let (node, capacity, local_min, free, oldest, millis, link_pages) = rest;
        let mut digest = Digest {
            node: NodeId(node),
            capacity,
            local_min,
            free,
            oldest: Age(oldest),
            member_for: Duration::from_millis(millis.into()),
            link_pages,
            ..Digest::default()
        };
        local.iter().for_each(|(age, frames)| digest.local.add(Age(*age), *frames));
        hosted.iter().for_each(|(age, frames)| digest.hosted.add(Age(*age), *frames));
        digest
    })
}

proptest! {
    #[test]
    fn gets_survive_the_wire(get in get(), reply in get_reply()) {
        survives(&get);
        survives(&reply);
    }

    #[test]
    fn puts_survive_the_wire(
        stamp in stamp(),
        (incarnation, age) in (0..u64::MAX, 0..u64::MAX),
        chances: u8,
        reused: bool,
        copies: u8,
        id in node(),
        no in prop::sample::select(&No::ALL[..]),
    ) {
        survives(&Put { stamp, incarnation, age: Age(age), chances, copies, reused, view: age });
        survives(&PutReply { stored: Ok(id), oldest: Age(age) });
        survives(&PutReply { stored: Err(no), oldest: Age(age) });
    }

    #[test]
    fn the_rest_survives_the_wire(
        id in page(),
        version in version(),
        number: u64,
        incarnation: u64,
        wanted: u16,
        bytes: u32,
        ahead: bool,
        avoid: [u16; AVOID_MAX],
        verdict in verdict(),
        node in node(),
    ) {
        let avoid = avoid.map(NodeId);
        survives(&GetMulti { first: id, wanted, at_least: version, bytes, ahead });
        survives(&MultiReply { here: wanted });
        let page = Wanted { id, at_least: version, bytes };
        let part = (bytes / 3) as usize..(bytes / 2) as usize;
        let part = GetPart::new(page, &part);
        prop_assert_eq!(part.is_none(), bytes / 3 == bytes / 2);
        part.iter().for_each(survives);
        prop_assert_eq!(GetPart::new(page, &(1..bytes as usize + 1)), None);
        survives(&MirrorAgain { id, version, copies: 2, avoid });
        survives(&Lease { id, view: number, incarnation });
        survives(&Tick { epoch: bytes });
        survives(&verdict);
        let replies = [LeaseReply::Busy, LeaseReply::Freed, LeaseReply::Full];
        replies.iter().for_each(survives);
        survives(&LeaseReply::Granted(version));
        survives(&LeaseReply::NotHome(number));
        let said = [Holding::Unknown, Holding::Nowhere, Holding::Held(version, node), Holding::Lost(version)];
        said.iter().for_each(survives);
    }

    #[test]
    fn a_look_up_stays_in_its_extent(id in page(), pages: u8) {
        let body = LookUp { first: id, pages }.encode();
        let legal = pages > 0 && id.index % EXTENT_PAGES + u64::from(pages) <= EXTENT_PAGES;
        prop_assert_eq!(LookUp::decode(&body).is_ok(), legal);
    }

    /// One record travels in the body, several as data; a message that ends too early has none.
    #[test]
    fn batches_survive_the_wire(
        view: u64,
        records in prop::collection::vec(record(), 0..20),
        last: bool,
    ) {
        let batch = Batch::of(view, &records, last);
        survives(&batch);
        let mut data = vec![0; batch.data_bytes()];
        if batch.single.is_none() {
            Batch::encode_data(&records, &mut data);
        }
        let read: Vec<Record> = Batch::decode(&batch.encode()).unwrap().records(&data).unwrap().collect();
        prop_assert_eq!(read, records);
        prop_assert!(data.is_empty() || batch.records(&data[1..]).is_err());
    }

    #[test]
    fn who_was_asked_survives_the_wire(node: u16, incarnation: u64, machine: u64) {
        survives(&Stayed { node: NodeId(node), incarnation, machine });
    }

    #[test]
    fn freed_spaces_survive_the_wire(numbers in prop::collection::vec(any::<u64>(), 0..30)) {
        let spaces: Vec<SpaceId> = numbers.into_iter().map(SpaceId).collect();
        let message = Spaces::decode(&Spaces::of(&spaces).encode()).unwrap();
        let mut data = vec![0; message.data_bytes()];
        if !data.is_empty() {
            Spaces::encode_data(&spaces, &mut data);
        }
        prop_assert_eq!(message.spaces(&data).unwrap().collect::<Vec<_>>(), spaces);
        prop_assert!(data.is_empty() || message.spaces(&data[1..]).is_err());
    }

    #[test]
    fn digests_survive_the_wire(digest in digest()) {
        let mut bytes = [0; DIGEST_BYTES];
        let mut out = Encoder::new(&mut bytes);
        encode_digest(&digest, &mut out);
        prop_assert_eq!(out.len(), DIGEST_BYTES);
        prop_assert_eq!(decode_digest(&mut Decoder::new(&bytes)), Ok(digest));
        prop_assert!((0..DIGEST_BYTES).all(|cut| decode_digest(&mut Decoder::new(&bytes[..cut])).is_err()));
    }

    #[test]
    fn epochs_survive_the_wire(
        nodes in prop::collection::btree_map(any::<u16>(), any::<(u32, u64)>(), 0..20),
        (number, min_age, replacements, next) in any::<(u32, u64, u32, u16)>(),
    ) {
        let share = |(node, (weight, oldest))| Share { node: NodeId(node), weight, oldest: Age(oldest) };
        let shares: Vec<Share> = nodes.into_iter().map(share).collect();
        let mut epoch = Epoch { number, min_age: Age(min_age), replacements, next: NodeId(next), shares };
        let bytes = encode_epoch(&epoch);
        let read = decode_epoch(&mut Decoder::new(&bytes));
        prop_assert_eq!(read.as_ref(), Ok(&epoch));
        prop_assert!((0..bytes.len()).all(|cut| decode_epoch(&mut Decoder::new(&bytes[..cut])).is_err()));
        epoch.shares.reverse();
        let unordered = decode_epoch(&mut Decoder::new(&encode_epoch(&epoch)));
        prop_assert_eq!(unordered.is_err(), epoch.shares.len() > 1);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = (Get::decode(&bytes), GetReply::decode(&bytes), Put::decode(&bytes), PutReply::decode(&bytes));
        let _ = (LookUp::decode(&bytes), GetMulti::decode(&bytes), GetPart::decode(&bytes), Verdict::decode(&bytes));
        let _ = (Lease::decode(&bytes), LeaseReply::decode(&bytes), MirrorAgain::decode(&bytes));
        let _ = (decode_digest(&mut Decoder::new(&bytes)), decode_epoch(&mut Decoder::new(&bytes)));
        if let Ok(batch) = Batch::decode(&bytes) {
            let count = batch.records(&bytes).map_or(0, |records| records.count());
            prop_assert!(count <= RECORDS_MAX);
        }
        if let Ok(spaces) = Spaces::decode(&bytes) {
            let _ = spaces.spaces(&bytes).map(|spaces| spaces.count());
        }
    }
}
