//! `trapeze mkdir`, `mv` and `du`: directories and names of the cluster without a mount.

use crate::cli;
use crate::tools::{Result, ToolError, close, name_of, volume};
use names::SwitchingShare;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use terminal::table::print_json;
use trapeze::size::Size;
use trapeze::volume::{Volume, VolumeError};
use wire::{Errno, FileId, FileKind};

/// Access of a directory that is made: the owner writes, all read.
const MODE: u32 = 0o755;

/// `trapeze mkdir`.
pub fn mkdir(arguments: &cli::Mkdir) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    for path in &arguments.paths {
        if !arguments.parents {
            volume.new_directory(path, MODE)?;
            continue;
        }
        let above: Vec<&Path> =
            path.ancestors().filter(|part| part.file_name().is_some()).collect();
        for part in above.into_iter().rev() {
            volume.make_directory(part, MODE)?;
        }
    }
    close(volume)
}

/// `trapeze mv`.
pub fn mv(arguments: &cli::Mv) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    let (last, sources) = arguments.paths.split_last().expect("at least two paths");
    let is_directory = volume.stat(last).is_ok_and(|attr| attr.kind == FileKind::Directory);
    if sources.len() > 1 && !is_directory {
        return Err(ToolError::Usage(format!("{} is not a directory", last.display())));
    }
    for from in sources {
        let to = match is_directory {
            true => last.join(from.file_name().unwrap_or_default()),
            false => last.clone(),
        };
        volume.rename(from, &to)?;
    }
    close(volume)
}

/// `trapeze layout`.
pub fn layout(arguments: &cli::Layout) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    if let Some(share) = arguments.mkdir_switching {
        volume.set_mkdir_switching(share.0)?;
    }
    if arguments.mkdir_switching.is_some() || arguments.paths.is_empty() {
        show_switching(volume.mkdir_switching()?, arguments.target.json);
    }
    for path in &arguments.paths {
        if arguments.hash {
            volume.hash_directory(path).map_err(|error| not_empty(error, path))?;
        }
        let hashed = volume.is_hashed(path)?;
        if arguments.target.json {
            print_json(&json!({ "path": path.to_string_lossy(), "hashed": hashed }));
            continue;
        }
        let names = match hashed {
            true => "hashed: its names are spread over all managers, and the files made in it",
            false => "its names are at one manager, and the files made in it",
        };
        println!("{}: {names}", path.display());
    }
    close(volume)
}

fn show_switching(share: SwitchingShare, as_json: bool) {
    let part = |per_mille: u16| f64::from(per_mille) / 1000.0;
    let (holds, set) = (part(share.per_mille), share.set.map(part));
    if as_json {
        return print_json(&json!({ "mkdir_switching": holds, "mkdir_switching_set": set }));
    }
    let why = if set.is_some() { "set" } else { "the default" };
    println!(
        "new directories: {holds} of them go to a manager by their names' hash ({why}), the others stay with their parent"
    );
}

fn not_empty(error: VolumeError, path: &Path) -> ToolError {
    match error {
        VolumeError::File { errno: Errno::ENOTEMPTY, .. } => ToolError::Usage(format!(
            "{} has names: only an empty directory becomes hashed. Make one beside it, hash that, and move the names into it",
            path.display()
        )),
        error => error.into(),
    }
}

/// `trapeze du`.
pub fn du(arguments: &cli::Du) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    let (json, all) = (arguments.target.json, !arguments.summarize);
    let show = |path: &Path, bytes: u64| match json {
        true => print_json(&json!({ "path": path.to_string_lossy(), "used": bytes })),
        false => println!("{:>8}  {}", Size(bytes).to_string(), path.display()),
    };
    for path in &arguments.paths {
        let mut counted = BTreeSet::new();
        let attr = volume.stat(path)?;
        let bytes = match attr.kind {
            FileKind::Directory => used(&mut volume, path, &mut counted, &|path, bytes| {
                if all {
                    show(path, bytes);
                }
            })?,
            _ => attr.used,
        };
        show(path, bytes);
    }
    close(volume)
}

/// Storage of all that is in a directory, a file with several names once; `each` hears of the directories in it.
fn used(
    volume: &mut Volume,
    folder: &Path,
    counted: &mut BTreeSet<FileId>,
    each: &dyn Fn(&Path, u64),
) -> Result<u64> {
    let mut sum = 0;
    for (name, attr) in volume.list_attributes(folder)? {
        let path: PathBuf = folder.join(name_of(&name));
        if attr.kind == FileKind::Directory {
            let inner = used(volume, &path, counted, each)?;
            each(&path, inner);
            sum += inner;
        } else if attr.links < 2 || counted.insert(attr.file) {
            sum += attr.used;
        }
    }
    Ok(sum)
}
