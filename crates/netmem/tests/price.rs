//! Allocations of a request for a page: none, once everything is warm.

use netmem::service::{Config, Hint, Source, Up, View};
use netmem::*;
use rig::{Counting, carry, node};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use wire::{NodeId, Time};

#[global_allocator]
static ALLOCATIONS: Counting = Counting;

const PAGE: PageId = PageId { space: SpaceId::private(NodeId(1), 5), index: 3 };

#[test]
fn a_page_from_another_node_allocates_nothing() {
    let mut nodes = [node(1, 1), node(2, 1)];
    let services = [0, 1].map(|at: usize| Service::start(nodes[at].cx(), Config::new(1 << 20)));
    let up = |node| Up { node: NodeId(node), incarnation: 1, weight: 1, machine: 0 };
    services.iter().for_each(|service| service.set_view(View::new(1, vec![up(1), up(2)])));

    let (done, service, cx) = (Rc::new(Cell::new(0)), services[0].clone(), nodes[0].cx().clone());
    let count = done.clone();
    nodes[0].cx().spawn("test", async move {
        let data = cx.frames().copy_of(&[7; 4096]).unwrap();
        service.put(PAGE, Version(1), Class::Volatile, data).await.unwrap();
        service.flush(PAGE).await.unwrap();
        loop {
            service.hint(PAGE, Hint::DontNeed);
            let wanted = Wanted { id: PAGE, at_least: Version(1), bytes: 4096 };
            let got = service.get(wanted).await.unwrap();
            assert_eq!((got.source, got.data[9]), (Source::Peer, 7));
            count.set(count.get() + 1);
            cx.yield_now().await;
        }
    });
    // time stands still but for the beginning, so that nothing but requests happens
    let mut now = Time(1);
    let mut until = |gets: u64, step: Duration| {
        for _ in 0..100_000 {
            if done.get() >= gets {
                return;
            }
            now = now + step;
            nodes.iter_mut().for_each(|node| _ = node.step(now));
            carry(&nodes[0], &nodes[1]);
            carry(&nodes[1], &nodes[0]);
        }
        panic!("{} of {gets} gets", done.get());
    };
    until(2000, Duration::from_micros(1));
    let before = Counting::in_thread();
    until(4000, Duration::ZERO);
    assert_eq!(Counting::in_thread() - before, 0);
}
