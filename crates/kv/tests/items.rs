//! The bounded table: what stays, what leaves, and whose memory it is.

use crate::talk::{Client, Server, pattern, tenant};
use endpoint::Frames;
use endpoint::memory::HeapRegion;
use kv::{
    BadTenants, Content, Expiry, Items, ItemsConfig, Moment, Out, Placed, Protocol, TenantConfig,
    TenantNo,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const A: TenantNo = TenantNo(0);
const B: TenantNo = TenantNo(1);
const NOW: Moment = Moment { now_ms: 1_000, wall_ms: crate::talk::WALL_MS };

fn items(memory_bytes: usize, tenants: Vec<TenantConfig>) -> Result<Items, BadTenants> {
    let frames = Frames::new(HeapRegion::new((memory_bytes / 4096).max(1)));
    let config = ItemsConfig { memory_bytes, value_bytes_max: memory_bytes, seed: 1, tenants };
    Items::new(config, frames)
}

fn bounds(name: &str, min_bytes: usize, max_bytes: usize) -> TenantConfig {
    TenantConfig { name: name.into(), min_bytes, max_bytes, away_max_bytes: usize::MAX }
}

fn put(items: &mut Items, tenant: TenantNo, key: &str, value: &[u8]) -> bool {
    let placed = Placed { flags: 0, expiry: Expiry::NEVER, cas: None };
    items.store(tenant, key.as_bytes(), Content::Bytes(value), placed, NOW).is_ok()
}

fn get(items: &mut Items, tenant: TenantNo, key: &str) -> Option<Vec<u8>> {
    let found = items.read(tenant, key.as_bytes(), NOW)?;
    Some(items.value(found).flatten().copied().collect())
}

#[test]
fn memory_is_bounded_and_what_is_used_stays() {
    let mut items = items(4 << 20, vec![tenant("a")]).unwrap();
    let value = pattern(8192);
    put(&mut items, A, "used", &value);
    for number in 0..5_000 {
        assert!(put(&mut items, A, &format!("key-{number}"), &value));
        assert!(items.holds(A).1 <= 4 << 20);
        assert_eq!(get(&mut items, A, "used").as_deref(), Some(&value[..]), "after {number}");
    }
    assert!(items.holds(A).0 > 450, "{} of 512", items.holds(A).0);
    assert_eq!(get(&mut items, A, "key-4999"), Some(value));
    assert_eq!(get(&mut items, A, "key-1000"), None);
}

#[test]
fn small_items_make_room_for_large_ones_and_the_other_way_round() {
    let mut items = items(4 << 20, vec![tenant("a")]).unwrap();
    for round in 0..3 {
        for number in 0..20_000 {
            assert!(put(&mut items, A, &format!("small-{number}"), &[round; 100]), "{number}");
        }
        assert!(put(&mut items, A, "large", &pattern(1 << 20)), "{round}");
        for number in 0..1_000 {
            assert!(put(&mut items, A, &format!("page-{number}"), &pattern(8192)), "{number}");
        }
        for number in 0..3_000 {
            assert!(put(&mut items, A, &format!("middle-{number}"), &pattern(1500)), "{number}");
        }
    }
    assert_eq!(get(&mut items, A, "middle-2999"), Some(pattern(1500)));
}

#[test]
fn a_tenant_keeps_its_least_and_stays_below_its_most() {
    let (least, most) = (1 << 20, 2 << 20);
    let tenants = vec![bounds("a", least, usize::MAX), bounds("b", 0, most)];
    let mut items = items(4 << 20, tenants).unwrap();
    for number in 0..1_000 {
        assert!(put(&mut items, B, &format!("b-{number}"), &pattern(4096)));
        assert!(items.holds(B).1 <= most);
    }
    for number in 0..2_000 {
        assert!(put(&mut items, A, &format!("a-{number}"), &pattern(4096)));
    }
    assert!(items.holds(A).1 > 2 << 20, "a takes what b is not promised");
    assert_eq!(get(&mut items, A, "b-999"), None, "key spaces are apart");
    assert_eq!(get(&mut items, B, "b-999"), Some(pattern(4096)));
    for number in 0..5_000 {
        assert!(put(&mut items, B, &format!("b-{number}"), &pattern(100)));
    }
    assert!(items.holds(A).1 >= least, "{:?}", items.holds(A));
    assert!(!put(&mut items, B, "more than b's most", &pattern(most)));
    items.flush(B);
    assert_eq!(items.holds(B), (0, 0));
    assert!(items.holds(A).0 > 0);
}

#[test]
fn tenants_that_do_not_fit_are_refused() {
    let refused = |memory, tenants| items(memory, tenants).unwrap_err();
    assert!(matches!(refused(100, vec![tenant("a")]), BadTenants::Memory(100)));
    assert!(matches!(refused(4 << 20, Vec::new()), BadTenants::Count(0)));
    assert!(matches!(refused(4 << 20, vec![bounds("a", 2, 1)]), BadTenants::Bounds { .. }));
    let two = vec![bounds("a", 3 << 20, usize::MAX), bounds("b", 2 << 20, usize::MAX)];
    assert!(matches!(refused(4 << 20, two), BadTenants::Promised { .. }));
}

#[test]
fn what_has_expired_is_swept_though_nobody_asks() {
    let mut items = items(4 << 20, vec![tenant("a")]).unwrap();
    for number in 0..2_000 {
        let expiry = if number % 2 == 0 { Expiry::after_ms(50, NOW) } else { Expiry::NEVER };
        let placed = Placed { flags: 0, expiry, cas: None };
        items.store(A, format!("{number}").as_bytes(), Content::Bytes(b"x"), placed, NOW).unwrap();
    }
    let later = Moment { now_ms: NOW.now_ms + 50, ..NOW };
    for _ in 0..10 {
        items.sweep(later);
    }
    assert_eq!(items.holds(A).0, 1_000);
    assert!(!items.has_mortals());
    assert_eq!(items.counters(A).expired, 1_000);
}

#[test]
fn values_that_are_being_sent_are_not_given_to_others() {
    let mut items = items(1 << 20, vec![tenant("a")]).unwrap();
    let mut out = Out::default();
    put(&mut items, A, "sent", &pattern(500_000));
    let found = items.read(A, b"sent", NOW).unwrap();
    items.send_value(found, &mut out);
    for number in 0..1_000u32 {
        put(&mut items, A, &format!("{number}"), &[number as u8; 8192]);
    }
    assert_eq!(out.pieces().flatten().copied().collect::<Vec<u8>>(), pattern(500_000));
}

const WEB: TenantNo = A;
const JOBS: TenantNo = B;
const STORED: &str = "STORED\r\n";
const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object\r\n";

/// Of 64 MiB, 32 are promised to one tenant; the other may have so many.
fn web_and_jobs(most: usize) -> Server {
    Server::new(64 << 20, vec![bounds("web", 32 << 20, usize::MAX), bounds("jobs", 0, most)])
}

fn set_command(key: &str, len: usize) -> String {
    format!("set {key} 0 0 {len}\r\n{}\r\n", "v".repeat(len))
}

/// Half commands of that tenant, in both protocols, all but the last bytes of each.
fn half_commands(server: &mut Server, tenant: TenantNo, count: usize, len: usize) -> Vec<Client> {
    let set = |number: usize| match number % 2 {
        0 => (Protocol::Memcached, set_command(&format!("half-{number}"), len)),
        _ => {
            let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len}\r\n");
            (Protocol::Resp, head + &"v".repeat(len) + "\r\n")
        }
    };
    let begin = |number| {
        let (protocol, text) = set(number);
        let mut client = server.client_of(protocol, tenant);
        server.send(&mut client, &text.as_bytes()[..text.len() - 100_000], 1 << 16);
        client
    };
    (0..count).map(begin).collect()
}

/// It stores nearly all that it is promised, and none of it leaves again.
fn stores_its_least(server: &mut Server, tenant: TenantNo) {
    let mut client = server.client_of(Protocol::Memcached, tenant);
    let before = server.items.counters(tenant).evicted;
    for number in 0..3_800 {
        let answer = server.ask(&mut client, &set_command(&format!("least-{number}"), 8000));
        assert_eq!(answer, STORED, "{number}: {:?}", server.items.holds(tenant));
    }
    assert_eq!(server.items.counters(tenant).evicted, before);
    assert_eq!(server.items.holds(tenant).0, 3_800);
}

#[test]
fn half_commands_take_no_more_than_their_tenants_most() {
    let mut server = web_and_jobs(8 << 20);
    let mut jobs = server.client_of(Protocol::Memcached, JOBS);
    assert_eq!(server.ask(&mut jobs, &set_command("before", 500_000)), STORED);
    let mut halves = half_commands(&mut server, JOBS, 16, 7_000_000);
    assert!(server.items.holds(JOBS).1 <= 8 << 20);
    stores_its_least(&mut server, WEB);
    assert_eq!(server.items.holds(JOBS).0, 1, "nothing was evicted for what cannot be completed");
    assert_eq!(server.ask(&mut jobs, &set_command("next", 7_000_000)), OUT_OF_MEMORY);
    let last = "v".repeat(99_998) + "\r\n";
    assert_eq!(server.ask(&mut halves[0], &last), STORED, "the first one has its memory");
    let held = server.items.holds(JOBS);
    drop(halves);
    assert_eq!(server.items.holds(JOBS), held, "it is an item's now");
}

#[test]
fn unread_answers_take_no_more_than_their_tenants_most() {
    let mut server = web_and_jobs(8 << 20);
    let mut jobs = server.client_of(Protocol::Memcached, JOBS);
    let mut readers = Vec::new();
    for number in 0..13 {
        let answer = server.ask(&mut jobs, &set_command("big", 7_500_000));
        let right = if number == 0 { STORED } else { OUT_OF_MEMORY };
        assert_eq!(answer, right, "there is no room for a second one: {number}");
        let mut reader = server.client_of(Protocol::Memcached, JOBS);
        server.read(&mut reader, b"get big\r\n");
        assert!(server.items.holds(JOBS).1 <= 8 << 20);
        readers.push(reader);
    }
    stores_its_least(&mut server, WEB);
    assert_eq!(server.items.take_short(), Some(JOBS), "the world may close the reader");
    assert_eq!(server.items.take_short(), None);
    drop(readers);
    assert_eq!(server.items.holds(JOBS), (0, 0));
    assert_eq!(server.ask(&mut jobs, &set_command("big", 7_500_000)), STORED);
}

#[test]
fn half_commands_take_nothing_that_is_promised_to_others() {
    let mut server = web_and_jobs(usize::MAX);
    let halves = half_commands(&mut server, JOBS, 16, 7_000_000);
    assert!(server.items.held_bytes(JOBS) <= 32 << 20);
    assert!(server.items.held_bytes(JOBS) > 24 << 20, "what is not promised is there for all");
    stores_its_least(&mut server, WEB);
    drop(halves);
    assert_eq!(server.items.held_bytes(JOBS), 0);
}

/// Bytes of the items' memory that a connection holds.
fn holds(client: &Client) -> usize {
    client.session.draft_bytes() + client.out.held_bytes()
}

/// As the world does: the tenant's connection that holds most is closed, until what is promised is free.
fn relieve(server: &mut Server, clients: &mut Vec<(TenantNo, Client)>) {
    while let Some(tenant) = server.items.crowded() {
        let its = clients.iter().enumerate().filter(|(_, (owner, _))| *owner == tenant);
        let (at, _) = its.max_by_key(|(_, (_, client))| holds(client)).expect("somebody holds it");
        assert!(holds(&clients[at].1) > 0);
        clients.swap_remove(at);
    }
}

#[test]
fn unread_answers_take_nothing_that_is_promised_to_others() {
    let mut server = web_and_jobs(usize::MAX);
    let mut jobs = server.client_of(Protocol::Memcached, JOBS);
    let keys: Vec<String> = (0..7).map(|number| format!("big-{number}")).collect();
    for key in &keys {
        assert_eq!(server.ask(&mut jobs, &set_command(key, 8_000_000)), STORED);
    }
    let mut readers = Vec::new();
    for key in keys.iter().flat_map(|key| [key, key]) {
        let mut reader = server.client_of(Protocol::Memcached, JOBS);
        server.read(&mut reader, format!("get {key}\r\n").as_bytes());
        readers.push((JOBS, reader));
        relieve(&mut server, &mut readers);
    }
    assert!((8..14).contains(&readers.len()), "{}: who shares a value costs half", readers.len());
    assert!(server.items.held_bytes(JOBS) <= 32 << 20);
    stores_its_least(&mut server, WEB);
    for (_, reader) in &mut readers {
        assert_eq!(reader.take().len(), 8_000_000 + "VALUE big-0 0 8000000\r\n\r\nEND\r\n".len());
    }
    assert_eq!(server.items.held_bytes(JOBS), 0);
}

/// Memory that is promised to another tenant in full may be used for items, not for bytes that cannot be taken back.
#[test]
fn memory_that_is_promised_and_not_used_is_for_items_only() {
    let tenants = vec![bounds("web", 16 << 20, usize::MAX), bounds("jobs", 0, usize::MAX)];
    let mut server = Server::new(16 << 20, tenants);
    let mut jobs = server.client_of(Protocol::Memcached, JOBS);
    for number in 0..1_000 {
        assert_eq!(server.ask(&mut jobs, &set_command(&format!("{number}"), 8000)), STORED);
    }
    assert_eq!(server.items.holds(JOBS).0, 1_000);
    assert_eq!(server.ask(&mut jobs, &set_command("long", 100_000)), OUT_OF_MEMORY);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Any partial values and unread answers: no tenant has more than its most, all together no more than there is,
    /// promised memory can be had at any time, and all of it comes back.
    #[test]
    fn promises_hold_whatever_clients_do(
        steps in prop::collection::vec((0u8..8, 0usize..24, 1usize..500_000), 50..300)
    ) {
        let (memory, least, most) = (8usize << 20, 4usize << 20, 6usize << 20);
        let tenants = vec![bounds("web", least, usize::MAX), bounds("jobs", 0, most)];
        let mut server = Server::new(memory, tenants);
        let pages = server.frames.free_pages();
        let mut writers = [WEB, JOBS].map(|tenant| server.client_of(Protocol::Memcached, tenant));
        let mut clients = Vec::new();
        for (what, at, len) in steps {
            let (tenant, key) = (TenantNo((at % 2) as u16), format!("key-{}", at / 2));
            match what {
                0 | 1 => {
                    server.ask(&mut writers[at % 2], &set_command(&key, len));
                }
                2 | 3 => {
                    let mut half = server.client_of(Protocol::Memcached, tenant);
                    let text = set_command("half", 2 * len);
                    server.send(&mut half, &text.as_bytes()[..len], 1 << 16);
                    clients.push((tenant, half));
                }
                4 | 5 => {
                    let mut reader = server.client_of(Protocol::Memcached, tenant);
                    server.read(&mut reader, format!("get {key}\r\n").as_bytes());
                    clients.push((tenant, reader));
                }
                6 if !clients.is_empty() => drop(clients.swap_remove(at % clients.len())),
                _ if !clients.is_empty() => {
                    let count = clients.len();
                    let reader = &mut clients[at % count].1;
                    reader.out.written(reader.out.len().min(len));
                }
                _ => {}
            }
            relieve(&mut server, &mut clients);
            let bytes = [WEB, JOBS].map(|tenant| server.items.holds(tenant).1);
            prop_assert!(bytes[1] <= most && bytes[0] + bytes[1] <= memory, "{bytes:?}");
            prop_assert!(server.items.held_bytes(JOBS) <= memory - least);
            for tenant in [WEB, JOBS] {
                let its = clients.iter().filter(|(owner, _)| *owner == tenant);
                let sum: usize = its.map(|(_, client)| holds(client)).sum();
                let held = server.items.held_bytes(tenant);
                prop_assert!(sum <= held && held - sum < 1 << 16, "{sum} of {held}"); // rounding
            }
        }
        let evicted = server.items.counters(WEB).evicted;
        for number in 0.. {
            if server.items.holds(WEB).1 + (9 << 10) > least {
                break;
            }
            let answer = server.ask(&mut writers[0], &set_command(&format!("{number}"), 8000));
            prop_assert_eq!(answer, STORED);
        }
        prop_assert_eq!(server.items.counters(WEB).evicted, evicted);
        drop((clients, writers));
        [WEB, JOBS].into_iter().for_each(|tenant| server.items.flush(tenant));
        prop_assert_eq!([WEB, JOBS].map(|tenant| server.items.holds(tenant)), [(0, 0); 2]);
        prop_assert_eq!(server.frames.free_pages(), pages);
    }
}

proptest! {
    /// With room for everything the table is a map, whatever is stored, read and removed in whatever order.
    #[test]
    fn the_table_is_a_map(
        steps in prop::collection::vec((0u8..40, 0usize..6000, 0u8..4), 1..300)
    ) {
        let mut items = items(8 << 20, vec![tenant("a"), tenant("b")]).unwrap();
        let mut model = BTreeMap::new();
        for (key, len, what) in steps {
            let (owner, key) = (TenantNo(u16::from(key % 2)), format!("key-{key}"));
            match what {
                0 | 1 => {
                    prop_assert!(put(&mut items, owner, &key, &pattern(len)));
                    model.insert((owner, key), len);
                }
                2 => {
                    if let Some(found) = items.find(owner, key.as_bytes(), NOW) {
                        items.remove(found);
                    }
                    model.remove(&(owner, key));
                }
                _ => {
                    let found = get(&mut items, owner, &key);
                    prop_assert_eq!(found, model.get(&(owner, key)).map(|len| pattern(*len)));
                }
            }
            prop_assert_eq!(items.holds(A).0 + items.holds(B).0, model.len());
        }
    }
}
