//! An importer: a node that keeps a directory as a cache of another NFS server's export.
//!
//! ```text
//!   nfs://HOST/EXPORT ─ Source::parse ─► Source ─ run ─► directory, record, session, service
//! ```
//!
//! The directory is an inode of ours with the import's number; the record, an extended attribute of the volume's root,
//! says which node imports. An importer that is started again takes the record over.

mod record;
mod source;

pub use imports::As;
pub use record::remove;
pub use source::{BadSource, Source};

use crate::machine::{self, Running, Setup};
use crate::serve::{self, ServeError};
use crate::stopper::Stopper;
use imports::record::Known;
use imports::{Config, Import, Origin, Service};
use live::clock;
use nfs::client::Caller;
use nfs::client::session::Session;
use node::Notify;
use sockets::foreign::{Foreign, Sessions};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use wire::Errno;

/// How long an attribute is believed between the importer and a program: by the files of a client, and by its kernel.
const ON_THE_WAY: Duration =
    files::limits::ATTRIBUTE_AGE_MAX.saturating_add(files::limits::NAME_AGE_MAX);
/// How often it is looked at whether another importer has taken over.
const LOOK_PERIOD: Duration = Duration::from_secs(2);

/// An import, and how it is made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The origin.
    pub source: Source,
    /// The directory, from the volume's root; made unless it is this import's already.
    pub directory: PathBuf,
    /// How long what the origin said is believed, by all on the way to a program: 2 s at least.
    pub attributes: Duration,
    /// While the origin is away, what is known of it is told on.
    pub stale_ok: bool,
    /// In whose name changes go through to the origin; `None`: the import is read only.
    pub changes: Option<As>,
    /// Bytes that may be cached; `None`: as many as the volume has room for.
    pub space: Option<u64>,
    /// User and group that the origin is asked as.
    pub user: (u32, u32),
    /// Where other machines reach the importer.
    pub listen: Option<String>,
}

/// Why there is no import. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Less than clients believe by themselves.
    #[error(
        "--attributes {0:?}: {limit:?} at least, as mounts believe attributes for so long",
        limit = ON_THE_WAY
    )]
    Attributes(Duration),
    /// A directory that is none of this import.
    #[error("{0}: {1}")]
    Directory(PathBuf, String),
    /// The origin is away.
    #[error("{0}: {1}")]
    Origin(String, String),
    /// The volume.
    #[error("{0}: {1}")]
    Volume(&'static str, Errno),
}

impl From<ImportError> for ServeError {
    fn from(error: ImportError) -> ServeError {
        ServeError::Refused(error.to_string())
    }
}

/// An importer that runs, as long as its host is driven.
pub struct Importing {
    replaced: Rc<Cell<bool>>,
    _service: Service,
}

impl Importing {
    /// Whether another importer has taken over.
    pub fn is_replaced(&self) -> bool {
        self.replaced.get()
    }
}

/// Joins the cluster for an importer. Its host has to be driven.
pub fn join(setup: &Setup, plan: &Plan) -> Result<Running, ServeError> {
    if plan.attributes < ON_THE_WAY {
        return Err(ImportError::Attributes(plan.attributes).into());
    }
    Ok(machine::importer(setup, plan.listen.as_deref())?)
}

/// Serves an import on a node that joined: the directory is there, and the origin has answered.
pub fn serve(running: &mut Running, plan: &Plan) -> Result<Importing, ServeError> {
    let cx = running.host.node().cx().clone();
    let (names, objects) = running.services.files.as_ref().expect("a client has files").clients();
    let origin = origin(running, plan)?;
    let name = plan.source.to_string();
    let root = running.host.block_on({
        let origin = origin.clone();
        async move { origin.root().await }
    })?;
    if root.is_err() && !plan.stale_ok {
        let why = origin.trouble().unwrap_or_else(|| "it does not answer".to_string());
        return Err(ImportError::Origin(name, why).into());
    }
    let (directory, node) = (plan.directory.clone(), cx.id());
    let import = Import {
        importer: node,
        directory: None,
        writable: plan.changes.is_some(),
        origin: name.into_bytes().into(),
    };
    let opened = record::open(names.clone(), directory, import);
    let Known { import, root } = running.host.block_on(opened)??;
    let belief = plan.attributes - ON_THE_WAY;
    let (stale_ok, changes, space) = (plan.stale_ok, plan.changes, plan.space);
    let config = Config { import, root, belief, stale_ok, changes, space };
    running.beside.origin.replace(Some(origin.clone()));
    let service = Service::start(&cx, config, (names.clone(), objects), origin);
    let replaced = Rc::new(Cell::new(false));
    let told = replaced.clone();
    let waiting = cx.clone();
    cx.spawn("import: record", async move {
        while record::is_own(&names, import, node).await {
            waiting.sleep(LOOK_PERIOD).await;
        }
        told.set(true);
    });
    Ok(Importing { replaced, _service: service })
}

fn origin(running: &mut Running, plan: &Plan) -> Result<Rc<Origin>, ServeError> {
    let cx = running.host.node().cx().clone();
    let finished = Rc::new(Notify::new(&cx));
    let (sessions, told) = (Sessions::default(), finished.clone());
    running.host.add(Foreign::new(sessions.clone(), move || told.notify_all())?)?;
    let machine = rustix::system::uname().nodename().to_bytes().to_vec();
    let (uid, gid) = plan.user;
    let caller = Caller { machine, uid, gid, ..Caller::default() };
    let last_xid = u32::from_le_bytes(crate::random::bytes());
    let session = Session::new(plan.source.target.clone(), caller.clone(), last_xid, clock::now());
    let session: Rc<RefCell<Session>> = sessions.add(session);
    let log = |text: &str| eprintln!("{text}");
    Ok(Rc::new(Origin::new(&cx, (session, finished), caller, plan.source.to_string(), log)))
}

/// Joins the cluster and imports until somebody asks it to stop, or another importer takes over. `ready` is called when
/// the directory can be read.
pub fn run(
    setup: &Setup,
    plan: &Plan,
    stopper: &Stopper,
    ready: &dyn Fn(),
) -> Result<(), ServeError> {
    let mut running = join(setup, plan)?;
    let importing = serve(&mut running, plan)?;
    stopper.watch(&mut running.host)?;
    ready();
    running.host.run(|| stopper.asked() || importing.is_replaced())?;
    drop(importing);
    serve::stop(running)
}

/// The parts of a path from the root.
fn parts(path: &Path) -> Result<Vec<Vec<u8>>, ImportError> {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Component;
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.as_bytes().to_vec()),
            Component::RootDir | Component::CurDir => {}
            _ => {
                let why = "write it without ..".to_string();
                return Err(ImportError::Directory(path.to_path_buf(), why));
            }
        }
    }
    Ok(parts)
}
