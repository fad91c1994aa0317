//! `trapeze restore`: the names of a manager go on from what there is of them.

use crate::cli;
use crate::config::{ConfigError, Machine, Role};
use files::cluster::names_store;
use live::meta::{LoadError, load};
use node::rings::StoreId;
use std::path::{Path, PathBuf};
use store::{Store, StoreError};

/// Why names were not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Not a manager's directory.
    #[error(
        "{0} is no directory of a manager: name the DIR of `trapeze up` or of `trapeze init`, where manager.toml or machine.toml is"
    )]
    NoManager(PathBuf),
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store's files.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What is in them.
    #[error("{0}: {1}")]
    Store(PathBuf, StoreError),
    /// The names in it.
    #[error("{0}: {1}")]
    Names(PathBuf, names::OpenError),
    /// It could not be written.
    #[error("{0}: {1}; the store is as it was")]
    Written(PathBuf, String),
}

type Result<T> = std::result::Result<T, RestoreError>;

/// `trapeze restore`.
pub fn restore(arguments: &cli::Restore) -> Result<()> {
    let store = store_of(&arguments.dir)?;
    accept(&store)?;
    println!(
        "the store of names in {} is taken as it is when its manager starts next; nothing that it does not know is purged until \
         `trapeze quarantine resume`",
        store.display()
    );
    Ok(())
}

/// The directory of the store of a manager's directory.
fn store_of(dir: &Path) -> Result<PathBuf> {
    let files = ["manager.toml", "machine.toml"].map(|name| dir.join(name));
    let file = files.iter().find(|file| file.is_file());
    let machine = Machine::load(file.ok_or_else(|| RestoreError::NoManager(dir.into()))?)?;
    let store = machine.store.clone().filter(|_| machine.is(Role::Manager));
    store.ok_or_else(|| RestoreError::NoManager(dir.into()))
}

/// Has the next start of the manager go on from its store, whatever servers know of a newer one.
fn accept(dir: &Path) -> Result<()> {
    let loaded = load(dir, StoreId::Names)?;
    let opened = Store::open(loaded.backend, names_store(), loaded.logs);
    let mut store = opened.map_err(|error| RestoreError::Store(dir.into(), error))?;
    // All of it comes into the checkpoint, so its record needs no log.
    let _ = names::accept(&mut store).map_err(|error| RestoreError::Names(dir.into(), error))?;
    put_in_place(&mut store).map_err(|text| RestoreError::Written(dir.into(), text))
}

/// Brings what was changed into the checkpoint, on stable storage.
fn put_in_place(store: &mut Store) -> std::result::Result<(), String> {
    let Some(checkpoint) = store.freeze() else { return Ok(()) };
    let result = checkpoint.run();
    store.checkpoint_done(result);
    match store.last_failure() {
        Some(why) => Err(why.to_string()),
        None if store.is_dirty() => Err("the checkpoint could not be written".to_string()),
        None => Ok(()),
    }
}
