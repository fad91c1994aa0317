//! The machine's side: a task that answers REPORT on [`Channel::STATUS`].
//!
//! | op | body | answer's body | answer's data |
//! | --- | --- | --- | --- |
//! | REPORT | offset 4 | bytes of the whole report 4 | the report from the offset on, at most a page |
//! | RELEASE | address of a client of NFS 16 | locks that it had 8 | |
//!
//! A report longer than a page is asked for in steps; the step at 0 makes it, the others read what that made for the
//! same asker. Reports of a few askers are kept; who comes back later hears EAGAIN, and may begin again.

use super::ethernet::Ethernet;
use super::import::{Import, SharedOrigin};
use super::keys::Keys;
use super::memory::Memory;
use super::nfs::{Nfs, SharedFront};
use super::reads::Reads;
use super::report::{
    CopiesAt, Disk, Io, Lease, Link, Mount, Pool, Report, Rpc, Scrub, StoreHealth, Wait,
};
use crate::machine_stat;
use crate::older::{name_of, older_text};
use endpoint::limits::PAGE_BYTES;
use kv::Items;
use live::host::Host;
use live::link::{Directory, PeerStatus};
use live::wait::WaitCounters;
use node::{Answer, Cx, Request};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use stripe::{DiskUsage, Health};
use wire::codec::{Decoder, Encoder};
use wire::{Channel, Errno, NodeId, Time};

/// Asks for a part of the report.
pub const REPORT: u16 = 1;
/// Releases the locks of a client of NFS that is gone for good. EOPNOTSUPP: this machine serves no NFS.
pub const RELEASE: u16 = 2;
/// Bytes of one answer.
pub const PART_BYTES: usize = 64 << 10;
/// How long objects are counted for a report: half of what the asker waits.
const CENSUS_SPAN: Duration = Duration::from_secs(1);
/// Links in a report: 512 of some 250 bytes are 128 KiB.
pub const LINKS_MAX: usize = 512;
/// Askers whose reports are kept.
const ASKERS_MAX: usize = 8;

/// Keys and values that sockets serve beside.
pub type SharedItems = Rc<RefCell<Items>>;

/// A machine's services for others than the cluster, once they run.
#[derive(Clone, Default)]
pub struct Beside {
    /// Clients of NFS that it serves.
    pub nfs: SharedFront,
    /// The origin of its import.
    pub origin: SharedOrigin,
}

/// The parts that a report is made of.
pub struct Source {
    /// The node.
    pub cx: Cx,
    /// Its I/O server.
    pub io: Option<stripe::Server>,
    /// Its manager of names.
    pub names: Option<names::Handle>,
    /// Its members' service.
    pub members: Option<members::Service>,
    /// Its network memory.
    pub memory: Option<netmem::Service>,
    /// Its files, if it is a client.
    pub files: Option<files::Files>,
    /// Its keys and values.
    pub keys: Option<SharedItems>,
    /// Its services for others than the cluster.
    pub beside: Beside,
    /// Its links.
    pub directory: Directory,
    /// Its waiting.
    pub waits: Rc<Cell<WaitCounters>>,
    /// Directories of its disks.
    pub disks: Vec<PathBuf>,
    /// Limit of its cache, in bytes.
    pub cache_bytes: u64,
}

/// Starts the service.
pub fn serve(source: Source) {
    let cx = source.cx.clone();
    // it only tells, and a second release finds nothing
    cx.set_pure(Channel::STATUS, |_| true);
    cx.spawn("status", async move {
        let started = source.cx.now();
        let mut reports = Reports::default();
        loop {
            let request = source.cx.accept(Channel::STATUS).await;
            if request.op == RELEASE {
                source.release(request);
                continue;
            }
            let offset = Decoder::new(&request.body).u32().unwrap_or(0) as usize;
            if offset == 0 {
                let report = source.report(started).await;
                let text = serde_json::to_vec(&report).expect("numbers and texts");
                reports.keep(request.source, text);
            }
            source.answer(request, &reports, offset);
        }
    });
}

/// The last reports, of a few askers each its own.
#[derive(Default)]
struct Reports(VecDeque<(NodeId, Vec<u8>)>);

impl Reports {
    fn keep(&mut self, asker: NodeId, text: Vec<u8>) {
        self.0.retain(|(other, _)| *other != asker);
        self.0.truncate(ASKERS_MAX - 1);
        self.0.push_front((asker, text));
        assert!(self.0.len() <= ASKERS_MAX);
    }

    /// The report for an asker from an offset on, and bytes of the whole.
    fn part(&self, asker: NodeId, offset: usize) -> Result<(&[u8], usize), Errno> {
        let (_, text) = self.0.iter().find(|(other, _)| *other == asker).ok_or(Errno::EAGAIN)?;
        let rest = text.get(offset..).ok_or(Errno::EINVAL)?;
        Ok((&rest[..rest.len().min(PART_BYTES)], text.len()))
    }
}

impl Source {
    /// Of a front end that is in no cluster.
    pub fn of_keys(host: &Host, items: SharedItems) -> Source {
        Source {
            cx: host.node().cx().clone(),
            io: None,
            names: None,
            members: None,
            memory: None,
            files: None,
            keys: Some(items),
            beside: Beside::default(),
            directory: Directory::default(),
            waits: host.waits(),
            disks: Vec::new(),
            cache_bytes: 0,
        }
    }

    fn answer(&self, request: Request, reports: &Reports, offset: usize) {
        let cx = &self.cx;
        let is_known = if request.op == REPORT { Ok(()) } else { Err(Errno::EINVAL) };
        let (part, whole) = match is_known.and_then(|()| reports.part(request.source, offset)) {
            Ok(part) => part,
            Err(errno) => return cx.reply(request, Answer::error(errno)),
        };
        let mut body = [0; 4];
        Encoder::new(&mut body).u32(whole as u32);
        match cx.frames().copy_of(part) {
            Some(frame) => {
                cx.reply(request, Answer { body: &body, data: &[frame], ..Answer::DONE })
            }
            None => cx.reply(request, Answer::error(Errno::ENOMEM)),
        }
    }

    fn release(&self, request: Request) {
        let cx = &self.cx;
        let Some(address) = request.body.first_chunk::<16>() else {
            return cx.reply(request, Answer::error(Errno::EINVAL));
        };
        let client = IpAddr::V6((*address).into()).to_canonical();
        let nfs = self.beside.nfs.borrow();
        let Some(front) = nfs.as_ref() else {
            return cx.reply(request, Answer::error(Errno::EOPNOTSUPP));
        };
        let released = front.borrow().server().locks().borrow_mut().drop_client(client);
        let body = (released as u64).to_le_bytes();
        cx.reply(request, Answer { body: &body, ..Answer::DONE });
    }

    /// All that it tells now, of a machine that started then.
    pub async fn report(&self, started: Time) -> Report {
        let own = std::process::id();
        let io = self.io.as_ref();
        let (groups, groups_lacking) = self.groups();
        Report {
            machine: live::boot::number(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            uptime_s: self.cx.now().since(started).as_secs(),
            resident_bytes: machine_stat::process_memory(own).unwrap_or(0),
            cpu_ms: machine_stat::process_time(own).map_or(0, |time| time.as_millis() as u64),
            pool: self.pool(),
            io: io.map(|io| self.io(io)),
            memory: self.memory.as_ref().map(Memory::of),
            mount: self.files.as_ref().map(|files| Mount::counted(&files.report())),
            keys: self.keys.as_ref().map(|items| Keys::of(&items.borrow())),
            nfs: self.nfs(),
            import: self.import(),
            disks: self.disk_reports().await,
            ethernet: self.directory.ethernet().as_ref().map(Ethernet::counted),
            links: self.links(),
            wait: Wait::counted(&self.waits.get()),
            rpc: Rpc::counted(&self.cx.rpc_counters()),
            stores: self.stores().map(|(name, health)| StoreHealth::of(name, &health)).collect(),
            sites: self.sites(),
            mkdir_switching: self.names.as_ref().map_or(0, names::Handle::mkdir_switching).into(),
            groups,
            groups_lacking,
            copies_at: self.copies_at(),
            whole_copies: io.map_or(0, |io| io.whole_replicas() as u64),
            gone_files: self.names.as_ref().map_or(0, names::Handle::gone_files),
            restored_due: self.restoration().due,
            restored_lost: self.restoration().lost,
            problems: self.problems(),
            leases: self.leases(),
        }
    }

    /// How many sites its manager owns.
    fn sites(&self) -> u64 {
        let sites = self.names.as_ref().map(names::Handle::sites);
        sites.map_or(0, |sites| sites.of(self.cx.id()).count() as u64)
    }

    fn nfs(&self) -> Option<Nfs> {
        self.beside.nfs.borrow().as_ref().map(|front| Nfs::of(&front.borrow()))
    }

    fn import(&self) -> Option<Import> {
        self.beside.origin.borrow().as_ref().map(|origin| Import::of(origin.standing()))
    }

    fn problems(&self) -> Vec<String> {
        let names = self.names.as_ref().and_then(names::Handle::trouble);
        let names = names.map(|error| {
            let errno = if error.full { "ENOSPC" } else { "EIO" };
            format!("changes of names are refused with {errno}: {}", error.reason)
        });
        let io = self.io.as_ref().map(stripe::Server::problems).unwrap_or_default();
        let damage = self.stores().filter_map(|(name, health)| Some((name, health.damage?)));
        let damage = damage.map(|(name, damage)| format!("{name}: {damage}"));
        let older = self.older();
        let io = io.into_iter().chain(older);
        let restored = self.frozen().into_iter().chain(self.compared());
        let import = self.import().and_then(|import| import.problem());
        io.chain(names).chain(damage).chain(restored).chain(self.younger()).chain(import).collect()
    }

    /// Of a store that is not the newest.
    fn older(&self) -> Option<String> {
        let older = self.names.as_ref()?.older()?;
        let name = self.members.as_ref().and_then(|members| name_of(members, &older));
        Some(older_text(&older, name.as_deref()))
    }

    /// Of names that were restored.
    fn frozen(&self) -> Option<String> {
        self.names.as_ref()?.is_frozen().then(|| {
            "the names were restored: what the disks have and no file claims is neither set aside nor purged. Look \
             at `trapeze check`, and when all is as it should be, `trapeze quarantine resume`"
                .to_string()
        })
    }

    fn restoration(&self) -> names::Restoration {
        self.names.as_ref().map(names::Handle::restoration).unwrap_or_default()
    }

    /// Of the files of such a volume.
    fn compared(&self) -> Vec<String> {
        let names::Restoration { due, lost } = self.restoration();
        let due = (due > 0).then(|| {
            format!(
                "{} left to compare with what the disks have; what is opened comes first",
                files_text(due)
            )
        });
        let lost = (lost > 0).then(|| {
            format!(
                "{} whose objects are not on the disks any more: `trapeze check` names them; `rm` them or, to use \
                 what is left, `trapeze check --accept PATH`",
                files_text(lost)
            )
        });
        due.into_iter().chain(lost).collect()
    }

    /// Of objects that the manager's store may be too old to know.
    fn younger(&self) -> Option<String> {
        let count = self.names.as_ref()?.quarantine().younger_now;
        (count > 0).then(|| {
            format!(
                "the disks have {count} objects of files that the manager's store does not know: it is an older copy, \
                 or a power cut took the names of new files. None of them is touched, and nothing is purged from \
                 quarantine. Bring the newest store back if there is one; if not, `trapeze quarantine resume`"
            )
        })
    }

    /// The stores of a manager.
    fn stores(&self) -> impl Iterator<Item = (&'static str, store::Health)> {
        let names = self.names.as_ref().map(|names| ("names", names.health()));
        let members = self.members.as_ref().map(|members| ("members", members.health()));
        names.into_iter().chain(members)
    }

    fn pool(&self) -> Pool {
        let frames = self.cx.frames();
        let bytes = |pages| (pages * PAGE_BYTES) as u64;
        Pool {
            bytes: bytes(frames.pages()),
            free_bytes: bytes(frames.free_pages()),
            free_bytes_min: bytes(frames.low_water_pages()),
        }
    }

    fn io(&self, server: &stripe::Server) -> Io {
        Io {
            cache_bytes: self.cache_bytes,
            found: Reads::of(&server.sources()),
            damaged_objects: server.damaged().len() as u64,
            ..Io::counted(&server.counters())
        }
    }

    async fn disk_reports(&self) -> Vec<Disk> {
        let Some(io) = &self.io else { return Vec::new() };
        // Before their states: who is asked may turn out to be missing.
        let held = io.held(self.cx.now() + CENSUS_SPAN).await;
        let all = self.disks.iter().zip(io.disks()).zip(held);
        let now = self.cx.now();
        let reports = all.map(|((path, health), held)| disk_report(path, health, held));
        let scrubs = io.scrubbed();
        let scrubbed = scrubs.iter().map(|scrubbed| Scrub::of(scrubbed, now));
        reports.zip(scrubbed).map(|(disk, scrub)| Disk { scrub, ..disk }).collect()
    }

    fn links(&self) -> Vec<Link> {
        let all = self.directory.status();
        let told = all.into_iter().filter(|(id, status)| is_of_use(*id, status));
        told.take(LINKS_MAX)
            .map(|(id, status)| Link { peer: id.0, ..Link::counted(&status) })
            .collect()
    }

    /// How many groups there are, and of how many a copy lacks.
    fn groups(&self) -> (u64, u64) {
        let Some(members) = &self.members else { return (0, 0) };
        let table = members.groups();
        let lacking = table.iter().filter(|(_, group)| group.lacks() > 0).count();
        (table.len() as u64, lacking as u64)
    }

    fn copies_at(&self) -> Vec<CopiesAt> {
        let Some(members) = &self.members else { return Vec::new() };
        let mut counts = BTreeMap::new();
        for (_, group) in members.groups().iter() {
            for replica in group.in_sync() {
                *counts.entry(replica.server.0).or_default() += 1;
            }
        }
        counts.into_iter().map(|(node, groups)| CopiesAt { node, groups }).collect()
    }

    fn leases(&self) -> Vec<Lease> {
        let Some(members) = &self.members else { return Vec::new() };
        let (registry, now) = (members.registry(), self.cx.now());
        let lease = |member: &members::Member| {
            let until = registry.until(member.id).unwrap_or(now);
            let span = if member.alive { until.since(now) } else { now.since(until) };
            Lease { node: member.id.0, alive: member.alive, ms: span.as_millis() as u64 }
        };
        registry.members().map(lease).collect()
    }
}

fn files_text(count: u64) -> String {
    if count == 1 { "1 file".into() } else { format!("{count} files") }
}

fn disk_report(path: &Path, health: Health, held: DiskUsage) -> Disk {
    let state = match health {
        Health::Serving => "serving".to_string(),
        Health::Starting => "starting".to_string(),
        Health::Refused(_, why) => why,
    };
    Disk {
        path: path.display().to_string(),
        device: std::fs::metadata(path).map_or(0, |it| it.dev()),
        state,
        total_bytes: held.total_bytes,
        free_bytes: held.free_bytes,
        objects: held.objects,
        held_bytes: held.bytes,
        counted: held.complete,
        scrub: Scrub::default(),
    }
}

/// Connected peers, and servers that should be.
fn is_of_use(id: NodeId, status: &PeerStatus) -> bool {
    !status.transport.is_empty() || members::limits::SERVER_IDS.contains(&id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that an asker reads from the offset on.
    fn read(reports: &Reports, asker: NodeId, from: usize) -> Result<Vec<u8>, Errno> {
        let mut text = vec![0; from];
        loop {
            let (part, whole) = reports.part(asker, text.len())?;
            text.extend_from_slice(part);
            if text.len() == whole {
                return Ok(text);
            }
        }
    }

    #[test]
    fn each_asker_reads_its_own_report_to_the_end() {
        let (mut reports, one, other) = (Reports::default(), NodeId(7), NodeId(8));
        let report = |byte| vec![byte; 2 * PART_BYTES + 5];
        reports.keep(one, report(1));
        assert_eq!(reports.part(one, 0).unwrap().0.len(), PART_BYTES);
        reports.keep(other, report(2));
        let rest = read(&reports, one, PART_BYTES).unwrap();
        assert!(rest[PART_BYTES..].iter().all(|byte| *byte == 1));
        assert_eq!(read(&reports, other, 0), Ok(report(2)));
        reports.keep(one, report(3));
        assert_eq!(read(&reports, one, 0), Ok(report(3)), "the last one");
        assert_eq!(reports.part(one, 2 * PART_BYTES + 6), Err(Errno::EINVAL));
    }

    #[test]
    fn the_reports_of_a_few_askers_are_kept() {
        let mut reports = Reports::default();
        let askers = || (1..).map(NodeId).take(ASKERS_MAX + 1);
        askers().for_each(|asker| reports.keep(asker, vec![asker.0 as u8; 3]));
        assert_eq!(reports.part(NodeId(1), 0), Err(Errno::EAGAIN));
        for asker in askers().skip(1) {
            assert_eq!(read(&reports, asker, 0), Ok(vec![asker.0 as u8; 3]));
        }
    }
}
