//! Checks what name-space operations return, in directories that one mount changes, one operation at a time.
//!
//! For each name it keeps the possible values: one, usually; several after an operation with an unknown outcome, or
//! after a power cut of the manager that may have taken a change which no sync had acknowledged.

use crate::data_check::{PAUSE_MAX, RECENT};
use crate::queue::Picos;
use node::rings::Name;
use std::collections::{BTreeMap, BTreeSet};
use wire::FileId;

/// Value of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Nothing.
    Nothing,
    /// This file.
    File(FileId),
    /// Some file, of a creation whose reply never came.
    Something,
}

impl Value {
    fn allows(self, seen: Option<FileId>) -> bool {
        match (self, seen) {
            (Value::Nothing, None) | (Value::Something, Some(_)) => true,
            (Value::File(file), Some(seen)) => file == seen,
            _ => false,
        }
    }
}

/// How long the manager may leave a change unsynced: DESIGN says 1 s, and a pause of the machine may add to it.
const UNSYNCED: Picos = Picos::seconds(5);

#[derive(Clone, Debug, Default)]
struct Entry {
    may: Vec<Value>,
    /// Its values before the last changes, and until when.
    before: Vec<(Picos, Value)>,
    /// The same, whether it was synced since or not.
    lately: Vec<(Picos, Value)>,
    /// Possible values after a kill and damage, whatever a lookup found since.
    stopped: Vec<Value>,
    /// Possible values from a power cut that may have taken changes until a lookup or a sync tells.
    kept: Option<Vec<Value>>,
    /// The mount that made the last change has run on since, so a sync can tell it that the change was taken.
    held: bool,
}

/// One change under way: names and what they are to become.
#[derive(Clone, Debug, Default)]
pub struct Change(pub Vec<(FileId, Name, Value)>);

/// The values that names may have at some time.
#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<(FileId, Name), Vec<Value>>);

impl Values {
    /// Their values in the others are possible, too.
    pub fn allow(&mut self, others: &Values) {
        for ((directory, name), values) in &others.0 {
            values.iter().for_each(|value| self.allow_one(*directory, name, *value));
        }
    }

    /// The change may have been made.
    pub fn allow_change(&mut self, change: &Change) {
        change.0.iter().for_each(|(directory, name, to)| self.allow_one(*directory, name, *to));
    }

    fn allow_one(&mut self, directory: FileId, name: &Name, value: Value) {
        let may = self.0.entry((directory, name.clone())).or_insert_with(|| vec![Value::Nothing]);
        if !may.contains(&value) {
            may.push(value);
        }
    }
}

/// All directories under check.
#[derive(Clone, Debug, Default)]
pub struct NameCheck {
    entries: BTreeMap<(FileId, Name), Entry>,
    cut: Option<Picos>,
    /// Power cuts of managers.
    cuts: u64,
    /// The names that each file ever had, or may have had, in the order of time.
    had: BTreeMap<FileId, Vec<(FileId, Name)>>,
    /// Names that some file may have had which no reply has told.
    had_by_some: BTreeSet<(FileId, Name)>,
}

/// Whether the path leads to the name in a home directory, or in the root.
fn is_path_of(path: &[u8], (directory, name): &(FileId, Name)) -> bool {
    let mut names = path.rsplit(|byte| *byte == b'/');
    let in_home = |above: &[u8]| above.starts_with(b"home") && *directory != FileId::ROOT;
    let is_above = |above: &[u8]| above.is_empty() || in_home(above);
    names.next() == Some(&name[..]) && names.next().is_none_or(is_above)
}

impl NameCheck {
    /// The file has this name now, or may have.
    pub fn learn(&mut self, directory: FileId, name: &Name, value: Value) {
        let place = (directory, name.clone());
        match value {
            Value::Nothing => {}
            Value::Something => drop(self.had_by_some.insert(place)),
            Value::File(file) => {
                let had = self.had.entry(file).or_default();
                if had.last() != Some(&place) {
                    had.push(place);
                }
            }
        }
    }

    /// Number of names that the file had, one after the other.
    pub fn path_count(&self, file: FileId) -> usize {
        self.had.get(&file).map_or(0, Vec::len)
    }

    fn places(&self, file: FileId) -> &[(FileId, Name)] {
        self.had.get(&file).map_or(&[], |had| had)
    }

    /// Index of the first of its names that was the path.
    pub fn first_at(&self, file: FileId, path: &[u8]) -> Option<usize> {
        self.places(file).iter().position(|place| is_path_of(path, place))
    }

    /// Index of the last of its names that was the path.
    pub fn last_at(&self, file: FileId, path: &[u8]) -> Option<usize> {
        self.places(file).iter().rposition(|place| is_path_of(path, place))
    }

    /// Whether the file may have had the path.
    pub fn had_path(&self, file: FileId, path: &[u8]) -> bool {
        let by_some = || self.had_by_some.iter().any(|place| is_path_of(path, place));
        self.path_count(file) == 0 || self.last_at(file, path).is_some() || by_some()
    }

    /// Files that ever were in the root directory.
    pub fn at_root(&self) -> impl Iterator<Item = FileId> + '_ {
        let at_root = |had: &Vec<(FileId, Name)>| had.iter().any(|(at, _)| *at == FileId::ROOT);
        self.had.iter().filter(move |(_, had)| at_root(had)).map(|(file, _)| *file)
    }

    fn entry(&mut self, directory: FileId, name: &Name) -> &mut Entry {
        self.entries
            .entry((directory, name.clone()))
            .or_insert_with(|| Entry { may: vec![Value::Nothing], ..Entry::default() })
    }

    /// The change succeeded.
    pub fn succeeded(&mut self, change: &Change, now: Picos) {
        for (directory, name, value) in &change.0 {
            self.learn(*directory, name, *value);
            let entry = self.entry(*directory, name);
            let was = std::mem::replace(&mut entry.may, vec![*value]);
            (entry.kept, entry.held) = (None, true);
            entry.before.retain(|(until, _)| *until + UNSYNCED > now);
            entry.lately.retain(|(until, _)| *until + RECENT + PAUSE_MAX > now);
            entry.lately.extend(was.iter().map(|value| (now, *value)));
            entry.before.extend(was.into_iter().map(|value| (now, value)));
        }
    }

    /// Whether the change happened is not known.
    pub fn unknown(&mut self, change: &Change) {
        for (directory, name, value) in &change.0 {
            self.learn(*directory, name, *value);
            let entry = self.entry(*directory, name);
            for may in [Some(&mut entry.may), entry.kept.as_mut()].into_iter().flatten() {
                if !may.contains(value) {
                    may.push(*value);
                }
            }
        }
    }

    /// A sync of the directory was acknowledged: its state is on stable storage, and no power cut took a change that
    /// this mount had made since the sync before.
    pub fn synced(&mut self, directory: FileId) {
        for entry in self.of(directory) {
            entry.before.clear();
            if let Some(kept) = entry.kept.take() {
                entry.may = kept;
            }
        }
    }

    /// A sync of a file that the mount opened by its name was acknowledged: the name is on stable storage. Of what an
    /// earlier power cut took it tells nothing.
    pub fn file_synced(&mut self, directory: FileId, file: FileId) {
        let of_file = |entry: &&mut Entry| entry.may == [Value::File(file)];
        let told = self.of(directory).filter(of_file);
        told.filter(|entry| entry.held && entry.kept.is_none())
            .for_each(|entry| entry.before.clear());
    }

    /// A sync of the directory failed, and told of a loss: what is there is what a look brings.
    pub fn sync_failed(&mut self, directory: FileId) {
        self.of(directory).for_each(|entry| entry.kept = None);
    }

    /// The mount that changes the directory died: a later sync tells nothing of what was before.
    pub fn mount_died(&mut self, directory: FileId) {
        self.of(directory).for_each(|entry| (entry.kept, entry.held) = (None, false));
    }

    fn of(&mut self, directory: FileId) -> impl Iterator<Item = &mut Entry> {
        let first = (directory, Name::default());
        let entries = self.entries.range_mut(first..);
        entries.take_while(move |((of, _), _)| *of == directory).map(|(_, entry)| entry)
    }

    /// A machine that keeps names or data lost power.
    pub fn note_power_cut(&mut self, now: Picos) {
        self.cut = Some(now);
    }

    /// It was the manager's: changes that no sync had acknowledged may be gone.
    pub fn manager_power_cut(&mut self, now: Picos) {
        self.cuts += 1;
        for entry in self.entries.values_mut() {
            let known = entry.may.clone();
            for (until, value) in std::mem::take(&mut entry.before) {
                if until + UNSYNCED > now && !entry.may.contains(&value) {
                    entry.may.push(value);
                }
            }
            if entry.may != known && entry.held && entry.kept.is_none() {
                entry.kept = Some(known);
            }
        }
    }

    /// The manager was killed after it had run until `now`, and its disk may decay: changes of the last second may be
    /// gone.
    pub fn last_second_lost(&mut self, now: Picos) {
        for entry in self.entries.values_mut() {
            let lately = std::mem::take(&mut entry.lately).into_iter();
            let lost = lately.filter(|(until, _)| *until + RECENT > now).map(|(_, value)| value);
            entry.stopped = entry.may.iter().copied().chain(lost).collect();
        }
    }

    /// The manager is started once more from what it stored then, and that may have decayed in another way.
    pub fn start_again(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| !entry.stopped.is_empty()) {
            entry.may.clone_from(&entry.stopped);
        }
    }

    /// The values that names may have had at any time since then, which is not long ago.
    pub fn values(&self, since: Picos) -> Values {
        let of = |(name, entry): (&(FileId, Name), &Entry)| {
            let lately = entry.lately.iter().filter(|(until, _)| *until >= since);
            let lately = lately.map(|(_, value)| *value);
            (name.clone(), entry.may.iter().copied().chain(lately).collect())
        };
        Values(self.entries.iter().map(of).collect())
    }

    /// The names are those of a backup.
    pub fn go_back(&mut self, to: &Values) {
        for (name, entry) in &mut self.entries {
            let nothing = vec![Value::Nothing];
            entry.may = to.0.get(name).cloned().unwrap_or(nothing);
            entry.stopped.clear();
        }
    }

    /// Some names are those of a backup, the others what they were.
    pub fn go_back_in_part(&mut self, to: &Values) {
        for (name, entry) in &mut self.entries {
            let before = to.0.get(name).cloned().unwrap_or(vec![Value::Nothing]);
            entry.may.extend(before);
            entry.stopped.clear();
        }
    }

    /// Files that names may stand for.
    pub fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        let file = |value: &Value| match value {
            Value::File(file) => Some(*file),
            _ => None,
        };
        self.entries.values().flat_map(|entry| &entry.may).filter_map(file)
    }

    /// Files that names certainly stand for.
    pub fn live(&self) -> impl Iterator<Item = FileId> + '_ {
        let file = |entry: &Entry| match entry.may[..] {
            [Value::File(file)] => Some(file),
            _ => None,
        };
        self.entries.values().filter_map(file)
    }

    /// Whether the manager's machine lost power since `time`, or shortly before.
    pub fn was_cut_since(&self, time: Picos) -> bool {
        self.cut.is_some_and(|cut| cut + UNSYNCED > time)
    }

    /// Possible values of the name.
    pub fn may(&mut self, directory: FileId, name: &Name) -> &[Value] {
        &self.entry(directory, name).may
    }

    /// Whether the name certainly stands for something.
    pub fn exists(&mut self, directory: FileId, name: &Name) -> bool {
        !self.may(directory, name).contains(&Value::Nothing)
    }

    /// Checks the result of a lookup, which is the known value from now on. The error names the violation.
    pub fn saw(
        &mut self,
        directory: FileId,
        name: &Name,
        seen: Option<FileId>,
    ) -> Result<(), String> {
        let entry = self.entry(directory, name);
        if !entry.may.iter().any(|value| value.allows(seen)) {
            let (name, may) = (String::from_utf8_lossy(name), &entry.may);
            return Err(format!("{directory:?}/{name} is {seen:?}, but may be {may:?}"));
        }
        let seen = seen.map_or(Value::Nothing, Value::File);
        entry.may = vec![seen];
        self.learn(directory, name, seen);
        Ok(())
    }

    /// Checks that the name may stand for something. The error names the violation.
    pub fn saw_something(&mut self, directory: FileId, name: &Name) -> Result<(), String> {
        let entry = self.entry(directory, name);
        entry.may.retain(|value| *value != Value::Nothing);
        match entry.may.is_empty() {
            true => {
                entry.may.push(Value::Something);
                let name = String::from_utf8_lossy(name);
                Err(format!("{directory:?}/{name} is there, but nothing may be"))
            }
            false => Ok(()),
        }
    }

    /// Checks that a change may be refused because the names that were to become `value` are that already. The error
    /// names the violation.
    pub fn refused(&mut self, change: &Change, value: Value) -> Result<(), String> {
        let mut named = change.0.iter().filter(|(_, _, to)| *to == value).peekable();
        if named.peek().is_none() {
            return Err(format!("{change:?} is refused, but makes no name {value:?}"));
        }
        named.try_for_each(|(directory, name, _)| match value {
            Value::Nothing => self.saw(*directory, name, None),
            _ => self.saw_something(*directory, name),
        })
    }

    /// Number of power cuts of managers so far.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Checks the listing of a whole directory that began when there had been so many power cuts. Over one of them it
    /// may show what that took, and tells nothing of what is there now. The error names the violation.
    pub fn listed_since(
        &mut self,
        cuts: u64,
        directory: FileId,
        names: &[(Name, FileId)],
    ) -> Result<(), String> {
        match self.cuts == cuts {
            true => self.listed(directory, names),
            false => self.clone().listed(directory, names),
        }
    }

    /// Checks the listing of a whole directory. The error names the violation.
    pub fn listed(&mut self, directory: FileId, names: &[(Name, FileId)]) -> Result<(), String> {
        let known: Vec<Name> = self.names(directory);
        for name in known {
            let mut found = names.iter().filter(|(listed, _)| *listed == name);
            let seen = found.next().map(|(_, file)| *file);
            if found.next().is_some() {
                return Err(format!(
                    "{directory:?} lists {} twice",
                    String::from_utf8_lossy(&name)
                ));
            }
            self.saw(directory, &name, seen).map_err(|error| format!("listed: {error}"))?;
        }
        let known: Vec<Name> = self.names(directory);
        match names.iter().find(|(name, _)| known.binary_search(name).is_err()) {
            Some((name, file)) => {
                let name = String::from_utf8_lossy(name);
                Err(format!("{directory:?} lists {name} ({file:?}), which nobody made"))
            }
            None => Ok(()),
        }
    }

    /// Names of the directory that ever stood for something.
    pub fn names(&self, directory: FileId) -> Vec<Name> {
        let first = (directory, Name::default());
        let entries = self.entries.range(first..).take_while(|((of, _), _)| *of == directory);
        entries.map(|((_, name), _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: FileId = FileId(1);

    fn name(text: &str) -> Name {
        text.as_bytes().into()
    }

    fn change(text: &str, value: Value) -> Change {
        Change(vec![(HOME, name(text), value)])
    }

    #[test]
    fn an_acknowledged_change_is_seen() {
        let mut check = NameCheck::default();
        check.succeeded(&change("a", Value::File(FileId(7))), Picos::seconds(1));
        assert!(check.saw(HOME, &name("a"), Some(FileId(7))).is_ok());
        assert!(check.saw(HOME, &name("a"), Some(FileId(8))).is_err());
        assert!(check.saw(HOME, &name("a"), None).is_err());
        assert!(check.exists(HOME, &name("a")));
        assert_eq!(check.may(HOME, &name("b")), [Value::Nothing]);
    }

    /// Seed 2 of several managers: pages of before the cut had a name that it took.
    #[test]
    fn a_listing_over_a_power_cut_tells_nothing_of_what_is_there_now() {
        let mut check = NameCheck::default();
        check.succeeded(&change("a", Value::File(FileId(7))), Picos::seconds(1));
        let begun = check.cuts();
        check.manager_power_cut(Picos::seconds(2));
        let seen = [(name("a"), FileId(7))];
        check.listed_since(begun, HOME, &seen).unwrap();
        assert!(check.listed_since(begun, HOME, &[(name("a"), FileId(8))]).is_err());
        assert!(check.clone().listed_since(check.cuts(), HOME, &[]).is_ok(), "it may have gone");
        check.listed_since(check.cuts(), HOME, &seen).unwrap();
        assert!(check.listed_since(check.cuts(), HOME, &[]).is_err());
    }

    #[test]
    fn a_refusal_says_what_is_there() {
        let mut check = NameCheck::default();
        check.succeeded(&change("a", Value::File(FileId(7))), Picos::seconds(1));
        let (made, gone) = (change("a", Value::Something), change("a", Value::Nothing));
        assert!(check.refused(&made, Value::Something).is_ok());
        assert!(check.refused(&made, Value::Nothing).is_err(), "it removes nothing");
        assert!(check.refused(&gone, Value::Nothing).is_err(), "it is there");
        check.succeeded(&gone, Picos::seconds(2));
        assert!(check.refused(&gone, Value::Nothing).is_ok());
        assert!(check.saw_something(HOME, &name("b")).is_err(), "nobody made it");
        check.manager_power_cut(Picos::seconds(3));
        assert!(check.saw_something(HOME, &name("a")).is_ok(), "the cut may have taken it back");
        assert!(check.exists(HOME, &name("a")));
    }

    #[test]
    fn an_unknown_outcome_is_settled_by_the_first_look() {
        let mut check = NameCheck::default();
        check.unknown(&change("a", Value::Something));
        assert!(!check.exists(HOME, &name("a")));
        assert!(check.saw(HOME, &name("a"), Some(FileId(8))).is_ok());
        assert!(check.saw(HOME, &name("a"), None).is_err());
    }

    #[test]
    fn a_power_cut_takes_recent_unsynced_changes_only() {
        let nothing = |_: &mut NameCheck, _: FileId| ();
        let lost = |sync: fn(&mut NameCheck, FileId), seconds| {
            let mut check = NameCheck::default();
            check.succeeded(&change("a", Value::File(FileId(7))), Picos::seconds(10));
            sync(&mut check, HOME);
            check.manager_power_cut(Picos::seconds(seconds));
            check.saw(HOME, &name("a"), None).is_ok()
        };
        assert!(lost(nothing, 11));
        assert!(!lost(NameCheck::synced, 11));
        assert!(!lost(|check, home| check.file_synced(home, FileId(7)), 11));
        assert!(lost(|check, home| check.file_synced(home, FileId(8)), 11));
        assert!(!lost(nothing, 20));
    }

    #[test]
    fn a_sync_after_a_power_cut_tells_whether_it_took_anything() {
        for told in [false, true] {
            let mut check = NameCheck::default();
            check.succeeded(&change("a", Value::File(FileId(7))), Picos::seconds(10));
            check.manager_power_cut(Picos::seconds(11));
            if told {
                check.sync_failed(HOME);
            }
            check.synced(HOME);
            assert_eq!(check.saw(HOME, &name("a"), None).is_ok(), told);
        }
    }

    #[test]
    fn a_listing_is_complete_and_holds_nothing_else() {
        let mut check = NameCheck::default();
        check.succeeded(&change("a", Value::File(FileId(7))), Picos::ZERO);
        let (a, b) = ((name("a"), FileId(7)), (name("b"), FileId(8)));
        assert!(check.listed(HOME, std::slice::from_ref(&a)).is_ok());
        assert!(check.listed(HOME, &[]).is_err());
        assert!(check.listed(HOME, &[a.clone(), b]).is_err());
        assert!(check.listed(HOME, &[a.clone(), a]).is_err());
    }
}
