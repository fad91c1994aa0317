//! `trapeze restore`: the names of a manager go on from a backup, or from an older copy of its directory.

use crate::backup::format::{BadBackup, Block, Counts, Head, Of, Part, Reader};
use crate::cli;
use files::cluster::{members_store, names_store};
use live::meta::{LoadError, exists, load};
use names::PartOf;
use node::rings::StoreId;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use store::{Filling, Store, StoreError};
use terminal::progress;
use trapeze::config::{ConfigError, Machine, Role, sync_name};
use trapeze::{incarnation, output};

/// Why names were not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Not a manager's directory.
    #[error(
        "{0} is no directory of a manager: name the DIR of `trapeze up`, `init` or `join` where manager.toml or \
         machine.toml is, or a manager's configuration itself"
    )]
    NoManager(PathBuf),
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store's files.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Their contents.
    #[error("{0}: {1}")]
    Store(PathBuf, StoreError),
    /// The names in it.
    #[error("{0}: {1}")]
    Names(PathBuf, names::OpenError),
    /// It could not be written.
    #[error("{0}: {1}; nothing was changed")]
    Written(PathBuf, String),
    /// The backup.
    #[error("{0}: {1}; nothing was changed")]
    Backup(PathBuf, BadBackup),
    /// It is of something else.
    #[error(
        "{0} is a backup of {1}, and {2} is of {3}: name the backup of this cluster; nothing was \
         changed"
    )]
    Other(PathBuf, String, PathBuf, String),
    /// It has nothing of this manager.
    #[error(
        "{0} has no names of the manager {1}, but of {2}: when it was made {1} had no share of the names; nothing was \
         changed"
    )]
    NoPart(PathBuf, String, String),
    /// Another release made it.
    #[error(
        "{0} was made by a release whose names have format {1} and whose members have format {2}, this one knows {3} \
         and {4}: restore it with that release; nothing was changed"
    )]
    Format(PathBuf, u32, u32, u32, u32),
    /// There are names.
    #[error(
        "{0} has names: to restore the backup in their place, say --replace, which keeps them beside it; to go on with \
         them though they are an older copy, `trapeze restore --accept`"
    )]
    Exists(PathBuf),
    /// The system.
    #[error("{0}: {1}")]
    System(PathBuf, io::Error),
}

type Result<T> = std::result::Result<T, RestoreError>;

/// The next steps for the administrator.
const NEXT: &str = "start the managers and all machines, look at `trapeze check`, and when all is as it should be, \
                    `trapeze quarantine resume`: until then nothing that the names do not know is purged";

/// `trapeze restore`.
pub fn restore(arguments: &cli::Restore) -> Result<()> {
    let (machine, store) = manager_of(&arguments.dir)?;
    let Some(file) = &arguments.file else {
        accept(&store)?;
        println!("the names in {} are taken as they are; {NEXT}", store.display());
        return Ok(());
    };
    let there = exists(&store, StoreId::Names);
    if there && !arguments.replace {
        return Err(RestoreError::Exists(store));
    }
    // Held to the end: no manager runs on it meanwhile.
    let _held = there.then(|| load(&store, StoreId::Names)).transpose()?;
    let bad = |error| RestoreError::Backup(file.clone(), error);
    let input: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(file).map_err(|error| bad(error.into()))?),
    };
    let (mut reader, head) = Reader::new(BufReader::new(input)).map_err(bad)?;
    check(file, &head, &arguments.dir, &machine)?;
    let new = beside(&store, "restoring");
    let _ = fs::remove_dir_all(&new); // of a restore that was broken off
    let written =
        write(&new, &mut reader, (&machine, head.has_parts)).map_err(|error| match error {
            Failure::Backup(error) => bad(error),
            Failure::NoPart(parts) => {
                RestoreError::NoPart(file.clone(), machine.name.clone(), parts)
            }
            Failure::Other(error) => error,
        });
    let counts = written.inspect_err(|_| drop(fs::remove_dir_all(&new)))?;
    let kept = put(&store, &new)?;
    let when = output::at(head.taken, 0);
    println!("{} records of names and {} of members, as of {when}", counts.names, counts.members);
    if let Some(kept) = kept {
        println!("what was there is in {}", kept.display());
    }
    println!("{NEXT}");
    Ok(())
}

/// The configuration in a manager's directory, or this one, and where its store is.
pub(crate) fn manager_of(dir: &Path) -> Result<(Machine, PathBuf)> {
    let files = [dir.to_path_buf(), dir.join("manager.toml"), dir.join("machine.toml")];
    let file = files.iter().find(|file| file.is_file());
    let machine = Machine::load(file.ok_or_else(|| RestoreError::NoManager(dir.into()))?)?;
    let store = machine.store.clone().filter(|_| machine.is(Role::Manager));
    let store = store.ok_or_else(|| RestoreError::NoManager(dir.into()))?;
    Ok((machine, store))
}

fn beside(store: &Path, what: &str) -> PathBuf {
    let mut name = store.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{what}"));
    store.with_file_name(name)
}

fn check(file: &Path, head: &Head, dir: &Path, machine: &Machine) -> Result<()> {
    let (names, members) = (names::STORE.version, members::STORE_VERSION);
    if (head.names_format, head.members_format) != (names, members) {
        let (old_names, old_members) = (head.names_format, head.members_format);
        return Err(RestoreError::Format(file.into(), old_names, old_members, names, members));
    }
    let (wanted, volume) = (machine.cluster_id(), machine.volume);
    if (head.cluster != wanted && head.cluster != 0) || head.volume != volume {
        let name = |cluster: u64, volume: u32| format!("cluster {cluster:016x}, volume {volume}");
        let (one, other) = (name(head.cluster, head.volume), name(wanted, volume));
        return Err(RestoreError::Other(file.into(), one, dir.into(), other));
    }
    Ok(())
}

enum Failure {
    Backup(BadBackup),
    /// It has only parts of managers with these names.
    NoPart(String),
    Other(RestoreError),
}

impl From<BadBackup> for Failure {
    fn from(error: BadBackup) -> Failure {
        Failure::Backup(error)
    }
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Failure {
        Failure::Other(error)
    }
}

/// The part of a backup that is being read, as the manager sees it whose store is restored.
struct Reading {
    node: u16,
    part: PartOf,
    /// The rows of members are this manager's.
    is_first: bool,
    /// Names of managers that there are parts of.
    found: Vec<String>,
    has_own: bool,
}

impl Reading {
    fn new(machine: &Machine, has_parts: bool) -> Reading {
        let (node, first) = (machine.node, machine.manager.node);
        // Of one manager all of it is that one's.
        let (is_first, has_own) = (node == first, !has_parts && node == first);
        let found =
            if has_parts { Vec::new() } else { vec!["the first manager alone".to_string()] };
        Reading { node, part: PartOf::own(0..=u8::MAX), is_first, found, has_own }
    }

    fn begin(&mut self, part: Part) {
        let is_own = part.node == self.node;
        self.has_own |= is_own;
        self.part = if is_own { PartOf::own(part.sites) } else { PartOf::other(part.sites) };
        self.found.push(part.name);
    }
}

/// Makes the stores in a new directory, on stable storage when the backup has turned out to be whole. What other
/// managers had comes with it: any of their sites may have come to this one since.
fn write<R: Read>(
    new: &Path,
    reader: &mut Reader<R>,
    (machine, has_parts): (&Machine, bool),
) -> std::result::Result<Counts, Failure> {
    fs::create_dir_all(new).map_err(|error| RestoreError::System(new.into(), error))?;
    let mut reading = Reading::new(machine, has_parts);
    let mut names = filling(new, StoreId::Names, names_store())?;
    let members = reading.is_first.then(|| filling(new, StoreId::Members, members_store()));
    let mut members = members.transpose()?;
    let unwritten = |text| RestoreError::Written(new.into(), text);
    let (bar, mut counts) = (progress::counted("records"), Counts::default());
    while let Some(block) = reader.block()? {
        match block {
            Block::Part(part) => reading.begin(part),
            Block::Rows(Of::Members, rows) => {
                bar.inc(rows.len() as u64);
                if let Some(members) = &mut members {
                    counts.members += rows.len() as u64;
                    members.put(rows).map_err(unwritten)?;
                }
            }
            Block::Rows(Of::Names, rows) => {
                bar.inc(rows.len() as u64);
                for (key, value) in rows {
                    let rows = names::restored(&reading.part, &key, &value);
                    let rows = rows.map_err(|error| RestoreError::Names(new.into(), error))?;
                    counts.names += u64::from(!rows.is_empty());
                    names.put(rows).map_err(unwritten)?;
                }
            }
        }
    }
    bar.finish_and_clear();
    if !reading.has_own {
        return Err(Failure::NoPart(reading.found.join(", ")));
    }
    names.end().map_err(unwritten)?;
    members.map_or(Ok(()), |members| members.end().map_err(unwritten))?;
    sync_name(&new.join("names.redb")).map_err(|error| RestoreError::System(new.into(), error))?;
    Ok(counts)
}

/// A new store to be filled.
fn filling(dir: &Path, id: StoreId, config: store::Config) -> Result<Filling> {
    let loaded = load(dir, id)?;
    let opened = Store::open(loaded.backend, config, loaded.logs);
    opened.map(Filling::new).map_err(|error| RestoreError::Store(dir.into(), error))
}

/// Gives a new store the place of the one that is there, which is kept; where.
fn put(store: &Path, new: &Path) -> Result<Option<PathBuf>> {
    let system = |error| RestoreError::System(store.into(), error);
    let start = store.join(incarnation::FILE);
    if start.is_file() {
        fs::copy(&start, new.join(incarnation::FILE)).map_err(system)?;
    }
    let kept = store.exists().then(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs());
        beside(store, &format!("before-{now}"))
    });
    if let Some(kept) = &kept {
        fs::rename(store, kept).map_err(system)?;
    }
    fs::rename(new, store).map_err(system)?;
    sync_name(store).map_err(system)?;
    Ok(kept)
}

/// Has the next start of the manager go on from its store, whatever servers know of a newer one.
fn accept(dir: &Path) -> Result<()> {
    let loaded = load(dir, StoreId::Names)?;
    let opened = Store::open(loaded.backend, names_store(), loaded.logs);
    let mut store = opened.map_err(|error| RestoreError::Store(dir.into(), error))?;
    // All of it comes into the checkpoint, so its records need no log.
    let _no_log =
        names::accept(&mut store).map_err(|error| RestoreError::Names(dir.into(), error))?;
    store.put_in_place().map_err(|text| RestoreError::Written(dir.into(), text))
}
