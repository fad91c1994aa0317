//! The wish that a host's thread ends, from another thread.

use live::host::Host;
use live::wakeup::Wakeup;
use std::io;

/// Asks one host to stop. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Stopper(Wakeup);

impl Stopper {
    /// It was not asked for yet.
    pub fn new() -> io::Result<Stopper> {
        Ok(Stopper(Wakeup::new()?))
    }

    /// From now on asking wakes this host.
    pub fn watch(&self, host: &mut Host) -> io::Result<()> {
        host.add(self.0.clone())
    }

    /// Asks.
    pub fn stop(&self) {
        self.0.ring();
    }

    /// Whether it was asked.
    pub fn asked(&self) -> bool {
        self.0.is_rung()
    }
}
