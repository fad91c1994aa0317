//! `trapeze run`: an unmodified program whose large anonymous memory is a region (crate `preload`).
//!
//! The library that goes before the program is part of this file: `cargo xtask bundle` puts it behind the executable's
//! own bytes, with its length and a mark behind it. A build that has none takes the one beside it.

use crate::cli::{RunEnd, RunProgram};
use live::link::{Address, Security};
use netmem::SpaceId;
use region::peer::{self, PeerConfig};
use region::uffd::{Features, Origin, Uffd};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trapeze::client::Reach;
use trapeze::lenders::{self, LendersError};
use trapeze::size::Size;

/// The last bytes of an executable with a library behind it, after the library's length in 8 bytes, little-endian.
pub const MARK: &[u8; 8] = b"TPZLIB01";
const TAIL_BYTES: usize = 16;
const LIBRARY: &str = "libpreload.so";
/// The variable that tells the library of the nodes that have the program's pages.
const HOLDERS: &str = "TRAPEZE_RUN_HOLDERS";
const KEY: &str = "TRAPEZE_RUN_KEY";

/// Limits for programs, printed before one starts.
const LIMITS: &str = "\
trapeze run: what malloc and mmap give from the size of --from on is in the region. Not for programs that are linked
statically or run as another user, allocate without the C library (Go), close descriptors that they did not open, or
use such memory in a child after fork without exec; memory that a device or io_uring holds stays in memory. Beyond
--room malloc and mmap fail.";

/// Least memory of a program: a region has 64 frames of 4 KiB at least.
const MEMORY_MIN: Size = Size(256 << 10);
/// Least size of a piece that is in the region. Each begins at a page of its own, and what the C library needs for
/// itself before the region is there is smaller.
const FROM_MIN: Size = Size(64 << 10);

/// Of what a program may ask for in all, unless that is said, to its memory here.
const ROOM_PER_MEMORY: u64 = 16;
/// With room for less in a cluster a program does not start.
const LEFT_MIN: u64 = 1 << 20;

/// Why the program does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The cluster that is to keep its pages.
    #[error(transparent)]
    Lenders(#[from] LendersError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Runs the program in this process's place; comes back only with an error.
pub fn run(arguments: &RunProgram) -> Result<(), RunError> {
    if let Some(text) = problem(arguments) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text).into());
    }
    // Here, where there is room for a text, rather than in the program.
    Uffd::open(Origin::All, Features::default()).map_err(io::Error::other)?;
    let library = library()?;
    if !arguments.quiet {
        eprintln!("{LIMITS}");
    }
    let mut command = Command::new(&arguments.program);
    command.args(&arguments.arguments).env("LD_PRELOAD", library);
    command.env("TRAPEZE_RUN_MEMORY", arguments.memory.0.to_string());
    command.env("TRAPEZE_RUN_FROM", arguments.from.0.to_string());
    command.env("TRAPEZE_RUN_SPILL", &arguments.spill);
    let mut room = arguments.room;
    if let Some(cluster) = &arguments.cluster {
        keep_with(cluster, arguments, &mut command)?;
        let (there, said) = room_in(cluster, arguments)?;
        room = Some(there);
        if !arguments.quiet {
            eprintln!("{said}");
        }
    }
    if let Some(room) = room {
        command.env("TRAPEZE_RUN_ROOM", room.0.to_string());
    }
    if arguments.report {
        command.env("TRAPEZE_RUN_REPORT", "1");
    }
    let error = command.exec();
    let text = format!("{} cannot be run: {error}", arguments.program.display());
    Err(io::Error::new(error.kind(), text).into())
}

/// An error in the sizes, if any.
fn problem(arguments: &RunProgram) -> Option<String> {
    let RunProgram { memory, room, from, .. } = arguments;
    if *memory < MEMORY_MIN {
        return Some(format!("--memory {memory}: a program needs {MEMORY_MIN} at least"));
    }
    if let Some(room) = room.filter(|room| room < memory) {
        return Some(format!(
            "--room {room} is less than --memory {memory}, which is a part of it: leave it out, or give more"
        ));
    }
    (*from < FROM_MIN).then(|| {
        format!("--from {from}: pieces of less than {FROM_MIN} stay where they are; give {FROM_MIN} or more")
    })
}

/// The most that the program may ask for, where a cluster's nodes keep a part of it; and the message about it.
fn room_in(cluster: &str, arguments: &RunProgram) -> Result<(Size, String), RunError> {
    let RunProgram { memory, room, key, insecure, .. } = arguments;
    let (cluster, key, insecure) = (cluster.to_string(), key.clone(), *insecure);
    let reach = Reach { cluster, key, insecure };
    let left = Size(lenders::room(&reach).map_err(LendersError::from)?);
    fitting(*memory, *room, left)
        .map_err(|text| io::Error::new(io::ErrorKind::StorageFull, text).into())
}

/// With room for so much in the cluster. A program that uses more stands still in the middle of its work until there is
/// room; one that just asks for more does not, so what was said by name is taken.
fn fitting(memory: Size, room: Option<Size>, left: Size) -> Result<(Size, String), String> {
    let most = Size(memory.0 + left.0);
    let there =
        format!("the cluster's nodes have room for {left} of its pages, each kept by two of them");
    if left.0 < memory.0.min(LEFT_MIN) {
        let more = "--lend of trapeze up and mount, or `lend` under [memory] of a machine";
        return Err(format!(
            "{there}: wait until other programs have ended, or lend more ({more})"
        ));
    }
    let said = match room {
        Some(room) if room > most => {
            format!("{there}, and {memory} are here: beyond {most} of --room {room} it waits")
        }
        _ => format!("{there}, and {memory} are here"),
    };
    let usual = Size(memory.0.saturating_mul(ROOM_PER_MEMORY));
    Ok((room.unwrap_or(usual.min(most)), said))
}

/// Has the program's region keep its pages with the cluster's lenders. The key is passed by the name of its file, which
/// only those may read who have it: a descriptor would be open in all that the program starts.
fn keep_with(cluster: &str, arguments: &RunProgram, command: &mut Command) -> Result<(), RunError> {
    let (key, insecure) = (arguments.key.clone(), arguments.insecure);
    let reach = Reach { cluster: cluster.to_string(), key, insecure };
    let lenders = lenders::find(&reach)?;
    let holders: Vec<String> = lenders.holders.iter().map(Address::to_string).collect();
    command.env(HOLDERS, holders.join(" ")).env("TRAPEZE_RUN_END", std::env::current_exe()?);
    if let (Security::Encrypted(_), Some(file)) = (&lenders.security, reach.key_file()) {
        command.env(KEY, file.canonicalize()?);
    }
    Ok(())
}

/// Waits until a program that ran has ended, and has the nodes that have its pages forget them. The program itself
/// cannot do that when it is killed; and the nodes cannot tell one that was killed from one that is stopped. The
/// program's process is the standard input (pidfd_open(2)): it can be read when that has ended.
pub fn end(arguments: &RunEnd) -> Result<(), RunError> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_string());
    let holders = std::env::var(HOLDERS).map_err(|_| wrong("only `trapeze run` starts this"))?;
    let key = std::env::var_os(KEY).map(PathBuf::from);
    let space = u64::from_str_radix(&arguments.space, 16).map_err(|_| wrong("that is no space"))?;
    let told = PeerConfig::told(&holders, key.as_deref())?;
    let process = io::stdin();
    rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], None)
        .map_err(io::Error::from)?;
    peer::free(&PeerConfig { space: SpaceId(space), ..told });
    Ok(())
}

/// Bytes in memory of this process that the program inherits: the path to read them from.
fn passed(name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut memory = File::from(rustix::fs::memfd_create(name, MemfdFlags::empty())?);
    memory.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let _stays_open = memory.into_raw_fd();
    Ok(path.into())
}

/// Where the program's loader finds the library: in memory of this process, which the program inherits, or beside us.
fn library() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    if let Some(bytes) = behind(&own)? {
        return passed(LIBRARY, &bytes);
    }
    let folder = own.parent().unwrap_or(Path::new("/"));
    let found = [folder.join(LIBRARY), folder.join("deps").join(LIBRARY)];
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let text = format!(
            "this executable was built without {LIBRARY}, and there is none beside it: `cargo build --release` puts it there, \
             and `cargo xtask bundle` into the executable; keep the two together"
        );
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// The library behind an executable's own bytes.
fn behind(executable: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = File::open(executable)?;
    let end = file.seek(SeekFrom::End(-(TAIL_BYTES as i64)))?;
    let mut tail = [0; TAIL_BYTES];
    file.read_exact(&mut tail)?;
    let bytes = u64::from_le_bytes(tail[..8].try_into().expect("8 bytes"));
    if &tail[8..] != MARK || bytes > end {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(end - bytes))?;
    let mut library = vec![0; bytes as usize];
    file.read_exact(&mut library)?;
    Ok(Some(library))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command as CliCommand};
    use clap::Parser;

    #[test]
    fn sizes_that_no_program_can_run_with_are_refused() {
        let problem = |sizes: &str| {
            let words = format!("trapeze run {sizes} true");
            let CliCommand::Run(arguments) = Cli::parse_from(words.split(' ')).command else {
                panic!()
            };
            problem(&arguments).unwrap_or_default()
        };
        assert_eq!(problem("--memory 256K --room 256K --from 64K"), "");
        assert!(problem("--memory 0").contains("--memory 0: a program needs 256K"));
        assert!(
            problem("--memory 1M --room 512K").contains("--room 512K is less than --memory 1M")
        );
        assert!(problem("--memory 1M --from 4K").contains("--from 4K: pieces of less than 64K"));
    }

    #[test]
    fn a_program_has_the_room_that_the_clusters_nodes_have() {
        let fitting = |room: Option<u64>, left: u64| {
            fitting(Size(4 << 20), room.map(|mib| Size(mib << 20)), Size(left << 20))
        };
        let room = |given, left| fitting(given, left).unwrap().0;
        assert_eq!(room(None, 20), Size(24 << 20), "as much as there is");
        assert_eq!(room(None, 1000), Size(64 << 20), "as without a cluster");
        assert_eq!(room(Some(99), 20), Size(99 << 20), "as it was said");
        assert!(fitting(Some(25), 20).unwrap().1.contains("beyond 24M of --room 25M it waits"));
        assert!(!fitting(Some(24), 20).unwrap().1.contains("waits"));
        let text = fitting(None, 0).unwrap_err();
        assert!(text.contains("have room for 0") && text.contains("--lend"), "{text}");
    }

    #[test]
    fn a_library_behind_an_executable_is_found_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let mut bytes = b"the executable's own bytes".to_vec();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(behind(&path).unwrap(), None);
        bytes.extend_from_slice(b"library");
        bytes.extend_from_slice(&7u64.to_le_bytes());
        bytes.extend_from_slice(MARK);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(behind(&path).unwrap().as_deref(), Some(&b"library"[..]));
        let at = bytes.len() - TAIL_BYTES;
        bytes[at + 5] = 9;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(behind(&path).unwrap(), None, "a length beyond the file");
    }
}
