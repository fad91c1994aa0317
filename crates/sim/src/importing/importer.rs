//! The node that imports, as `trapeze import` starts it.

use super::link::Link;
use super::origin::SharedOrigin;
use super::{ATTRIBUTES, DIRECTORY};
use core::net::{IpAddr, Ipv4Addr};
use imports::record::{Known, begin};
use imports::{Config, Import, Origin, Service};
use names::{Client, Who};
use nfs::client::Caller;
use nfs::client::session::{Session, Target};
use node::{Cx, Notify};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, FileId, NodeId};

const NAME: &str = "nfs://origin/";
/// Of the origin; nothing is at another one.
const PORT: u16 = 2049;
/// How long an attribute is believed between the importer and a program.
const ON_THE_WAY: Duration =
    files::limits::ATTRIBUTE_AGE_MAX.saturating_add(files::limits::NAME_AGE_MAX);
/// Pause before a manager that is away is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// Imports on a node until that ends.
pub async fn import(cx: Cx, clients: (Client, stripe::Client), from: SharedOrigin) {
    let target = Target {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        path: b"/".to_vec(),
        nfs_port: Some(PORT),
        mount_port: Some(PORT),
        portmap_port: PORT,
    };
    let session = Session::new(target, Caller::default(), cx.random() as u32, cx.now());
    let (session, finished) = (Rc::new(RefCell::new(session)), Rc::new(Notify::new(&cx)));
    cx.spawn("import: link", Link::new(&cx, session.clone(), finished.clone(), from).run());
    let caller = Caller::default();
    let origin = Origin::new(&cx, (session, finished), caller, NAME.to_string(), |_| ());
    let Known { import, root } = loop {
        match open(&clients.0, cx.id()).await {
            Ok(known) => break known,
            Err(_) => cx.sleep(PAUSE).await,
        }
    };
    let belief = ATTRIBUTES - ON_THE_WAY;
    let config = Config { import, root, belief, stale_ok: false, changes: None, space: None };
    Service::start(&cx, config, clients, Rc::new(origin));
}

/// The directory, which the first incarnation makes.
async fn open(names: &Client, importer: NodeId) -> Result<Known, Errno> {
    match names.lookup(&Who::ROOT, FileId::ROOT, DIRECTORY).await {
        Err(Errno::ENOENT) => {
            let origin = NAME.as_bytes().into();
            let record = Import { importer, directory: None, writable: false, origin };
            let begun = begin(names, (FileId::ROOT, DIRECTORY), record).await;
            begun.map_err(|failed| failed.errno)
        }
        found => {
            let attr = found?.attr;
            let import = attr.import().ok_or(Errno::EEXIST)?;
            Ok(Known { import, root: attr.file })
        }
    }
}
