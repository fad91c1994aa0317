//! The program that mount(8) calls: by the name `mount.trapeze` or `mount.fuse.trapeze`, or as mount.fuse3 calls the
//! program of a file system, `trapeze SOURCE PATH -o OPTIONS`. The mount is served in the background, and the caller
//! goes on when it can be used.

use crate::cli::Cli;
use clap::CommandFactory;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use trapeze::children::READY;
use trapeze::output;

/// mount(8): the mount failed.
const FAILED: u8 = 32;
/// mount(8): called wrongly.
const USAGE: u8 = 1;

/// A call of this program as a helper of mount(8).
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    source: String,
    path: PathBuf,
    options: Vec<String>,
    /// Only to say whether it could be asked for.
    fake: bool,
}

/// The call, when this is one; how it is wrong.
pub fn call(words: impl IntoIterator<Item = OsString>) -> Option<Result<Call, String>> {
    let words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    let name = Path::new(words.first()?).file_name()?.to_string_lossy();
    let by_name = ["mount.trapeze", "mount.fuse.trapeze", "mount.fuse3.trapeze"].contains(&&*name);
    let is_command =
        |word: &String| Cli::command().get_subcommands().any(|known| known.get_name() == word);
    let by_fuse = words.get(3).is_some_and(|word| word == "-o")
        && !words[1].starts_with('-')
        && !is_command(&words[1]);
    (by_name || by_fuse).then(|| parsed(&words[1..]))
}

fn parsed(words: &[String]) -> Result<Call, String> {
    let (mut places, mut options, mut fake) = (Vec::new(), Vec::new(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" => options.push(words.next().ok_or("-o needs options")?.clone()),
            "-t" | "-N" => _ = words.next(),
            "-r" => options.push("ro".into()),
            "-w" => options.push("rw".into()),
            flags if flags.len() > 1 && flags.starts_with('-') => {
                // Verbose, sloppy, no mtab: nothing here depends on them.
                let known = flags[1..].chars().all(|flag| "fnsv".contains(flag));
                known.then_some(()).ok_or_else(|| format!("{flags}: there is no such flag"))?;
                fake |= flags.contains('f');
            }
            place => places.push(place.to_string()),
        }
    }
    let [source, path] = places.try_into().map_err(|_| "give a cluster and a directory")?;
    let source = source.strip_prefix("trapeze#").unwrap_or(&source).to_string();
    Ok(Call { source, path: path.into(), options, fake })
}

/// Has the mount served in the background, and waits until it can be used.
pub fn run(call: Result<Call, String>) -> ExitCode {
    let refused = |code: u8, text: &dyn std::fmt::Display| {
        output::tell(format_args!("mount.trapeze: {text}"));
        ExitCode::from(code)
    };
    match call {
        Err(wrong) => refused(USAGE, &format!("{wrong}: mount.trapeze CLUSTER PATH [-o OPTIONS]")),
        Ok(Call { fake: true, .. }) => ExitCode::SUCCESS,
        Ok(call) => match serve(&call) {
            Ok(None) => ExitCode::SUCCESS,
            Ok(Some(said)) => refused(FAILED, &said.trim().trim_start_matches("trapeze: ")),
            Err(error) => refused(FAILED, &error),
        },
    }
}

/// Starts the mount's process; its messages if it ended before the mount could be used.
fn serve(call: &Call) -> io::Result<Option<String>> {
    let is_address = ["unix:", "adapter:", "tcp:"].iter().any(|kind| call.source.starts_with(kind));
    let source = match is_address {
        true => PathBuf::from(&call.source),
        false => std::path::absolute(&call.source)?,
    };
    let mut log = unnamed_file()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("mount").arg(source).arg(std::path::absolute(&call.path)?).arg("--background");
    command.args(call.options.iter().flat_map(|options| ["-o", options]));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.try_clone()?).spawn()?;
    let said = BufReader::new(child.stdout.take().expect("it is a pipe"));
    if said.lines().map_while(Result::ok).any(|line| line.starts_with(READY)) {
        return Ok(None);
    }
    child.wait()?;
    let mut text = String::new();
    log.rewind()?;
    log.read_to_string(&mut text)?;
    Ok(Some(text))
}

/// A file that goes with the last process that has it open: the mount may write messages after its caller has gone.
fn unnamed_file() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("trapeze-mount-{}", std::process::id()));
    let file = File::options().read(true).append(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// No terminal's end is this process's, nor does it keep a directory in use.
pub(crate) fn leave_terminal() -> io::Result<()> {
    // A group's leader cannot, and is in no other program's session then.
    let _ = rustix::process::setsid();
    Ok(rustix::process::chdir("/")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Option<Result<Call, String>> {
        call(words.split(' ').map(OsString::from))
    }

    #[test]
    fn calls_of_mount_and_of_mount_fuse_are_told_from_the_command() {
        let expected = Call {
            source: "tcp:a:1".into(),
            path: "/m".into(),
            options: vec!["rw,noatime".into()],
            fake: false,
        };
        for words in [
            "/sbin/mount.trapeze tcp:a:1 /m -o rw,noatime",
            "mount.fuse.trapeze tcp:a:1 /m -sv -o rw,noatime -t fuse.trapeze",
            "trapeze trapeze#tcp:a:1 /m -o rw,noatime",
            "/usr/bin/trapeze tcp:a:1 /m -o rw,noatime",
        ] {
            assert_eq!(of(words), Some(Ok(Call { ..of(words).unwrap().unwrap() })), "{words}");
            assert_eq!(of(words).unwrap().unwrap(), expected, "{words}");
        }
        for words in
            ["trapeze", "trapeze status", "trapeze mount c /m -o ro", "trapeze --help a b -o"]
        {
            assert!(of(words).is_none(), "{words}");
        }
        assert!(of("mount.trapeze c /m -f").unwrap().unwrap().fake);
        for wrong in ["mount.trapeze c", "mount.trapeze c /m -x", "mount.trapeze c /m -o"] {
            assert!(of(wrong).unwrap().is_err(), "{wrong}");
        }
    }
}
