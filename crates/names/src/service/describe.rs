//! Objects are told what is known of their files, some seconds after it changed, many at a time.
//!
//! A server has what it was told on stable storage with its next checkpoint, a minute later at most. So what was told
//! is remembered for longer than that, and told again when the server's verifier says that it started anew.

use super::Service;
use crate::changed::{Known, Spot};
use crate::describe::Due;
use crate::keys::{self, Table};
use crate::limits::{
    DESCRIBE_DEADLINE, DESCRIBE_INTERVAL, DESCRIBE_LAST_DEADLINE, DESCRIBED_AT_ONCE,
    DESCRIBED_DIRECTORIES_MAX, DESCRIBED_OPEN_SPAN, DESCRIBED_SINCE_SECONDS, DESCRIBED_SPAN,
    DESCRIBED_TOGETHER, GONE_PAUSE, GONE_SLICE, WALKED_NAMES,
};
use crate::objects::Objects;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use stripe::Description;
use wire::{Errno, FileId, Home, NodeId, ObjectId, Time, Wall};

/// The state of the task that describes.
#[derive(Default)]
struct Round {
    /// Files that were described a short time ago, and when.
    recent: BTreeMap<FileId, (Time, Option<Spot>)>,
    /// Files that were open for writing when they were described, since when, and the columns that had objects.
    open: BTreeMap<FileId, (Time, u32)>,
    /// The incarnation of each server that was told.
    verifiers: BTreeMap<NodeId, u64>,
    /// One of them is another than before.
    has_lost: bool,
    /// Servers that did not answer in this round.
    silent: BTreeSet<NodeId>,
    /// Servers that did.
    heard: BTreeSet<NodeId>,
    /// Directories whose files are to be described, behind which name.
    trees: Vec<(FileId, Option<Vec<u8>>)>,
    walk: Option<Walk>,
    /// Files of which objects know no path, and no change said one.
    nameless: BTreeSet<FileId>,
}

/// Objects that are due descriptions, by where they are.
type Homes = BTreeMap<Home, Vec<(ObjectId, Description)>>;

/// The verifier of a server, and what became of each object.
type Answers = (Option<u64>, Vec<Result<(), Errno>>);

/// A walk over all names.
#[derive(Default)]
struct Walk {
    site: u8,
    after: Option<Vec<u8>>,
    newest: Wall,
    /// Files that changed at this time or later are described; without it the latest change is looked for.
    since: Option<Wall>,
}

impl Walk {
    fn since(since: Wall) -> Walk {
        Walk { since: Some(since), ..Walk::default() }
    }
}

/// Later than any change: a walk that looks only for names.
const NEVER: Wall = Wall { seconds: i64::MAX, nanos: 0 };

/// The time from which on changes may not have been described.
fn before(newest: Wall) -> Wall {
    Wall { seconds: newest.seconds.saturating_sub(DESCRIBED_SINCE_SECONDS), ..newest }
}

/// An I/O server that stops.
#[derive(Clone, Debug)]
pub struct Stopping {
    /// It.
    pub server: NodeId,
    /// By which ids layouts name columns that it keeps: its own, or those of the groups that it has replicas of.
    pub homes: BTreeSet<NodeId>,
}

impl<O: Objects> Service<O> {
    pub(super) async fn describe_for_ever(self: Rc<Self>) {
        // An incarnation that died had changes that no object was told of.
        let mut round = Round { walk: Some(Walk::default()), ..Round::default() };
        while !self.is_refused() {
            self.cx.sleep(DESCRIBE_INTERVAL).await;
            self.walk_on(&mut round).await;
            self.describe_some(&mut round).await;
            self.ask_verifiers(&mut round).await;
            self.note_lost(&mut round);
        }
    }

    /// Describes what changed, up to a bound.
    async fn describe_some(self: &Rc<Self>, round: &mut Round) {
        round.silent.clear();
        round.heard.clear();
        self.note_present(round).await;
        let now = self.cx.now();
        round.recent.retain(|_, (at, _)| *at + DESCRIBED_SPAN > now);
        let mut files = self.manager.borrow_mut().changed.next(DESCRIBED_AT_ONCE);
        for (file, spot) in &mut files {
            let known = || round.recent.get(file).and_then(|(_, spot)| spot.clone());
            *spot = spot.take().or_else(known);
        }
        while !files.is_empty() {
            let rest = files.split_off(files.len().min(DESCRIBED_TOGETHER));
            self.describe_together(round, std::mem::replace(&mut files, rest)).await;
        }
    }

    async fn describe_together(&self, round: &mut Round, files: Vec<Known>) {
        let due = self.manager.borrow_mut().due(files);
        let (homes, mut again) = self.homes_of(&due, |server| !round.silent.contains(&server));
        let told = self.tell_objects(&homes, DESCRIBE_DEADLINE).await;
        let (mut missing, mut nameless) = (BTreeSet::new(), BTreeSet::new());
        let mut present: BTreeMap<FileId, u32> = BTreeMap::new();
        for ((home, objects), (verifier, results)) in homes.iter().zip(told) {
            self.note_verifier(round, home.server, verifier);
            for ((object, _), result) in objects.iter().zip(results) {
                if matches!(result, Ok(()) | Err(Errno::ENODATA)) {
                    *present.entry(object.file).or_default() |= 1u32 << object.column;
                }
                match result {
                    Ok(()) => {}
                    Err(Errno::ENOENT) => drop(missing.insert(object.file)),
                    Err(Errno::ENODATA) => drop(nameless.insert(object.file)),
                    // Objects that are damaged, or on a disk that is not served, take no description.
                    Err(Errno::EIO | Errno::ENXIO | Errno::ENODEV | Errno::ESTALE) => {}
                    Err(_) => drop(again.insert(object.file)),
                }
            }
        }
        round.nameless.extend(nameless);
        let open = due.iter().filter(|one| one.is_open);
        for (one, present) in open.filter_map(|one| Some((one, *present.get(&one.file)?))) {
            if present & !one.description.present != 0 && round.open.len() < DESCRIBED_AT_ONCE {
                let now = self.cx.now();
                round.open.entry(one.file).or_insert((now, 0)).1 |= present;
            }
        }
        self.note_described(round, due, |one| {
            again.contains(&one.file) || one.is_open && missing.contains(&one.file)
        });
    }

    /// Files that have been open for writing for long got objects of which no close has told yet. They are known from
    /// now on, and the others are told of them.
    async fn note_present(self: &Rc<Self>, round: &mut Round) {
        let (now, mut long) = (self.cx.now(), Vec::new());
        round.open.retain(|file, (since, present)| {
            let is_long = *since + DESCRIBED_OPEN_SPAN <= now;
            long.extend(is_long.then_some((*file, *present)));
            !is_long
        });
        for some in long.chunks(DESCRIBED_TOGETHER) {
            // Columns that are not noted are reported by the close.
            let _ = self.commit(|t| t.note_all_present(some)).await;
        }
    }

    /// The objects that are due descriptions on servers that are `asked`, and files that have others, too.
    fn homes_of(&self, due: &[Due], asked: impl Fn(NodeId) -> bool) -> (Homes, BTreeSet<FileId>) {
        let (mut homes, mut others) = (Homes::new(), BTreeSet::new());
        for one in due {
            for (column, home) in &one.columns {
                if !asked(home.server) {
                    others.insert(one.file);
                    continue;
                }
                let object = ObjectId { volume: self.volume, file: one.file, column: *column };
                homes.entry(*home).or_default().push((object, one.description.clone()));
            }
        }
        (homes, others)
    }

    /// Tells the objects; the answers of each home, in their order.
    async fn tell_objects(&self, homes: &Homes, deadline: Duration) -> Vec<Answers> {
        let calls = homes.iter().map(async |(home, objects)| {
            let told = self.objects.describe(*home, objects);
            let told = self.cx.with_deadline(deadline, told).await;
            told.unwrap_or_else(|_| (None, vec![Err(Errno::ETIMEDOUT); objects.len()]))
        });
        node::all(calls).await
    }

    /// For a server that stops, or for all of them when the manager does: what changed and was not told yet is told at
    /// once. It stays due, for the case that neither of them stops.
    pub(super) async fn describe_now(&self, stopping: Option<&Stopping>) {
        let mut round = Round::default();
        if stopping.is_none() {
            round.silent.clone_from(&self.parted.borrow());
        }
        let trees = self.manager.borrow().changed.trees().clone();
        round.trees.extend(trees.into_iter().map(|directory| (directory, None)));
        // A short incarnation after one that died: the walk for that one's changes has not come to its end.
        round.walk = (!self.walked.get()).then(Walk::default);
        self.walk_some(&mut round).await;
        let changed = self.manager.borrow().changed.all();
        self.tell_changed(&mut round, changed, stopping).await;
        if !round.nameless.is_empty() {
            let nameless = round.nameless.clone();
            round.walk = Some(Walk::since(NEVER));
            self.walk_some(&mut round).await;
            let mut named = self.manager.borrow().changed.all();
            named.retain(|(file, spot)| spot.is_some() && nameless.contains(file));
            self.tell_changed(&mut round, named, stopping).await;
        }
        self.parted.borrow_mut().extend(stopping.map(|it| it.server));
    }

    async fn tell_changed(
        &self,
        round: &mut Round,
        files: Vec<Known>,
        stopping: Option<&Stopping>,
    ) {
        for some in files.chunks(DESCRIBED_TOGETHER) {
            let due = self.manager.borrow_mut().due(some.to_vec());
            let is_kept = |home: &NodeId| stopping.is_none_or(|it| it.homes.contains(home));
            let asked = |home| is_kept(&home) && !round.silent.contains(&home);
            let (homes, _) = self.homes_of(&due, asked);
            let told = self.tell_objects(&homes, DESCRIBE_LAST_DEADLINE).await;
            for ((home, objects), (verifier, results)) in homes.iter().zip(told) {
                if verifier.is_none() {
                    round.silent.insert(home.server);
                }
                let results = objects.iter().zip(results);
                let nameless = results.filter(|(_, result)| *result == Err(Errno::ENODATA));
                round.nameless.extend(nameless.map(|((object, _), _)| object.file));
            }
        }
    }

    fn note_described(&self, round: &mut Round, due: Vec<Due>, again: impl Fn(&Due) -> bool) {
        let now = self.cx.now();
        let mut manager = self.manager.borrow_mut();
        for one in due {
            if again(&one) {
                manager.changed.note_again(one.file, one.spot.clone());
            }
            round.recent.insert(one.file, (now, one.spot));
        }
    }

    fn note_verifier(&self, round: &mut Round, server: NodeId, verifier: Option<u64>) {
        let Some(verifier) = verifier else {
            round.silent.insert(server);
            return;
        };
        round.heard.insert(server);
        self.parted.borrow_mut().remove(&server);
        let before = round.verifiers.insert(server, verifier);
        round.has_lost |= before.is_some_and(|before| before != verifier);
    }

    /// Descriptions that a server has lost by a restart are due once more, at the end of a round: the names it was told
    /// are known.
    fn note_lost(&self, round: &mut Round) {
        if std::mem::take(&mut round.has_lost) {
            let mut manager = self.manager.borrow_mut();
            for (file, (_, spot)) in &round.recent {
                manager.changed.note_again(*file, spot.clone());
            }
        }
    }

    /// Asks servers that may have lost what they were told whether they started anew.
    async fn ask_verifiers(&self, round: &mut Round) {
        if round.recent.is_empty() {
            return;
        }
        let known = round.verifiers.keys().copied();
        let quiet: Vec<NodeId> =
            known.filter(|one| !round.heard.contains(one) && !round.silent.contains(one)).collect();
        let calls = quiet.iter().map(|server| {
            let asked = self.objects.describe(Home::from(*server), &[]);
            self.cx.with_deadline(DESCRIBE_DEADLINE, asked)
        });
        for (server, told) in quiet.iter().zip(node::all(calls).await) {
            self.note_verifier(round, *server, told.ok().and_then(|(verifier, _)| verifier));
        }
    }

    /// Goes on over directories with another path, and over all names where that is due.
    async fn walk_on(&self, round: &mut Round) {
        let (trees, overflowed) = {
            let changed = &mut self.manager.borrow_mut().changed;
            (changed.take_trees(), changed.take_overflow())
        };
        round.trees.extend(trees.into_iter().map(|directory| (directory, None)));
        if overflowed && round.walk.as_ref().is_none_or(|walk| walk.since.is_some()) {
            round.walk = Some(Walk::since(before(self.cx.wall())));
        }
        if !round.nameless.is_empty() && round.walk.is_none() {
            round.walk = Some(Walk::since(NEVER));
        }
        self.walk_some(round).await;
        self.walked.set(self.walked.get() || round.walk.is_none());
    }

    /// Goes on with the walks of a round, up to a bound.
    async fn walk_some(&self, round: &mut Round) {
        let (mut names, mut paused) = (0, 0);
        while names < WALKED_NAMES && self.manager.borrow().changed.has_room() {
            names += match (round.trees.pop(), round.walk.take()) {
                (Some(tree), walk) => {
                    round.walk = walk;
                    self.walk_tree(round, tree)
                }
                (None, Some(walk)) => self.walk_all(round, walk),
                (None, None) => return,
            };
            if names - paused >= GONE_SLICE {
                paused = names;
                self.cx.sleep(GONE_PAUSE).await;
            }
        }
    }

    /// A part of a directory; how many names it has.
    fn walk_tree(&self, round: &mut Round, (directory, after): (FileId, Option<Vec<u8>>)) -> usize {
        let mut manager = self.manager.borrow_mut();
        let prefixes = manager.hashed.prefixes(directory);
        let site = after.as_deref().map_or(0, |key| key[0]);
        let mut prefixes = prefixes.iter().filter(|prefix| prefix[0] >= site);
        let Some(prefix) = prefixes.next() else { return 0 };
        if let Some(next) = prefixes.next() {
            round.trees.push((directory, Some(next.clone())));
        }
        let after = after.filter(|key| key.starts_with(prefix));
        let walked = manager.walk_names(prefix, after.as_deref(), GONE_SLICE, |_, _| true);
        let Ok(walked) = walked else {
            return 0;
        };
        round.trees.extend(walked.directories.into_iter().map(|below| (below, None)));
        if walked.last.is_some() {
            round.trees.push((directory, walked.last));
        }
        if round.trees.len() > DESCRIBED_DIRECTORIES_MAX {
            round.trees.clear();
            round.walk = Some(Walk::since(Wall::default()));
        }
        walked.names
    }

    /// A part of all names; how many it has.
    fn walk_all(&self, round: &mut Round, mut walk: Walk) -> usize {
        let mut manager = self.manager.borrow_mut();
        let prefix = keys::table(walk.site, Table::Name);
        let (since, nameless) = (walk.since, &mut round.nameless);
        let is_wanted = |file: FileId, changed: Wall| {
            since.is_some_and(|since| changed >= since || nameless.remove(&file))
        };
        let walked = manager.walk_names(&prefix, walk.after.as_deref(), GONE_SLICE, is_wanted);
        // A part of the store that cannot be read is reported by the request that needs it.
        let walked = walked.unwrap_or_default();
        walk.newest = walk.newest.max(walked.newest);
        walk.after = walked.last;
        if walk.after.is_none() {
            match (walk.site.checked_add(1), walk.since) {
                (Some(next), _) => walk.site = next,
                (None, None) => walk = Walk::since(before(walk.newest)),
                // A change behind the walk is found when the file changes again.
                (None, Some(_)) => {
                    round.nameless.clear();
                    return walked.names;
                }
            }
        }
        round.walk = Some(walk);
        walked.names
    }
}
