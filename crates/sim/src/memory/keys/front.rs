//! A node's front end, as `trapeze memory --join` starts it.

use super::super::shared::Shared;
use super::client::Client;
use super::{Front, TENANT};
use endpoint::{Frames, HeapRegion};
use kv::service::Courier;
use kv::{AwayConfig, Items, ItemsConfig, TenantConfig};
use netmem::{Class, Service};
use node::Cx;
use std::cell::RefCell;
use std::rc::Rc;

/// Memory of a front end's items: the least that there may be, so that values leave.
const MEMORY_BYTES: usize = kv::limits::MEMORY_BYTES_MIN;
/// Bytes of them that may be away.
const AWAY_BYTES: usize = 2 << 20;

fn items(seed: u64) -> Items {
    let frames = Frames::new(HeapRegion::new(MEMORY_BYTES / 4096));
    let tenants = vec![TenantConfig {
        name: "default".into(),
        min_bytes: 0,
        max_bytes: usize::MAX,
        away_max_bytes: AWAY_BYTES,
    }];
    let config = ItemsConfig {
        memory_bytes: MEMORY_BYTES,
        value_bytes_max: MEMORY_BYTES / 2,
        seed,
        tenants,
    };
    Items::new(config, frames).expect("one tenant with all of it")
}

/// Starts a front end and its clients on a node that begins to live.
pub fn start(cx: &Cx, memory: &Service, shared: &Rc<Shared>) {
    let mut items = items(cx.random());
    items.lend(AwayConfig { frames: cx.frames().clone(), bytes_max: AWAY_BYTES });
    let items = Rc::new(RefCell::new(items));
    let courier = Courier::start_shared(cx, memory.clone(), Class::Mirrored, items.clone());
    let front = Front { items, courier };
    shared.keys.fronts.borrow_mut().insert(cx.id(), front.clone());
    for seat in 0..u32::from(shared.shape.key_clients) {
        cx.spawn("client", Client::new(cx, &front, shared, TENANT, seat).run());
    }
}
