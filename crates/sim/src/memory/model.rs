//! Contents of every version of every page, and the versions that must be readable: the checker of network memory.
//!
//! It knows the programs' writes and their results, and nothing of how the service works. Bytes say themselves which
//! page and version they are, and which of possibly several attempts to write it.

use crate::queue::Picos;
use netmem::service::GetError;
use netmem::{Class, PageId, SpaceId, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use wire::{NodeId, mix};

/// Contents of a page that are remembered.
const CONTENTS_KEPT: usize = 64;

/// One attempt to write a version of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content {
    /// The version.
    pub version: Version,
    /// The attempt: unique in a run.
    pub attempt: u64,
}

/// Most that a copy may go on being read after a newer version is durable: until its holder has been told, or has been
/// given up and knows it.
const STALE_MAX: Picos = Picos::seconds(4);

const HEAD_BYTES: usize = 32;

fn word(id: PageId, content: Content, at: usize) -> u64 {
    mix(mix(id.space.0 ^ content.attempt.rotate_left(32))
        ^ id.index
        ^ content.version.0 << 20
        ^ at as u64)
}

/// The bytes of a content. `bytes` is a multiple of 8 and at least 32.
pub fn fill(bytes: &mut [u8], id: PageId, content: Content) {
    let head = [id.space.0, id.index, content.version.0, content.attempt];
    let (front, rest) = bytes.split_at_mut(HEAD_BYTES);
    front
        .chunks_exact_mut(8)
        .zip(head)
        .for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    for (at, to) in rest.chunks_exact_mut(8).enumerate() {
        to.copy_from_slice(&word(id, content, at).to_le_bytes());
    }
}

/// The page and content that bytes belong to; `None` when they are no page's.
pub fn parse(bytes: &[u8]) -> Option<(PageId, Content)> {
    let (front, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let mut words =
        front.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let mut next = || words.next().expect("four words");
    let id = PageId { space: SpaceId(next()), index: next() };
    let content = Content { version: Version(next()), attempt: next() };
    let fits = |(at, bytes): (usize, &[u8])| *bytes == word(id, content, at).to_le_bytes();
    rest.chunks_exact(8).enumerate().all(fits).then_some((id, content))
}

/// State of a page.
#[derive(Debug, Default)]
struct Known {
    class: Class,
    /// Contents that its bytes may be.
    contents: BTreeSet<Content>,
    /// The newest that a program was told is durable.
    durable: Option<Content>,
    /// When versions became durable: those of the last [`STALE_MAX`], and one before them.
    since: VecDeque<(Picos, Version)>,
    /// More went down than its class stands.
    at_risk: bool,
}

impl Known {
    fn note_durable(&mut self, now: Picos, version: Version) {
        self.since.push_back((now, version));
        while self.since.get(1).is_some_and(|(at, _)| *at + STALE_MAX <= now) {
            self.since.pop_front();
        }
    }
}

/// The checker.
#[derive(Debug, Default)]
pub struct Model {
    pages: BTreeMap<PageId, Known>,
    /// Spaces that are being freed, and whether that has ended.
    freed: BTreeMap<SpaceId, bool>,
    attempts: u64,
    /// The newest content that was begun before several nodes were lost at once.
    overtaken: u64,
    /// A node has gone down not long ago: an answer of its last moments may still be on its way.
    unsettled: bool,
    now: Picos,
    /// Violations so far.
    pub violations: Vec<String>,
}

/// A request for a page, as its program remembers it.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest {
    /// The node that asked.
    pub node: NodeId,
    /// For what.
    pub id: PageId,
    /// The oldest version that would do.
    pub at_least: Version,
    /// The one that had to be readable when it was asked for; 0 is none.
    pub durable: Version,
    /// The one that had been durable so long that none before it may come; 0 is none.
    pub settled: Version,
    /// Whether the space had been freed before.
    pub after_free: bool,
    /// Nothing is wrong any more: an answer must come.
    pub at_rest: bool,
}

impl Model {
    fn violation(&mut self, text: fmt::Arguments<'_>) {
        self.violations.push(text.to_string());
    }

    /// It is so late; `unsettled`: a node has gone down not long ago.
    pub fn handle_time(&mut self, now: Picos, unsettled: bool) {
        (self.now, self.unsettled) = (now, unsettled);
    }

    /// A node begins to write a version.
    pub fn begin(&mut self, id: PageId, class: Class, version: Version) -> Content {
        self.attempts += 1;
        let content = Content { version, attempt: self.attempts };
        let known = self.pages.entry(id).or_default();
        known.class = class;
        known.contents.insert(content);
        content
    }

    /// It was refused: no node can see it.
    pub fn refused(&mut self, id: PageId, content: Content) {
        if let Some(known) = self.pages.get_mut(&id) {
            known.contents.remove(&content);
        }
    }

    /// The writer was told that the version is durable.
    pub fn acknowledged(&mut self, id: PageId, content: Content) {
        if self.freed.contains_key(&id.space) {
            return;
        }
        let Some(known) = self.pages.get_mut(&id) else { return };
        let before = known.durable.filter(|before| before.version >= content.version);
        if let Some(before) = before {
            if before.version == content.version && before != content {
                let text =
                    format!("{id}: two contents of version {} are durable", content.version.0);
                self.violations.push(text);
            }
            return;
        }
        // A node that says that it has the page may be gone when its word arrives.
        let at_risk = self.unsettled
            && match known.class {
                Class::Volatile => true,
                Class::Mirrored => content.attempt <= self.overtaken,
                Class::WriteBack => false,
            };
        (known.durable, known.at_risk) = (Some(content), at_risk);
        known.note_durable(self.now, content.version);
        // not by number: between two leases of a shared page there are many versions that are never written
        while known.contents.len() > CONTENTS_KEPT {
            known.contents.pop_first();
        }
    }

    /// The newest version that must be readable; 0 where there is none.
    pub fn durable(&self, id: PageId) -> Version {
        let known = self.pages.get(&id).filter(|known| !known.at_risk);
        known.and_then(|known| known.durable).map_or(Version(0), |content| content.version)
    }

    /// The newest version that has been durable for [`STALE_MAX`]; 0 where there is none.
    fn settled(&self, id: PageId) -> Version {
        let known = self.pages.get(&id).filter(|known| !known.at_risk);
        let old = |(at, _): &&(Picos, Version)| *at + STALE_MAX <= self.now;
        let found = known.and_then(|known| known.since.iter().rev().find(old));
        found.map_or(Version(0), |(_, version)| *version)
    }

    /// The results that a program which requests a page now may get.
    pub fn ask(&self, node: NodeId, id: PageId, at_least: Version, at_rest: bool) -> PageRequest {
        let (durable, settled) = (self.durable(id), self.settled(id));
        PageRequest {
            node,
            id,
            at_least,
            durable,
            settled,
            after_free: self.is_freed(id.space),
            at_rest,
        }
    }

    /// Pages that must be readable, of spaces that `concerns` names.
    pub fn readable(&self, concerns: impl Fn(SpaceId) -> bool) -> Vec<PageId> {
        let must = |(id, known): &(&PageId, &Known)| {
            known.durable.is_some() && !known.at_risk && concerns(id.space)
        };
        self.pages.iter().filter(must).map(|(id, _)| *id).collect()
    }

    /// A node frees a space: from now on its pages may be gone.
    pub fn begin_free(&mut self, space: SpaceId) {
        self.freed.insert(space, false);
    }

    /// That has ended: from now on nothing of it may come back.
    pub fn end_free(&mut self, space: SpaceId) {
        self.freed.insert(space, true);
    }

    /// Whether that has ended.
    pub fn is_freed(&self, space: SpaceId) -> bool {
        self.freed.get(&space) == Some(&true)
    }

    /// A node has lost its membership, alone or while others had or while mirrors of an earlier one were missing. Its
    /// process may go on: of its own spaces it has then what stable storage has and what it [keeps](Model::kept).
    pub fn node_down(&mut self, node: NodeId, alone: bool) {
        self.unsettled = true;
        if !alone {
            self.overtaken = self.attempts;
        }
        for (id, known) in &mut self.pages {
            let stands = match known.class {
                Class::WriteBack => true,
                _ if id.space.owner() == Some(node) => false,
                Class::Mirrored => alone,
                Class::Volatile => false,
            };
            known.at_risk |= !stands;
        }
    }

    /// A node's process has ended, and its own spaces with it.
    pub fn process_ended(&mut self, node: NodeId) {
        self.pages.retain(|id, _| id.space.owner() != Some(node));
    }

    /// A node that goes on in another incarnation has this version of a page of its own.
    pub fn kept(&mut self, id: PageId, version: Version) {
        if let Some(known) = self.pages.get_mut(&id) {
            known.at_risk &= known.durable.is_some_and(|durable| durable.version > version);
        }
    }

    /// A request has brought a page.
    pub fn delivered(&mut self, asked: PageRequest, version: Version, bytes: &[u8]) {
        let PageRequest { node, id, at_least, settled, after_free, .. } = asked;
        let Some((found, content)) = parse(bytes) else {
            let zeros =
                if bytes.iter().all(|byte| *byte == 0) { "zeros" } else { "nobody's bytes" };
            return self
                .violation(format_args!("{node} got {zeros} for version {} of {id}", version.0));
        };
        if after_free {
            self.violation(format_args!("{node} got {id} of a space that was freed before"));
        }
        if found != id || content.version != version {
            let text = format_args!(
                "{node} got {found} version {} for {id} version {}",
                content.version.0, version.0
            );
            return self.violation(text);
        }
        if version < at_least {
            self.violation(format_args!(
                "{node} got version {} of {id}, asked for {}",
                version.0, at_least.0
            ));
        }
        let at_risk = self.pages.get(&id).is_none_or(|known| known.at_risk);
        if version < settled && !at_risk {
            self.violation(format_args!(
                "{node} got version {} of {id}, long after {} was durable",
                version.0, settled.0
            ));
        }
        self.check_content(node, id, content);
    }

    fn check_content(&mut self, node: NodeId, id: PageId, content: Content) {
        let Some(known) = self.pages.get(&id) else { return };
        let version = content.version.0;
        if !known.contents.contains(&content) {
            self.violation(format_args!(
                "{node} got a content of {id} version {version} that was refused or is long over"
            ));
        } else if known
            .durable
            .is_some_and(|durable| durable.version == content.version && durable != content)
        {
            self.violation(format_args!(
                "{node} got another content of {id} version {version} than the durable one"
            ));
        }
    }

    /// A request has failed.
    pub fn failed(&mut self, asked: PageRequest, error: &GetError) {
        let PageRequest { node, id, at_least, durable, at_rest, .. } = asked;
        let freed = self.freed.contains_key(&id.space);
        let still = !freed && self.pages.get(&id).is_some_and(|known| !known.at_risk);
        let must = Some(durable).filter(|durable| still && durable.0 > 0 && *durable >= at_least);
        let wrong = match error {
            GetError::Freed => !freed,
            GetError::Unknown => must.is_some(),
            GetError::Lost(lost) => must.is_some_and(|durable| *lost <= durable || at_rest),
            GetError::Unavailable | GetError::NoMemory | GetError::Backing(_) => {
                at_rest && must.is_some()
            }
        };
        if wrong {
            let (least, durable) = (at_least.0, durable.0);
            self.violation(format_args!(
                "{node} asked for {id} from version {least} on, {durable} is durable: {error}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PageId = PageId { space: SpaceId::shared(3), index: 7 };
    const NODE: NodeId = NodeId(2);

    fn asked(at_least: u64) -> PageRequest {
        PageRequest {
            durable: Version(5),
            ..Model::default().ask(NODE, ID, Version(at_least), false)
        }
    }

    fn bytes(id: PageId, content: Content) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        fill(&mut bytes, id, content);
        bytes
    }

    /// A model in which version 5 was acknowledged.
    fn model() -> (Model, Content) {
        let mut model = Model::default();
        let content = model.begin(ID, Class::Mirrored, Version(5));
        model.acknowledged(ID, content);
        (model, content)
    }

    fn delivered(asked: PageRequest, version: u64, bytes: &[u8]) -> usize {
        let (mut model, _) = model();
        model.delivered(asked, Version(version), bytes);
        model.violations.len()
    }

    #[test]
    fn only_what_was_written_is_right() {
        let (_, content) = model();
        let good = bytes(ID, content);
        assert_eq!(delivered(asked(5), 5, &good), 0);
        assert_eq!(delivered(asked(6), 5, &good), 1);
        assert_eq!(delivered(asked(5), 6, &good), 1);
        assert_eq!(delivered(PageRequest { after_free: true, ..asked(5) }, 5, &good), 1);
        assert_eq!(delivered(asked(5), 5, &[0; 4096]), 1);
        let mut bent = good.clone();
        bent[4000] ^= 1;
        assert_eq!(delivered(asked(5), 5, &bent), 1);
        let other = bytes(PageId { index: 8, ..ID }, content);
        assert_eq!(delivered(asked(5), 5, &other), 1);
        let unwritten = bytes(ID, Content { attempt: 99, ..content });
        assert_eq!(delivered(asked(5), 5, &unwritten), 1);
    }

    #[test]
    fn what_is_long_overtaken_is_wrong() {
        let (mut model, old) = model();
        let new = model.begin(ID, Class::Mirrored, Version(6));
        model.acknowledged(ID, new);
        let mut read_at = |now| {
            model.now = now;
            let asked = model.ask(NODE, ID, Version(0), false);
            model.delivered(asked, old.version, &bytes(ID, old));
            std::mem::take(&mut model.violations).len()
        };
        assert_eq!((read_at(STALE_MAX - Picos::millis(1)), read_at(STALE_MAX)), (0, 1));
        model.node_down(NODE, false);
        let asked = model.ask(NODE, ID, Version(0), false);
        model.delivered(asked, old.version, &bytes(ID, old));
        assert_eq!(model.violations.len(), 0);
    }

    #[test]
    fn what_is_durable_must_be_there_unless_more_went_down_than_its_class_stands() {
        let failed = |model: &mut Model, error| {
            model.failed(asked(5), &error);
            std::mem::take(&mut model.violations).len()
        };
        let (mut model, _) = model();
        assert_eq!(failed(&mut model, GetError::Unknown), 1);
        assert_eq!(failed(&mut model, GetError::Lost(Version(5))), 1);
        assert_eq!(failed(&mut model, GetError::Freed), 1);
        assert_eq!(failed(&mut model, GetError::Unavailable), 0);
        model.failed(PageRequest { at_rest: true, ..asked(5) }, &GetError::Unavailable);
        assert_eq!(std::mem::take(&mut model.violations).len(), 1);
        model.node_down(NODE, true);
        assert_eq!(failed(&mut model, GetError::Unknown), 1);
        model.node_down(NODE, false);
        assert_eq!(failed(&mut model, GetError::Unknown), 0);
    }

    #[test]
    fn what_was_stored_where_several_were_lost_may_be_acknowledged_after() {
        let lost_after = |alone| {
            let mut model = Model::default();
            let old = model.begin(ID, Class::Mirrored, Version(5));
            model.node_down(NODE, alone);
            model.acknowledged(ID, old);
            let before = model.durable(ID);
            let new = model.begin(ID, Class::Mirrored, Version(6));
            model.acknowledged(ID, new);
            (before, model.durable(ID))
        };
        assert_eq!(lost_after(true), (Version(5), Version(6)));
        assert_eq!(lost_after(false), (Version(0), Version(6)));
    }

    #[test]
    fn what_was_told_when_nothing_is_wrong_any_more_is_there() {
        let mut model = Model::default();
        let old = model.begin(ID, Class::Mirrored, Version(5));
        model.node_down(NODE, false);
        model.unsettled = false;
        model.acknowledged(ID, old);
        assert_eq!(model.durable(ID), Version(5));
    }

    #[test]
    fn of_its_own_pages_a_node_that_goes_on_must_have_what_it_kept() {
        let id = PageId { space: SpaceId::private(NODE, 3), index: 7 };
        let (mut model, asked) = (Model::default(), PageRequest { id, ..asked(5) });
        let content = model.begin(id, Class::Mirrored, Version(5));
        model.acknowledged(id, content);
        model.node_down(NODE, true);
        model.kept(id, Version(4));
        model.failed(asked, &GetError::Lost(Version(5)));
        assert_eq!(model.violations.len(), 0);
        model.kept(id, Version(5));
        model.failed(asked, &GetError::Lost(Version(5)));
        assert_eq!(model.violations.len(), 1);
        model.process_ended(NODE);
        assert_eq!(model.durable(id), Version(0));
    }

    #[test]
    fn a_version_has_one_durable_content() {
        let (mut model, _) = model();
        let other = model.begin(ID, Class::Mirrored, Version(5));
        model.acknowledged(ID, other);
        assert_eq!(model.violations.len(), 1);
    }
}
