//! ls, cat, rm, stat, df: the cluster's files without a mount; `cp` is in [`crate::copy`].

use crate::cli;
use crate::status::{self, Room};
use members::Roles;
use serde::Serialize;
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use terminal::table::{Table, print_json};
use trapeze::client::{Reach, ReachError};
use trapeze::size::Size;
use trapeze::volume::{Column, Volume, VolumeError};
use wire::{Attr, Errno, FileId, FileKind, Home, Layout};

/// Why a tool failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The cluster.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// A file of it.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Asking the servers.
    #[error(transparent)]
    Visit(#[from] trapeze::client::VisitError),
    /// A file of this machine.
    #[error("{0}: {1}")]
    Local(PathBuf, io::Error),
    /// The request is impossible.
    #[error("{0}")]
    Usage(String),
    /// A copy went on without some files.
    #[error("not everything was copied: {skipped} skipped, {errors} failed; each is named above")]
    Partial {
        /// FIFOs, sockets, devices.
        skipped: u64,
        /// Files of this machine that could not be read or written.
        errors: u64,
    },
}

pub(crate) type Result<T> = std::result::Result<T, ToolError>;

impl From<&cli::ClusterArgs> for Reach {
    fn from(arguments: &cli::ClusterArgs) -> Reach {
        let cli::ClusterArgs { cluster, key, insecure } = arguments.clone();
        Reach { cluster, key, insecure }
    }
}

pub(crate) fn volume(target: &cli::Target) -> Result<Volume> {
    Ok(Reach::from(&target.cluster).volume("tool")?)
}

pub(crate) fn close(volume: Volume) -> Result<()> {
    volume.close().map_err(|error| ToolError::Local("the cluster".into(), error))
}

/// `rwxr-x---` with the kind's letter in front.
fn mode_text(attr: &Attr) -> String {
    let letter = match attr.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
        FileKind::Fifo => 'p',
    };
    let bits = (0..9)
        .rev()
        .map(|bit| if attr.mode >> bit & 1 == 1 { b"xwr"[bit % 3] as char } else { '-' });
    std::iter::once(letter).chain(bits).collect()
}

fn attr_json(name: &str, attr: &Attr) -> serde_json::Value {
    json!({
        "name": name, "file": attr.file.0, "kind": format!("{:?}", attr.kind).to_lowercase(), "mode": attr.mode,
        "links": attr.links, "uid": attr.uid, "gid": attr.gid, "size": attr.size, "used": attr.used,
        "mtime_s": attr.mtime.seconds, "change": attr.change,
    })
}

/// `trapeze ls`.
pub fn ls(arguments: &cli::Paths) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    for path in &arguments.paths {
        let attr = volume.stat(path)?;
        let mut entries: Vec<(String, Attr)> = match attr.kind {
            FileKind::Directory => volume
                .list_attributes(path)?
                .into_iter()
                .map(|(name, attr)| (String::from_utf8_lossy(&name).into_owned(), attr))
                .collect(),
            _ => vec![(path.display().to_string(), attr)],
        };
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        if arguments.target.json {
            entries.iter().for_each(|(name, attr)| print_json(&attr_json(name, attr)));
            continue;
        }
        let mut table = Table::new(&["mode", "links", "uid", "gid", "size", "name"]);
        for (name, a) in entries {
            let numbers =
                [a.links.to_string(), a.uid.to_string(), a.gid.to_string(), a.size.to_string()];
            let [links, uid, gid, size] = numbers;
            table.row(&[mode_text(&a), links, uid, gid, size, name]);
        }
        print!("{}", table.render());
    }
    close(volume)
}

/// `trapeze cat`.
pub fn cat(arguments: &cli::Cat) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    let mut out = io::stdout().lock();
    for path in &arguments.paths {
        volume.read_file(path, &mut out, &mut |_| {})?;
    }
    out.flush().map_err(|error| ToolError::Local("standard output".into(), error))?;
    close(volume)
}

/// `trapeze stat`.
pub fn stat(arguments: &cli::Paths) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    for path in &arguments.paths {
        let attr = volume.stat(path)?;
        let layout = volume.layout(path)?;
        let name = path.display().to_string();
        if arguments.target.json {
            let mut row = attr_json(&name, &attr);
            row["layout"] = layout.as_ref().map_or(json!(null), layout_json);
            print_json(&row);
            continue;
        }
        println!(
            "{name}: {}, file {:#x}, {} bytes in {} of storage, mode {:04o}, {} links, owner {}:{}, change {}",
            format!("{:?}", attr.kind).to_lowercase(),
            attr.file.0,
            attr.size,
            Size(attr.used),
            attr.mode,
            attr.links,
            attr.uid,
            attr.gid,
            attr.change
        );
        layout.as_ref().into_iter().for_each(show_layout);
    }
    close(volume)
}

type Placed = (Layout, Vec<Column>);

fn show_layout((layout, columns): &Placed) {
    let Layout { unit_bytes, epoch, .. } = layout;
    println!(
        "  stripe unit {}, width {}, epoch {epoch}, one copy",
        Size((*unit_bytes).into()),
        columns.len()
    );
    for (number, Column { home, told }) in columns.iter().enumerate() {
        match told {
            Ok(object) => println!(
                "  column {number} at {home}: {} bytes in {} of storage, epoch {}",
                object.length,
                Size(object.used),
                object.epoch
            ),
            Err(Errno::ENOENT) => println!("  column {number} at {home}: nothing written"),
            Err(errno) => println!("  column {number} at {home}: does not answer: {errno}"),
        }
    }
}

fn layout_json((layout, columns): &Placed) -> serde_json::Value {
    let column = |Column { home: Home { server, disk }, told }: &Column| match told {
        Ok(object) => {
            json!({ "server": server.0, "disk": disk, "length": object.length, "used": object.used, "epoch": object.epoch })
        }
        Err(Errno::ENOENT) => json!({ "server": server.0, "disk": disk, "length": 0, "used": 0 }),
        Err(errno) => json!({ "server": server.0, "disk": disk, "error": errno.to_string() }),
    };
    let columns: Vec<_> = columns.iter().map(column).collect();
    json!({ "unit_bytes": layout.unit_bytes, "width": columns.len(), "epoch": layout.epoch, "copies": 1, "columns": columns })
}

/// `trapeze df`.
pub fn df(target: &cli::Target) -> Result<()> {
    let told = status::ask_once(target)?;
    let Room { total_bytes: total, free_bytes: free } = Room::of(&told);
    let mut volume = volume(target)?;
    let used = total.saturating_sub(free);
    let files = volume.space().map(|space| space.files).ok();
    let servers = told.iter().filter(|it| it.member.roles.contains(Roles::IO) && !it.member.gone);
    let silent: Vec<(&str, Errno)> = servers
        .filter_map(|it| match &it.report {
            Some(Err(errno)) => Some((it.member.name.as_str(), *errno)),
            _ => None,
        })
        .collect();
    let names: Vec<&str> = silent.iter().map(|(name, _)| *name).collect();
    if target.json {
        print_json(&json!({
            "total_bytes": total, "used_bytes": used, "free_bytes": free, "files": files, "copies": 1, "silent": names,
        }));
    } else {
        let mut table = Table::new(&["cluster", "size", "used", "free", "files", "copies"]);
        let [total, used, free] = [total, used, free].map(|bytes| Size(bytes).to_string());
        let files = files.map_or("?".to_string(), |files| files.to_string());
        table.row(&[target.cluster.cluster.clone(), total, used, free, files, "1".into()]);
        print!("{}", table.render());
        for (name, errno) in &silent {
            println!("without {name}, which does not answer: {errno}");
        }
    }
    close(volume)
}

/// `trapeze rm`.
pub fn rm(arguments: &cli::Rm) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    let mut removed = Removed::default();
    let mut each = |path: &PathBuf| {
        refuse_to_remove(&mut volume, path, arguments.recursive)?;
        remove(&mut volume, path, arguments.recursive, &mut removed)
    };
    let ended = arguments.paths.iter().try_for_each(&mut each).and_then(|()| close(volume));
    if arguments.target.json {
        print_json(&Removed { errors: u64::from(ended.is_err()), ..removed });
    }
    ended
}

/// Counts of `rm`. An error ends it.
#[derive(Debug, Default, Serialize)]
struct Removed {
    files: u64,
    directories: u64,
    bytes: u64,
    errors: u64,
}

/// Before anything is removed: the root cannot go, and what is in a directory goes only when that is asked for.
fn refuse_to_remove(volume: &mut Volume, path: &Path, recursive: bool) -> Result<()> {
    let attr = volume.stat(path)?;
    let refused = |why: &str| Err(ToolError::Usage(format!("{} {why}", path.display())));
    if attr.file == FileId::ROOT {
        return refused("is the root of the cluster and cannot be removed: name what is in it");
    }
    if attr.kind == FileKind::Directory && !recursive && !volume.list(path)?.is_empty() {
        return refused("is a directory with files in it: use rm --recursive");
    }
    Ok(())
}

/// Removes what `path` names, and before that what is in it when it is a directory and that is asked for.
fn remove(volume: &mut Volume, path: &Path, recursive: bool, removed: &mut Removed) -> Result<()> {
    if recursive && volume.stat(path)?.kind == FileKind::Directory {
        for entry in volume.list(path)? {
            remove(volume, &path.join(name_of(&entry.name)), recursive, removed)?;
        }
    }
    let attr = volume.remove(path)?;
    match attr.kind {
        FileKind::Directory => removed.directories += 1,
        _ => {
            removed.files += 1;
            removed.bytes += attr.size;
        }
    }
    Ok(())
}

pub(crate) fn name_of(name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(name))
}
