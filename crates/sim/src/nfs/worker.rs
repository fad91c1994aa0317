//! One application on an NFS mount: one call after the other, each reply checked.
//!
//! It changes names in a directory of its own and writes files there, reads those of others, and creates files in the
//! root directory that all others create too. Its mount is hard: a call is repeated until it is answered.

use super::act::{Act, Places, number_of};
use super::bytes::{CELL_BYTES, CELLS, Era, check};
use super::listing::{Listing, Page};
use super::shared::{RACES, Shared};
use super::tree::{Change, Outcome, Tree};
use crate::queue::Picos;
use crate::random::{MILLION, Random};
use nfs::client::{Client, Reply};
use nfs::mount::MntResult;
use nfs::v3::{CreateOk, LookupOk, Results, StableHow, Status};
use std::collections::VecDeque;

/// Longest pause between two calls.
const THINK_US_MAX: u64 = 40_000;
/// Time after which a call whose server restarted can no more take effect.
const LINGER: Picos = Picos::seconds(30);
/// Pause before a call that is answered with JUKEBOX, or an error of trouble, is made anew.
const RETRY: Picos = Picos::seconds(1);
/// Names in a directory.
const NAMES: u64 = 10;

/// The circumstances that a reply is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// At the front that answered, and elsewhere.
    pub era: Era,
    /// The time.
    pub now: Picos,
    /// Errors are explained.
    pub is_troubled: bool,
    /// Incarnations of the front that the call was sent to before.
    pub before: u32,
}

/// The next step after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The next call, so much later.
    Next(Picos),
    /// The same one as a new call, so much later.
    Again(Picos),
}

#[derive(Debug)]
struct Outstanding {
    act: Act,
    begun: Picos,
    /// Executions that may have been, or may still be, besides the one that is answered.
    others: u32,
}

/// The application.
#[derive(Debug)]
pub struct Worker {
    number: usize,
    random: Random,
    root: Vec<u8>,
    home: Option<u64>,
    tree: Tree,
    asked: Option<Outstanding>,
    /// Changes that may be executed once more while this rests.
    ghosts: Vec<Change>,
    listing: Option<Listing>,
    follow: Option<Act>,
    /// The verifier that was seen last.
    verifier: Option<[u8; 8]>,
    versions: u32,
    races: usize,
    /// Last looks, once they have begun.
    last: Option<VecDeque<Act>>,
    finishes: bool,
    /// Duplicates of changes are known over restarts of the front.
    outlive: bool,
}

impl Worker {
    /// The application with this number.
    pub fn new(seed: u64, number: usize, outlive: bool) -> Worker {
        Worker {
            number,
            random: Random::new(seed, &format!("nfs {number}")),
            root: Vec::new(),
            home: None,
            tree: Tree::default(),
            asked: None,
            ghosts: Vec::new(),
            listing: None,
            follow: None,
            verifier: None,
            versions: 0,
            races: 0,
            last: None,
            finishes: false,
            outlive,
        }
    }

    /// From now on only look at everything once.
    pub fn finish(&mut self) {
        self.finishes = true;
    }

    /// Whether that is done.
    pub fn is_finished(&self) -> bool {
        self.last.as_ref().is_some_and(VecDeque::is_empty) && self.asked.is_none()
    }

    /// When the call under way began.
    pub fn asks_since(&self) -> Option<Picos> {
        self.asked.as_ref().map(|asked| asked.begun)
    }

    /// The call under way, for people.
    pub fn describe(&self) -> String {
        format!("application {}: {:?}", self.number, self.asked)
    }

    /// Decides on the next call; whether there is one.
    pub fn choose(&mut self, shared: &mut Shared, now: Picos) -> bool {
        assert!(self.asked.is_none(), "one call at a time");
        for ghost in std::mem::take(&mut self.ghosts) {
            self.tree.perhaps(ghost);
        }
        if let (Some(home), Some(names)) = (self.home, self.tree.known()) {
            let is_there = |id| id == home || names.values().any(|node| node.id == Some(id));
            shared.retain(self.number, is_there);
        }
        let act = self.next(shared);
        match act {
            Some(Act::Write { file, cell, version, .. }) => {
                shared.file(self.number, file).begins(cell, version, now);
            }
            Some(Act::Cut(file, cells)) => shared.file(self.number, file).cuts(cells, now),
            _ => {}
        }
        self.asked = act.map(|act| Outstanding { act, begun: now, others: 0 });
        self.asked.is_some()
    }

    /// Appends the record of the call under way; its xid.
    pub fn call(&self, shared: &Shared, calls: &mut Client, out: &mut Vec<u8>) -> u32 {
        let asked = self.asked.as_ref().expect("a call that was chosen");
        let home = self.home.map_or(&[][..], |home| shared.handle(home));
        let places = Places { number: self.number, root: &self.root, home };
        asked.act.call(places, shared, calls, out)
    }

    fn next(&mut self, shared: &mut Shared) -> Option<Act> {
        if let Some(act) = self.follow.take() {
            return Some(act);
        }
        if self.root.is_empty() {
            return Some(Act::Mount);
        }
        if self.home.is_none() {
            return Some(Act::Home);
        }
        if let Some(name) = self.tree.unknown() {
            return Some(Act::Look(name));
        }
        if let Some(act) = self.rewrite(shared) {
            return Some(act);
        }
        if let Some(listing) = &self.listing
            && (self.finishes || self.random.chance(MILLION / 10 * 6))
        {
            let Listing { plus, cookie, verifier, bytes, .. } = *listing;
            return Some(Act::List { plus, cookie, verifier, bytes });
        }
        if self.finishes {
            return self.next_last(shared);
        }
        Some(self.any(shared))
    }

    /// A WRITE of what a server's restart took, or may have taken.
    fn rewrite(&self, shared: &Shared) -> Option<Act> {
        let verifier = self.verifier?;
        let files = shared.files(self.number).iter();
        let mut lost = files.filter_map(|(id, bytes)| Some((*id, bytes.to_rewrite(verifier)?)));
        let (file, (cell, version)) = lost.next()?;
        Some(Act::Write { file, cell, version, stable: false })
    }

    fn next_last(&mut self, shared: &mut Shared) -> Option<Act> {
        if self.last.is_none() {
            let races = self.races..RACES;
            let mut last: VecDeque<Act> = races.map(Act::Race).collect();
            for id in shared.files(self.number).keys() {
                last.push_back(Act::Size(*id));
                last.extend((0..CELLS).map(|cell| Act::Read(*id, cell)));
            }
            last.extend((0..NAMES as u8).map(Act::Look));
            self.races = RACES;
            self.listing = Some(Listing::new(true, 2_000));
            self.last = Some(last);
            return self.next(shared);
        }
        self.last.as_mut()?.pop_front()
    }

    fn any(&mut self, shared: &mut Shared) -> Act {
        let files: Vec<u64> = shared.files(self.number).keys().copied().collect();
        let kind = self.random.below(26);
        let file = if files.is_empty() { None } else { Some(*self.random.pick(&files)) };
        let cell = self.random.index(CELLS);
        match (kind, file) {
            (0, _) if self.races < RACES => {
                self.races += 1;
                Act::Race(self.races - 1)
            }
            (1, _) if self.listing.is_none() => {
                let (plus, bytes) =
                    (self.random.chance(MILLION / 2), self.random.within(800, 1_600));
                self.listing = Some(Listing::new(plus, bytes as u32));
                Act::List { plus, cookie: 0, verifier: [0; 8], bytes: bytes as u32 }
            }
            (2, Some(file)) => Act::Size(file),
            (3, Some(file)) => Act::BadGuard(file),
            (4..=5, Some(file)) => Act::Read(file, cell),
            (6..=7, _) => self.any_of_others(shared, cell),
            (8..=11, Some(file)) => {
                self.versions += 1;
                let stable = self.random.chance(MILLION / 4);
                Act::Write { file, cell, version: self.versions, stable }
            }
            (12..=13, Some(file)) => Act::Commit(file),
            (20, Some(file)) => self.cut(file, shared),
            (21, Some(file)) => Act::ReadBehind(file),
            (22.., _) => {
                let step = shared.token.next(self.number, shared.keepers, &mut self.random);
                step.map_or_else(|| self.any_change(&files), Act::Token)
            }
            _ => self.any_change(&files),
        }
    }

    /// SETATTR to a size that the file surely has or exceeds.
    fn cut(&mut self, file: u64, shared: &Shared) -> Act {
        let (least, _) = shared.files(self.number)[&file].others_sizes(Picos::NEVER);
        let cells = least as usize / CELL_BYTES;
        Act::Cut(file, self.random.index(cells + 1))
    }

    fn any_of_others(&mut self, shared: &Shared, cell: usize) -> Act {
        let others = shared.others(self.number);
        if others.is_empty() {
            return self.any_change(&[]);
        }
        let of = *self.random.pick(&others);
        let files: Vec<u64> = shared.files(of).keys().copied().collect();
        Act::OthersSize { of, file: *self.random.pick(&files), cell }
    }

    fn any_change(&mut self, files: &[u64]) -> Act {
        let name = |random: &mut Random| random.below(NAMES) as u8;
        let one = name(&mut self.random);
        self.versions += 1;
        let verifier = u64::from(self.versions) << 32 | self.number as u64;
        let change = match self.random.below(16) {
            0 => return Act::Look(one),
            1..=3 => Change::Guarded(one),
            4 => Change::Unchecked(one),
            5..=6 => Change::Exclusive(one, verifier),
            7 => Change::Mkdir(one),
            8 => Change::Rmdir(one),
            9..=10 => Change::Remove(one),
            11..=12 if !files.is_empty() => Change::Link(*self.random.pick(files), one),
            _ => Change::Rename(one, name(&mut self.random)),
        };
        Act::Change(change)
    }

    /// The call under way was answered. The error names the violation.
    pub fn answered(
        &mut self,
        reply: &Reply<'_>,
        shared: &mut Shared,
        about: Circumstances,
    ) -> Result<After, String> {
        let mut asked = self.asked.take().expect("a call under way");
        let is_change = match asked.act {
            Act::Token(step) => step.is_change(),
            ref act => matches!(act, Act::Change(_) | Act::Home | Act::Cut(..)),
        };
        let is_known = self.outlive && is_change;
        asked.others += if is_known { 0 } else { about.before };
        let status = match asked.act {
            Act::Mount => return self.mounted(reply, asked, about),
            _ => reply.nfs().map(|results| results.status()),
        };
        let status = status.map_err(|error| format!("{:?}: {error}", asked.act))?;
        if is_unknown(status) {
            return self.unknown(asked, status, shared, about);
        }
        let results = reply.nfs().expect("just decoded");
        let Outstanding { act, begun, others } = asked;
        let judged = self.judge(&act, &results, (begun, others), shared, about);
        judged.map_err(|what| format!("application {}: {act:?}: {what}", self.number))?;
        shared.succeeded += 1;
        let think = Picos::micros(self.random.below(THINK_US_MAX));
        let waits = others > 0 && (is_change || matches!(act, Act::Write { .. }));
        let think = if matches!(self.follow, Some(Act::Token(_))) { Picos::ZERO } else { think };
        Ok(After::Next(if waits { LINGER } else { think }))
    }

    fn mounted(
        &mut self,
        reply: &Reply<'_>,
        asked: Outstanding,
        about: Circumstances,
    ) -> Result<After, String> {
        match reply.decoded::<MntResult<'_>>() {
            Ok(MntResult::Ok(handle, _)) => {
                self.root = handle.0.to_vec();
                Ok(After::Next(Picos::ZERO))
            }
            _ if about.is_troubled => {
                self.asked = Some(asked);
                Ok(After::Again(RETRY))
            }
            other => Err(format!("MNT is answered with {other:?}")),
        }
    }

    /// The server does not know whether it executed the call: it is made anew.
    fn unknown(
        &mut self,
        mut asked: Outstanding,
        status: Status,
        shared: &mut Shared,
        about: Circumstances,
    ) -> Result<After, String> {
        if !about.is_troubled && status != Status::Jukebox {
            let number = self.number;
            return Err(format!("application {number}: {:?}: {status:?}", asked.act));
        }
        shared.failed += 1;
        if let Act::Commit(file) = asked.act {
            shared.file(self.number, file).lost();
        }
        asked.others += 1;
        self.asked = Some(asked);
        Ok(After::Again(RETRY))
    }

    fn judge(
        &mut self,
        act: &Act,
        results: &Results<'_>,
        (begun, others): (Picos, u32),
        shared: &mut Shared,
        about: Circumstances,
    ) -> Result<(), String> {
        let status = results.status();
        match (act, results) {
            (Act::Change(change), _) => self.changed(*change, results, others, shared),
            (Act::Look(name), _) if matches!(status, Status::Ok | Status::NoEnt) => {
                let seen = found(results, shared)?;
                self.tree.saw(*name, seen)
            }
            (Act::Home | Act::FindHome, _) => self.found_home(act, results, others, shared),
            (Act::Race(race), _) => match Outcome::of(status) {
                Some(Outcome::Done) => {
                    let made = found(results, shared)?;
                    shared.raced(*race, self.number, made)
                }
                Some(Outcome::Exists) => shared.raced(*race, self.number, None),
                _ => Err(format!("{status:?}")),
            },
            (Act::Token(step), _) => {
                let found = found(results, shared)?;
                let answered = (status, found);
                let follow = shared.token_answered(*step, answered, others, about.era.keepers)?;
                self.follow = self.follow.take().or(follow);
                Ok(())
            }
            (Act::BadGuard(_), _) if status == Status::NotSync => Ok(()),
            (Act::List { .. }, _) => {
                self.listed(Page::of(results).ok_or_else(|| format!("{status:?}"))?)
            }
            (Act::OthersSize { .. } | Act::OthersRead { .. }, _) => {
                self.saw_others(act, results, begun, shared)
            }
            _ => self.judge_data(act, results, shared, about),
        }
    }

    fn changed(
        &mut self,
        change: Change,
        results: &Results<'_>,
        others: u32,
        shared: &mut Shared,
    ) -> Result<(), String> {
        self.listing.iter_mut().for_each(|listing| listing.touched(change.names()));
        (0..others.min(2)).for_each(|_| self.tree.perhaps(change));
        self.ghosts.extend((others > 0).then_some(change));
        let status = results.status();
        let outcome = Outcome::of(status).ok_or_else(|| format!("{status:?}"))?;
        let made = found(results, shared)?;
        self.tree.executed(change, outcome, made)?;
        let is_file = !matches!(change, Change::Mkdir(_));
        made.filter(|_| is_file).iter().for_each(|id| {
            shared.file(self.number, *id);
        });
        Ok(())
    }

    fn found_home(
        &mut self,
        act: &Act,
        results: &Results<'_>,
        others: u32,
        shared: &mut Shared,
    ) -> Result<(), String> {
        let status = results.status();
        if *act == Act::Home && status == Status::Exist && others > 0 {
            self.follow = Some(Act::FindHome);
            return Ok(());
        }
        self.home = found(results, shared)?;
        self.home.map(drop).ok_or_else(|| format!("{status:?}"))
    }

    fn listed(&mut self, page: Page) -> Result<(), String> {
        let listing = self.listing.as_mut().expect("a listing under way");
        if !listing.listed(page)? {
            return Ok(());
        }
        let listing = self.listing.take().expect("as above");
        match self.tree.known() {
            Some(names) => listing.check(names, number_of),
            None => Ok(()),
        }
    }

    fn judge_data(
        &mut self,
        act: &Act,
        results: &Results<'_>,
        shared: &mut Shared,
        Circumstances { era, now, .. }: Circumstances,
    ) -> Result<(), String> {
        use nfs::v3::Outcome::Ok as Good;
        let own = |shared: &mut Shared, id| shared.file(self.number, id).clone();
        match (act, results) {
            (Act::Size(id), Results::Getattr(Good(attributes))) => {
                let bytes = own(shared, *id);
                let ((least, _), (_, most)) = (bytes.others_sizes(now), bytes.own_sizes(era));
                let links = self
                    .tree
                    .known()
                    .map(|names| names.values().filter(|node| node.id == Some(*id)).count() as u32);
                if links.is_some_and(|links| links != attributes.nlink) {
                    return Err(format!("{} links, {links:?} names", attributes.nlink));
                }
                match (least..=most).contains(&attributes.size) {
                    true => Ok(()),
                    false => Err(format!("size {}, of {least} to {most}", attributes.size)),
                }
            }
            (Act::Read(..), Results::Read(Good(read)))
                if read.data.len() < CELL_BYTES && !read.ok.eof =>
            {
                Err(format!("{} bytes, and the file goes on", read.data.len()))
            }
            (Act::Read(id, cell), Results::Read(Good(read))) => {
                check(*id, *cell, &own(shared, *id).own(*cell, era), read.data)
            }
            (Act::ReadBehind(_), Results::Read(Good(read)))
                if read.ok.eof && read.data.is_empty() =>
            {
                Ok(())
            }
            (Act::Cut(file, cells), Results::Setattr(Good(_))) => {
                shared.file(self.number, *file).cut(*cells, now);
                Ok(())
            }
            (Act::Write { file, cell, stable, .. }, Results::Write(Good(written))) => {
                self.verifier = Some(written.verifier);
                let is_stable = written.committed != StableHow::Unstable;
                if written.count as usize != CELL_BYTES || *stable && !is_stable {
                    return Err(format!("{written:?}"));
                }
                let file = shared.file(self.number, *file);
                file.written(*cell, era, written.verifier, is_stable, now);
                Ok(())
            }
            (Act::Commit(file), Results::Commit(Good(committed))) => {
                self.verifier = Some(committed.verifier);
                shared.file(self.number, *file).committed(committed.verifier, now);
                Ok(())
            }
            _ => Err(format!("{:?}", results.status())),
        }
    }

    fn saw_others(
        &mut self,
        act: &Act,
        results: &Results<'_>,
        begun: Picos,
        shared: &Shared,
    ) -> Result<(), String> {
        use nfs::v3::Outcome::Ok as Good;
        let (Act::OthersSize { of, file, .. } | Act::OthersRead { of, file, .. }) = act else {
            panic!("of another application's file");
        };
        // It may be removed meanwhile.
        let Some(bytes) = shared.files(*of).get(file) else { return Ok(()) };
        match (act, results) {
            (Act::OthersSize { of, file, cell }, Results::Getattr(Good(attributes))) => {
                let (of, file, cell) = (*of, *file, *cell);
                self.follow = Some(Act::OthersRead { of, file, cell, asked: begun });
                let (least, most) = bytes.others_sizes(begun);
                match (least..=most).contains(&attributes.size) {
                    true => Ok(()),
                    false => Err(format!("size {}, of {least} to {most}", attributes.size)),
                }
            }
            (Act::OthersRead { cell, asked, .. }, Results::Read(Good(read))) => {
                check(*file, *cell, &bytes.others(*cell, *asked), read.data)
            }
            // A removal under way.
            (_, results) if results.status() == Status::Stale => Ok(()),
            (_, results) => Err(format!("{:?}", results.status())),
        }
    }
}

/// Whether a reply leaves it open what was done.
fn is_unknown(status: Status) -> bool {
    matches!(status, Status::Jukebox | Status::Io | Status::ServerFault | Status::NoSpc)
}

/// The id of what a reply found or made, whose handle is kept.
fn found(results: &Results<'_>, shared: &mut Shared) -> Result<Option<u64>, String> {
    use nfs::v3::Outcome::Ok as Good;
    let (handle, attributes) = match results {
        Results::Lookup(Good(LookupOk { object, attributes, .. })) => (Some(*object), *attributes),
        Results::Create(Good(CreateOk { object, attributes, .. }))
        | Results::Mkdir(Good(CreateOk { object, attributes, .. })) => (*object, *attributes),
        _ => return Ok(None),
    };
    let (Some(handle), Some(attributes)) = (handle, attributes) else {
        return Err("a reply without a handle, or without attributes".into());
    };
    shared.learn(attributes.fileid, handle.0)?;
    Ok(Some(attributes.fileid))
}
