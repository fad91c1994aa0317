//! What a client waits for is said while it waits: the name of each server that does not answer, and why.
//!
//! One task of the client's node looks at its calls and links, whatever the command does. It prints to standard error,
//! beside a progress bar, once when a server is waited for and once when it is back.

use crate::machine::Running;
use crate::progress;
use live::link::Directory;
use node::Cx;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::{NodeId, Time};

/// How often the task looks.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// How long an answer may take before it is said: well below the two seconds that a person waits in the dark.
const QUIET_SPAN: Duration = Duration::from_millis(1250);

/// Whether the command waits for something, and since when.
#[derive(Clone, Default)]
pub struct Waiting(Rc<Cell<Option<Time>>>);

impl Waiting {
    /// From now on.
    pub fn begin(&self, now: Time) {
        self.0.set(Some(now));
    }

    /// No more.
    pub fn end(&self) {
        self.0.set(None);
    }
}

/// Starts the task for a client of these services.
pub fn watch(running: &Running) -> Waiting {
    let waiting = Waiting::default();
    let names = running.services.member.clone();
    let name = move |id: NodeId| {
        let directory = names.as_ref()?.directory();
        let member = directory.get(id).filter(|member| member.roles.is_server() && !member.gone);
        member.map(|member| member.name.clone())
    };
    let cx = running.host.node().cx().clone();
    cx.spawn("waiting", look(cx.clone(), running.directory.clone(), waiting.clone(), name));
    waiting
}

async fn look(
    cx: Cx,
    links: Directory,
    waiting: Waiting,
    name: impl Fn(NodeId) -> Option<String> + 'static,
) {
    let mut told: BTreeMap<NodeId, String> = BTreeMap::new();
    loop {
        cx.sleep(LOOK_PERIOD).await;
        let since = waiting.0.get();
        let long = since.is_some_and(|since| cx.now().since(since) >= QUIET_SPAN);
        let silent = if long { silent(&cx, &links) } else { BTreeMap::new() };
        told.retain(|id, called| {
            let back = is_connected(&links, *id) && !silent.contains_key(id);
            if back {
                progress::tell(&format!("trapeze: {called} answers again"));
            }
            !back
        });
        for (id, why) in silent {
            // Other clients, and what was declared gone, are not waited for.
            let Some(called) = name(id) else { continue };
            if told.insert(id, called.clone()).is_none() {
                progress::tell(&format!("trapeze: waiting for {called}: {why}"));
            }
        }
    }
}

fn is_connected(links: &Directory, id: NodeId) -> bool {
    links.status().get(&id).is_some_and(|status| !status.transport.is_empty())
}

/// The nodes that are asked something and have not answered for long, or cannot be reached, and why.
fn silent(cx: &Cx, links: &Directory) -> BTreeMap<NodeId, String> {
    let mut silent: BTreeMap<NodeId, String> = BTreeMap::new();
    for (id, since) in cx.oldest_calls() {
        if cx.now().since(since) >= QUIET_SPAN {
            silent.insert(id, "it does not answer".to_string());
        }
    }
    for (id, status) in links.status() {
        if status.transport.is_empty() && !status.last_error.is_empty() {
            silent.insert(id, status.last_error);
        }
    }
    silent
}
