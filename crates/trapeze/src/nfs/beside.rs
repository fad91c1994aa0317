//! A server of NFS on a thread beside a machine of the cluster, which may be the very one that it asks.

use super::{Bound, drive, join};
use crate::machine::{MachineError, Setup};
use crate::serve::ServeError;
use crate::stopper::Stopper;
use live::host::Host;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a server waits before it asks again for a manager that is away.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The server. The machine is to be driven until it [has ended](Beside::has_ended).
#[derive(Debug)]
pub struct Beside {
    stopper: Stopper,
    ended: Stopper,
    thread: JoinHandle<Result<(), ServeError>>,
}

/// Tells of the thread's end, however it ends.
struct AtEnd(Stopper);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Beside {
    /// Starts it; a manager that is away is waited for. `host` wakes when it ends.
    pub fn start(setup: Setup, bound: Bound, host: &mut Host) -> io::Result<Beside> {
        let (stopper, ended) = (Stopper::new()?, Stopper::new()?);
        ended.watch(host)?;
        let (asked, at_end) = (stopper.clone(), AtEnd(ended.clone()));
        let work = move || {
            let _at_end = at_end;
            serve(&setup, bound, &asked)
        };
        let thread = std::thread::Builder::new().name("nfs".to_string()).spawn(work)?;
        Ok(Beside { stopper, ended, thread })
    }

    /// Asks it to stop.
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Whether it has ended, when asked to or by an error.
    pub fn has_ended(&self) -> bool {
        self.ended.asked()
    }

    /// Waits for its end.
    pub fn join(self) -> Result<(), ServeError> {
        self.thread.join().expect("no panic")
    }
}

fn serve(setup: &Setup, bound: Bound, asked: &Stopper) -> Result<(), ServeError> {
    let running = loop {
        match join(setup) {
            Err(ServeError::Machine(MachineError::Unreached { .. })) if asked.asked() => {
                return Ok(());
            }
            Err(ServeError::Machine(MachineError::Unreached { .. })) => {
                std::thread::sleep(RETRY_PAUSE);
            }
            joined => break joined?,
        }
    };
    let address = bound.address();
    drive(running, setup.volume, bound, asked, &|| println!("NFS at {address}"))
}
