//! Front ends on nodes with network memory, on a link that does what the test says, and connections to them.
#![allow(dead_code)] // every test file uses a part of it

use endpoint::{Frames, HeapRegion};
use kv::service::Courier;
use kv::{
    AwayConfig, Items, ItemsConfig, Moment, Out, Progress, Protocol, Session, TenantConfig,
    TenantNo,
};
use netmem::service::{Config, Up, View};
use netmem::{Class, Service};
use rig::Net;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wire::{NodeId, Time};

pub const TENANT: TenantNo = TenantNo(0);
/// Memory of a front end's items.
pub const MEMORY: usize = 1 << 20;

/// Set-up of the world.
#[derive(Clone, Copy)]
pub struct Plan {
    pub nodes: u16,
    /// The first so many serve keys.
    pub fronts: u16,
    /// Pages of 4 KiB that each node lends.
    pub pages: usize,
    /// And each front end.
    pub own_pages: usize,
    /// One key space of all front ends.
    pub shared: bool,
    pub class: Class,
    pub away_max_bytes: usize,
    /// Of a front end's items.
    pub memory: usize,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            nodes: 4,
            fronts: 1,
            pages: 768,
            own_pages: 96,
            shared: false,
            class: Class::Volatile,
            away_max_bytes: 4 << 20,
            memory: MEMORY,
        }
    }
}

pub struct Front {
    pub items: Rc<RefCell<Items>>,
    pub courier: Courier,
}

pub struct World {
    pub net: Net,
    pub services: Vec<Service>,
    pub fronts: Vec<Front>,
    pub clients: Vec<Client>,
    pub incarnations: Vec<u64>,
    pub down: Vec<u16>,
    plan: Plan,
    view: u64,
}

/// A connection to a front end.
pub struct Client {
    front: usize,
    session: Session,
    out: Out,
    input: Vec<u8>,
    pub answer: Vec<u8>,
    pub ended: bool,
    /// More is to be done when its output is written.
    is_full: bool,
    /// Most bytes that have waited.
    pub most: usize,
    /// It reads nothing.
    pub deaf: bool,
}

fn lender(pages: usize) -> Config {
    let mut config = Config::new(pages * 4096);
    config.local_min_bytes = 0;
    config.directory_bytes = 4096 * netmem::Directory::ENTRY_BYTES;
    config.epoch.slow_start = Duration::from_millis(1);
    config.patience = Duration::from_secs(1);
    config
}

fn items(plan: &Plan) -> Items {
    let frames = Frames::new(HeapRegion::new(plan.memory / 4096));
    let tenants = vec![TenantConfig {
        name: "default".into(),
        min_bytes: 0,
        max_bytes: usize::MAX,
        away_max_bytes: plan.away_max_bytes,
    }];
    let config = ItemsConfig {
        memory_bytes: plan.memory,
        value_bytes_max: plan.memory / 2,
        seed: 3,
        tenants,
    };
    Items::new(config, frames).unwrap()
}

impl World {
    pub fn new(plan: Plan) -> World {
        let net = Net::new(plan.nodes);
        let mut world = World {
            services: Vec::new(),
            fronts: Vec::new(),
            clients: Vec::new(),
            incarnations: vec![1; plan.nodes.into()],
            down: Vec::new(),
            view: 0,
            plan,
            net,
        };
        (1..=plan.nodes).for_each(|node| world.start(node));
        world.next_view();
        world
    }

    fn front(&self, node: u16) -> Front {
        let at = usize::from(node) - 1;
        let cx = self.net.nodes[at].cx();
        let mut items = items(&self.plan);
        items.lend(AwayConfig { frames: cx.frames().clone(), bytes_max: 4 << 20 });
        let items = Rc::new(RefCell::new(items));
        let memory = self.services[at].clone();
        let start = if self.plan.shared { Courier::start_shared } else { Courier::start };
        let courier = start(cx, memory, self.plan.class, items.clone());
        Front { items, courier }
    }

    pub fn is_up(&self, node: u16) -> bool {
        !self.down.contains(&node)
    }

    /// Tells all nodes the members, and waits until all have told each other.
    pub fn next_view(&mut self) {
        self.view += 1;
        let view = self.view();
        self.tell(view);
    }

    fn view(&self) -> View {
        let ups = (1..=self.plan.nodes).filter(|node| self.is_up(*node)).map(|node| Up {
            node: NodeId(node),
            incarnation: self.incarnations[usize::from(node) - 1],
            weight: 100,
            machine: 0,
        });
        View::new(self.view, ups.collect())
    }

    fn tell(&mut self, view: View) {
        let live: Vec<Service> = (1..=self.plan.nodes)
            .filter(|node| self.is_up(*node))
            .map(|node| self.services[usize::from(node) - 1].clone())
            .collect();
        live.iter().for_each(|service| service.set_view(view.clone()));
        let shared = (1..=self.plan.fronts).filter(|node| self.plan.shared && self.is_up(*node));
        let couriers: Vec<Courier> =
            shared.map(|node| self.fronts[usize::from(node) - 1].courier.clone()).collect();
        for courier in &couriers {
            courier.set_view(view.clone());
            courier.set_lease(courier.incarnation(), Time::NEVER);
        }
        self.until(|_| {
            live.iter().all(Service::is_settled) && couriers.iter().all(Courier::is_settled)
        });
    }

    /// A node comes back in its next incarnation, with nothing; the others hear of it with the next view.
    pub fn revive(&mut self, node: u16) {
        let at = usize::from(node) - 1;
        self.incarnations[at] += 1;
        self.down.retain(|other| *other != node);
        self.net.restart(node, self.incarnations[at]);
        self.start(node);
    }

    fn start(&mut self, node: u16) {
        let at = usize::from(node) - 1;
        let front = node <= self.plan.fronts;
        let pages = if front { self.plan.own_pages } else { self.plan.pages };
        let service = Service::start(self.net.nodes[at].cx(), lender(pages));
        put_at(&mut self.services, at, service);
        if front {
            let front = self.front(node);
            put_at(&mut self.fronts, at, front);
        }
    }

    /// A node is gone with all it knew; the others hear of it with the next view.
    pub fn kill(&mut self, node: u16) {
        self.down.push(node);
        self.net.nodes[usize::from(node) - 1] = rig::node(1000 + node, 1);
    }

    /// One more node begins to serve keys, in the view that it has been in without.
    pub fn begin_late(&mut self) {
        self.plan.fronts += 1;
        let front = self.front(self.plan.fronts);
        front.courier.set_view(self.view());
        front.courier.set_lease(front.courier.incarnation(), Time::NEVER);
        self.fronts.push(front);
    }

    /// Starts a task on a node; its output when it has ended.
    pub fn start_task<T: 'static>(
        &self,
        node: u16,
        task: impl Future<Output = T> + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        rig::start(self.net.nodes[usize::from(node) - 1].cx(), task)
    }

    pub fn client(&mut self, front: u16, protocol: Protocol) -> usize {
        let seat = self.clients.len();
        let session = Session::new(protocol, TENANT, seat as u64).at_seat(seat as u32);
        let client = Client {
            front: usize::from(front) - 1,
            session,
            out: Out::default(),
            input: Vec::new(),
            answer: Vec::new(),
            ended: false,
            is_full: false,
            most: 0,
            deaf: false,
        };
        self.clients.push(client);
        seat
    }

    pub fn moment(&self) -> Moment {
        Moment { now_ms: self.net.now.0 / 1_000_000, wall_ms: 1_700_000_000_000 }
    }

    /// A client's bytes arrive.
    pub fn send(&mut self, client: usize, bytes: &[u8]) {
        self.clients[client].input.extend_from_slice(bytes);
        self.serve(client);
    }

    fn serve(&mut self, client: usize) {
        let moment = self.moment();
        let client = &mut self.clients[client];
        let front = &self.fronts[client.front];
        client.serve(&mut front.items.borrow_mut(), moment);
        front.courier.ring();
    }

    /// A millisecond passes.
    pub fn turn(&mut self) {
        self.net.turn();
        for at in 0..self.fronts.len() {
            let mut ready = Vec::new();
            self.fronts[at].items.borrow_mut().take_ready(&mut ready);
            let up = self.is_up(at as u16 + 1);
            ready.into_iter().filter(|_| up).for_each(|seat| self.serve(seat as usize));
        }
    }

    pub fn until(&mut self, mut done: impl FnMut(&World) -> bool) {
        for _ in 0..60_000 {
            if done(self) {
                return;
            }
            self.turn();
        }
        panic!("not done after a minute");
    }

    /// Sends text; what is answered when nothing is to come any more.
    pub fn ask(&mut self, client: usize, text: &[u8]) -> Vec<u8> {
        self.send(client, text);
        self.until(|world| world.clients[client].is_idle());
        std::mem::take(&mut self.clients[client].answer)
    }

    pub fn set(&mut self, client: usize, key: &str, value: &[u8]) -> bool {
        let head = format!("set {key} 5 0 {}\r\n", value.len());
        self.ask(client, &[head.as_bytes(), value, b"\r\n"].concat()) == b"STORED\r\n"
    }

    /// The value of a key, by memcached's protocol.
    pub fn get(&mut self, client: usize, key: &str) -> Option<Vec<u8>> {
        let answer = self.ask(client, format!("get {key}\r\n").as_bytes());
        if answer == b"END\r\n" {
            return None;
        }
        let line = answer.iter().position(|byte| *byte == b'\n').expect("a line");
        let head = String::from_utf8(answer[..line - 1].to_vec()).unwrap();
        let value = answer[line + 1..].strip_suffix(b"\r\nEND\r\n").expect("an end").to_vec();
        assert_eq!(head, format!("VALUE {key} 5 {}", value.len()));
        Some(value)
    }
}

fn put_at<T>(all: &mut Vec<T>, at: usize, one: T) {
    match all.get_mut(at) {
        Some(place) => *place = one,
        None => all.push(one),
    }
}

impl Client {
    /// Bytes that its session holds.
    pub fn held_bytes(&self) -> usize {
        self.session.held_bytes()
    }

    pub fn is_idle(&self) -> bool {
        self.ended || (self.out.is_empty() && self.input.is_empty() && !self.is_full)
    }

    fn serve(&mut self, items: &mut Items, moment: Moment) {
        loop {
            self.write(items);
            if self.is_idle() || !self.out.is_empty() {
                return;
            }
            let progress = self.read(items, moment);
            self.ended = progress == Progress::Ended;
            self.is_full = progress == Progress::Full;
            self.most = self.most.max(self.out.len());
        }
    }

    fn read(&mut self, items: &mut Items, moment: Moment) -> Progress {
        let mut input = vec![0; kv::limits::INPUT_BYTES];
        let (count, progress) =
            self.session.feed(&self.input, &mut input, items, moment, &mut self.out);
        self.input.drain(..count);
        progress
    }

    fn write(&mut self, items: &mut Items) {
        self.out.settle();
        if self.deaf {
            if !self.out.is_blocked() {
                items.adopt(&mut self.out, TENANT).unwrap();
            }
            return;
        }
        self.out.write_to(&mut self.answer);
    }
}

/// A value that no other key or round has.
pub fn value(key: u64, round: u64, len: usize) -> Vec<u8> {
    let seed = wire::mix(wire::mix(key) ^ round);
    (0..len as u64).map(|at| (wire::mix(seed ^ (at / 8)) >> (at % 8 * 8)) as u8).collect()
}

/// Loses, repeats and delays a few of a hundred packets.
pub fn bad_link(seed: u64) -> Box<dyn FnMut(u64) -> (usize, usize)> {
    Box::new(move |packet| match wire::mix(seed ^ packet) % 100 {
        0..2 => (0, 0),
        2..5 => (2, 3),
        5..9 => (1, 5),
        _ => (1, 0),
    })
}
