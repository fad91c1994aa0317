//! The end of a client: what was written is written back first, for as long as that gets on.
//!
//! Servers that are away are not waited for as a running mount waits: after [`STANDSTILL_SPAN`] without a byte saved it
//! ends, and says what it could not save.

use crate::machine::Running;
use crate::membership;
use crate::size::Size;
use files::cluster::{self, Services};
use files::{Files, Unsaved};
use live::clock;
use node::Cx;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, Time};

/// How long nothing may get on before a stopping client gives up.
const STANDSTILL_SPAN: Duration = Duration::from_secs(10);
/// Least part of that for servers, however long the kernel took to take the mount out of the file tree.
const SERVERS_SPAN: Duration = Duration::from_secs(5);
/// How long a server may take to put in place what it must not forget: more than all steps of that together.
const SETTLE_SPAN: Duration = Duration::from_secs(10);
/// How long what is under way may take to end when something could not be saved: programs still get their errors.
pub const GIVEN_UP_SPAN: Duration = Duration::from_secs(1);
/// How often people are told how far it is.
const TELL_INTERVAL: Duration = Duration::from_secs(1);
/// Files that are named when they could not be saved.
const NAMED_MAX: usize = 20;

/// Why not everything was written back.
#[derive(Debug, thiserror::Error)]
pub enum WriteBackError {
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// Data that is or may be lost, in words.
    #[error("{0}")]
    Unsaved(String),
}

/// Watches whether bytes get saved.
struct Standstill {
    files: Files,
    held: u64,
    since: Time,
}

impl Standstill {
    fn new(files: &Files) -> Standstill {
        Standstill { files: files.clone(), held: files.report().held_bytes, since: clock::now() }
    }

    /// At least `span` is left from now on.
    fn leave(&mut self, span: Duration) {
        let passed = (STANDSTILL_SPAN - span).as_nanos() as u64;
        self.since = self.since.max(Time(clock::now().0.saturating_sub(passed)));
    }

    /// How long nothing has been saved.
    fn span(&mut self) -> Duration {
        let held = self.files.report().held_bytes;
        if held < self.held {
            self.since = clock::now();
        }
        self.held = held;
        clock::now().since(self.since)
    }
}

/// Has the mount's kernel write back what it holds, and everything sent and made stable. An error names what was not;
/// it is none when only the manager was not told which files are closed, since nothing depends on that.
pub fn write_back(running: &mut Running) -> Result<(), WriteBackError> {
    let Some(files) = running.services.files.clone() else { return Ok(()) };
    let mut standstill = Standstill::new(&files);
    // Programs that go on writing to a mount that was taken away may do so for this long.
    let late = clock::now() + STANDSTILL_SPAN;
    let patience = || standstill.span() < STANDSTILL_SPAN && clock::now() < late;
    running.host.quiesce_while(patience)?;
    standstill.leave(SERVERS_SPAN);
    let drained = drain(running, &files, &mut standstill)?;
    let left = Left::of(&files);
    match drained {
        Some(Ok(())) => {}
        Some(Err(errno)) => return Err(left.refused(&errno.to_string())),
        None if left.is_nothing() => {
            eprintln!("the manager was not told which files are closed, and settles them itself");
        }
        None => return Err(left.refused("servers do not answer")),
    }
    Ok(())
}

/// `None`: given up.
fn drain(
    running: &mut Running,
    files: &Files,
    standstill: &mut Standstill,
) -> io::Result<Option<Result<(), Errno>>> {
    let ended = Rc::new(Cell::new(None));
    let (slot, drained, cx) = (ended.clone(), files.clone(), running.host.node().cx().clone());
    running.host.catch_up();
    cx.spawn("drain", async move { slot.set(Some(drained.drain().await)) });
    cx.spawn("tell", tell(cx.clone(), files.clone()));
    running.host.run(|| ended.get().is_some() || standstill.span() >= STANDSTILL_SPAN)?;
    Ok(ended.get())
}

/// Tells how far it is, and wakes the host to look at the time.
async fn tell(cx: Cx, files: Files) {
    loop {
        cx.sleep(TELL_INTERVAL).await;
        let unsaved = files.unsaved();
        let bytes = bytes_of(&unsaved);
        if bytes > 0 {
            let count = unsaved.len();
            eprintln!("writing back {count} files: {}B left; Ctrl-C ends at once", Size(bytes));
        }
    }
}

fn bytes_of(unsaved: &[Unsaved]) -> u64 {
    unsaved.iter().map(|one| one.bytes).sum()
}

/// Data that is not on stable storage at the end.
struct Left {
    unsaved: Vec<Unsaved>,
    /// Bytes that the client has given up since it started.
    lost: u64,
    /// Changes of names that the manager may not have synchronised.
    has_names: bool,
}

impl Left {
    fn of(files: &Files) -> Left {
        let (unsaved, lost) = (files.unsaved(), files.report().lost_bytes);
        Left { unsaved, lost, has_names: files.has_unsynced_names() }
    }

    fn is_nothing(&self) -> bool {
        self.unsaved.is_empty() && self.lost == 0 && !self.has_names
    }

    fn refused(&self, why: &str) -> WriteBackError {
        let mut text = format!("not everything was written back: {why}");
        let (bytes, lost) = (bytes_of(&self.unsaved), self.lost);
        if lost > 0 {
            text.push_str(&format!("; {lost} bytes were refused since the start and are lost"));
        }
        match self.unsaved.len() {
            0 if lost > 0 => {}
            0 => text.push_str("; all bytes are on stable storage"),
            count => text.push_str(&format!("\nnot saved: {bytes} bytes of {count} files")),
        }
        if self.has_names {
            text.push_str(
                "; names changed since the last sync may be lost if the manager loses power",
            );
        }
        for Unsaved { file, path, bytes } in self.unsaved.iter().take(NAMED_MAX) {
            let path = path.as_deref().unwrap_or("a file without a known name");
            text.push_str(&format!("\n  {bytes} bytes of {path} (file {})", file.0));
        }
        if let Some(more) = self.unsaved.len().checked_sub(NAMED_MAX + 1) {
            text.push_str(&format!("\n  and {} files more", more + 1));
        }
        WriteBackError::Unsaved(text)
    }
}

/// Gives the lease back; it ends by itself if the manager is gone.
pub fn leave(running: &mut Running) -> io::Result<()> {
    membership::leave(&mut running.host, &running.services)
}

/// A server's last word: its objects know what the manager knows of their files, and how far it and the manager are is
/// noted in a second place.
pub fn settle(running: &mut Running) -> io::Result<()> {
    let Services { io, manager, member, .. } = &running.services;
    let Some(member) = member.clone() else { return Ok(()) };
    let cx = running.host.node().cx().clone();
    let settled = cluster::settle(cx.clone(), io.clone(), manager.clone(), member);
    let settling = async move { cx.with_deadline(SETTLE_SPAN, settled).await };
    running.host.block_on(settling).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::FileId;

    fn left(unsaved: Vec<Unsaved>) -> Left {
        Left { unsaved, lost: 0, has_names: false }
    }

    #[test]
    fn what_was_not_saved_is_named_and_the_list_is_bounded() {
        let unsaved: Vec<Unsaved> = (0..NAMED_MAX as u64 + 3)
            .map(|number| Unsaved { file: FileId(number), path: None, bytes: 10 })
            .collect();
        let text = left(unsaved.clone()).refused("why").to_string();
        assert!(text.contains("not saved: 230 bytes of 23 files"), "{text}");
        assert!(text.ends_with("and 3 files more"), "{text}");
        let named = Unsaved { path: Some("a/b".into()), ..unsaved[7].clone() };
        let text = left(vec![named]).refused("why").to_string();
        assert!(text.contains("10 bytes of a/b (file 7)"), "{text}");
    }

    #[test]
    fn it_is_no_error_that_only_the_manager_was_not_told_what_is_closed() {
        assert!(left(Vec::new()).is_nothing());
        let names = Left { has_names: true, ..left(Vec::new()) };
        let text = names.refused("why").to_string();
        assert!(!names.is_nothing() && text.contains("all bytes are on stable storage; names"));
        let lost = Left { lost: 4096, ..left(Vec::new()) };
        let text = lost.refused("why").to_string();
        assert!(!lost.is_nothing() && text.contains("4096 bytes were refused"), "{text}");
    }
}
