//! Arguments of the commands about single files and directories of a cluster.
#![allow(missing_docs)] // the documentation of a flag is its help

use super::Target;
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A path in the cluster, from its root: `/x`, `x`, or `:/x` as `cp` has it, so that one may be typed like the other.
pub fn in_cluster() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path: PathBuf| without_colon(&path))
}

fn without_colon(path: &Path) -> PathBuf {
    match path.as_os_str().as_bytes() {
        b":" => PathBuf::from("/"),
        [b':', rest @ ..] if rest.starts_with(b"/") => PathBuf::from(OsStr::from_bytes(rest)),
        _ => path.to_path_buf(),
    }
}

/// The cluster of this directory, when none is named: what `init` and `join` make, else what `up` makes.
pub fn default_cluster() -> &'static str {
    let joined = "trapeze-machine";
    let is_there = Path::new(joined).join("machine.toml").is_file();
    if is_there { joined } else { "trapeze-data" }
}

#[derive(Debug, Args)]
pub struct Paths {
    #[command(flatten)]
    pub target: Target,
    /// Paths in the cluster, from its root
    #[arg(default_value = "/", value_parser = in_cluster())]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Cat {
    #[command(flatten)]
    pub target: Target,
    /// Files in the cluster, by their paths from its root
    #[arg(required = true, value_parser = in_cluster())]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "FIFOs, sockets and devices are named and left out, and so are files of this machine that cannot be read or written;\nthe rest is copied, and the exit code is 1 then. A copy that was broken off is simply repeated."
)]
pub struct Cp {
    #[command(flatten)]
    pub target: Target,
    /// Copy directories with all that is in them
    #[arg(long, short)]
    pub recursive: bool,
    /// Sources, then the target: local paths, :/path in the cluster, - for standard input or output
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Through a mount, its reader then finds each file here as it comes to it:\n  trapeze prefetch /mnt/data/batch-17/* && train /mnt/data/batch-17\n\nAs :/path only the servers' memory is filled, for any client that reads then.\nHints take a part of the servers' memory and are forgotten when they prove wrong; they change no byte that is read."
)]
pub struct Prefetch {
    #[command(flatten)]
    pub target: Target,
    /// Files and directories with all that is in them, in the order in which they will be read: in a mount, or :/path
    /// in the cluster
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Rm {
    #[command(flatten)]
    pub target: Target,
    /// Remove directories with all that is in them
    #[arg(long, short)]
    pub recursive: bool,
    /// Paths in the cluster, from its root
    #[arg(required = true, value_parser = in_cluster())]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Mkdir {
    #[command(flatten)]
    pub target: Target,
    /// Also make the directories above; no error for those that are there
    #[arg(long, short)]
    pub parents: bool,
    /// Paths in the cluster, from its root
    #[arg(required = true, value_parser = in_cluster())]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Mv {
    #[command(flatten)]
    pub target: Target,
    /// Sources, then the target, a new name or a directory; all in the cluster
    #[arg(required = true, num_args = 2.., value_name = "PATH", value_parser = in_cluster())]
    pub paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A directory with names stays as it is; move them into one that is hashed:\n  trapeze mkdir /hot && trapeze layout --hash /hot && trapeze mv /old/* /hot"
)]
pub struct Layout {
    #[command(flatten)]
    pub target: Target,
    /// From now on the names of these directories, which are empty, are spread over all managers, and new files in them
    #[arg(long)]
    pub hash: bool,
    /// From now on this part of all new directories, 0 to 1, goes to a manager by their names' hash, and the others
    /// stay with their parent; `default`: all but one in the number of managers
    #[arg(long, value_name = "P")]
    pub mkdir_switching: Option<SwitchedPart>,
    /// Directories of the cluster, by their paths from its root; without one the volume's setting is shown
    #[arg(required_if_eq("hash", "true"), value_parser = in_cluster())]
    pub paths: Vec<PathBuf>,
}

/// A part of all new directories, in thousandths; `None` is the default.
#[derive(Clone, Copy, Debug)]
pub struct SwitchedPart(pub Option<u16>);

impl FromStr for SwitchedPart {
    type Err = String;

    fn from_str(text: &str) -> Result<SwitchedPart, String> {
        if text == "default" {
            return Ok(SwitchedPart(None));
        }
        match text.parse::<f64>() {
            Ok(part) if (0.0..=1.0).contains(&part) => {
                Ok(SwitchedPart(Some((part * 1000.0).round() as u16)))
            }
            _ => Err("neither a number from 0 to 1 nor `default`".to_string()),
        }
    }
}

#[derive(Debug, Args)]
pub struct Du {
    #[command(flatten)]
    pub target: Target,
    /// Only the sum of each path, not of every directory in it
    #[arg(long, short)]
    pub summarize: bool,
    /// Paths in the cluster, from its root
    #[arg(default_value = "/", value_parser = in_cluster())]
    pub paths: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_cluster_may_have_the_colon_of_cp() {
        let path = |text: &str| without_colon(Path::new(text)).display().to_string();
        assert_eq!([path(":/a/b"), path("/a/b"), path("a"), path(":")], ["/a/b", "/a/b", "a", "/"]);
        assert_eq!(path(":x"), ":x", "a name that begins with a colon");
    }
}
