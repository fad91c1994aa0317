//! `trapeze backup`: all names, with where their bytes are, and the members; not the bytes.

pub mod format;

use crate::cli;
use crate::tools::{Result, ToolError, close, volume};
use format::{Counts, Head, Of, Writer};
use live::wait::WaitPolicy;
use names::{BackupPart, Who};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use terminal::progress;
use trapeze::client::Reach;
use trapeze::config::CLIENT_POOL_BYTES;
use trapeze::size::Size;
use trapeze::volume::Volume;
use wire::Errno;

/// `trapeze backup`.
pub fn backup(arguments: &cli::Backup) -> Result<()> {
    let setup =
        Reach::from(&arguments.target.cluster).setup(CLIENT_POOL_BYTES, WaitPolicy::Block)?;
    let mut volume = volume(&arguments.target)?;
    let head = |part: &BackupPart| Head {
        volume: setup.volume.0,
        cluster: setup.cluster,
        lineage: part.lineage,
        sequence: part.sequence,
        taken: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs()),
        names_format: names::STORE.version,
        members_format: members::STORE_VERSION,
    };
    if arguments.file == Path::new("-") {
        let out = io::stdout().lock();
        let out = BufWriter::new(out);
        write(&mut volume, Path::new("standard output"), out, head)?;
        return close(volume);
    }
    let part = part_of(&arguments.file);
    let local = |error| ToolError::Local(part.clone(), error);
    let file = File::create(&part).map_err(local)?;
    let written = write(&mut volume, &part, BufWriter::new(file), head);
    let (out, counts, bytes) = written.inspect_err(|_| drop(fs::remove_file(&part)))?;
    let file = out.into_inner().map_err(|error| local(error.into_error()))?;
    file.sync_all().map_err(local)?;
    // The file of this name is whole: an older backup goes only now.
    fs::rename(&part, &arguments.file).map_err(local)?;
    trapeze::config::sync_name(&arguments.file).map_err(local)?;
    let (names, size) = (counts.names, Size(bytes));
    eprintln!("{names} records of names in {size}: {}", arguments.file.display());
    close(volume)
}

/// Where a backup grows before it has its name.
fn part_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    file.with_file_name(name)
}

/// Asks for all parts and writes them; what they were written to, how many rows and bytes.
fn write<W: Write>(
    volume: &mut Volume,
    place: &Path,
    out: W,
    head: impl FnOnce(&BackupPart) -> Head,
) -> Result<(W, Counts, u64)> {
    let local = |error| ToolError::Local(place.to_path_buf(), error);
    let bar = progress::counted("records");
    let mut part = ask(volume, 0, Of::Members, Vec::new())?;
    let mut writer = Writer::new(out, &head(&part)).map_err(local)?;
    for of in [Of::Members, Of::Names] {
        if of == Of::Names {
            part = ask(volume, part.snapshot, of, Vec::new())?;
        }
        loop {
            for (key, value) in &part.rows {
                writer.row(of, key, value).map_err(local)?;
                bar.inc(1);
            }
            if part.last {
                break;
            }
            let after = part.rows.last().map(|(key, _)| key.clone()).unwrap_or_default();
            part = ask(volume, part.snapshot, of, after)?;
        }
    }
    bar.finish_and_clear();
    let bytes = writer.bytes();
    let (out, counts) = writer.end().map_err(local)?;
    Ok((out, counts, bytes))
}

fn ask(volume: &mut Volume, snapshot: u64, of: Of, after: Vec<u8>) -> Result<BackupPart> {
    let (_, names, _) = volume.asking();
    let asked = volume
        .run(async move { names.back_up(&Who::ROOT, snapshot, of == Of::Members, &after).await })?;
    asked.map_err(|errno| {
        let why = match errno {
            Errno::ECANCELED => {
                "the manager has started anew or read its store anew meanwhile; run it again".into()
            }
            Errno::EOPNOTSUPP => {
                "the name space is spread over several managers, of which there is no backup of one moment yet: keep \
                 the disk of each manager's store on redundant storage"
                    .into()
            }
            errno => errno.to_string(),
        };
        ToolError::Usage(format!("the backup was broken off: {why}"))
    })
}
