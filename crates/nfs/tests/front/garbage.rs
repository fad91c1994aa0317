//! Damaged calls.

use super::*;

/// A stream of calls, some of them damaged.
fn streams() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let flip = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    let call = (0usize..3, 0u32..24, prop::collection::vec(any::<u8>(), 0..60), flip);
    prop::collection::vec(call, 1..40).prop_map(|calls| {
        let record = |(at, (which, procedure, tail, flip)): (usize, _)| {
            let (procedure, tail): (u32, Vec<u8>) = (procedure, tail);
            let flip: Option<(prop::sample::Index, u8)> = flip;
            let handle = nfs::handle::Named {
                volume: VolumeId(4),
                file: FileId::ROOT,
                generation: 0,
                export: exports::parse("/ *(rw)").unwrap().iter().next().unwrap().number(),
            };
            let mut arguments = encoded(&Handle(&handle.encode(&Key([3; 16]))));
            arguments.extend(tail);
            let program = [PROGRAM, mount::PROGRAM, PROGRAM][which];
            let (xid, credential) = (at as u32, Credential::None);
            let call =
                Call { xid, program, version: 3, procedure, credential, arguments: &arguments };
            let mut bytes = vec![0; 4];
            call.put(&mut bytes);
            let mark = (bytes.len() - 4) as u32 | 1 << 31;
            bytes[..4].copy_from_slice(&mark.to_be_bytes());
            if let Some((place, value)) = flip {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            (which, bytes)
        };
        calls.into_iter().enumerate().map(record).collect()
    })
}

proptest! {
    /// Any bytes from clients: no panic, every frame and every open file comes back.
    #[test]
    fn damaged_calls_of_three_clients_take_nothing_for_good(calls in streams(), step in 1usize..200) {
        let mut world = World::new("/ *(rw)", 600);
        let mut ids = [0u8, 1, 2].map(|client| world.connect(client));
        for (which, bytes) in calls {
            if world.send(ids[which], &bytes, step).is_err() {
                world.front.disconnect(ids[which]);
                ids[which] = world.connect(which as u8);
            }
            world.run();
            world.read(ids[which]);
        }
        for id in ids {
            world.front.disconnect(id);
        }
        world.front.close_files();
        world.run();
        prop_assert!(world.front.is_quiet());
        prop_assert_eq!(world.memory.open_handles(), 0);
        prop_assert_eq!(world.frames.free_pages(), 600);
    }
}
