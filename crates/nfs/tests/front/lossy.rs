//! Clients whose connections are lost at any time, and that retransmit: each call has the outcome of one execution.

use super::*;
use nfs::client::{Caller, Client};
use std::collections::BTreeSet;

/// Names that each client uses, in a directory of its own: few, so that calls often fail.
const NAMES: u8 = 4;
const CLIENTS: u8 = 3;
/// More retransmissions than a call can need at rest.
const TRIES_MAX: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Act {
    Call(Change),
    /// The file system answers one request.
    Serve,
    /// Bytes of replies arrive.
    Receive,
    /// The connection is lost with what is on it; another one, and retransmission.
    Reconnect,
    /// Retransmission on the same connection, as after a time without a reply.
    Retransmit,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Create(u8),
    Exclusive(u8),
    Remove(u8),
    Rename(u8, u8),
}

fn acts() -> impl Strategy<Value = Vec<(u8, Act)>> {
    let name = || 0..NAMES;
    let change = prop_oneof![
        name().prop_map(Change::Create),
        name().prop_map(Change::Exclusive),
        name().prop_map(Change::Remove),
        (name(), name()).prop_map(|(from, to)| Change::Rename(from, to)),
    ];
    let act = prop_oneof![
        3 => change.prop_map(Act::Call),
        3 => Just(Act::Serve),
        2 => Just(Act::Receive),
        1 => Just(Act::Reconnect),
        1 => Just(Act::Retransmit),
    ];
    prop::collection::vec((0..CLIENTS, act), 0..200)
}

fn name(number: u8) -> [u8; 1] {
    [b'a' + number]
}

/// One client and what it knows: it alone changes its directory.
struct Machine {
    calls: Client,
    connection: ConnectionId,
    address: u8,
    directory: Vec<u8>,
    names: BTreeSet<u8>,
    /// The outcome that the call in flight must have.
    expected: Status,
    called: u64,
}

impl Machine {
    fn new(world: &mut World, root: &[u8], number: u8) -> Machine {
        let address = number + 1;
        let connection = world.connect(address);
        let directory = world.make(connection, root, &format!("of-{number}"), true);
        let caller = Caller { uid: 500, gid: 500, ..Caller::default() };
        // xids are a client's own: here all begin with the same
        let (calls, names) = (Client::new(caller, 1000), BTreeSet::new());
        let (expected, called) = (Status::Ok, 0);
        Machine { calls, connection, address, directory, names, expected, called }
    }

    /// Executes the change once; its outcome.
    fn execute(&mut self, change: Change) -> Status {
        let done = match change {
            Change::Create(name) | Change::Exclusive(name) => self.names.insert(name),
            Change::Remove(name) => self.names.remove(&name),
            Change::Rename(from, to) => {
                let exists = self.names.remove(&from);
                self.names.extend(exists.then_some(to));
                exists
            }
        };
        match change {
            _ if done => Status::Ok,
            Change::Create(_) | Change::Exclusive(_) => Status::Exist,
            Change::Remove(_) | Change::Rename(..) => Status::NoEnt,
        }
    }

    fn call(&mut self, world: &mut World, change: Change) {
        if self.calls.in_flight() > 0 {
            return;
        }
        self.expected = self.execute(change);
        self.called += 1;
        let verifier = self.called.to_be_bytes();
        let mut stream = Vec::new();
        let dir = Handle(&self.directory);
        let (first, second) = match change {
            Change::Rename(from, to) => (name(from), name(to)),
            Change::Create(of) | Change::Exclusive(of) | Change::Remove(of) => (name(of), [0]),
        };
        let place = DirOpArgs { dir, name: Path(&first) };
        let args = match change {
            Change::Create(_) => {
                Args::Create(CreateArgs { place, how: CreateHow::Guarded(Sattr::default()) })
            }
            Change::Exclusive(_) => {
                Args::Create(CreateArgs { place, how: CreateHow::Exclusive(verifier) })
            }
            Change::Remove(_) => Args::Remove(place),
            Change::Rename(..) => {
                Args::Rename(RenameArgs { from: place, to: DirOpArgs { dir, name: Path(&second) } })
            }
        };
        self.calls.call(&args.into(), &mut stream);
        world.send(self.connection, &stream, 50).unwrap();
    }

    fn receive(&mut self, world: &mut World) {
        for record in world.read(self.connection) {
            self.calls.received(&(record.len() as u32 | 1 << 31).to_be_bytes());
            self.calls.received(&record);
        }
        while let Some(reply) = self.calls.poll_reply().unwrap() {
            assert_eq!(reply.nfs().unwrap().status(), self.expected, "{:?}", reply.called);
        }
    }

    fn reconnect(&mut self, world: &mut World) {
        world.front.disconnect(self.connection);
        self.calls.reconnected();
        self.connection = world.connect(self.address);
        self.retransmit(world);
    }

    fn retransmit(&mut self, world: &mut World) {
        let mut stream = Vec::new();
        self.calls.retransmit_all(&mut stream);
        world.send(self.connection, &stream, 50).unwrap();
    }

    /// Retransmits until the reply is here.
    fn finish(&mut self, world: &mut World) {
        for _ in 0..TRIES_MAX {
            world.run();
            self.receive(world);
            if self.calls.in_flight() == 0 {
                return;
            }
            self.reconnect(world);
        }
        panic!("a call without a reply");
    }
}

fn act(machine: &mut Machine, world: &mut World, act: Act) {
    match act {
        Act::Call(change) => machine.call(world, change),
        Act::Receive => machine.receive(world),
        Act::Reconnect => machine.reconnect(world),
        Act::Retransmit => machine.retransmit(world),
        Act::Serve => {
            if let Some(request) = world.front.poll_request() {
                world.answer(request);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_call_that_is_retransmitted_has_its_first_outcome(acts in acts()) {
        let mut world = World::new("/ *(rw)", 64);
        let setup = world.connect(100);
        let root = world.mount(setup, "/").unwrap();
        let mut machines: Vec<_> =
            (0..CLIENTS).map(|number| Machine::new(&mut world, &root, number)).collect();
        for (number, next) in acts {
            act(&mut machines[usize::from(number)], &mut world, next);
        }
        for machine in &mut machines {
            machine.finish(&mut world);
            let found = (0..NAMES).filter(|number| {
                let name = name(*number);
                let name = std::str::from_utf8(&name).unwrap();
                world.lookup(setup, &machine.directory, name).is_ok()
            });
            prop_assert_eq!(found.collect::<BTreeSet<u8>>(), machine.names.clone());
        }
    }
}
