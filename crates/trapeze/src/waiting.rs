//! Messages about waits, while a client waits: the name of each server that does not answer, or of its disk that is not
//! ready, and why; and which disks a server refuses, since their data is an error.
//!
//! One task of the client's node looks at its calls, links and tries, whatever the command does. It prints to standard
//! error, beside a progress bar, once when a server or disk is waited for and once when it is back.

use crate::machine::Running;
use crate::output;
use live::link::Directory;
use node::{Cx, Wait};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, Home, NodeId, Time};

/// How often the task looks.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// How long an answer may take before a message: well below the two seconds that a person waits in the dark.
const QUIET_SPAN: Duration = Duration::from_millis(1250);
/// How long nothing may be waited for before a server counts as back: more than the pause between two tries and
/// [`QUIET_SPAN`] of the next one.
const BACK_SPAN: Duration = Duration::from_millis(2500);

/// Whether the command waits for something, and since when.
#[derive(Clone)]
pub struct Waiting {
    since: Rc<Cell<Option<Time>>>,
    board: Rc<Board>,
}

impl Waiting {
    /// From now on.
    pub fn begin(&self, now: Time) {
        self.since.set(Some(now));
    }

    /// No more. Refusals meanwhile are told: one may be why the command ends.
    pub fn end(&self) {
        self.board.tell_refusals();
        self.since.set(None);
    }
}

/// Starts the task for a client of these services.
pub fn watch(running: &Running) -> Waiting {
    let names = running.services.member.clone();
    let name = move |id: NodeId| {
        let directory = names.as_ref()?.directory();
        let member = directory.get(id).filter(|member| member.roles.is_server() && !member.gone);
        member.map(|member| member.name.clone())
    };
    let cx = running.host.node().cx().clone();
    let board = Rc::new(Board {
        cx: cx.clone(),
        links: running.directory.clone(),
        name: Box::new(name),
        waits: RefCell::default(),
        refusals: RefCell::default(),
    });
    let waiting = Waiting { since: Rc::default(), board };
    cx.spawn("waiting", look(cx.clone(), waiting.clone()));
    waiting
}

async fn look(cx: Cx, waiting: Waiting) {
    loop {
        cx.sleep(LOOK_PERIOD).await;
        let since = waiting.since.get();
        waiting.board.tell_waits(since.is_some_and(|since| cx.now().since(since) >= QUIET_SPAN));
        if since.is_some() {
            waiting.board.tell_refusals();
        }
    }
}

/// A server, or one of its disks.
type Target = (NodeId, Option<u8>);

/// A message that was told and is not over.
struct Told {
    called: String,
    /// When it was the case last.
    last: Time,
}

/// Messages told so far.
struct Board {
    cx: Cx,
    links: Directory,
    /// Servers' names. Other clients, and what was declared gone, are not waited for and have none.
    name: Box<dyn Fn(NodeId) -> Option<String>>,
    waits: RefCell<BTreeMap<Target, Told>>,
    refusals: RefCell<BTreeMap<Home, Told>>,
}

impl Board {
    /// Says what is waited for, where something is for `long`, and what is not any more.
    fn tell_waits(&self, long: bool) {
        let silent = if long { self.silent() } else { BTreeMap::new() };
        let (now, mut told) = (self.cx.now(), self.waits.borrow_mut());
        for (place, why) in silent {
            if let Some(told) = told.get_mut(&place) {
                told.last = now;
                continue;
            }
            let Some(called) = self.called(place) else { continue };
            output::tell_above(&format!("trapeze: waiting for {called}: {why}"));
            told.insert(place, Told { called, last: now });
        }
        told.retain(|(id, _), told| {
            let back = now.since(told.last) >= BACK_SPAN && self.is_connected(*id);
            if back {
                output::tell_above(&format!("trapeze: {} answers again", told.called));
            }
            !back
        });
    }

    /// Says which disks servers refuse, and which they do not any more.
    fn tell_refusals(&self) {
        let (mut told, refusals) = (self.refusals.borrow_mut(), self.cx.refusals());
        told.retain(|home, told| {
            let back = !refusals.contains_key(home);
            if back {
                output::tell_above(&format!(
                    "trapeze: {} serves disk {} again",
                    told.called, home.disk
                ));
            }
            !back
        });
        for (home, why) in refusals {
            let unknown = !told.contains_key(&home);
            let Some(called) = (self.name)(home.server).filter(|_| unknown) else { continue };
            output::tell_above(&format!("trapeze: {called} {}", refusal(home, &why)));
            told.insert(home, Told { called, last: self.cx.now() });
        }
    }

    fn called(&self, (id, disk): Target) -> Option<String> {
        let name = (self.name)(id)?;
        Some(disk.map_or(name.clone(), |disk| format!("disk {disk} of {name}")))
    }

    fn is_connected(&self, id: NodeId) -> bool {
        self.links.status().get(&id).is_some_and(|status| !status.transport.is_empty())
    }

    /// Servers and disks that were asked something and have not answered for long, or cannot be reached, and why.
    fn silent(&self) -> BTreeMap<Target, String> {
        let (now, mut silent) = (self.cx.now(), BTreeMap::new());
        let long = |since: Time| now.since(since) >= QUIET_SPAN;
        let waits = self.cx.waits().into_iter().filter(|wait| long(wait.since));
        silent.extend(waits.map(|wait| unready(&wait)));
        for (id, since) in self.cx.oldest_calls() {
            if long(since) {
                silent.insert((id, None), "it does not answer".to_string());
            }
        }
        for (id, status) in self.links.status() {
            if status.transport.is_empty() && !status.last_error.is_empty() {
                silent.insert((id, None), status.last_error);
            }
        }
        silent
    }
}

/// The name of a server or disk that has answered, but not with a result, and why.
fn unready(wait: &Wait) -> (Target, String) {
    match wait.why {
        Errno::EAGAIN => ((wait.node, wait.disk), "it is not ready yet".to_string()),
        Errno::EHOSTDOWN => ((wait.node, None), "it is not there, or is starting".to_string()),
        why => ((wait.node, None), why.to_string()),
    }
}

/// A server's message about a disk, after its name.
fn refusal(home: Home, why: &str) -> String {
    match why {
        "" => format!("has no disk {}", home.disk),
        why => format!("serves without {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_named_where_it_is_what_is_waited_for() {
        let wait = |why| Wait { node: NodeId(7), disk: Some(2), since: Time::ZERO, why };
        assert_eq!(unready(&wait(Errno::EAGAIN)).0, (NodeId(7), Some(2)));
        assert_eq!(unready(&wait(Errno::EHOSTDOWN)).0, (NodeId(7), None));
    }

    #[test]
    fn a_refused_disk_is_said_as_its_server_says_it() {
        let home = Home { server: NodeId(7), disk: 2 };
        assert_eq!(refusal(home, "disk 2: it is gone"), "serves without disk 2: it is gone");
        assert_eq!(refusal(home, ""), "has no disk 2");
    }
}
