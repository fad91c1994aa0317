//! `trapeze backup`: all names, with where their bytes are, and the members; not the bytes.

pub mod format;

use crate::cli;
use crate::tools::{Result, ToolError, close, volume};
use format::{Counts, Head, Of, Part, Writer};
use live::wait::WaitPolicy;
use names::{BackupPart, NotTaken, Snapshot, Who};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terminal::progress;
use trapeze::client::Reach;
use trapeze::config::CLIENT_POOL_BYTES;
use trapeze::size::Size;
use trapeze::volume::Volume;
use wire::{Errno, NodeId};

/// How often snapshots that wait for their turn are asked for a part, so that they do not end: after a minute they do.
const WAKE_INTERVAL: Duration = Duration::from_secs(15);

/// `trapeze backup`.
pub fn backup(arguments: &cli::Backup) -> Result<()> {
    let setup =
        Reach::from(&arguments.target.cluster).setup(CLIENT_POOL_BYTES, WaitPolicy::Block)?;
    let mut volume = volume(&arguments.target)?;
    let snapshots = taken(&mut volume)?;
    let head = Head {
        has_parts: snapshots.len() > 1,
        volume: setup.volume.0,
        cluster: setup.cluster,
        lineage: snapshots[0].lineage,
        sequence: snapshots[0].sequence,
        taken: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs()),
        names_format: names::STORE.version,
        members_format: members::STORE_VERSION,
    };
    if arguments.file == Path::new("-") {
        let out = io::stdout().lock();
        let out = BufWriter::new(out);
        write(&mut volume, Path::new("standard output"), out, (&head, &snapshots))?;
        return close(volume);
    }
    let part = part_of(&arguments.file);
    let local = |error| ToolError::Local(part.clone(), error);
    let file = File::create(&part).map_err(local)?;
    let written = write(&mut volume, &part, BufWriter::new(file), (&head, &snapshots));
    let (out, counts, bytes) = written.inspect_err(|_| drop(fs::remove_file(&part)))?;
    let file = out.into_inner().map_err(|error| local(error.into_error()))?;
    file.sync_all().map_err(local)?;
    // The file of this name is whole: an older backup goes only now.
    fs::rename(&part, &arguments.file).map_err(local)?;
    trapeze::config::sync_name(&arguments.file).map_err(local)?;
    let (names, size) = (counts.names, Size(bytes));
    let of =
        if head.has_parts { format!(" of {} managers", snapshots.len()) } else { String::new() };
    eprintln!("{names} records of names{of} in {size}: {}", arguments.file.display());
    close(volume)
}

/// Where a backup grows before it has its name.
fn part_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    file.with_file_name(name)
}

/// Snapshots of all managers as of one moment.
fn taken(volume: &mut Volume) -> Result<Vec<Snapshot>> {
    let members = volume.server_names();
    let (_, names, _) = volume.asking();
    let taken = volume.run(async move { names.snapshot(&Who::ROOT).await })?;
    taken.map_err(|NotTaken { manager, errno }| {
        let name = name_of(&members, manager);
        broken_off(match errno {
            Errno::EBUSY => "another backup is being begun; run it again".into(),
            Errno::EAGAIN | Errno::ECANCELED => {
                "operations over several managers, or sites on their way to another one, did not end in time; run it \
                 again"
                    .into()
            }
            errno => {
                format!("the manager {name}: {errno}; all managers must run, for the backup is of all of them")
            }
        })
    })
}

fn name_of(members: &std::collections::BTreeMap<NodeId, String>, manager: NodeId) -> String {
    members.get(&manager).cloned().unwrap_or_else(|| manager.to_string())
}

fn broken_off(why: String) -> ToolError {
    ToolError::Usage(format!("the backup was broken off: {why}"))
}

/// Asks for all parts and writes them; what they were written to, how many rows and bytes.
fn write<W: Write>(
    volume: &mut Volume,
    place: &Path,
    out: W,
    (head, snapshots): (&Head, &[Snapshot]),
) -> Result<(W, Counts, u64)> {
    let local = |error| ToolError::Local(place.to_path_buf(), error);
    let bar = progress::counted("records");
    let members = volume.server_names();
    let mut writer = Writer::new(out, head).map_err(local)?;
    let mut woken = Instant::now();
    for (at, snapshot) in snapshots.iter().enumerate() {
        let Snapshot { manager, lineage, sequence, ref sites, .. } = *snapshot;
        if head.has_parts {
            let (name, sites) = (name_of(&members, manager), sites.clone());
            let part = Part { node: manager.0, lineage, sequence, sites, name };
            writer.part(&part).map_err(local)?;
        }
        // The members are the first manager's.
        let all = [Of::Members, Of::Names];
        for of in all.into_iter().filter(|of| at == 0 || *of == Of::Names) {
            let mut after = Vec::new();
            loop {
                let part = ask(volume, snapshot, of, after)?;
                for (key, value) in &part.rows {
                    writer.row(of, key, value).map_err(local)?;
                    bar.inc(1);
                }
                if part.last {
                    break;
                }
                after = part.rows.last().map(|(key, _)| key.clone()).unwrap_or_default();
                if woken.elapsed() >= WAKE_INTERVAL {
                    woken = Instant::now();
                    wake(volume, &snapshots[at + 1..])?;
                }
            }
        }
    }
    bar.finish_and_clear();
    let bytes = writer.bytes();
    let (out, counts) = writer.end().map_err(local)?;
    Ok((out, counts, bytes))
}

/// Asks snapshots for what is behind all that they have.
fn wake(volume: &mut Volume, snapshots: &[Snapshot]) -> Result<()> {
    for snapshot in snapshots {
        ask(volume, snapshot, Of::Members, vec![u8::MAX; 16])?;
    }
    Ok(())
}

fn ask(volume: &mut Volume, snapshot: &Snapshot, of: Of, after: Vec<u8>) -> Result<BackupPart> {
    let (_, names, _) = volume.asking();
    let snapshot = snapshot.clone();
    let asked = volume.run(async move {
        names.back_up(&Who::ROOT, &snapshot, of == Of::Members, &after).await
    })?;
    asked.map_err(|errno| {
        broken_off(match errno {
            Errno::ECANCELED => {
                "the manager has started anew or read its store anew meanwhile; run it again".into()
            }
            errno => errno.to_string(),
        })
    })
}
