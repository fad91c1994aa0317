//! `trapeze demo`: the main job, end to end, in a scratch directory.

use crate::cli;
use bench::trees::{self, Difference, FoundFiles};
use rustix::fs::Access;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terminal::progress;
use trapeze::client::{Reach, ReachError};
use trapeze::local::{LocalError, Shape};
use trapeze::scratch::{Processes, Scratch};
use trapeze::size::Size;
use trapeze::volume::VolumeError;

/// Most files that are copied, and most bytes.
const FILES_MAX: usize = 4000;
const BYTES_MAX: u64 = 512 << 20;
/// How long the killed server stays down.
const DOWN_SPAN: Duration = Duration::from_secs(1);
/// Directories with real files that most machines have.
const SOURCES: [&str; 4] = ["/usr/include", "/usr/share/doc", "/usr/share", "/etc"];

/// Why a demonstration ended early.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The cluster.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A client.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// A file of the cluster.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The way of the files.
    #[error(
        "{what}: {error}; if these files cannot be read, name a directory that can: trapeze demo DIR"
    )]
    Files {
        /// The action that failed.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// The directory to copy.
    #[error("{0}: {1}; name another directory: trapeze demo DIR")]
    Source(PathBuf, io::Error),
    /// There is nothing to copy.
    #[error("{0}: no files to copy; name another directory: trapeze demo DIR")]
    Empty(PathBuf),
    /// The bytes that came back are not those that went in.
    #[error("{0}")]
    Different(Difference),
}

type Result<T> = std::result::Result<T, DemoError>;

/// Numbered steps with the time each took.
struct Steps {
    number: usize,
    total: usize,
    started: Instant,
    quiet: bool,
}

impl Steps {
    fn done(&mut self, text: &str) {
        self.number += 1;
        if !self.quiet {
            let elapsed = self.started.elapsed().as_secs_f64();
            println!("[{}/{}] {text} ({elapsed:.1} s)", self.number, self.total);
        }
        self.started = Instant::now();
    }
}

/// Runs it.
pub fn demo(arguments: &cli::Demo) -> Result<()> {
    let source = source(arguments)?;
    let scratch = Scratch::new(None, arguments.keep)?.removed_at_interrupt()?;
    let found = trees::find(&source, FILES_MAX, BYTES_MAX);
    let found = found.map_err(|error| DemoError::Source(source.clone(), error))?;
    if found.files.is_empty() {
        return Err(DemoError::Empty(source));
    }
    let unmountable = if arguments.no_mount { Some("--no-mount") } else { unmountable() };
    let mounts = unmountable.is_none();
    let total = if mounts { 7 } else { 5 };
    let mut steps = Steps { number: 0, total, started: Instant::now(), quiet: arguments.json };
    let shape = Shape { link: arguments.link, ..Shape::of(arguments.servers) };
    let mut cluster = Processes::start(scratch.path(), &shape, None)?;
    steps.done(&format!(
        "a manager and {} I/O servers run, each a process of its own, data in {}",
        arguments.servers,
        scratch.path().display()
    ));
    if let Some(why) = unmountable {
        if !arguments.json {
            println!("{why}: files go through the library client, not through a mount");
        }
        without_mount(&mut cluster, &source, &found, &mut steps)?;
    } else {
        with_mount(arguments, &mut cluster, &source, &found, &mut steps, scratch.path())?;
    }
    cluster.stop()?;
    steps.done("everything is stopped and removed");
    Ok(())
}

/// Why this user cannot mount here, as far as that shows.
fn unmountable() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse");
    }
    // fusermount3 opens it with the rights of the user who calls it.
    let both = Access::READ_OK | Access::WRITE_OK;
    if rustix::fs::access("/dev/fuse", both).is_err() {
        return Some("this user may not open /dev/fuse");
    }
    let has = |folder: PathBuf| folder.join("fusermount3").is_file();
    let helper = std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(has));
    let may = rustix::process::geteuid().is_root() || helper;
    (!may).then_some("only root may mount, and fusermount3 (package fuse3) is not installed")
}

/// Names what could not be done with the files.
fn at(what: &str, path: &Path) -> impl FnOnce(io::Error) -> DemoError {
    let what = format!("cannot {what} {}", path.display());
    move |error| DemoError::Files { what, error }
}

fn source(arguments: &cli::Demo) -> Result<PathBuf> {
    let usual = || SOURCES.iter().map(PathBuf::from).find(|path| path.is_dir());
    let path = arguments.source.clone().or_else(usual).unwrap_or_else(|| PathBuf::from("."));
    path.canonicalize().map_err(|error| DemoError::Source(path, error))
}

fn with_mount(
    arguments: &cli::Demo,
    cluster: &mut Processes,
    source: &Path,
    found: &FoundFiles,
    steps: &mut Steps,
    scratch: &Path,
) -> Result<()> {
    cluster.mount()?;
    let mount_point = cluster.mount_point().to_path_buf();
    steps.done(&format!("mounted at {}", mount_point.display()));
    let copy = mount_point.join("copy");
    let text = copy_with_a_crash(cluster, found, &copy, |progress| {
        trees::copy(source, &copy, found, progress)
    })?;
    steps.done(&text);
    cluster.unmount()?;
    cluster.mount()?;
    steps.done("unmounted and mounted again: the client has forgotten everything");
    let bar = progress::bytes_of("comparing", found.bytes);
    let difference = trees::compare(source, &copy, found, &mut |bytes| bar.inc(bytes))
        .map_err(at("compare the files with", &copy))?;
    bar.finish_and_clear();
    if let Some(difference) = difference {
        return Err(DemoError::Different(difference));
    }
    steps.done(&format!("read back {} files: every byte is the same", found.files.len()));
    fs::remove_dir_all(&copy).map_err(at("remove", &copy))?;
    let table = bench::speeds(cluster, &scratch.join("plain"), arguments.size, arguments.json)?;
    if !arguments.json {
        println!("\n{table}");
    }
    steps.done(&format!(
        "speeds with a file of {}, beside this machine's own limits",
        arguments.size
    ));
    Ok(())
}

/// Copies with `copy` while an I/O server is killed at a third of the way and started again a second later.
fn copy_with_a_crash(
    cluster: &mut Processes,
    found: &FoundFiles,
    target: &Path,
    copy: impl FnOnce(&mut dyn FnMut(u64)) -> io::Result<()>,
) -> Result<String> {
    let bar = progress::bytes_of("copying", found.bytes);
    let (tell, told) = std::sync::mpsc::channel();
    let number = 2.min(cluster.servers());
    let victim = cluster.take_server(number)?;
    let successor = cluster.prepare_server(number)?;
    let (name, third) = (victim.name.clone(), found.bytes / 3);
    let crash = std::thread::spawn(move || -> io::Result<_> {
        let _ = told.recv();
        victim.kill()?;
        std::thread::sleep(DOWN_SPAN);
        successor.go()
    });
    let mut moved = 0;
    let copied = copy(&mut |bytes| {
        if moved < third && moved + bytes >= third {
            let _ = tell.send(());
        }
        moved += bytes;
        bar.inc(bytes);
    });
    drop(tell);
    cluster.put_server(number, crash.join().expect("no panic")?);
    bar.finish_and_clear();
    copied.map_err(at("copy the files into", target))?;
    Ok(format!(
        "copied {} files, {}; {name} was killed (kill -9) in the middle and came back after {:.0} s",
        found.files.len(),
        Size(found.bytes),
        DOWN_SPAN.as_secs_f64()
    ))
}

fn without_mount(
    cluster: &mut Processes,
    source: &Path,
    found: &FoundFiles,
    steps: &mut Steps,
) -> Result<()> {
    let reach = Reach { cluster: cluster.target(), key: None, insecure: false };
    let mut volume = reach.volume("demo")?;
    let root = Path::new("/copy");
    let text = copy_with_a_crash(cluster, found, root, |progress| {
        trees::put(&mut volume, source, root, found, progress).map_err(io::Error::other)
    })?;
    volume.close()?;
    steps.done(&text);
    let mut volume = reach.volume("demo")?;
    steps.done("joined again as another client, which knows nothing");
    let difference = trees::compare_volume(&mut volume, source, root, found)?;
    volume.close()?;
    if let Some(difference) = difference {
        return Err(DemoError::Different(difference));
    }
    steps.done(&format!("read back {} files: every byte is the same", found.files.len()));
    Ok(())
}
