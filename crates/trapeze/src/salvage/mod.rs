//! `trapeze salvage`: the names are lost for good, and files are made again from what their objects know of themselves.
//!
//! ```text
//! list    the objects of every I/O server          by file
//! ask     each object of a file the names lack     length, epoch, and what the manager told it of its file
//! make    the file, under /lost+found              by the manager, which then compares it with its objects
//! ```
//!
//! It can be run again: what is known is left alone.

mod assemble;
mod report;

use crate::beginning;
use crate::cli;
use crate::progress;
use crate::restore::manager_of;
use crate::tools::{ToolError, close, volume};
use crate::volume::Volume;
use assemble::{Assembled, Object, assemble};
use indicatif::ProgressBar;
use live::meta::exists;
use names::{Salvaged, Who};
use node::Cx;
use node::rings::StoreId;
use report::Report;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use stripe::Kept;
use wire::layout::UNIT_BYTES_DEFAULT;
use wire::{Attr, Errno, FileId, Home, Layout, NodeId, VolumeId};

type Result<T> = std::result::Result<T, ToolError>;
type Asked<T> = std::result::Result<T, Failure>;

/// Files that are worked on at the same time.
const FILES: usize = 64;
/// How often it is asked whether names were lost, and the pause before it is asked again.
const TRIES: u32 = 15;
const TRY_PAUSE: Duration = Duration::from_millis(200);

/// As much of a directory as tells whether it has names.
const LISTED_BYTES: usize = 4096;

/// Why it ends early.
enum Failure {
    /// A server, or one of its disks, that cannot be asked.
    Server(NodeId, Errno),
    /// The manager.
    Manager(Errno),
}

/// Where the objects of files are.
type Objects = BTreeMap<FileId, Vec<(Home, u16)>>;

/// `trapeze salvage`.
pub fn salvage(arguments: &cli::Salvage) -> Result<()> {
    if let Some(dir) = &arguments.dir {
        return begin(dir);
    }
    let mut volume = volume(&arguments.target)?;
    let servers = volume.server_names();
    let work = Rc::new(Salvage::new(&mut volume));
    let ended = volume.run(async move { work.run().await })?;
    let report = ended.map_err(|failure| told(failure, &servers))?;
    let servers = volume.server_names();
    if !arguments.target.json {
        let active = volume.servers()?;
        let all: Vec<String> =
            active.iter().filter_map(|server| servers.get(&server.id).cloned()).collect();
        println!("listed: {}; start what is not among them, and run this again", all.join(", "));
    }
    report.show(arguments.target.json);
    close(volume)?;
    match report.problems() {
        0 => Ok(()),
        count => Err(ToolError::Usage(format!(
            "of {count} files bytes are missing, or cannot be put together; each is named above"
        ))),
    }
}

/// A manager that lost its names may begin anew in this directory.
fn begin(dir: &Path) -> Result<()> {
    let (_, store) = manager_of(dir).map_err(|error| ToolError::Usage(error.to_string()))?;
    if exists(&store, StoreId::Names) {
        return Err(ToolError::Usage(format!(
            "{0} has names: salvage is for a manager that lost them. Start it, or where they are damaged, move {0} \
             away first and keep it; nothing was changed",
            store.display()
        )));
    }
    beginning::allow(&store).map_err(|error| ToolError::Local(store.clone(), error))?;
    println!(
        "the manager may begin anew in {}; start it and all machines, then `trapeze salvage -c {}`",
        store.display(),
        dir.display()
    );
    Ok(())
}

fn told(failure: Failure, servers: &BTreeMap<NodeId, String>) -> ToolError {
    ToolError::Usage(match failure {
        Failure::Server(server, errno) => {
            let name = servers.get(&server).cloned().unwrap_or_else(|| server.to_string());
            format!(
                "{name} does not tell what it has: {errno}; start it, or declare it gone with `trapeze forget`, and \
                 run this again: what was found so far stays"
            )
        }
        Failure::Manager(Errno::EEXIST) => "the names of this volume are there: salvage is for a manager that \
             starts without the names it had, or with restored ones"
            .into(),
        Failure::Manager(Errno::EPERM) => {
            "only root, or who has the cluster's key, may salvage".into()
        }
        Failure::Manager(Errno::EAGAIN) => {
            "a server knows files of a later manager: start all servers, then the manager anew, and run this again"
                .into()
        }
        Failure::Manager(errno) => {
            format!("the manager: {errno}; run this again: what was found so far stays")
        }
    })
}

/// One under way.
struct Salvage {
    cx: Cx,
    names: names::Client,
    stripe: stripe::Client,
    bar: ProgressBar,
}

impl Salvage {
    fn new(volume: &mut Volume) -> Salvage {
        let (cx, names, stripe) = volume.asking();
        Salvage { cx, names, stripe, bar: progress::counted("objects listed") }
    }

    async fn run(&self) -> Asked<Report> {
        self.ask_whether_lost().await?;
        let objects = self.list().await?;
        self.bar.finish_and_clear();
        let mut report = Report::default();
        let bar = progress::steps("files", objects.len() as u64);
        let all: Vec<(FileId, Vec<(Home, u16)>)> = objects.into_iter().collect();
        for some in all.chunks(FILES) {
            let each = some.iter().map(|(file, objects)| self.file(*file, objects));
            for made in node::all(each).await {
                report.note(made?);
            }
            bar.inc(some.len() as u64);
        }
        bar.finish_and_clear();
        self.compare(&mut report).await?;
        self.names.sync().await.map_err(Failure::Manager)?;
        Ok(report)
    }

    /// An error where no names were lost. The root is known in every store: nothing is made.
    async fn ask_whether_lost(&self) -> Asked<()> {
        let layout = Layout::new(1, UNIT_BYTES_DEFAULT, &[Home::default()]).expect("one column");
        let root = Salvaged {
            attr: Attr { file: FileId::ROOT, ..Attr::default() },
            layout,
            fragments: Vec::new(),
            truncations: 0,
            lost: false,
            described: false,
            path: Box::default(),
        };
        // A manager that has just begun learns from the first servers that come that there were names before. One that
        // has names is refused at once.
        let mut tries = 0;
        loop {
            match self.names.salvage(&Who::ROOT, root.clone()).await {
                Ok(_) => return Ok(()),
                Err(Errno::EEXIST) if tries < TRIES && self.has_no_names().await => tries += 1,
                Err(errno) => return Err(Failure::Manager(errno)),
            }
            self.cx.sleep(TRY_PAUSE).await;
        }
    }

    /// Whether its root directory is empty, as that of a manager that has just begun.
    async fn has_no_names(&self) -> bool {
        let listed = self.names.read_directory(&Who::ROOT, FileId::ROOT, 0, LISTED_BYTES, false);
        let is_own = |name: &[u8]| matches!(name, b"." | b"..");
        listed.await.is_ok_and(|listing| listing.entries.iter().all(|entry| is_own(&entry.name)))
    }

    async fn list(&self) -> Asked<Objects> {
        let servers = self.names.servers().await.map_err(Failure::Manager)?;
        let mut found = Objects::new();
        for server in servers {
            let note = |some: &[Kept]| {
                for kept in some.iter().filter(|kept| kept.object.volume == self.volume()) {
                    let home = Home { server: server.id, disk: kept.disk };
                    found.entry(kept.object.file).or_default().push((home, kept.object.column));
                }
                self.bar.inc(some.len() as u64);
            };
            let listed = self.stripe.list_all(server.id, note).await;
            listed.map_err(|errno| Failure::Server(server.id, errno))?;
        }
        Ok(found)
    }

    fn volume(&self) -> VolumeId {
        self.stripe.volume()
    }

    /// Makes one file, if the names lack it.
    async fn file(&self, file: FileId, objects: &[(Home, u16)]) -> Asked<Made> {
        match self.names.get_attr(file).await {
            Ok(_) => return Ok(Made { file, outcome: Outcome::Known }),
            Err(Errno::ESTALE) => {}
            Err(errno) => return Err(Failure::Manager(errno)),
        }
        let asked = objects.iter().map(|(home, column)| self.object(file, *home, *column));
        let asked = node::all(asked).await.into_iter().collect::<Asked<Vec<Object>>>()?;
        let outcome = match assemble(file, &asked) {
            Assembled::Nothing => Outcome::Empty,
            Assembled::Unknown(why) => Outcome::Left(why),
            Assembled::File(found) => self.make(found).await?,
        };
        Ok(Made { file, outcome })
    }

    async fn object(&self, file: FileId, home: Home, column: u16) -> Asked<Object> {
        let object = wire::ObjectId { volume: self.volume(), file, column };
        let told = self.stripe.description(home.server, Kept { object, disk: home.disk }).await;
        match told {
            Ok(told) => Ok(Object { home, column, told: Some(told) }),
            // It is damaged, or on a disk that is not served.
            Err(Errno::EIO | Errno::ENXIO | Errno::ENODEV | Errno::ENOENT) => {
                Ok(Object { home, column, told: None })
            }
            Err(errno) => Err(Failure::Server(home.server, errno)),
        }
    }

    async fn make(&self, found: Salvaged) -> Asked<Outcome> {
        let (size, named, lost) = (found.attr.size, !found.path.is_empty(), found.lost);
        let path = self.names.salvage(&Who::ROOT, found).await.map_err(Failure::Manager)?;
        Ok(match path.is_empty() {
            true => Outcome::Known,
            false => Outcome::Made(File { path: path.into(), size, named, lost }),
        })
    }

    /// Has the manager compare what was made with its objects: that gives it its size.
    async fn compare(&self, report: &mut Report) -> Asked<()> {
        if report.made.is_empty() {
            return Ok(());
        }
        self.names.compare_all(&Who::ROOT).await.map_err(Failure::Manager)?;
        let bar = progress::steps("files compared", report.made.len() as u64);
        for some in report.made.chunks_mut(FILES) {
            let each = some.iter_mut().map(async |(number, file)| {
                match self.names.compare(*number).await {
                    Ok(()) => {}
                    Err(Errno::EIO) => file.lost = true,
                    Err(errno) => return Err(Failure::Manager(errno)),
                }
                let entry = self.names.get_attr(*number).await;
                file.size = entry.map_or(file.size, |entry| entry.attr.size);
                Ok(())
            });
            node::all(each).await.into_iter().collect::<Asked<()>>()?;
            bar.inc(some.len() as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// A file that was made.
struct File {
    path: Vec<u8>,
    size: u64,
    /// Its objects knew a name.
    named: bool,
    /// Bytes of it are missing.
    lost: bool,
}

/// The outcome of a file.
struct Made {
    file: FileId,
    outcome: Outcome,
}

enum Outcome {
    /// The names have it.
    Known,
    /// Its objects are empty, as moved columns leave them.
    Empty,
    /// It cannot be put together.
    Left(&'static str),
    Made(File),
}
