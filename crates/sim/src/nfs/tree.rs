//! The names of a directory that one client changes, one call at a time, as the set of all states that it may have.
//!
//! A call that was executed once narrows the set to what its outcome leaves. One that may have been executed more
//! often, since a server restarted in between, widens it first. A set that becomes empty is a violation.

use nfs::v3::Status;
use std::collections::{BTreeMap, BTreeSet};

/// A file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// Its number; `None`: the reply that told it never came.
    pub id: Option<u64>,
    /// Whether it is a directory, which is always empty.
    pub is_directory: bool,
    /// The verifier that it was created with, exclusively.
    pub verifier: Option<u64>,
}

/// One state: names by their numbers.
pub type Names = BTreeMap<u8, Node>;

/// A change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// CREATE of what may not be there.
    Guarded(u8),
    /// CREATE of what may be there.
    Unchecked(u8),
    /// CREATE with a verifier.
    Exclusive(u8, u64),
    /// MKDIR.
    Mkdir(u8),
    /// REMOVE.
    Remove(u8),
    /// RMDIR.
    Rmdir(u8),
    /// RENAME.
    Rename(u8, u8),
    /// LINK: another name of this file.
    Link(u64, u8),
}

impl Change {
    /// The names that it may change.
    pub fn names(self) -> impl Iterator<Item = u8> {
        let (one, other) = match self {
            Change::Guarded(name) | Change::Unchecked(name) | Change::Exclusive(name, _) => {
                (name, None)
            }
            Change::Mkdir(name) | Change::Remove(name) | Change::Rmdir(name) => (name, None),
            Change::Link(_, name) => (name, None),
            Change::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(one).chain(other)
    }
}

/// Outcome of a change, as far as the state decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Done,
    /// There is nothing of this name.
    NoEntry,
    /// There is something of this name.
    Exists,
    /// The object is of the wrong kind, or gone.
    Refused,
}

impl Outcome {
    /// Of a reply; `None`: the server does not know either.
    pub fn of(status: Status) -> Option<Outcome> {
        match status {
            Status::Ok => Some(Outcome::Done),
            Status::NoEnt => Some(Outcome::NoEntry),
            Status::Exist => Some(Outcome::Exists),
            Status::NotDir | Status::IsDir | Status::Stale | Status::NotEmpty => {
                Some(Outcome::Refused)
            }
            _ => None,
        }
    }
}

/// Executes a change; what is made gets this id.
fn execute(names: &Names, change: Change, made: Option<u64>) -> (Names, Outcome) {
    let mut next = names.clone();
    let node = |is_directory, verifier| Node { id: made, is_directory, verifier };
    let outcome = match change {
        Change::Guarded(name) => make(&mut next, name, node(false, None)),
        Change::Mkdir(name) => make(&mut next, name, node(true, None)),
        Change::Unchecked(name) => match names.get(&name) {
            Some(found) if !found.is_directory => found_again(&mut next, name, made),
            _ => make(&mut next, name, node(false, None)),
        },
        Change::Exclusive(name, verifier) => match names.get(&name) {
            Some(found) if found.verifier == Some(verifier) => found_again(&mut next, name, made),
            _ => make(&mut next, name, node(false, Some(verifier))),
        },
        Change::Remove(name) => remove(&mut next, name, false),
        Change::Rmdir(name) => remove(&mut next, name, true),
        Change::Rename(from, to) => rename(&mut next, from, to),
        Change::Link(file, name) => link(&mut next, file, name),
    };
    (next, outcome)
}

fn make(names: &mut Names, name: u8, node: Node) -> Outcome {
    if names.contains_key(&name) {
        return Outcome::Exists;
    }
    names.insert(name, node);
    Outcome::Done
}

/// A file that is there already counts as made. Its reply tells its id, which must be the one that is known.
fn found_again(names: &mut Names, name: u8, told: Option<u64>) -> Outcome {
    let node = names.get_mut(&name).expect("it was found");
    if told.is_some() && node.id.is_some() && told != node.id {
        return Outcome::Refused;
    }
    node.id = node.id.or(told);
    Outcome::Done
}

fn remove(names: &mut Names, name: u8, directory: bool) -> Outcome {
    match names.get(&name) {
        None => Outcome::NoEntry,
        Some(node) if node.is_directory != directory => Outcome::Refused,
        Some(_) => {
            names.remove(&name);
            Outcome::Done
        }
    }
}

fn rename(names: &mut Names, from: u8, to: u8) -> Outcome {
    let Some(node) = names.get(&from).copied() else { return Outcome::NoEntry };
    let target = names.get(&to).copied();
    let is_same = from == to || target.is_some_and(|it| it.id.is_some() && it.id == node.id);
    match target {
        _ if is_same => return Outcome::Done,
        Some(target) if target.is_directory != node.is_directory => return Outcome::Refused,
        _ => {}
    }
    names.remove(&from);
    names.insert(to, node);
    Outcome::Done
}

fn link(names: &mut Names, file: u64, name: u8) -> Outcome {
    let Some(node) = names.values().find(|node| node.id == Some(file)).copied() else {
        return Outcome::Refused;
    };
    make(names, name, node)
}

/// All states that the directory may have.
#[derive(Clone, Debug)]
pub struct Tree(BTreeSet<Names>);

impl Default for Tree {
    /// An empty directory.
    fn default() -> Tree {
        Tree(BTreeSet::from([Names::new()]))
    }
}

impl Tree {
    /// The state, where there is only one and all of it is known.
    pub fn known(&self) -> Option<&Names> {
        let one = self.0.first().filter(|_| self.0.len() == 1)?;
        one.values().all(|node| node.id.is_some()).then_some(one)
    }

    /// A name of which more must be learned.
    pub fn unknown(&self) -> Option<u8> {
        let first = self.0.first()?;
        let differs = |name: &u8| self.0.iter().any(|names| names.get(name) != first.get(name));
        let mut all = self.0.iter().flatten();
        let nameless = all.find(|(_, node)| node.id.is_none()).map(|(name, _)| *name);
        nameless.or_else(|| self.0.iter().flat_map(|names| names.keys()).copied().find(differs))
    }

    /// The change may be executed once more, or may have been.
    pub fn perhaps(&mut self, change: Change) {
        let executed = self.0.iter().map(|names| execute(names, change, None).0);
        let executed: Vec<Names> = executed.collect();
        self.0.extend(executed);
    }

    /// The change was executed with this outcome; the reply tells the id of what was made. The error names the
    /// violation.
    pub fn executed(
        &mut self,
        change: Change,
        outcome: Outcome,
        made: Option<u64>,
    ) -> Result<(), String> {
        let executed = self.0.iter().map(|names| execute(names, change, made));
        let fits = executed.filter(|(_, its)| *its == outcome).map(|(names, _)| names);
        self.narrow(fits.collect(), || format!("{change:?} has the outcome {outcome:?} ({made:?})"))
    }

    /// A look-up found this id, or nothing.
    pub fn saw(&mut self, name: u8, seen: Option<u64>) -> Result<(), String> {
        let fits = self.0.iter().filter_map(|names| {
            let mut names = names.clone();
            match (names.get_mut(&name), seen) {
                (None, None) => Some(names),
                (Some(node), Some(id)) if node.id.is_none_or(|its| its == id) => {
                    node.id = Some(id);
                    Some(names)
                }
                _ => None,
            }
        });
        self.narrow(fits.collect(), || format!("name {name} is {seen:?}"))
    }

    fn narrow(&mut self, to: BTreeSet<Names>, what: impl Fn() -> String) -> Result<(), String> {
        if to.is_empty() {
            return Err(format!(
                "{}, of which no state of the directory allows: {:?}",
                what(),
                self.0
            ));
        }
        self.0 = to;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_execution_has_one_outcome() {
        let mut tree = Tree::default();
        tree.executed(Change::Guarded(1), Outcome::Done, Some(7)).unwrap();
        assert!(tree.clone().executed(Change::Guarded(1), Outcome::Done, Some(8)).is_err());
        tree.executed(Change::Guarded(1), Outcome::Exists, None).unwrap();
        tree.executed(Change::Link(7, 2), Outcome::Done, None).unwrap();
        tree.executed(Change::Rename(1, 2), Outcome::Done, None).unwrap();
        assert_eq!(tree.known().unwrap().len(), 2, "two names of one file stay");
        tree.executed(Change::Rmdir(1), Outcome::Refused, None).unwrap();
        tree.executed(Change::Remove(1), Outcome::Done, None).unwrap();
        assert!(tree.clone().saw(1, Some(7)).is_err());
        tree.saw(2, Some(7)).unwrap();
    }

    #[test]
    fn a_call_that_may_have_been_executed_before_has_two() {
        let mut tree = Tree::default();
        tree.perhaps(Change::Guarded(1));
        assert_eq!((tree.known(), tree.unknown()), (None, Some(1)));
        let mut first = tree.clone();
        first.executed(Change::Guarded(1), Outcome::Exists, None).unwrap();
        assert_eq!(first.unknown(), Some(1), "its id is not known");
        first.saw(1, Some(9)).unwrap();
        assert_eq!(first.known().unwrap()[&1].id, Some(9));
        tree.executed(Change::Guarded(1), Outcome::Done, Some(9)).unwrap();
        assert_eq!(tree.known().unwrap()[&1].id, Some(9));
    }

    #[test]
    fn an_exclusive_creation_finds_its_own_file() {
        let mut tree = Tree::default();
        tree.perhaps(Change::Exclusive(1, 5));
        tree.executed(Change::Exclusive(1, 5), Outcome::Done, Some(9)).unwrap();
        assert!(tree.clone().executed(Change::Exclusive(1, 6), Outcome::Done, Some(9)).is_err());
        tree.executed(Change::Exclusive(1, 6), Outcome::Exists, None).unwrap();
    }
}
