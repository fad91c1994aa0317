//! A manager whose store is restored from a backup, and what must hold then: names are those of the backup, a file has
//! its own bytes or is an error, every object of a file is still there, and no number of a file is given twice. Of
//! several managers all are restored from one backup, which is of one moment ([`crate::chain`]), or one of them alone:
//! then each name is of the backup, or of the end. Or a store is lost without a backup, and
//! [salvaged](crate::salvaging).

use crate::backup::{Backup, Backups};
use crate::chain::Chain;
use crate::machine::Images;
use crate::meta::StoresImage;
use crate::name_check::{NameCheck, Values};
use crate::queue::Picos;
use crate::random::{MILLION, Random};
use crate::salvaging::{Described, Wanted, check, check_broken, described, missable};
use crate::storage::Crash;
use crate::workload::Workload;
use crate::world::World;
use node::rings::DiskFile;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use wire::{FileId, NodeId};

/// A backup that takes longer was broken off.
const TAKES: Picos = Picos::seconds(2);

/// A backup with what each name may stand for in it.
#[derive(Debug)]
struct Kept {
    backup: Backup,
    begun: Picos,
    names: Values,
    /// Changes of the chain that were done before it began, and that had begun when it was there.
    chained: Range<u32>,
}

/// One that is being taken.
#[derive(Debug)]
struct Pending {
    number: u32,
    at: Picos,
    before: Values,
    chained: u32,
}

/// The backups of a run, and what is known of the cluster when it stopped.
#[derive(Debug, Default)]
pub struct Restoring {
    backups: Backups,
    /// All managers.
    managers: Vec<NodeId>,
    /// The backup that was gone back to, and whether all managers were.
    gone_back: Cell<Option<(usize, bool)>>,
    asked: Option<Pending>,
    count: u32,
    /// When backups are to be taken.
    due: Vec<Picos>,
    kept: Vec<Kept>,
    /// The names when the cluster stopped.
    names: NameCheck,
    objects: BTreeSet<(NodeId, usize, DiskFile)>,
    /// Files of which every column has its object.
    whole: BTreeSet<FileId>,
    numbers: BTreeSet<FileId>,
    /// Servers, where names are salvaged.
    salvages: Option<usize>,
    described: Described,
    /// The object that is lost with the names, in a round that has one.
    loses: Option<(NodeId, stripe::Kept)>,
    /// Files that may have lost objects, most of which never were on stable storage.
    unsynced: BTreeSet<FileId>,
    /// Machines that are still to be stopped cleanly, and the one that is stopping; whether all were.
    to_stop: Vec<NodeId>,
    stopping: Option<NodeId>,
    is_clean: bool,
}

impl Restoring {
    /// Backups of these managers are taken at these times.
    pub fn new(backups: Backups, managers: Vec<NodeId>, due: Vec<Picos>) -> Restoring {
        backups.chain().into_iter().for_each(|chain| chain.work(true));
        Restoring { backups, managers, due, ..Restoring::default() }
    }

    /// The work is over.
    pub fn rest(&self) {
        self.backups.chain().into_iter().for_each(|chain| chain.work(false));
    }

    fn chained(&self) -> Range<u32> {
        self.backups.chain().map_or(0..0, Chain::counts)
    }

    /// Names are salvaged, from the servers among these machines: all but the manager.
    pub fn salvaging(backups: Backups, mut to_stop: Vec<NodeId>, random: &mut Random) -> Restoring {
        let salvages = Some(to_stop.len() - 1);
        let first = random.index(to_stop.len());
        to_stop.rotate_left(first);
        Restoring { salvages, to_stop, ..Restoring::new(backups, Vec::new(), Vec::new()) }
    }

    /// Whether names are salvaged.
    pub fn salvages(&self) -> bool {
        self.salvages.is_some()
    }

    /// Whether the names are lost, and not salvaged yet.
    pub fn are_lost(&self) -> bool {
        self.backups.is_salvaging()
    }

    /// Stops all machines cleanly, one after the other; to be called until all are stopped.
    pub fn stop_cleanly(&mut self, world: &mut World) -> bool {
        if !self.backups.has_stopped() {
            return false;
        }
        self.stopping.iter().for_each(|node| world.crash(*node, Crash::Kill));
        self.stopping = self.to_stop.pop();
        self.stopping.iter().for_each(|node| self.backups.stop(*node));
        self.is_clean = self.stopping.is_none();
        self.is_clean
    }

    /// In each tick of the work.
    pub fn watch(&mut self, now: Picos, workload: &mut Workload) {
        if let Some(asked) = &self.asked {
            if let Some(backup) = self.backups.take(asked.number) {
                let asked = self.asked.take().expect("it is there");
                let mut names = workload.model_mut().names.values(asked.at);
                names.allow(&asked.before);
                // A change under way may be in it, or not.
                workload.under_way().iter().for_each(|change| names.allow_change(change));
                let (begun, chained) = (asked.at, asked.chained..self.chained().end);
                // A manager that had no sites yet has no part of it.
                if self.managers.iter().all(|manager| backup.managers().any(|it| it == *manager)) {
                    self.kept.push(Kept { backup, begun, names, chained });
                }
            } else if asked.at + TAKES < now {
                self.asked = None;
                self.due.push(now);
            }
        }
        if self.asked.is_none()
            && let Some(due) = self.due.iter().position(|at| *at <= now)
        {
            self.due.swap_remove(due);
            self.count += 1;
            let before = workload.model_mut().names.values(now);
            let chained = self.chained().start;
            self.asked = Some(Pending { number: self.count, at: now, before, chained });
            self.backups.want(self.count);
        }
    }

    /// The cluster has stopped, and everything was read: this is what it had.
    pub fn stopped(&mut self, images: &mut Images, workload: &mut Workload, random: &mut Random) {
        self.names = workload.model_mut().names.clone();
        self.numbers = self.names.files().collect();
        if self.salvages() {
            // Operating systems outlive their processes for long enough: power cuts of later take nothing of before.
            let volumes = images.values_mut().flat_map(|image| &mut image.disks);
            volumes.for_each(|volume| volume.sync_all(volume.changes()));
            self.unsynced = workload.model_mut().data.unsynced();
            let loses = random.chance(MILLION / 2);
            self.loses = if loses { missable(images, random) } else { None };
            self.described = described(images, self.loses);
            self.unsynced.extend(self.loses.iter().map(|(_, kept)| kept.object.file));
        }
        self.numbers.extend(self.backups.chain().into_iter().flat_map(Chain::files));
        let live: BTreeSet<FileId> = self.names.live().collect();
        for (node, image) in images.iter() {
            for (disk, volume) in image.disks.iter().enumerate() {
                for file in volume.names_from(DiskFile::Label) {
                    let DiskFile::Object(object) = file else { continue };
                    self.numbers.insert(object.file);
                    let kept = stripe::Kept { object, disk: disk as u8 };
                    if live.contains(&object.file) && self.loses != Some((*node, kept)) {
                        self.objects.insert((*node, disk, file));
                    }
                }
            }
        }
        self.whole = self.whole_files();
    }

    /// Files with objects of all columns from the first to the last that there is, and of more than one. Others may be
    /// refused: what is a hole of a file that was open at the backup may have had bytes.
    fn whole_files(&self) -> BTreeSet<FileId> {
        let mut columns: BTreeMap<FileId, BTreeSet<u16>> = BTreeMap::new();
        for (_, _, file) in &self.objects {
            let DiskFile::Object(object) = file else { continue };
            columns.entry(object.file).or_default().insert(object.column);
        }
        let is_whole = |columns: &BTreeSet<u16>| {
            columns.len() > 1
                && columns.last().map(|last| usize::from(*last) + 1) == Some(columns.len())
        };
        columns.into_iter().filter(|(_, columns)| is_whole(columns)).map(|(file, _)| file).collect()
    }

    /// The stores of all managers, or of one, are restored from one of the backups; that one, or any, and what was
    /// done. `None` when there is no backup.
    pub fn restore(
        &self,
        random: &mut Random,
        world: &mut World,
        workload: &mut Workload,
    ) -> Result<Option<(NodeId, String)>, String> {
        if self.kept.is_empty() {
            return Ok(None);
        }
        let which = random.below(self.kept.len() as u64) as usize;
        let Kept { backup, begun, names, chained } = &self.kept[which];
        let (lost, victim) = match self.managers[..] {
            [manager] => (vec![manager], manager),
            _ => {
                let victim = *random.pick(&self.managers);
                let all = random.chance(MILLION / 2);
                (if all { self.managers.clone() } else { vec![victim] }, victim)
            }
        };
        for manager in &lost {
            world.machine_mut(*manager).meta.restore(&backup.restore(*manager)?);
        }
        let is_all = lost.len() == self.managers.len();
        self.gone_back.set(Some((which, is_all)));
        let model = workload.model_mut();
        match is_all {
            true => model.names.go_back(names),
            false => model.names.go_back_in_part(names),
        }
        model.restored = true;
        let live: BTreeSet<FileId> = self.names.live().collect();
        model.whole.clone_from(&self.whole);
        model.data.came_back(|file| !live.contains(&file), *begun);
        let (number, count) = (which + 1, self.kept.len());
        let said = format!("{lost:?} restored from backup {number} of {count}, {chained:?}");
        Ok(Some((victim, said)))
    }

    /// The manager's stores are lost, unless no manager was ever there for long enough that objects were told of their
    /// files: no server may know then that there was one.
    pub fn lose(&self, manager: NodeId, world: &mut World, workload: &mut Workload) -> bool {
        if self.described.is_empty() {
            return false;
        }
        world.machine_mut(manager).meta.restore(&StoresImage::default());
        let kept: BTreeSet<FileId> = self.names.live().chain(self.names.at_root()).collect();
        let data = &mut workload.model_mut().data;
        data.came_back(|file| !kept.contains(&file), Picos::ZERO);
        let servers = self.salvages.expect("names are salvaged");
        self.backups.salvage(Wanted { servers, loses: self.loses });
        true
    }

    /// The server that has just lost an object with the names, and is to be started anew.
    pub fn forgets(&self) -> Option<NodeId> {
        self.backups.forgets()
    }

    /// How often it was begun to salvage them.
    pub fn attempts(&self) -> u32 {
        self.backups.attempts()
    }

    /// Whether it is begun in a moment, or under way.
    pub fn is_near(&self) -> bool {
        self.backups.is_near()
    }

    /// Whether the names are salvaged, and can be read. The error names the violation.
    pub fn is_salvaged(&self, workload: &mut Workload) -> Result<bool, String> {
        let Some(back) = self.backups.salvaged() else { return Ok(false) };
        let files = check(&back, &self.described, &self.unsynced, (&self.names, self.is_clean))?;
        self.backups.broken().map_or(Ok(()), |file| check_broken(&back, file))?;
        workload.model_mut().salvaged = Some(files);
        Ok(true)
    }

    /// Before each round: names are what they were when the cluster stopped.
    pub fn begin(&self, workload: &mut Workload) {
        self.gone_back.set(None);
        let model = workload.model_mut();
        model.names = self.names.clone();
        model.restored = false;
        model.salvaged = None;
        model.whole.clear();
    }

    fn check_chain(&self) -> Result<(), String> {
        let (Some((which, is_all)), Some(seen)) = (self.gone_back.get(), self.backups.seen())
        else {
            return Ok(());
        };
        let taken = &self.kept[which].chained;
        match is_all {
            true => seen.check(taken),
            false => seen.check_mixed(taken, self.chained().end),
        }
    }

    /// Files are to be made in the restored volume.
    pub fn make(&self) {
        self.backups.make();
    }

    /// Whether they are made, and all is as it must be.
    pub fn is_made(&self, world: &World) -> Result<bool, String> {
        let Some(made) = self.backups.made() else { return Ok(false) };
        self.check_chain()?;
        if let Some(file) = made.iter().find(|file| self.numbers.contains(file)) {
            return Err(format!("{file:?} is the number of a file that was there before"));
        }
        for (node, disk, file) in &self.objects {
            if world.machine(*node).disks[*disk].volume().get(*file).is_none() {
                return Err(format!(
                    "{node} disk {disk}: {file:?} is gone before a person said go"
                ));
            }
        }
        Ok(true)
    }
}
