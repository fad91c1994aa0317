//! A server of NFS on a machine of the cluster, as a client on the machine's own node: a call crosses to no other
//! thread on its way to the manager and the I/O server that are there.

use super::kept;
use super::{Bound, Serving, serve_on};
use crate::machine::Running;
use crate::serve::{self, ServeError};
use nfs::start::Started;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wire::VolumeId;

/// How long a server waits before it asks again for a manager that is away.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Runs a machine with an [`[nfs]`](crate::config::Machine) table as [`serve::drive`] does. Clients of NFS are served
/// as soon as the volume's manager, which may be away, has answered.
pub fn drive_with(
    mut running: Running,
    volume: VolumeId,
    bound: Bound,
    asked: impl Fn() -> bool,
) -> Result<(), ServeError> {
    let (kept, is_replaced) = (begin(&running, &bound), running.is_replaced());
    running.host.run(|| asked() || is_replaced() || kept.borrow().is_some())?;
    let kept = kept.take();
    let serving = kept.map(|kept| serve_told(&mut running, volume, bound, kept)).transpose();
    match serving {
        Ok(_serving) => serve::drive(running, asked),
        Err(error) => serve::stop(running).and(Err(error)),
    }
}

fn serve_told(
    running: &mut Running,
    volume: VolumeId,
    bound: Bound,
    kept: Started,
) -> Result<Serving, ServeError> {
    let at = bound.address();
    let serving = serve_on(running, volume, bound, kept, None)?;
    println!("NFS at {at}");
    Ok(serving)
}

/// Asks the manager for what is kept of the server until it answers; a refusal is told once.
fn begin(running: &Running, bound: &Bound) -> Rc<RefCell<Option<Started>>> {
    let files = running.services.files.clone().expect("a machine that serves NFS is a client");
    let member = running.services.member.clone().expect("machines are members");
    let (cx, attribute) = (running.host.node().cx().clone(), bound.attribute());
    let slot = Rc::new(RefCell::new(None));
    let kept = slot.clone();
    running.host.node().cx().spawn("nfs: begin", async move {
        while member.joined().await.is_err() {
            cx.sleep(RETRY_PAUSE).await;
        }
        let mut told = String::new();
        loop {
            match kept::begin(&files, attribute.clone()).await {
                Ok(begun) => {
                    slot.replace(Some(begun));
                    return;
                }
                Err(error) if error.to_string() == told => {}
                Err(error) => {
                    told = error.to_string();
                    eprintln!("NFS is not served yet: {told}");
                }
            }
            cx.sleep(RETRY_PAUSE).await;
        }
    });
    kept
}
