//! Calls from a filter to the managers that own their sites, over links that lose, duplicate and reorder.

use crate::memory::Memory;
use nfs::cookies;
use nfs::exports::{self, Options};
use nfs::filter::{
    FileSystem, Forward, Forwarder, OpenHere, Outcome, Part, Route, Subject, serve, subject,
};
use nfs::handle::{Key, Named};
use nfs::rpc::{Acceptance, Call, Credential, Reply, System};
use nfs::server::Server;
use nfs::v3::*;
use node::rings::{Caller, FileOp, FileReply};
use rig::Net;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wire::{Errno, FileId, NodeId, SiteOwner, Sites, VolumeId};

const KEY: Key = Key([3; 16]);
const VOLUME: VolumeId = VolumeId(4);

/// A manager's node with a file system in memory.
struct Manager {
    sites: Rc<RefCell<Sites>>,
    memory: Rc<RefCell<Memory>>,
    members: Rc<Cell<u16>>,
    is_root_hashed: Rc<Cell<bool>>,
    node: NodeId,
}

/// Even names are the first manager's.
fn site_of_name(_: FileId, name: &[u8]) -> u8 {
    name.last().expect("a name") % 2
}

impl FileSystem for Manager {
    async fn is_member(&self, node: NodeId) -> bool {
        node.0 <= self.members.get()
    }

    fn sites(&self) -> Option<Sites> {
        Some(self.sites.borrow().clone())
    }

    fn route(&self, file: FileId, part: &Part) -> Option<Route> {
        let is_hashed = self.is_root_hashed.get();
        let site = if is_hashed { part.site(file, site_of_name) } else { file.site() };
        let is_here = self.sites.borrow().get(site).manager == self.node;
        Some(Route { is_here, is_hashed })
    }

    async fn ask(&self, caller: Caller, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::GetXattr { .. } => Ok(FileReply::Bytes(KEY.0.to_vec())),
            op => self.memory.borrow_mut().serve(&caller, op),
        }
    }
}

/// Managers 1 and 2, and a filter.
struct World {
    net: Net,
    sites: Vec<Rc<RefCell<Sites>>>,
    memories: Vec<Rc<RefCell<Memory>>>,
    /// Nodes up to this one are members.
    members: Rc<Cell<u16>>,
    is_root_hashed: Rc<Cell<bool>>,
    forwarder: Forwarder,
    next: u64,
}

impl World {
    fn new() -> World {
        let net = Net::new(3);
        let (mut sites, mut memories) = (Vec::new(), Vec::new());
        let (members, is_root_hashed) = (Rc::new(Cell::new(3)), Rc::new(Cell::new(false)));
        for node in &net.nodes[..2] {
            let table = Rc::new(RefCell::new(Sites::all_at(NodeId(1))));
            let memory = Rc::new(RefCell::new(Memory::new(node.cx().frames().clone())));
            let manager = Manager {
                sites: table.clone(),
                memory: memory.clone(),
                members: members.clone(),
                is_root_hashed: is_root_hashed.clone(),
                node: node.cx().id(),
            };
            serve(node.cx(), VOLUME, manager);
            sites.push(table);
            memories.push(memory);
        }
        let forwarder = Forwarder::new(net.nodes[2].cx(), NodeId(1), site_of_name);
        World { net, sites, memories, members, is_root_hashed, forwarder, next: 0 }
    }

    /// A site is the second manager's; the filter does not know.
    fn move_site(&self, site: u8) {
        let owner = SiteOwner { epoch: 1, manager: NodeId(2) };
        self.sites.iter().for_each(|table| assert!(table.borrow_mut().learn(site, owner)));
    }

    /// CREATE in the root.
    fn send(&mut self, xid: u32, root: &[u8], name: &str) {
        let how = CreateHow::Guarded(Sattr::default());
        let place = DirOpArgs { dir: Handle(root), name: Path(name.as_bytes()) };
        let part = Part::Name(name.as_bytes().to_vec());
        self.start(part, record(xid, Args::Create(CreateArgs { place, how })));
    }

    /// READDIR of the root from a cookie.
    fn list(&mut self, xid: u32, root: &[u8], cookie: u64) {
        let (dir, verifier) = (Handle(root), cookies::VERIFIER);
        let args = Args::Readdir(ReaddirArgs { dir, cookie, verifier, count: 4096 });
        self.start(Part::Behind(cookie), record(xid, args));
    }

    fn start(&mut self, part: Part, record: Vec<u8>) {
        self.next += 1;
        let options = exports::parse("/ *(rw)").unwrap();
        let options = options.iter().next().unwrap().rules[0].options;
        let (file, path) = (FileId::ROOT, "/".to_string());
        let is_listing = matches!(part, Part::Behind(_));
        let subject = Subject { file, part, path, options, is_listing, names_files: false };
        let (number, client) = (self.next, "10.0.0.1:900".parse().unwrap());
        self.forwarder.start(Forward { number, client, subject, record });
    }

    /// Changes made at each manager.
    fn changes(&self) -> [usize; 2] {
        [0, 1].map(|number| self.memories[number].borrow().changes)
    }

    fn ended(&mut self) -> Option<Outcome> {
        let (forwarder, ended) = (self.forwarder.clone(), RefCell::new(None));
        self.net.until(|| {
            *ended.borrow_mut() = forwarder.take_done();
            ended.borrow().is_some()
        });
        ended.into_inner().unwrap().1
    }
}

fn record(xid: u32, args: Args<'_>) -> Vec<u8> {
    let (mut arguments, mut bytes) = (Vec::new(), Vec::new());
    args.put(&mut arguments);
    let credential = Credential::System(System { uid: 500, ..System::default() });
    let (program, version, procedure) = (PROGRAM, VERSION, args.procedure() as u32);
    Call { xid, program, version, procedure, credential, arguments: &arguments }.put(&mut bytes);
    bytes
}

fn handle(file: FileId) -> Vec<u8> {
    let export = exports::parse("/ *(rw)").unwrap().iter().next().unwrap().number();
    Named { volume: VOLUME, file, generation: 0, export }.encode(&KEY).to_vec()
}

fn status(outcome: &Outcome) -> Status {
    let (_, reply, results) = Reply::parse(&outcome.reply).unwrap();
    assert_eq!(reply, Reply::Accepted(Acceptance::Success));
    Results::decode(Procedure::Create, results).unwrap().status()
}

#[test]
fn a_change_is_made_once_over_links_that_lose_and_duplicate() {
    let mut world = World::new();
    world.net.fate = Box::new(|packet| (((packet * 7) % 3) as usize, (packet % 4) as usize));
    let root = handle(FileId::ROOT);
    for xid in 0..20 {
        let name = format!("file{xid}");
        // the client is impatient, and its duplicate has the same reply
        world.send(xid, &root, &name);
        world.send(xid, &root, &name);
        let [one, two] = [world.ended().unwrap(), world.ended().unwrap()];
        assert_eq!(status(&one), Status::Ok);
        assert_eq!(one.reply, two.reply);
        world.send(1000 + xid, &root, &name);
        assert_eq!(status(&world.ended().unwrap()), Status::Exist, "another call of that name");
    }
    assert_eq!(world.memories[0].borrow().changes, 20);
}

#[test]
fn a_manager_that_does_not_own_the_site_any_more_says_who_does() {
    let mut world = World::new();
    let root = handle(FileId::ROOT);
    world.send(1, &root, "first");
    assert_eq!(status(&world.ended().unwrap()), Status::Ok);
    world.move_site(0);
    for xid in 2..5 {
        let name = format!("file{xid}");
        world.send(xid, &root, &name);
        assert_eq!(status(&world.ended().unwrap()), Status::Ok);
    }
    assert_eq!(world.forwarder.counters().moved, 1, "it is learnt once");
    assert_eq!(world.changes(), [1, 3]);
}

#[test]
fn calls_to_a_manager_that_is_away_wait_and_end() {
    let mut world = World::new();
    let root = handle(FileId::ROOT);
    world.net.cut = Some(NodeId(1));
    world.send(1, &root, "late");
    world.net.run(5000);
    assert_eq!(world.forwarder.take_done(), None);
    world.net.cut = None;
    assert_eq!(status(&world.ended().unwrap()), Status::Ok);
    world.net.cut = Some(NodeId(1));
    world.send(2, &root, "never");
    assert_eq!(world.ended(), None, "its client decides");
    assert_eq!(world.forwarder.counters().dropped, 1);
}

#[test]
fn names_of_a_hashed_directory_go_to_the_managers_of_their_hashes() {
    let mut world = World::new();
    world.move_site(1);
    let root = handle(FileId::ROOT);
    world.is_root_hashed.set(true);
    for xid in 0..20 {
        world.send(xid, &root, &format!("file{xid}"));
        assert_eq!(status(&world.ended().unwrap()), Status::Ok);
    }
    assert_eq!(world.forwarder.counters().moved, 1, "by the first odd name");
    assert_eq!(world.changes(), [10, 10]);
    // another directory in its place: the second manager has nothing of it
    world.is_root_hashed.set(false);
    for xid in 20..24 {
        world.send(xid, &root, &format!("file{xid}"));
        assert_eq!(status(&world.ended().unwrap()), Status::Ok);
    }
    assert_eq!(world.changes(), [14, 10]);
    assert_eq!(world.forwarder.counters().moved, 2, "by one odd name");
}

/// A listing of a hashed directory is asked of the manager that has the entries behind its cookie, in one message.
#[test]
fn listings_of_a_hashed_directory_go_to_the_managers_of_their_cookies() {
    let mut world = World::new();
    world.move_site(1);
    world.move_site(9);
    let root = handle(FileId::ROOT);
    world.is_root_hashed.set(true);
    world.send(1, &root, "file1");
    world.ended().unwrap();
    let moved = world.forwarder.counters().moved;
    for (number, site) in [0u64, 1, 2, 9, 0, 1].into_iter().enumerate() {
        let cookie = cookies::to_client(FileId::ROOT, site << 48 | 5);
        let asked = |world: &World| [0, 1].map(|at| world.memories[at].borrow().listed);
        let before = asked(&world);
        world.list(10 + number as u32, &root, cookie);
        world.ended().unwrap();
        let at = usize::from(site == 1 || site == 9);
        let after = asked(&world);
        assert_eq!((after[at] - before[at], after[1 - at]), (1, before[1 - at]), "site {site}");
    }
    assert_eq!(world.forwarder.counters().moved, moved, "each was sent to its manager at once");
}

#[test]
fn a_node_that_is_no_member_has_nothing_executed() {
    let mut world = World::new();
    world.members.set(2);
    let root = handle(FileId::ROOT);
    world.send(1, &root, "refused");
    assert_eq!(world.ended(), None);
    assert_eq!(world.memories[0].borrow().changes, 0);
    world.members.set(3);
    world.send(2, &root, "executed");
    assert_eq!(status(&world.ended().unwrap()), Status::Ok);
}

/// The file that a filter has open.
struct Open(Option<FileId>);

impl OpenHere for Open {
    fn is_open(&self, file: FileId) -> bool {
        self.0 == Some(file)
    }
    fn is_any_open(&self) -> bool {
        self.0.is_some()
    }
}

/// Whether a manager executes the call.
fn is_forwarded(args: Args<'_>, client: &str, open: &Open) -> bool {
    let exports = exports::parse("/ 10.0.0.0/8(rw)").unwrap();
    let server = Server::new(VOLUME, KEY, exports, [0; 8]);
    let record = record(1, args);
    let call = Call::parse(&record).unwrap();
    let found = subject(&call, &server, client.parse().unwrap(), open);
    let options = |subject: &Subject| subject.options != Options::default();
    found.as_ref().is_some_and(options)
}

#[test]
fn what_depends_on_bytes_of_the_filter_stays_with_it() {
    let (here, other) = (FileId::new(3, 7), FileId::new(4, 8));
    let (one, two) = (handle(here), handle(other));
    let (nothing, open) = (Open(None), Open(Some(here)));
    let is_forwarded = |args: Args<'_>, open: &Open| is_forwarded(args, "10.0.0.1", open);
    let place = DirOpArgs { dir: Handle(&two), name: Path(b"name") };
    let create = |how| Args::Create(CreateArgs { place, how });
    let unchecked = create(CreateHow::Unchecked(Sattr::default()));
    let truncates = create(CreateHow::Unchecked(Sattr { size: Some(0), ..Sattr::default() }));
    let commit = CommitArgs { file: Handle(&one), offset: 0, count: 0 };
    assert!(!is_forwarded(Args::Commit(commit), &nothing));
    for (args, expected) in [
        (Args::Getattr(Handle(&one)), [true, false]),
        (Args::Getattr(Handle(&two)), [true, true]),
        (Args::Lookup(place), [true, true]),
        (unchecked, [true, true]),
        (truncates, [true, false]),
        (create(CreateHow::Guarded(Sattr::default())), [true, true]),
        (Args::Link(LinkArgs { file: Handle(&one), link: place }), [true, false]),
        (Args::Remove(place), [true, true]),
    ] {
        let found = [&nothing, &open].map(|open| is_forwarded(args, open));
        assert_eq!(found, expected, "{args:?}");
    }
}

#[test]
fn a_client_without_rights_reaches_no_manager() {
    let root = handle(FileId::ROOT);
    let nothing = Open(None);
    assert!(is_forwarded(Args::Getattr(Handle(&root)), "10.0.0.1", &nothing));
    assert!(!is_forwarded(Args::Getattr(Handle(&root)), "11.0.0.1", &nothing));
    assert!(!is_forwarded(Args::Getattr(Handle(&root[..31])), "10.0.0.1", &nothing));
}
