//! `trapeze rebalance`: columns move until every disk holds about the same, and off servers that are to go.
//!
//! ```text
//! walk 1   storage of every column, summed for each disk
//! walk 2   of each file, the columns that are on too full a disk, or on a retired server, move to the emptiest one
//! ```
//!
//! It keeps no state: a run that was killed is repeated, and does what is left. Files are read and written meanwhile;
//! the manager makes each move whole or leaves the file as it was. In a cluster that keeps copies the manager moves
//! groups of disks by itself ([`groups`]).

mod groups;

use crate::cli;
use crate::take_out;
use crate::tools::{ToolError, close, volume};
use files::cluster::gone_disks;
use members::Roles;
use names::{IoServer, homes_of};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terminal::progress;
use terminal::table::{Table, print_json};
use trapeze::size::Size;
use trapeze::volume::{Placed, Volume, VolumeError};
use wire::layout::WIDTH_MAX;
use wire::{Errno, FileId, FileKind, Home, NodeId};

type Result<T> = std::result::Result<T, ToolError>;

/// Differences between disks that are not worth a move.
const SLACK_BYTES: u64 = 1 << 20;

/// Bytes that every disk holds of the files that were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Loads {
    /// Disks that may get something.
    open: Vec<Home>,
    held: BTreeMap<Home, u64>,
}

impl Loads {
    fn new(servers: &[IoServer]) -> Loads {
        let open: Vec<IoServer> = servers.iter().filter(|s| !s.retired).copied().collect();
        let held = servers.iter().flat_map(|server| server.homes()).map(|home| (home, 0));
        Loads { open: homes_of(&open), held: held.collect() }
    }

    fn of(&self, home: Home) -> u64 {
        self.held.get(&home).copied().unwrap_or(0)
    }

    fn note(&mut self, placed: &Placed) {
        for (home, used) in placed.layout.homes().zip(&placed.used) {
            *self.held.entry(home).or_default() += used.unwrap_or_default();
        }
    }

    fn moved(&mut self, from: Home, to: Home, bytes: u64) {
        let left = self.of(from).saturating_sub(bytes);
        self.held.insert(from, left);
        *self.held.entry(to).or_default() += bytes;
    }

    /// Where a column is to go, if anywhere. A disk gets no second column of a file, but for a server that has to go.
    fn target(&self, placed: &Placed, column: usize) -> Option<Home> {
        let from = placed.layout.home(column as u16);
        let bytes = placed.used[column].ok()?;
        let taken: Vec<Home> = placed.layout.homes().collect();
        let emptiest =
            |homes: &mut dyn Iterator<Item = Home>| homes.min_by_key(|home| self.of(*home));
        let free = emptiest(&mut self.open.iter().copied().filter(|home| !taken.contains(home)));
        if !self.open.contains(&from) {
            return free.or_else(|| emptiest(&mut self.open.iter().copied()));
        }
        // Each move makes the two more alike, so that this ends.
        free.filter(|to| bytes > 0 && self.of(*to) + bytes + SLACK_BYTES < self.of(from))
    }
}

/// Counts of a run.
#[derive(Default)]
struct Done {
    files: u64,
    moves: u64,
    bytes: u64,
    widened: u64,
    skipped: u64,
}

struct Run<'a> {
    arguments: &'a cli::Rebalance,
    volume: &'a mut Volume,
    loads: Loads,
    names: BTreeMap<NodeId, String>,
    /// Disks that were declared gone, one bit each.
    gone: BTreeMap<NodeId, u32>,
    done: Done,
    /// Whether what cannot be read is named: once.
    names_unread: bool,
    bar: indicatif::ProgressBar,
}

/// `trapeze rebalance`.
pub fn rebalance(arguments: &cli::Rebalance) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    let names = volume.server_names();
    let has_groups = volume.has_groups()?;
    let mut leaving = Vec::new();
    let mut is_of_disks = retirements(arguments).next().is_none();
    for (named, retired) in retirements(arguments) {
        let (name, disk) = named_disk(named)?;
        let members = volume.server_members();
        let member = members.iter().find(|member| member.name == name && !member.gone);
        let member = member.ok_or_else(|| ToolError::Usage(unknown(name, &names)))?;
        if disk.is_none() && take_out::is_one(member) {
            take_out::mark(&mut volume, member, retired)?;
            leaving.extend(retired.then(|| member.clone()));
        }
        if !member.roles.contains(Roles::IO) {
            continue;
        }
        is_of_disks = true;
        match (has_groups, disk) {
            (true, disk) => groups::mark(&mut volume, member, disk, retired)?,
            (false, Some(_)) => return Err(ToolError::Usage(ONE_COPY.into())),
            (false, None) => {
                volume.retire(member.id, retired)?;
                if retired && !member.alive {
                    return Err(ToolError::Usage(away(name)));
                }
            }
        }
    }
    match (is_of_disks, has_groups) {
        (true, true) => groups::wait(arguments, &mut volume, names)?,
        (true, false) => move_columns(arguments, &mut volume, names)?,
        (false, _) => {}
    }
    for member in &leaving {
        take_out::wait(&mut volume, member, arguments.target.json)?;
    }
    close(volume)
}

const ONE_COPY: &str = "a disk by itself is emptied only in a cluster that keeps copies: name the server, whose other disks take part then";

/// The name of a server, and the number of one of its disks behind a colon.
fn named_disk(named: &str) -> Result<(&str, Option<u8>)> {
    let Some((name, disk)) = named.rsplit_once(':') else { return Ok((named, None)) };
    match disk.parse().ok().filter(|disk| *disk < 32) {
        Some(disk) => Ok((name, Some(disk))),
        None => {
            let text = format!("{named}: behind the colon is the number of a disk, from 0 to 31");
            Err(ToolError::Usage(text))
        }
    }
}

/// Moves columns until every disk holds about the same, and retired ones nothing.
fn move_columns(
    arguments: &cli::Rebalance,
    volume: &mut Volume,
    names: BTreeMap<NodeId, String>,
) -> Result<()> {
    let loads = Loads::new(&volume.servers()?);
    if loads.open.is_empty() {
        let text =
            "no I/O server is left that could take anything: start one, or name it with --back";
        return Err(ToolError::Usage(text.to_string()));
    }
    let bar = progress::bytes_moved("moved");
    let gone = gone_disks(volume.server_members().iter()).into_iter().collect();
    let (done, names_unread) = (Done::default(), false);
    let mut run = Run { arguments, volume, loads, names, gone, done, names_unread, bar };
    run.walk(&mut |run, _, placed| {
        run.loads.note(placed);
        Ok(())
    })?;
    run.names_unread = true;
    run.walk(&mut |run, path, placed| run.settle(path, placed))?;
    run.bar.finish_and_clear();
    run.show();
    match run.done.skipped {
        0 => Ok(()),
        count => Err(ToolError::Usage(format!(
            "{count} columns and directories are named above that cannot be moved or read now: their files were in use, a server is \
             away, or they are damaged, which `trapeze check` tells; run this again"
        ))),
    }
}

fn retirements(arguments: &cli::Rebalance) -> impl Iterator<Item = (&String, bool)> {
    let off = arguments.off.iter().map(|name| (name, true));
    off.chain(arguments.back.iter().map(|name| (name, false)))
}

fn unknown(name: &str, names: &BTreeMap<NodeId, String>) -> String {
    let all: Vec<&str> = names.values().map(String::as_str).collect();
    format!("the cluster has no server named {name}; it has {}", all.join(", "))
}

fn away(name: &str) -> String {
    format!(
        "{name} is down, so what it has cannot be moved; it gets nothing new from now on. Start it and run this again. If it \
         is gone for good: trapeze forget {name}"
    )
}

type Visit<'a, 'b> = &'b mut dyn FnMut(&mut Run<'a>, &Path, &Placed) -> Result<()>;

impl<'a> Run<'a> {
    /// Shows every regular file under the path to `visit`.
    fn walk(&mut self, visit: Visit<'a, '_>) -> Result<()> {
        let top = self.arguments.path.clone();
        let attr = self.volume.stat(&top)?;
        self.walk_from(top, attr.file, attr.kind, visit)
    }

    fn walk_from(
        &mut self,
        path: PathBuf,
        file: FileId,
        kind: FileKind,
        visit: Visit<'a, '_>,
    ) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        if kind == FileKind::Regular {
            let placed = self.volume.placed(&path, file);
            return match self.or_named(placed)?.flatten() {
                Some(placed) => visit(self, &path, &placed),
                None => Ok(()),
            };
        }
        if kind != FileKind::Directory {
            return Ok(());
        }
        let listed = match self.volume.list(&path) {
            // Removed since its name was read.
            Err(VolumeError::File {
                errno: Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR,
                ..
            }) => {
                return Ok(());
            }
            listed => self.or_named(listed)?,
        };
        for entry in listed.into_iter().flatten() {
            let path = path.join(std::ffi::OsStr::from_bytes(&entry.name));
            self.walk_from(path, entry.file, entry.kind, visit)?;
        }
        Ok(())
    }

    /// Passes on a result; a file that cannot be read is named, and the others go on. Without the manager nothing does.
    fn or_named<T>(&mut self, read: std::result::Result<T, VolumeError>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(VolumeError::File { path, errno }) if !members::is_silence(errno) => {
                if self.names_unread {
                    self.skip(&path, None, &errno.to_string());
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Moves the columns of a file that are not where they should be.
    fn settle(&mut self, path: &Path, placed: &Placed) -> Result<()> {
        self.done.files += 1;
        let mut placed = placed.clone();
        for column in 0..placed.used.len() {
            let from = placed.layout.home(column as u16);
            let Some(to) = self.loads.target(&placed, column) else {
                // A column that is not told of cannot leave its disk; one that was declared gone is no more.
                if let Err(errno) = placed.used[column]
                    && !self.loads.open.contains(&from)
                    && !self.is_gone(from)
                {
                    let why = format!("{} disk {}: {errno}", self.name(from.server), from.disk);
                    self.skip(path, Some(column), &why);
                }
                continue;
            };
            let (rate, bytes) = (self.arguments.rate.0, placed.used[column].unwrap_or_default());
            match self.volume.move_column(path, placed.file, column as u16, to, rate) {
                Ok(entry) => {
                    placed.layout = entry.layout.unwrap_or(placed.layout);
                    self.note(path, column, (from, to), bytes);
                }
                Err(VolumeError::File { errno, .. }) => {
                    self.skip(path, Some(column), &errno.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.arguments.widen { self.widen(path, &placed) } else { Ok(()) }
    }

    fn note(&mut self, path: &Path, column: usize, (from, to): (Home, Home), bytes: u64) {
        self.loads.moved(from, to, bytes);
        self.done.moves += 1;
        self.done.bytes += bytes;
        self.bar.inc(bytes);
        if self.arguments.target.json {
            let home = |home: Home| json!({ "server": self.name(home.server), "disk": home.disk });
            print_json(&json!({
                "path": path.to_string_lossy(), "column": column, "from": home(from), "to": home(to), "bytes": bytes,
            }));
        }
    }

    /// Names a column that stays where it is, or a file or directory that cannot be read.
    fn skip(&mut self, path: &Path, column: Option<usize>, why: &str) {
        self.done.skipped += 1;
        if self.arguments.target.json {
            let path = path.to_string_lossy();
            return print_json(&json!({ "path": path, "column": column, "skipped": why }));
        }
        let path = path.display();
        self.bar.suspend(|| match column {
            Some(column) => {
                eprintln!("trapeze: {path}: column {column} stays where it is: {why}");
            }
            None => eprintln!("trapeze: {path}: {why}"),
        });
    }

    /// Gives a file columns on the disks that it has none on, for what is yet to be written behind its end.
    fn widen(&mut self, path: &Path, placed: &Placed) -> Result<()> {
        let taken: Vec<Home> = placed.layout.homes().collect();
        let room = WIDTH_MAX - taken.len();
        let free = self.loads.open.iter().copied().filter(|home| !taken.contains(home));
        let more: Vec<Home> = free.take(room).collect();
        if !more.is_empty() {
            let added = self.volume.add_columns(path, placed.file, more);
            self.done.widened += u64::from(self.or_named(added)?.is_some());
        }
        Ok(())
    }

    fn is_gone(&self, home: Home) -> bool {
        self.gone.get(&home.server).is_some_and(|disks| disks >> home.disk & 1 == 1)
    }

    fn name(&self, server: NodeId) -> String {
        self.names.get(&server).cloned().unwrap_or_else(|| server.to_string())
    }

    fn show(&self) {
        let Done { files, moves, bytes, widened, skipped } = self.done;
        if self.arguments.target.json {
            let held = self.loads.held.iter().map(|(home, bytes)| {
                json!({ "server": self.name(home.server), "disk": home.disk, "bytes": bytes })
            });
            return print_json(&json!({
                "files": files, "moves": moves, "moved_bytes": bytes, "widened": widened, "skipped": skipped,
                "held": held.collect::<Vec<_>>(),
            }));
        }
        let mut table = Table::new(&["server", "disk", "holds", ""]);
        for (home, bytes) in &self.loads.held {
            let state = if self.loads.open.contains(home) { "" } else { "gets nothing new" };
            let cells = [self.name(home.server), home.disk.to_string(), Size(*bytes).to_string()];
            let [server, disk, holds] = cells;
            table.row(&[server, disk, holds, state.to_string()]);
        }
        print!("{}", table.render());
        println!(
            "{files} files: {moves} columns moved, {} bytes; {widened} files made wider",
            Size(bytes)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Layout;

    fn server(id: u16, disks: u32, retired: bool) -> IoServer {
        IoServer { id: NodeId(id), disks, retired }
    }

    fn placed(homes: &[(u16, u8)], used: &[u64]) -> Placed {
        let home = |(server, disk): &(u16, u8)| Home { server: NodeId(*server), disk: *disk };
        let homes: Vec<Home> = homes.iter().map(home).collect();
        let layout = Layout::new(1, 4096, &homes).unwrap();
        Placed { file: FileId(9), layout, used: used.iter().copied().map(Ok).collect() }
    }

    /// Plays the moves of a run until none is left.
    fn settled(mut loads: Loads, files: &mut [Placed]) -> (Loads, u32) {
        files.iter().for_each(|placed| loads.note(placed));
        let mut moves = 0;
        for placed in files {
            for column in 0..placed.used.len() {
                let Some(to) = loads.target(placed, column) else { continue };
                let from = placed.layout.home(column as u16);
                loads.moved(from, to, placed.used[column].unwrap());
                placed.layout = placed.layout.with_home(1, column as u16, to).unwrap();
                moves += 1;
            }
        }
        (loads, moves)
    }

    #[test]
    fn a_new_server_gets_its_share_and_then_nothing_moves() {
        let loads = Loads::new(&[server(1, 1, false), server(2, 1, false), server(3, 1, false)]);
        let mut files: Vec<Placed> =
            (0..30).map(|_| placed(&[(1, 0), (2, 0)], &[10 << 20, 10 << 20])).collect();
        let (after, moves) = settled(loads.clone(), &mut files);
        let held: Vec<u64> = after.held.values().map(|bytes| bytes >> 20).collect();
        assert!(moves > 0 && held.iter().all(|mib| (180..=220).contains(mib)), "{held:?}");
        assert_eq!(settled(loads, &mut files).1, 0);
        for file in &files {
            assert_ne!(file.layout.home(0), file.layout.home(1));
        }
    }

    #[test]
    fn everything_leaves_a_retired_server_also_what_is_empty() {
        let loads = Loads::new(&[server(1, 0b11, false), server(2, 1, true)]);
        let mut files =
            [placed(&[(1, 0), (2, 0), (1, 1)], &[5, 0, 5]), placed(&[(2, 0)], &[7 << 20])];
        let (after, moves) = settled(loads, &mut files);
        assert_eq!((moves, after.of(NodeId(2).into())), (2, 0));
        for home in files.iter().flat_map(|file| file.layout.homes()) {
            assert_eq!(home.server, NodeId(1));
        }
    }

    #[test]
    fn a_column_whose_server_is_away_stays() {
        let loads = Loads::new(&[server(1, 1, false), server(2, 1, true)]);
        let mut file = placed(&[(2, 0)], &[7]);
        file.used[0] = Err(Errno::EIO);
        assert_eq!(loads.target(&file, 0), None);
    }
}
