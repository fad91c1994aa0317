//! Throughput of a name space on several file managers: clients ask for look-ups and changes of names as nodes that
//! serve NFS do, each change synced before it is answered.
//!
//! Managers and clients run the services that real machines run; messages and processors are the models of
//! [`hardware`](sim::hardware), joined by [`underlay`](sim::underlay), logs those of the simulator. The clients have
//! the same number of operations in flight all the time, in proportion to the managers.

use names::IoServer;
use node::rings::{Caller, FileOp, FileReply, FileRequest, Name};
use sim::cluster;
use sim::hardware::fabric::Link;
use sim::hardware::measure::Station;
use sim::machine::{MachineConfig, Role};
use sim::queue::Picos;
use sim::random::Random;
use sim::trace::Trace;
use sim::underlay::{Busy, DiskSetup, NodeSetup, Underlay};
use sim::world::{Happening, World};
use std::collections::BTreeMap;
use wire::{Attr, FileId, NodeId};

/// Clients for each manager.
const CLIENTS: u16 = 2;
/// Operations that each of them has in flight.
const IN_FLIGHT: u64 = 64;
/// Directories made for each manager, and files, before anything is measured. The managers' shares of fewer directories
/// would differ by chance: the larger of sixteen shares of a thousand is 6 % above the mean.
const DIRECTORIES: u64 = 1_000;
const FILES: u64 = 1_000;
/// The first of these directories are made with one operation of each client in flight, so that not all are in the
/// root: of those in one parent twice as many as elsewhere are at its manager.
const FIRST: u64 = 64;
/// Time for sites to be spread, and for the root to become hashed.
const SETTLE: Picos = Picos::seconds(8);
/// No operation takes longer.
const CALL_MAX: Picos = Picos::seconds(60);
/// The part of a run that comes before its measured one.
const WARM_UP: u64 = 5;

/// Operations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Directories, each in any one that there is.
    Directories,
    /// New files in any directory.
    Creates,
    /// Names of any files.
    Lookups,
    /// Of a hundred 60 look-ups, 25 of attributes, 10 creations, 4 removals, and a new directory.
    Mixed,
}

/// A cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Each of its machines.
    pub station: Station,
    /// The network.
    pub link: Link,
    /// Disks of the I/O server, which is there for files to have a place.
    pub disk: DiskSetup,
    /// Managers.
    pub managers: u16,
    /// All files are in one directory, the root, which is hashed. Else they are in many.
    pub is_hashed: bool,
    /// Processor time of a manager's services for each message that it takes.
    pub service: Picos,
    /// Of the run.
    pub seed: u64,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Operations a second, of all clients.
    pub rate: f64,
    /// Share of the time that the managers' processors were at work.
    pub processors: f64,
    /// The same of the one that was at work most.
    pub busiest: f64,
}

impl Setup {
    fn managers(&self) -> Vec<NodeId> {
        (1..=self.managers).map(NodeId).collect()
    }

    fn server(&self) -> NodeId {
        NodeId(self.managers + 1)
    }

    fn hasher(&self) -> NodeId {
        NodeId(self.managers + 2)
    }

    fn clients(&self) -> Vec<NodeId> {
        let first = self.managers + 3;
        (first..first + CLIENTS * self.managers).map(NodeId).collect()
    }

    fn world(&self) -> Result<World, String> {
        let node =
            |id, disks, service| NodeSetup { id, station: self.station.clone(), disks, service };
        let mut nodes: Vec<_> =
            self.managers().into_iter().map(|id| node(id, None, self.service)).collect();
        nodes.push(node(self.server(), Some(self.disk), Picos::ZERO));
        let others = self.clients().into_iter().chain([self.hasher()]);
        nodes.extend(others.map(|id| node(id, None, Picos::ZERO)));
        let underlay = Underlay::new(self.seed, self.link, &nodes)?;
        let mut world = World::on_hardware(self.seed, underlay, Trace::default());
        let disks = self.disk.count;
        let home = IoServer { disks: cluster::all_disks(disks), ..IoServer::from(self.server()) };
        let managers = self.managers();
        let first = managers[0];
        for (id, role) in managers.iter().zip(cluster::managers(&[home], &managers)) {
            add(&mut world, *id, 0, role);
        }
        add(&mut world, self.server(), disks, cluster::server(first, 4 << 20, 0, None, None));
        if self.is_hashed {
            add(&mut world, self.hasher(), 0, cluster::root_hasher(first));
        }
        self.clients().into_iter().for_each(|id| add(&mut world, id, 0, cluster::front(first)));
        world.nodes().into_iter().for_each(|node| world.start(node));
        Ok(world)
    }
}

fn add(world: &mut World, id: NodeId, disks: u16, role: Role) {
    world.add(MachineConfig { disks, ..MachineConfig::new(id) }, role);
}

/// A file that was made.
#[derive(Clone, Debug)]
struct Made {
    parent: FileId,
    name: Name,
    file: FileId,
}

/// How the reply of an operation in flight is kept.
#[derive(Clone, Debug)]
enum ReplyUse {
    Nothing,
    Directory,
    /// A file that is looked up later.
    File(FileId, Name),
    /// A file that is removed later.
    ToRemove(FileId, Name),
}

#[derive(Clone, Debug)]
struct Mark {
    at: Picos,
    done: u64,
    managers: Vec<Busy>,
}

/// Clients of the cluster, and the files that they have made.
pub struct Bench {
    setup: Setup,
    world: World,
    random: Random,
    asked: BTreeMap<u64, ReplyUse>,
    next: u64,
    in_flight: u64,
    directories: Vec<FileId>,
    files: Vec<Made>,
    to_remove: Vec<Made>,
}

impl Bench {
    /// A cluster whose sites are spread, with directories and files.
    ///
    /// The error says what cannot be built.
    pub fn new(setup: Setup) -> Result<Bench, String> {
        let mut world = setup.world()?;
        let until = world.now() + SETTLE;
        world.set_timer(until, 0);
        while !matches!(world.advance(until), Happening::Timer(_)) {}
        let random = Random::new(setup.seed, "operations");
        let (asked, directories) = (BTreeMap::new(), vec![FileId::ROOT]);
        let (next, files, to_remove) = (0, Vec::new(), Vec::new());
        let mut bench = Bench {
            setup,
            world,
            random,
            asked,
            next,
            in_flight: 1,
            directories,
            files,
            to_remove,
        };
        let managers = u64::from(bench.setup.managers);
        if !bench.setup.is_hashed {
            bench.run(Kind::Directories, FIRST * managers);
        }
        bench.in_flight = IN_FLIGHT;
        if !bench.setup.is_hashed {
            bench.run(Kind::Directories, (DIRECTORIES - FIRST) * managers);
        }
        bench.run(Kind::Creates, FILES * managers);
        Ok(bench)
    }

    /// Ends so many operations. Panics when one fails: nothing here does.
    pub fn run(&mut self, kind: Kind, count: u64) -> Measured {
        for client in self.setup.clients() {
            (0..self.in_flight).for_each(|_| self.ask(client, kind));
        }
        let mut from = self.mark(0);
        for done in 1..=count {
            let client = self.end_one();
            self.ask(client, kind);
            if done == count / WARM_UP {
                from = self.mark(done);
            }
        }
        let to = self.mark(count);
        while !self.asked.is_empty() {
            self.end_one();
        }
        measured(&from, &to)
    }

    fn mark(&self, done: u64) -> Mark {
        let underlay = self.world.underlay().expect("a world on hardware");
        let managers = self.setup.managers().into_iter().map(|node| underlay.busy(node)).collect();
        Mark { at: self.world.now(), done, managers }
    }

    fn ask(&mut self, client: NodeId, kind: Kind) {
        self.next += 1;
        let front = self.next;
        let (op, asked) = self.any(kind);
        self.asked.insert(front, asked);
        let request = FileRequest { front, caller: Caller { pid: 1, ..Caller::default() }, op };
        self.world.ask(client, request).expect("a client that runs and has room");
    }

    fn any(&mut self, kind: Kind) -> (FileOp, ReplyUse) {
        match kind {
            Kind::Directories => self.make_directory(),
            Kind::Creates => {
                let (op, parent, name) = self.make_file();
                (op, ReplyUse::File(parent, name))
            }
            Kind::Lookups => {
                let Made { parent, name, .. } = self.random.pick(&self.files).clone();
                (FileOp::Lookup { parent, name }, ReplyUse::Nothing)
            }
            Kind::Mixed => self.any_of_mix(),
        }
    }

    fn any_of_mix(&mut self) -> (FileOp, ReplyUse) {
        match self.random.below(100) {
            0..60 => self.any(Kind::Lookups),
            60..85 => {
                let file = self.random.pick(&self.files).file;
                (FileOp::GetAttr { file, handle: None }, ReplyUse::Nothing)
            }
            85..89 if !self.to_remove.is_empty() => {
                let at = self.random.index(self.to_remove.len());
                let Made { parent, name, .. } = self.to_remove.swap_remove(at);
                (synced(FileOp::Unlink { parent, name }), ReplyUse::Nothing)
            }
            99 => {
                let (op, _) = self.make_directory();
                (op, ReplyUse::Nothing)
            }
            _ => {
                let (op, parent, name) = self.make_file();
                (op, ReplyUse::ToRemove(parent, name))
            }
        }
    }

    fn make_directory(&mut self) -> (FileOp, ReplyUse) {
        let parent = *self.random.pick(&self.directories);
        let name = format!("directory{}", self.next).into_bytes().into();
        (synced(FileOp::MakeDirectory { parent, name, mode: 0o755 }), ReplyUse::Directory)
    }

    fn make_file(&mut self) -> (FileOp, FileId, Name) {
        let parent = *self.random.pick(&self.directories);
        let name: Name = format!("file{}", self.next).into_bytes().into();
        let op = FileOp::MakeNode { parent, name: name.clone(), mode: 0o100_644, rdev: 0 };
        (synced(op), parent, name)
    }

    /// The client of an operation that has ended.
    fn end_one(&mut self) -> NodeId {
        let until = self.world.now() + CALL_MAX;
        loop {
            match self.world.advance(until) {
                Happening::Done(client, done) => {
                    let asked = self.asked.remove(&done.front).expect("an operation in flight");
                    let reply = match done.result {
                        Ok(FileReply::WithWcc(reply, _)) => *reply,
                        Ok(reply) => reply,
                        Err(errno) => panic!("{asked:?} fails: {errno:?}"),
                    };
                    self.keep(asked, reply);
                    return client;
                }
                Happening::Timer(_) => {}
                Happening::Pause => panic!("operations do not end: {:?}", self.asked),
            }
        }
    }

    fn keep(&mut self, asked: ReplyUse, reply: FileReply) {
        let made = |parent, name, Attr { file, .. }| Made { parent, name, file };
        match (asked, reply) {
            (ReplyUse::Nothing, _) => {}
            (ReplyUse::Directory, FileReply::Entry(attr)) => self.directories.push(attr.file),
            (ReplyUse::File(parent, name), FileReply::Entry(attr)) => {
                self.files.push(made(parent, name, attr));
            }
            (ReplyUse::ToRemove(parent, name), FileReply::Entry(attr)) => {
                self.to_remove.push(made(parent, name, attr));
            }
            (asked, reply) => panic!("{asked:?} has the reply {reply:?}"),
        }
    }
}

/// As a node that serves NFS asks for a change.
fn synced(op: FileOp) -> FileOp {
    FileOp::WithWcc { op: Box::new(op), guard: None, call: None }
}

fn measured(from: &Mark, to: &Mark) -> Measured {
    let span = to.at.since(from.at).0 as f64;
    let shares = from.managers.iter().zip(&to.managers);
    let shares = shares.map(|(from, to)| to.processor.since(from.processor).0 as f64 / span);
    let shares: Vec<f64> = shares.collect();
    Measured {
        rate: (to.done - from.done) as f64 * 1e12 / span,
        processors: shares.iter().sum::<f64>() / shares.len() as f64,
        busiest: shares.into_iter().fold(0.0, f64::max),
    }
}
