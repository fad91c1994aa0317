//! The bounded table: what stays, what leaves, and whose memory it is.

mod talk;

use endpoint::Frames;
use endpoint::memory::HeapRegion;
use kv::{
    BadTenants, Content, Expiry, Items, ItemsConfig, Moment, Out, Placed, TenantConfig, TenantNo,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use talk::{pattern, tenant};

const A: TenantNo = TenantNo(0);
const B: TenantNo = TenantNo(1);
const NOW: Moment = Moment { now_ms: 1_000, wall_ms: talk::WALL_MS };

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
