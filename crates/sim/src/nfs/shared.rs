//! Knowledge that all applications on NFS share: handles, the bytes of each one's files, the winners of races.

use super::bytes::Bytes;
use super::token::Token;
use std::collections::BTreeMap;

/// Files that all of them create exclusively, in the root directory.
pub const RACES: usize = 24;

/// The outcomes of one such creation.
#[derive(Clone, Debug, Default)]
struct Race {
    winners: Vec<usize>,
    losers: usize,
}

/// The knowledge.
#[derive(Debug, Default)]
pub struct Shared {
    /// Files by their applications and ids.
    files: Vec<BTreeMap<u64, Bytes>>,
    handles: BTreeMap<u64, Vec<u8>>,
    races: Vec<Race>,
    /// The file that machines lock: the first one that was created exclusively by one of all.
    locked: Option<u64>,
    /// The file that is renamed on and on.
    pub token: Token,
    /// Starts of machines that keep data.
    pub keepers: u32,
    /// Calls that were answered, and those that were answered with an error that trouble explains.
    pub succeeded: u64,
    pub failed: u64,
}

impl Shared {
    /// Of so many applications.
    pub fn new(applications: usize) -> Shared {
        let files = vec![BTreeMap::new(); applications];
        Shared { files, races: vec![Race::default(); RACES], ..Shared::default() }
    }

    /// The files of an application.
    pub fn files(&self, of: usize) -> &BTreeMap<u64, Bytes> {
        &self.files[of]
    }

    /// A file of an application, which is empty when it is new.
    pub fn file(&mut self, of: usize, id: u64) -> &mut Bytes {
        self.files[of].entry(id).or_default()
    }

    /// Forgets files that are gone.
    pub fn retain(&mut self, of: usize, is_there: impl Fn(u64) -> bool) {
        self.files[of].retain(|id, _| is_there(*id));
    }

    /// Another application that has files.
    pub fn others(&self, than: usize) -> Vec<usize> {
        let has_files = |of: &usize| *of != than && !self.files[*of].is_empty();
        (0..self.files.len()).filter(has_files).collect()
    }

    /// The handle of a file.
    pub fn handle(&self, id: u64) -> &[u8] {
        self.handles.get(&id).map_or(&[], |handle| handle)
    }

    /// The handle of the file that machines lock.
    pub fn lock_file(&self) -> Option<&[u8]> {
        self.locked.map(|id| self.handle(id))
    }

    /// A reply told a file's handle. The error: it was another one before.
    pub fn learn(&mut self, id: u64, handle: &[u8]) -> Result<(), String> {
        let known = self.handles.entry(id).or_insert_with(|| handle.to_vec());
        match known == handle {
            true => Ok(()),
            false => Err(format!("file {id:#x} has the handle {handle:?}, but had {known:?}")),
        }
    }

    /// An exclusive creation was answered, and made this file if `by` has won.
    pub fn raced(&mut self, race: usize, by: usize, won: Option<u64>) -> Result<(), String> {
        self.locked = self.locked.or(won.filter(|_| race == 0));
        let Race { winners, losers } = &mut self.races[race];
        match won {
            Some(_) => winners.push(by),
            None => *losers += 1,
        }
        match winners[..] {
            [_, _, ..] => Err(format!("race {race} was won by {winners:?}")),
            [] if *losers == self.files.len() => Err(format!("race {race} was won by nobody")),
            _ => Ok(()),
        }
    }
}
