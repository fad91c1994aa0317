//! The checkpoint: all changes up to a mark, in redb. One table holds the data, one says what the store is and which
//! changes the data covers; both change in one durable transaction.
//!
//! Below redb every page has a sum (`sealed`).
//!
//! redb refuses everything after the first error of its storage, so a failed commit is followed by opening the
//! database anew over the same backend. It then holds the old mark or the new one, and either is fine: the same changes
//! are written again.

use crate::config::Config;
use crate::error::StoreError;
use crate::overlay::{Bounds, Bytes, Overlay};
use crate::sealed::Sealed;
use redb::{
    AccessGuard, Builder, Database, ReadOnlyTable, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageBackend, TableDefinition, TableError, WriteTransaction,
};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, Weak};

const DATA: TableDefinition<Bytes, Bytes> = TableDefinition::new("data");
const STORE: TableDefinition<&str, Bytes> = TableDefinition::new("store");
/// Layout of the two tables and of the log records.
const STORE_VERSION: u32 = 2;

/// Extent of the checkpoint: it covers all changes up to `sequence`, and all logs up to `generation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub generation: u64,
    pub sequence: u64,
    /// The sum by which the next record names that of the last change.
    pub chain: u32,
    /// Some log of this generation or a later one is on stable storage, and none of them is dropped before another is.
    pub witness: u64,
}

/// A database over the file that outlives it.
#[derive(Debug)]
struct Shared(Arc<Storage>);

/// The file, closed when the last database over it is gone.
#[derive(Debug)]
struct Storage(Sealed);

impl StorageBackend for Shared {
    fn len(&self) -> io::Result<u64> {
        self.0.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.0.write(offset, data)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // Nothing can be told to anybody here, and everything that matters was synced by its transaction.
        let _ = self.0.close();
    }
}

/// The checkpoint as the store reads it.
pub(crate) struct Base {
    storage: Arc<Storage>,
    config: Config,
    mark: Cell<Mark>,
    opened: RefCell<Option<Opened>>,
}

struct Opened {
    // Dropped before the database, as every reader must be.
    table: ReadOnlyTable<Bytes, Bytes>,
    database: Arc<Database>,
}

impl Base {
    pub fn open(backend: impl StorageBackend, config: Config) -> Result<Base, StoreError> {
        let sealed = Sealed::open(Box::new(backend));
        let mut sealed = sealed.map_err(|error| StoreError::storage("opened")(error.into()))?;
        sealed.verifies = !config.flaws.pages_unverified;
        let (storage, opened) = (Arc::new(Storage(sealed)), RefCell::new(None));
        let base = Base { storage, config, mark: Cell::default(), opened };
        base.reopen()?;
        Ok(base)
    }

    pub fn mark(&self) -> Mark {
        self.mark.get()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the database can be used.
    pub fn is_open(&self) -> bool {
        self.opened.borrow().is_some()
    }

    /// Closes the database and opens it again: after an error, as redb demands, or to read all from the disk. Not
    /// while a checkpoint is under way, which has a database of its own.
    pub fn reopen(&self) -> Result<(), StoreError> {
        self.opened.replace(None);
        let mut builder = Builder::new();
        builder.set_cache_size(self.config.cache_bytes);
        let open = builder.create_with_backend(Shared(self.storage.clone()));
        let database = open.map_err(|error| self.failed("opened", error.into()))?;
        let (table, mark) = self.snapshot(&database)?;
        self.mark.set(mark);
        self.opened.replace(Some(Opened { table, database: Arc::new(database) }));
        Ok(())
    }

    /// Reads from the newest transaction from now on.
    pub fn refresh(&self) -> Result<(), StoreError> {
        let database = self.with(|opened| Ok(opened.database.clone()))?;
        let (table, mark) = self.snapshot(&database)?;
        self.mark.set(mark);
        self.opened.borrow_mut().as_mut().expect("as seen above").table = table;
        Ok(())
    }

    /// The data of the newest transaction, to be read for a while.
    pub fn table(&self) -> Result<ReadOnlyTable<Bytes, Bytes>, StoreError> {
        let database = self.with(|opened| Ok(opened.database.clone()))?;
        Ok(self.snapshot(&database)?.0)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<AccessGuard<'static, Bytes>>, StoreError> {
        self.with(|opened| opened.table.get(key).map_err(|error| self.failed("read", error.into())))
    }

    pub fn range(
        &self,
        bounds: Bounds<'_>,
    ) -> Result<redb::Range<'static, Bytes, Bytes>, StoreError> {
        self.with(|opened| {
            let range = opened.table.range::<&[u8]>(bounds);
            range.map_err(|error| self.failed("read", error.into()))
        })
    }

    /// Number of keys.
    pub fn keys(&self) -> Result<u64, StoreError> {
        self.with(|opened| opened.table.len().map_err(|error| self.failed("read", error.into())))
    }

    /// Work that puts `overlay` into the database and moves the mark.
    pub fn checkpoint(&self, overlay: Arc<Overlay>, mark: Mark) -> Result<Checkpoint, StoreError> {
        let database = self.with(|opened| Ok(Arc::downgrade(&opened.database)))?;
        Ok(Checkpoint { database, storage: self.storage.clone(), overlay, mark })
    }

    /// The message of an error of the database.
    pub fn failed(&self, action: &'static str, error: redb::Error) -> StoreError {
        failed(&self.storage, action, error)
    }

    fn with<R>(
        &self,
        read: impl FnOnce(&Opened) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        match &*self.opened.borrow() {
            Some(opened) => read(opened),
            None => Err(StoreError::Storage {
                action: "read",
                reason: "it could not be opened again after an error".into(),
            }),
        }
    }

    fn snapshot(&self, database: &Database) -> Result<Snapshot, StoreError> {
        snapshot(database, &self.config).map_err(|error| match self.storage.0.take_damage() {
            Some(damage) => StoreError::Rotten { offset: damage.offset },
            None => error,
        })
    }
}

/// Damage is told where there is some: what redb makes of it leads nowhere.
fn failed(storage: &Storage, action: &'static str, error: redb::Error) -> StoreError {
    match storage.0.take_damage() {
        Some(damage) => StoreError::Rotten { offset: damage.offset },
        None => StoreError::storage(action)(error),
    }
}

/// Frozen changes on their way into the checkpoint: work that takes long and waits for the disk. It may run on
/// another thread than its store; the store must be told the result with `checkpoint_done`, also when it never ran.
#[must_use]
pub struct Checkpoint {
    /// Weak, so that work that never runs cannot keep a database open that the store must open anew.
    database: Weak<Database>,
    storage: Arc<Storage>,
    overlay: Arc<Overlay>,
    mark: Mark,
}

impl Checkpoint {
    /// Commits all changes and their mark in one durable transaction. The error is a sentence for people.
    pub fn run(self) -> Result<(), String> {
        self.write().map_err(|error| error.to_string())
    }

    /// As [`run`](Checkpoint::run), for who has the store.
    pub(crate) fn write(self) -> Result<(), StoreError> {
        let closed = || StoreError::Storage {
            action: "written",
            reason: "the store was closed before".to_string(),
        };
        let database = self.database.upgrade().ok_or_else(closed)?;
        let committed = commit(&database, &self.overlay, self.mark);
        committed.map_err(|error| failed(&self.storage, "written", error))
    }

    /// About how many bytes of changes it writes.
    pub fn bytes(&self) -> usize {
        self.overlay.bytes()
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checkpoint({} bytes, {:?})", self.bytes(), self.mark)
    }
}

fn commit(database: &Database, overlay: &Overlay, mark: Mark) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    {
        let mut table = transaction.open_table(DATA)?;
        for (key, value) in overlay.entries() {
            match value {
                Some(value) => table.insert(key, value)?,
                None => table.remove(key)?,
            };
        }
    }
    write_mark(&transaction, mark)?;
    Ok(transaction.commit()?)
}

/// Every commit keeps redb's allocator state: opening after a crash then takes milliseconds instead of a walk over the
/// whole file, for a second flush per commit, of which there is about one a second.
fn begin(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    Ok(transaction)
}

fn write_mark(transaction: &WriteTransaction, mark: Mark) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(STORE)?;
    table.insert("generation", mark.generation.to_le_bytes().as_slice())?;
    table.insert("sequence", mark.sequence.to_le_bytes().as_slice())?;
    table.insert("chain", mark.chain.to_le_bytes().as_slice())?;
    table.insert("witness", mark.witness.to_le_bytes().as_slice())?;
    Ok(())
}

type Snapshot = (ReadOnlyTable<Bytes, Bytes>, Mark);

/// The newest transaction's data and mark, after a look at what the store is.
fn snapshot(database: &Database, config: &Config) -> Result<Snapshot, StoreError> {
    let read = |error| StoreError::storage("read")(error);
    loop {
        let transaction = database.begin_read().map_err(|error| read(error.into()))?;
        let table = match transaction.open_table(STORE) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => {
                create(database, config)?;
                continue;
            }
            Err(error) => return Err(read(error.into())),
        };
        check_format(&table, config)?;
        let mark = Mark {
            generation: number(&table, "generation")?,
            sequence: number(&table, "sequence")?,
            chain: version(&table, "chain")?,
            witness: number(&table, "witness")?,
        };
        let data = transaction.open_table(DATA).map_err(|error| read(error.into()))?;
        return Ok((data, mark));
    }
}

fn create(database: &Database, config: &Config) -> Result<(), StoreError> {
    let create = || -> Result<(), redb::Error> {
        let transaction = begin(database)?;
        transaction.open_table(DATA)?;
        {
            let mut table = transaction.open_table(STORE)?;
            table.insert("store version", STORE_VERSION.to_le_bytes().as_slice())?;
            table.insert("kind", config.format.kind.as_bytes())?;
            table.insert("version", config.format.version.to_le_bytes().as_slice())?;
        }
        write_mark(&transaction, Mark::default())?;
        Ok(transaction.commit()?)
    };
    create().map_err(StoreError::storage("created"))
}

fn check_format(
    table: &ReadOnlyTable<&'static str, Bytes>,
    config: &Config,
) -> Result<(), StoreError> {
    let wanted = &config.format;
    let kind = String::from_utf8_lossy(&value(table, "kind")?).into_owned();
    check_version("store", version(table, "store version")?, STORE_VERSION)?;
    if kind != wanted.kind {
        return Err(StoreError::Kind { found: kind, wanted: wanted.kind.into() });
    }
    check_version(wanted.kind, version(table, "version")?, wanted.version)
}

fn check_version(kind: &str, found: u32, wanted: u32) -> Result<(), StoreError> {
    if found == wanted {
        return Ok(());
    }
    Err(StoreError::Version { kind: kind.into(), found, wanted })
}

fn value(table: &ReadOnlyTable<&'static str, Bytes>, name: &str) -> Result<Vec<u8>, StoreError> {
    let value = ReadableTable::get(table, name)
        .map_err(|error| StoreError::storage("read")(error.into()))?;
    Ok(value.map(|value| value.value().to_vec()).unwrap_or_default())
}

fn number(table: &ReadOnlyTable<&'static str, Bytes>, name: &str) -> Result<u64, StoreError> {
    let bytes: Result<[u8; 8], _> = value(table, name)?.try_into();
    bytes.map(u64::from_le_bytes).map_err(|_| malformed(name))
}

fn version(table: &ReadOnlyTable<&'static str, Bytes>, name: &str) -> Result<u32, StoreError> {
    let bytes: Result<[u8; 4], _> = value(table, name)?.try_into();
    bytes.map(u32::from_le_bytes).map_err(|_| malformed(name))
}

fn malformed(name: &str) -> StoreError {
    StoreError::Storage { action: "read", reason: format!("its record {name:?} is malformed") }
}
