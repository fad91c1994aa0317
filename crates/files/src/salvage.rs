//! The names are lost for good, and files are made again from what their objects know of themselves.
//!
//! ```text
//! list    the objects of every I/O server          by file
//! ask     each object of a file the names lack     length, epoch, and what the manager told it of its file
//! make    the file, under /lost+found              by the manager, which then compares it with its objects
//! ```
//!
//! It can be run again: what is known is left alone.

mod assemble;

use assemble::{Assembled, Object, assemble};
use names::{Plus, Salvaged, Who};
use node::Cx;
use std::collections::BTreeMap;
use std::time::Duration;
use stripe::Kept;
use stripe::limits::TOMBSTONE;
use wire::{Errno, FileId, Home, NodeId, VolumeId};

/// Files that are worked on at the same time.
const FILES: usize = 64;
/// How often it is asked whether names were lost, and the pause before it is asked again.
const TRIES: u32 = 15;
const TRY_PAUSE: Duration = Duration::from_millis(200);
/// Pause before a file is compared again of which a server refuses an object, and how often that is done: for longer
/// than it refuses one that it removed or set aside.
const COMPARE_PAUSE: Duration = Duration::from_secs(1);
const COMPARE_TRIES: u64 = TOMBSTONE.as_secs() + 30;
/// How often all is gone through, when the manager loses what was made.
const ROUNDS: u32 = 8;
/// As much of a directory as tells whether it has names.
const LISTED_BYTES: usize = 4096;

type Attempt<T> = Result<T, Failure>;

/// Why it ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A server, or one of its disks, that cannot be asked.
    Server(NodeId, Errno),
    /// The manager. EEXIST: no names were lost. EPERM: only root may. EAGAIN: a server knows files of a later manager.
    Manager(Errno),
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many objects more are listed.
    Listed(usize),
    /// All are listed, and so many files have them.
    Files(usize),
    /// Of so many files it is known what becomes of them.
    Asked(usize),
    /// So many files were made, and are to be compared with their objects.
    Made(usize),
    /// So many of them were compared.
    Compared(usize),
}

/// Where the objects of files are.
type Objects = BTreeMap<FileId, Vec<(Home, u16)>>;

/// A file that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: Vec<u8>,
    /// Its size, when it was compared with its objects.
    pub size: u64,
    /// Its objects knew a name.
    pub named: bool,
    /// Bytes of it are missing.
    pub lost: bool,
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files that were made.
    pub made: BTreeMap<FileId, File>,
    /// How many files the names have.
    pub known: u64,
    /// How many files have only empty objects, as moved columns leave them.
    pub empty: u64,
    /// Files that could not be put together, and why.
    pub left: Vec<(FileId, &'static str)>,
}

impl Report {
    /// Files of which bytes are missing.
    pub fn lost(&self) -> impl Iterator<Item = &File> {
        self.made.values().filter(|file| file.lost)
    }

    /// Files that are not whole.
    pub fn problems(&self) -> usize {
        self.lost().count() + self.left.len()
    }

    fn note(&mut self, file: FileId, outcome: Outcome) {
        match outcome {
            Outcome::Known if self.made.contains_key(&file) => {}
            Outcome::Known => self.known += 1,
            Outcome::Empty => self.empty += 1,
            Outcome::Left(why) => self.left.push((file, why)),
            Outcome::Made(made) => drop(self.made.insert(file, made)),
        }
    }

    /// All is looked at once more; what was made and is known now was made by this.
    fn begin_again(&mut self) {
        *self = Report { made: std::mem::take(&mut self.made), ..Report::default() };
    }
}

/// The outcome of a file.
enum Outcome {
    /// The names have it.
    Known,
    /// Its objects are empty, as moved columns leave them.
    Empty,
    /// It cannot be put together.
    Left(&'static str),
    Made(File),
}

/// Makes the missing names again, over these clients; `tell` hears of progress. They stay when it fails.
pub async fn salvage(
    cx: &Cx,
    names: &names::Client,
    stripe: &stripe::Client,
    tell: &dyn Fn(Step),
) -> Result<Report, Failure> {
    Salvage { cx, names, stripe, tell }.run().await
}

/// One under way.
struct Salvage<'a> {
    cx: &'a Cx,
    names: &'a names::Client,
    stripe: &'a stripe::Client,
    tell: &'a dyn Fn(Step),
}

impl Salvage<'_> {
    async fn run(&self) -> Attempt<Report> {
        let mut report = Report::default();
        let mut rounds = 1;
        loop {
            match self.make_all(&mut report).await {
                // The manager's machine lost power: what was not on stable storage is made anew.
                Err(Failure::Manager(Errno::ESTALE)) if rounds < ROUNDS => rounds += 1,
                made => return made.map(|()| report),
            }
            report.begin_again();
        }
    }

    async fn make_all(&self, report: &mut Report) -> Attempt<()> {
        self.ask_whether_lost().await?;
        let objects = self.list().await?;
        (self.tell)(Step::Files(objects.len()));
        let all: Vec<(FileId, Vec<(Home, u16)>)> = objects.into_iter().collect();
        for some in all.chunks(FILES) {
            let each = some.iter().map(|(file, objects)| self.file(*file, objects));
            for ((file, _), outcome) in some.iter().zip(node::all(each).await) {
                report.note(*file, outcome?);
            }
            (self.tell)(Step::Asked(some.len()));
        }
        self.compare(report).await?;
        self.names.sync().await.map_err(Failure::Manager)
    }

    /// An error where no manager has lost names.
    async fn ask_whether_lost(&self) -> Attempt<()> {
        // A manager that has just begun learns from the first servers that come that there were names before. One that
        // has names, and is alone, is refused at once.
        let mut tries = 0;
        loop {
            let lost = self.names.restored_managers().await.map_err(Failure::Manager)?;
            match lost.is_empty() {
                false => return Ok(()),
                true if tries < TRIES && self.may_learn().await => tries += 1,
                true => return Err(Failure::Manager(Errno::EEXIST)),
            }
            self.cx.sleep(TRY_PAUSE).await;
        }
    }

    /// Whether a manager may have begun just now.
    async fn may_learn(&self) -> bool {
        let sites = self.names.table_of_sites().await;
        sites.is_ok_and(|sites| sites.managers().len() > 1) || self.has_no_names().await
    }

    /// Whether its root directory is empty, as that of a manager that has just begun.
    async fn has_no_names(&self) -> bool {
        let listed =
            self.names.read_directory(&Who::ROOT, FileId::ROOT, 0, LISTED_BYTES, Plus::Nothing);
        let is_own = |name: &[u8]| matches!(name, b"." | b"..");
        listed.await.is_ok_and(|listing| listing.entries.iter().all(|entry| is_own(&entry.name)))
    }

    async fn list(&self) -> Attempt<Objects> {
        let servers = self.names.servers().await.map_err(Failure::Manager)?;
        let mut found = Objects::new();
        for server in servers {
            let note = |some: &[Kept]| {
                for kept in some.iter().filter(|kept| kept.object.volume == self.volume()) {
                    let home = Home { server: server.id, disk: kept.disk };
                    found.entry(kept.object.file).or_default().push((home, kept.object.column));
                }
                (self.tell)(Step::Listed(some.len()));
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
    async fn file(&self, file: FileId, objects: &[(Home, u16)]) -> Attempt<Outcome> {
        match self.names.get_attr(file).await {
            Ok(_) => return Ok(Outcome::Known),
            Err(Errno::ESTALE) => {}
            Err(errno) => return Err(Failure::Manager(errno)),
        }
        let asked = objects.iter().map(|(home, column)| self.object(file, *home, *column));
        let asked = node::all(asked).await.into_iter().collect::<Attempt<Vec<Object>>>()?;
        match assemble(file, &asked) {
            Assembled::Nothing => Ok(Outcome::Empty),
            Assembled::Unknown(why) => Ok(Outcome::Left(why)),
            Assembled::File(found) => self.make(found).await,
        }
    }

    async fn object(&self, file: FileId, home: Home, column: u16) -> Attempt<Object> {
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

    async fn make(&self, found: Salvaged) -> Attempt<Outcome> {
        let (size, named, lost) = (found.attr.size, !found.path.is_empty(), found.lost);
        let path = match self.names.salvage(&Who::ROOT, found).await {
            // Of several managers its own has lost nothing: it knows that the file is gone.
            Err(Errno::EEXIST) => return Ok(Outcome::Known),
            path => path.map_err(Failure::Manager)?,
        };
        Ok(match path.is_empty() {
            true => Outcome::Known,
            false => Outcome::Made(File { path: path.into(), size, named, lost }),
        })
    }

    /// Has the manager compare what was made with its objects: that gives it its size.
    async fn compare(&self, report: &mut Report) -> Attempt<()> {
        if report.made.is_empty() {
            return Ok(());
        }
        self.names.compare_all(&Who::ROOT).await.map_err(Failure::Manager)?;
        (self.tell)(Step::Made(report.made.len()));
        let mut files: Vec<(&FileId, &mut File)> = report.made.iter_mut().collect();
        for some in files.chunks_mut(FILES) {
            let each = some.iter_mut().map(async |(number, file)| {
                match self.compare_one(**number).await {
                    Ok(()) => {}
                    Err(Errno::EIO) => file.lost = true,
                    Err(errno) => return Err(Failure::Manager(errno)),
                }
                let entry = self.names.get_attr(**number).await;
                file.size = entry.map_or(file.size, |entry| entry.attr.size);
                Ok(())
            });
            node::all(each).await.into_iter().collect::<Attempt<()>>()?;
            (self.tell)(Step::Compared(some.len()));
        }
        Ok(())
    }

    async fn compare_one(&self, file: FileId) -> Result<(), Errno> {
        for _ in 0..COMPARE_TRIES {
            match self.names.compare(file).await {
                Err(Errno::EAGAIN) => self.cx.sleep(COMPARE_PAUSE).await,
                compared => return compared,
            }
        }
        Err(Errno::ETIMEDOUT)
    }
}
