//! An observer: a node that asks the manager who the members are and asks each of them, and is no member itself. The
//! manager writes members down, but not observers: so a cluster whose manager cannot write, because its disk is full or
//! gone, still tells what is wrong with it.

use super::stranger::{ask, refused, some_id, stranger};
use super::{Addresses, Bare, MachineError, Setup, system};
use crate::config::CLIENT_POOL_BYTES;
use crate::incarnation;
use live::host::Host;
use live::link::hello::Refusal;
use live::signals::{self, Signals};
use members::Directory;
use std::time::Duration;
use wire::{Errno, NodeId};

/// How long the manager's answer is waited for once it has answered before.
const VIEW_SPAN: Duration = Duration::from_secs(2);

/// The node.
pub struct Looker {
    setup: Setup,
    bare: Bare,
    addresses: Addresses,
    view: Directory,
    /// Whether the manager did not answer last time.
    unanswered: bool,
}

impl Looker {
    /// Comes to the cluster and sees who is there. From now on signals only end what its host runs.
    pub fn start(setup: &Setup) -> Result<Looker, MachineError> {
        let (bare, addresses) = begin(setup, some_id())?;
        let (setup, view) = (setup.clone(), Directory::default());
        let mut looker = Looker { setup, bare, addresses, view, unanswered: false };
        looker.look()?;
        signals::install().map_err(system("signals"))?;
        looker.heed_signals()?;
        Ok(looker)
    }

    /// To be driven by its thread.
    pub fn host(&mut self) -> &mut Host {
        &mut self.bare.host
    }

    fn heed_signals(&mut self) -> Result<(), MachineError> {
        self.bare.host.add(Signals::default()).map_err(system("signals"))
    }

    fn look(&mut self) -> Result<(), MachineError> {
        let asked = asks(&self.bare, &self.setup);
        let view = ask(&self.setup, &mut self.bare, asked)?.map_err(refused)?;
        self.see(view);
        Ok(())
    }

    fn see(&mut self, view: Directory) {
        self.addresses.follow(view.iter());
        self.view = view;
    }

    /// The members now; when the manager does not answer, those of last time.
    pub fn members(&mut self) -> Result<&Directory, MachineError> {
        if self.has_lost_its_place() {
            (self.bare, self.addresses) = begin(&self.setup, some_id())?;
            self.addresses.follow(self.view.iter());
            self.heed_signals()?;
        }
        let (cx, view) = (self.bare.host.node().cx().clone(), asks(&self.bare, &self.setup));
        let asked = async move { cx.with_deadline(VIEW_SPAN, view).await.ok()?.ok() };
        let view = self.bare.host.block_on(asked).map_err(system("asking who is there"))?;
        self.unanswered = view.is_none();
        view.into_iter().for_each(|view| self.see(view));
        Ok(&self.view)
    }

    /// Whether another node that has not joined chose the same id: then the manager refuses this one's links, or, when
    /// that node is gone, its calls.
    fn has_lost_its_place(&self) -> bool {
        let status = self.bare.directory.status().remove(&self.setup.manager.0);
        status.is_some_and(|status| {
            let connected = !status.transport.is_empty();
            status.refused == Some(Refusal::Identity) || (self.unanswered && connected)
        })
    }

    /// Ends its links.
    pub fn stop(mut self) -> Result<(), MachineError> {
        self.bare.host.stop().map_err(system("stopping")).map(drop)
    }
}

/// Asks the manager who is there.
fn asks(bare: &Bare, setup: &Setup) -> impl Future<Output = Result<Directory, Errno>> + use<> {
    let (cx, manager) = (bare.host.node().cx().clone(), setup.manager.0);
    async move { members::view(&cx, manager).await }
}

fn begin(setup: &Setup, id: NodeId) -> Result<(Bare, Addresses), MachineError> {
    let bare = stranger(setup, (id, incarnation::clock()), CLIENT_POOL_BYTES)?;
    let addresses = Addresses::new(id, &bare.directory);
    Ok((bare, addresses))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Reach;
    use crate::embedded::Embedded;
    use live::wait::WaitPolicy;

    /// Looks, and sees a cluster of two again after another node with its id came and did `then`.
    fn sees_again_after(then: impl FnOnce(Bare) -> Option<Bare>) {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Embedded::start(dir.path(), 1).unwrap();
        let name = dir.path().display().to_string();
        let reach = Reach { cluster: name, key: None, insecure: false };
        let setup = reach.setup(CLIENT_POOL_BYTES, WaitPolicy::Block).unwrap();
        let mut looker = Looker::start(&setup).unwrap();
        let id = looker.host().node().cx().id();
        let (mut other, _) = begin(&setup, id).unwrap();
        let asked = asks(&other, &setup);
        assert_eq!(ask(&setup, &mut other, asked).unwrap().unwrap().iter().count(), 2);
        let _other = then(other);
        for _ in 0..3 {
            assert_eq!(looker.members().unwrap().iter().count(), 2);
        }
        assert!(!looker.unanswered);
        assert_ne!(looker.host().node().cx().id(), id);
        looker.stop().unwrap();
        drop(cluster);
    }

    #[test]
    fn who_has_lost_its_id_takes_another() {
        sees_again_after(Some);
    }

    #[test]
    fn who_had_lost_its_id_for_a_moment_takes_another() {
        sees_again_after(|mut other| {
            other.host.stop().unwrap();
            None
        });
    }
}
