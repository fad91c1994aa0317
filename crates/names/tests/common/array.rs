//! Several managers of one volume and clients, over a link that may lose, delay and repeat.

use super::cluster::{Fake, SERVERS, WHO};
use super::{Output, ROOT, config, finish};
use names::{
    Client, Config, Handle, IoServer, NotTaken, PartOf, Snapshot, VolumeSettings, Who, accept,
    restored, serve,
};
use node::rings::{MetaDone, MetaOp, MetaRoom};
use rig::{Net, node};
use std::collections::BTreeSet;
use store::{Entry, Filling, MemoryBackend, MemoryLogs, Store};
use wire::{Errno, FileId, NodeId, VolumeId};

/// The manager that the volume is made at.
pub const FIRST: NodeId = NodeId(1);

/// A view of the members in which all are that are ever there.
const VIEW: u64 = 1;

/// One manager; it is on the node with its number.
pub struct Seat {
    pub backend: MemoryBackend,
    pub logs: MemoryLogs,
    pub incarnation: u64,
    pub handle: Option<Handle>,
    /// Its machine is off.
    pub is_down: bool,
    /// It was taken out, and its machine is no more.
    pub is_gone: bool,
    pub syncs: u64,
}

/// Managers on the first nodes, clients on the others.
pub struct Array {
    pub net: Net,
    pub objects: Fake,
    pub seats: Vec<Seat>,
}

impl Array {
    pub fn new(managers: u16, clients: u16) -> Array {
        let seat = |_| Seat {
            backend: MemoryBackend::new(),
            logs: MemoryLogs::new(),
            incarnation: 1,
            handle: None,
            is_down: false,
            is_gone: false,
            syncs: 0,
        };
        let net = Net::new(managers + clients);
        let seats = (0..managers).map(seat).collect();
        let mut array = Array { net, objects: Fake::default(), seats };
        (0..managers.into()).for_each(|at| array.start(at));
        array
    }

    /// The same, with the sites spread over all managers.
    pub fn spread(managers: u16, clients: u16) -> Array {
        Array::spread_over(managers, managers, clients)
    }

    /// The same, over the first ones of `all` managers.
    pub fn spread_over(managers: u16, all: u16, clients: u16) -> Array {
        let mut array = Array::new(all, clients);
        for site in 1..=u8::MAX {
            let to = u16::from(site) % managers;
            if to > 0 {
                array.give(0, site, NodeId(to + 1)).unwrap();
            }
        }
        array
    }

    fn start(&mut self, at: usize) {
        let (gone, managers) = (self.gone(), self.others(at));
        let seat = &mut self.seats[at];
        let logs: Vec<_> = seat.logs.contents().collect();
        let store = Store::open(seat.backend.clone(), config(), logs).unwrap();
        let servers = SERVERS.map(IoServer::from).to_vec();
        let mut volume = VolumeSettings::new(VolumeId(5));
        volume.switch_per_mille = 700;
        let first = (at > 0).then_some(FIRST);
        let config =
            Config { volume, servers, witnesses: Vec::new(), scrub: None, first, managers };
        let cx = self.net.nodes[at].cx();
        let handle = serve(cx, config, store, self.objects.clone()).unwrap();
        handle.hear_members(0, gone);
        seat.handle = Some(handle);
        seat.is_down = false;
    }

    /// kill -9 of a manager.
    pub fn kill(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        seat.backend = seat.backend.kill();
        self.stop(at);
    }

    /// Its machine loses power: what was not synced is gone.
    pub fn cut(&mut self, at: usize) {
        let (seat, mut nothing) = (&mut self.seats[at], || 0);
        seat.backend = seat.backend.crash(&mut nothing);
        seat.logs.crash(&mut nothing);
        self.stop(at);
    }

    fn stop(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        seat.incarnation += 1;
        (seat.handle, seat.is_down) = (None, true);
        // The number has no node until it starts again.
        self.net.nodes[at] = node(at as u16 + 1, seat.incarnation);
    }

    /// The files of a manager's store as they are now.
    pub fn copy(&self, at: usize) -> (Vec<u8>, MemoryLogs) {
        (self.seats[at].backend.contents(), self.seats[at].logs.clone())
    }

    /// A manager that was stopped has a copy of its store from before, taken as it is by a person.
    pub fn restore(&mut self, at: usize, (checkpoint, mut logs): (Vec<u8>, MemoryLogs)) {
        let backend = MemoryBackend::with(checkpoint);
        let mut store = Store::open(backend.clone(), config(), logs.contents()).unwrap();
        for append in accept(&mut store).unwrap() {
            logs.append(append.log, &append.bytes);
        }
        drop(store);
        self.replace_store(at, MemoryBackend::with(backend.contents()), logs);
    }

    /// A client of this number makes directories: one at each manager, outside of the root's site, and its name.
    pub fn one_of_each<const MANAGERS: usize>(
        &mut self,
        number: usize,
        client: &Client,
    ) -> [(String, FileId); MANAGERS] {
        let maker = client.clone();
        let made = self.run_client(number, async move { directories(&maker).await });
        let sites = self.seats[0].handle.as_ref().unwrap().sites();
        let of = |at: usize| {
            let manager = NodeId(at as u16 + 1);
            let is_there = |d: FileId| d.site() != ROOT.site() && sites.manager_of(d) == manager;
            made.iter().find(|(_, d)| is_there(*d)).cloned().unwrap()
        };
        std::array::from_fn(of)
    }

    /// Takes a backup as a client of this number, with all rows of each snapshot.
    pub fn back_up(&mut self, number: usize) -> Backup {
        let client = self.client(number);
        self.run_client(number, async move { back_up(&client).await.unwrap() })
    }

    /// A manager that was stopped has an empty store that is filled from a backup.
    pub fn restore_from(&mut self, at: usize, backup: &Backup) {
        let own = NodeId(at as u16 + 1);
        let backend = MemoryBackend::new();
        let mut filling = Filling::new(Store::open(backend.clone(), config(), Vec::new()).unwrap());
        for (Snapshot { manager, sites, .. }, rows) in backup {
            let sites = sites.iter().copied();
            let part = if *manager == own { PartOf::own(sites) } else { PartOf::other(sites) };
            rows.iter().for_each(|(key, value)| {
                filling.put(restored(&part, key, value).unwrap()).unwrap();
            });
        }
        filling.end().unwrap();
        self.replace_store(at, backend, MemoryLogs::new());
    }

    /// A manager that was stopped has an empty store.
    pub fn lose(&mut self, at: usize) {
        self.replace_store(at, MemoryBackend::new(), MemoryLogs::new());
    }

    fn replace_store(&mut self, at: usize, backend: MemoryBackend, logs: MemoryLogs) {
        let seat = &mut self.seats[at];
        (seat.backend, seat.logs) = (backend, logs);
        // A minute later, behind all that the original has given out.
        seat.incarnation += 60_000_000_000;
        self.net.nodes[at] = node(at as u16 + 1, seat.incarnation);
    }

    /// Its next incarnation.
    pub fn start_again(&mut self, at: usize) {
        self.start(at);
    }

    /// Hands a site over.
    pub fn give(&mut self, from: usize, site: u8, to: NodeId) -> Result<(), Errno> {
        let handle = self.seats[from].handle.clone().unwrap();
        self.run(from, async move { handle.give(site, to).await })
    }

    fn gone(&self) -> BTreeSet<NodeId> {
        let is_gone = |at: &usize| self.seats[*at].is_gone;
        (0..self.seats.len()).filter(is_gone).map(|at| NodeId(at as u16 + 1)).collect()
    }

    /// The managers that were not taken out, but for this one.
    pub fn others(&self, at: usize) -> Vec<NodeId> {
        let is_there = |other: &usize| *other != at && !self.seats[*other].is_gone;
        let others = (0..self.seats.len()).filter(is_there);
        others.map(|other| NodeId(other as u16 + 1)).collect()
    }

    /// Gives to others what a manager owns; whether it has drained.
    pub fn drain(&mut self, at: usize) -> Result<(), Errno> {
        let (others, handle) = (self.others(at), self.seats[at].handle.clone().unwrap());
        let own: Vec<u8> = handle.sites().of(NodeId(at as u16 + 1)).collect();
        for site in own {
            // A site that is in use, or whose next owner is away, is given by the next call.
            let _ = self.give(at, site, others[usize::from(site) % others.len()]);
        }
        self.run(at, async move { handle.drain(VIEW, others).await })
    }

    /// Takes a manager out, whose machine is then no more.
    pub fn take_out(&mut self, at: usize) {
        let mut tries = 0;
        while let Err(errno) = self.drain(at) {
            tries += 1;
            assert!(tries < 60, "it does not drain: {errno}");
            self.turns(1_000);
        }
        self.cut(at);
        self.seats[at].is_gone = true;
        let gone = self.gone();
        for handle in self.seats.iter().filter_map(|seat| seat.handle.as_ref()) {
            handle.hear_members(0, gone.clone());
        }
    }

    pub fn turn(&mut self) {
        self.net.turn();
        for (at, seat) in self.seats.iter_mut().enumerate() {
            while let Some(request) = self.net.nodes[at].take_meta() {
                let mut result = Ok(());
                match request.op {
                    MetaOp::Append { log, bytes } => seat.logs.append(log, &bytes),
                    MetaOp::Sync { log } => {
                        seat.syncs += 1;
                        seat.logs.sync(log);
                    }
                    MetaOp::Checkpoint(work) => result = work.run().map_err(Into::into),
                    MetaOp::DropLog { log } => seat.logs.remove(log),
                    MetaOp::Room => {}
                }
                let (ticket, room) = (request.ticket, MetaRoom::Plenty);
                self.net.nodes[at].meta_done(MetaDone { ticket, result, room });
            }
        }
    }

    pub fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    pub fn client(&self, number: usize) -> Client {
        let at = self.seats.len() + number;
        Client::new(self.net.nodes[at].cx(), FIRST, VolumeId(5))
    }

    /// Starts a task on a node; what it will bring.
    pub fn begin<T: 'static>(
        &self,
        at: usize,
        task: impl Future<Output = T> + 'static,
    ) -> Output<T> {
        rig::start(self.net.nodes[at].cx(), task)
    }

    pub fn finish<T>(&mut self, output: Output<T>) -> T {
        finish(output, || self.turn())
    }

    /// Runs a task on a node.
    pub fn run<T: 'static>(&mut self, at: usize, task: impl Future<Output = T> + 'static) -> T {
        let output = self.begin(at, task);
        self.finish(output)
    }

    /// Runs a task on a client's node.
    pub fn run_client<T: 'static>(
        &mut self,
        number: usize,
        task: impl Future<Output = T> + 'static,
    ) -> T {
        self.run(self.seats.len() + number, task)
    }
}

/// Snapshots of all managers with their rows.
pub type Backup = Vec<(Snapshot, Vec<Entry>)>;

/// Takes a backup.
pub async fn back_up(client: &Client) -> Result<Backup, NotTaken> {
    let mut backup = Backup::new();
    for snapshot in client.snapshot(&Who::ROOT).await? {
        let mut rows: Vec<Entry> = Vec::new();
        loop {
            let after = rows.last().map(|(key, _)| key.clone()).unwrap_or_default();
            let part = client.back_up(&Who::ROOT, &snapshot, false, &after).await.unwrap();
            rows.extend(part.rows);
            if part.last {
                break;
            }
        }
        backup.push((snapshot, rows));
    }
    Ok(backup)
}

/// Directories of the root with their names, so many that each of some managers has one.
pub async fn directories(client: &Client) -> Vec<(String, FileId)> {
    let mut made = Vec::new();
    for i in 0..24 {
        let name = format!("d{i}");
        let d = client.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
        made.push((name, d.attr.file));
    }
    made
}

/// A directory of the root that is at another site than the root.
pub async fn directory_elsewhere(client: &Client) -> FileId {
    for i in 0.. {
        let name = format!("d{i}");
        let made = client.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
        if made.attr.file.site() != ROOT.site() {
            return made.attr.file;
        }
    }
    unreachable!("mkdir switching")
}
