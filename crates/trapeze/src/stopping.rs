//! The end of a client: what was written is written back first, for as long as that gets on.
//!
//! Servers that are away are not waited for as a running mount waits: after [`STANDSTILL_SPAN`] without a byte saved it
//! ends, and says what it could not save.

use crate::machine::Running;
use crate::serve::ServeError;
use crate::size::Size;
use files::cluster::{self, Services};
use files::{Files, Unsaved};
use live::clock;
use live::host::Host;
use node::Cx;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, Time};

/// How long nothing may get on before a stopping client gives up.
const STANDSTILL_SPAN: Duration = Duration::from_secs(10);
/// How long the manager may take to hear a good-bye.
const GOODBYE_SPAN: Duration = Duration::from_secs(2);
/// How long a server may take to put in place what it must not forget: more than all steps of that together.
const SETTLE_SPAN: Duration = Duration::from_secs(10);
/// How long what is under way may take to end when something could not be saved: programs still get their errors.
pub(crate) const GIVEN_UP_SPAN: Duration = Duration::from_secs(1);
/// How often people are told how far it is.
const TELL_INTERVAL: Duration = Duration::from_secs(1);
/// Files that are named when they could not be saved.
const NAMED_MAX: usize = 20;

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

/// Has the mount's kernel write back what it holds, and everything sent and made stable. An error names what was not.
pub(crate) fn write_back(running: &mut Running) -> Result<(), ServeError> {
    let Some(files) = running.services.files.clone() else { return Ok(()) };
    let mut standstill = Standstill::new(&files);
    // Programs that go on writing to a mount that was taken away may do so for this long.
    let late = clock::now() + STANDSTILL_SPAN;
    let patience = || standstill.span() < STANDSTILL_SPAN && clock::now() < late;
    running.host.quiesce_while(patience)?;
    let why = match drain(running, &files, &mut standstill)? {
        Some(Ok(())) => return Ok(()),
        Some(Err(errno)) => errno.to_string(),
        None => "servers do not answer".to_string(),
    };
    Err(refused(&files.unsaved(), lost(&files), &why))
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
            eprintln!("writing back: {} of {count} files left; Ctrl-C ends at once", Size(bytes));
        }
    }
}

fn bytes_of(unsaved: &[Unsaved]) -> u64 {
    unsaved.iter().map(|one| one.bytes).sum()
}

/// Bytes that the client has given up since it started.
fn lost(files: &Files) -> u64 {
    files.report().lost_bytes
}

fn refused(unsaved: &[Unsaved], lost: u64, why: &str) -> ServeError {
    let mut text = format!("not everything was written back: {why}");
    let bytes = bytes_of(unsaved);
    if lost > 0 {
        text.push_str(&format!("; {lost} bytes were refused since the start and are lost"));
    }
    match unsaved.len() {
        0 if lost > 0 => {}
        0 => text.push_str("; all bytes are on stable storage, the manager settles open files"),
        count => text.push_str(&format!("\nnot saved: {bytes} bytes of {count} files")),
    }
    for Unsaved { file, path, bytes } in unsaved.iter().take(NAMED_MAX) {
        let path = path.as_deref().unwrap_or("a file without a known name");
        text.push_str(&format!("\n  {bytes} bytes of {path} (file {})", file.0));
    }
    if let Some(more) = unsaved.len().checked_sub(NAMED_MAX + 1) {
        text.push_str(&format!("\n  and {} files more", more + 1));
    }
    ServeError::Refused(text)
}

/// Gives the lease back; it ends by itself if the manager is gone.
pub(crate) fn leave(running: &mut Running) -> io::Result<()> {
    leave_with(&mut running.host, &running.services)
}

/// A server's last word: its objects know what the manager knows of their files, and how far it and the manager are is
/// noted in a second place.
pub(crate) fn settle(running: &mut Running) -> io::Result<()> {
    let Services { io, manager, member, .. } = &running.services;
    let Some(member) = member.clone() else { return Ok(()) };
    let cx = running.host.node().cx().clone();
    let settled = cluster::settle(cx.clone(), io.clone(), manager.clone(), member);
    let settling = async move { cx.with_deadline(SETTLE_SPAN, settled).await };
    running.host.block_on(settling).map(drop)
}

/// As [`leave`], of a machine's parts.
pub(crate) fn leave_with(host: &mut Host, services: &Services) -> io::Result<()> {
    let Some(member) = services.member.clone() else { return Ok(()) };
    let cx = host.node().cx().clone();
    let leaving = async move { cx.with_deadline(GOODBYE_SPAN, member.leave()).await };
    host.block_on(leaving).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::FileId;

    #[test]
    fn what_was_not_saved_is_named_and_the_list_is_bounded() {
        let unsaved: Vec<Unsaved> = (0..NAMED_MAX as u64 + 3)
            .map(|number| Unsaved { file: FileId(number), path: None, bytes: 10 })
            .collect();
        let text = refused(&unsaved, 0, "why").to_string();
        assert!(text.contains("not saved: 230 bytes of 23 files"), "{text}");
        assert!(text.ends_with("and 3 files more"), "{text}");
        let named = Unsaved { path: Some("a/b".into()), ..unsaved[7].clone() };
        assert!(refused(&[named], 0, "why").to_string().contains("10 bytes of a/b (file 7)"));
        let stable = |lost| refused(&[], lost, "why").to_string().contains("on stable storage");
        assert!(stable(0) && !stable(4096));
    }
}
