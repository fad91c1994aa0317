//! The frames of one node: which page is in which frame, in which role, and which leaves next.
//!
//! ```text
//!            install            second chance
//!   free ─────────────► local ◄───────────────┐
//!    ▲ ▲                  │ oldest            │ refault
//!    │ └──── release ──── staged ─────────────┘
//!    │                    a queue of a tenth: what is used there again goes back
//!    │ accept  ┌────────► hosted   clean pages of others, given up at once
//!    └─────────┤             ▲ settled
//!              └────────► mirror   dirty pages of others, kept until told
//!   free ───────────────► ahead    fetched before anybody asked: local when used, the first to leave when it is late
//!   free ◄──────────────► withheld the node may use fewer frames for a while
//! ```
//!
//! The table moves pages between roles and says what is to be done; who carries bytes is the service. `now` never goes
//! back.
//!
//! Invariants: the roles' counts sum up to the frames; a page is in one frame; a page is given up only when clean or
//! durable elsewhere; the staging queue holds at most a tenth of the frames; other nodes' pages never take the node's
//! own below its guaranteed minimum.

mod accept;
mod evict;
mod lists;
mod size;

use crate::ages::{Age, Histogram, Uses};
use crate::epoch::Digest;
use crate::index::Index;
use crate::limits::{CHANCES, DIGEST_FRAMES};
use crate::page::{PageId, SpaceId, Version};
pub use accept::{Accepted, Offer, Reason, Refused};
pub use evict::Eviction;
use lists::Lists;
pub use lists::{Counts, Role};
use wire::Time;

/// A frame, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameNo(pub u32);

/// When a dirty version may leave its writer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Stable storage has it (SOSP'95: global pages are always clean).
    #[default]
    WriteBack,
    /// Two other nodes have it.
    Mirrored,
    /// One other node has it; its loss is an error that the program sees.
    Volatile,
}

impl Class {
    /// Copies that make a version durable enough; `None` when only stable storage does.
    pub const fn copies(self) -> Option<u8> {
        match self {
            Class::WriteBack => None,
            Class::Mirrored => Some(2),
            Class::Volatile => Some(1),
        }
    }
}

/// Other places where a version is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage.
    #[default]
    Clean,
    /// In so many mirrors, not on stable storage.
    Dirty {
        /// Number of mirrors.
        copies: u8,
    },
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The page.
    pub id: PageId,
    /// Its content.
    pub version: Version,
    /// When that may leave.
    pub class: Class,
    /// Other places where that version is.
    pub durability: Durability,
    /// Last known use.
    pub used: Time,
    /// Uses that it has to spend.
    pub uses: Uses,
    /// Another node has a copy, as far as is known.
    pub duplicate: bool,
    /// Times that it may still be passed on without a use.
    pub chances: u8,
    /// It was used again since it was read from disk, here or from another node's memory.
    pub reused: bool,
    /// Of a page that was fetched ahead of its use, when that is given up.
    pub until: Time,
    /// Its bytes are being sent: it keeps its frame.
    pub busy: bool,
    /// Another node may have this version: another write makes another one.
    seen: bool,
}

impl Page {
    /// Whether the version survives without this frame.
    pub fn is_durable(&self) -> bool {
        match self.durability {
            Durability::Clean => true,
            Durability::Dirty { copies } => {
                self.class.copies().is_some_and(|needed| copies >= needed)
            }
        }
    }

    /// The age that counts.
    pub fn age(&self, now: Time) -> Age {
        Age::since(self.used, now).effective(self.uses)
    }
}

/// A page of the node's own that has arrived, from stable storage or from another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The page.
    pub id: PageId,
    /// Its content.
    pub version: Version,
    /// When what is written to it may leave.
    pub class: Class,
    /// Other places where that version is.
    pub durability: Durability,
    /// The sender has kept a copy.
    pub duplicate: bool,
    /// It came from network memory: this is not its first use.
    pub reused: bool,
    /// It was not asked for yet: if that is so then, it is the first page to leave.
    pub ahead_until: Option<Time>,
}

/// Why a page was not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotInstalled {
    /// No frame is free: make room first.
    NoRoom,
    /// It is there already, in this frame.
    Present(FrameNo),
}

/// Why a page is not given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its bytes are on their way.
    Busy,
    /// They would be lost.
    NotDurable,
}

/// The size of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// All frames.
    pub frames: u32,
    /// Frames that the node's own pages may have whatever others want.
    pub local_min: u32,
    /// Whether uses are counted, for second chances and effective ages.
    pub counts_uses: bool,
}

/// The table.
#[derive(Debug)]
pub struct Memory {
    config: MemoryConfig,
    /// Frames that pages may have now, of all.
    size: u32,
    pages: Box<[Page]>,
    lists: Lists,
    index: Index,
    ahead: Ahead,
    /// Pages of the node's own that had to go for others' when they were no more than it is guaranteed: none.
    squeezed: u64,
}

/// The fate of pages that were fetched ahead of their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Used.
    pub used: u64,
    /// Gone before anybody asked for them.
    pub wasted: u64,
}

impl Memory {
    /// With all frames free. Takes its memory now and never more.
    pub fn new(config: MemoryConfig) -> Memory {
        assert!(config.frames > 0 && config.local_min <= config.frames);
        let frames = config.frames as usize;
        Memory {
            config,
            size: config.frames,
            pages: vec![Page::default(); frames].into(),
            lists: Lists::new(config.frames),
            index: Index::new(frames),
            ahead: Ahead::default(),
            squeezed: 0,
        }
    }

    /// Frames by role.
    pub fn counts(&self) -> Counts {
        let counts = self.lists.counts();
        assert_eq!(counts.total(), self.config.frames, "every frame has one role");
        counts
    }

    /// Blocks of 4 KiB that the pages of each role take: one each, unless [`set_blocks`](Memory::set_blocks) says more.
    pub fn blocks(&self) -> Counts {
        self.lists.blocks()
    }

    /// Says how many blocks what is in a frame takes.
    pub fn set_blocks(&mut self, frame: FrameNo, blocks: u8) {
        self.lists.set_blocks(frame.0, blocks);
    }

    /// The fate of pages that were fetched ahead of their use.
    pub fn ahead(&self) -> Ahead {
        self.ahead
    }

    /// Times that another node's page took a frame of those that the node's own are guaranteed. For those who check
    /// that it is never: tests and the simulator.
    pub fn squeezed(&self) -> u64 {
        self.squeezed
    }

    /// The frame that holds a page.
    pub fn find(&self, id: PageId) -> Option<FrameNo> {
        self.index.find(id, |frame| self.pages[frame as usize].id).map(FrameNo)
    }

    /// The role of a frame.
    pub fn role(&self, frame: FrameNo) -> Role {
        match self.lists.role(frame.0) {
            Role::Passing => Role::Hosted,
            role => role,
        }
    }

    /// The page in a frame; `None` in a free one.
    pub fn page(&self, frame: FrameNo) -> Option<&Page> {
        (!self.role(frame).is_empty()).then(|| &self.pages[frame.0 as usize])
    }

    /// A page of the node's own takes a free frame.
    pub fn install(&mut self, now: Time, arrival: Arrival) -> Result<FrameNo, NotInstalled> {
        if let Some(frame) = self.find(arrival.id) {
            return Err(NotInstalled::Present(frame));
        }
        let frame = self.lists.oldest(Role::Free).ok_or(NotInstalled::NoRoom)?;
        let Arrival { id, version, class, durability, duplicate, reused, ahead_until } = arrival;
        let until = ahead_until.unwrap_or_default();
        let page =
            Page { id, version, class, durability, duplicate, reused, until, ..Page::new(now) };
        let role = if ahead_until.is_some() { Role::Ahead } else { Role::Local };
        self.fill(frame, role, page);
        Ok(FrameNo(frame))
    }

    /// The node's own program uses a page. It is local from now on, unless it is a mirror, which stays one.
    pub fn handle_use(&mut self, now: Time, frame: FrameNo) {
        self.touch(now, frame);
        if self.role(frame) != Role::Mirror {
            self.lists.put(frame.0, Role::Local);
        }
    }

    /// Another node fetches a copy of a page, which stays here.
    pub fn handle_copied(&mut self, now: Time, frame: FrameNo) {
        self.page_mut(frame).duplicate = true;
        self.handle_read(now, frame);
    }

    /// Another node reads of a page here, and keeps no copy.
    pub fn handle_read(&mut self, now: Time, frame: FrameNo) {
        let role = self.role(frame);
        if role == Role::Hosted {
            self.touch(now, frame);
            self.lists.put(frame.0, role);
        }
    }

    /// Another node fetches a copy of a page before anybody there has asked for it: that is no use.
    pub fn handle_copied_ahead(&mut self, frame: FrameNo) {
        self.page_mut(frame).duplicate = true;
    }

    /// A page that was taken in will be used before long: until it is as old as it was said to be when it was offered,
    /// it counts as younger than what is offered after it.
    pub fn handle_awaited(&mut self, now: Time, frame: FrameNo) {
        self.page_mut(frame).used = now;
    }

    /// The directory knows of no other copy any more.
    pub fn handle_single(&mut self, frame: FrameNo) {
        self.page_mut(frame).duplicate = false;
    }

    /// The node's own program writes to a page. Returns the version that its bytes now are: a new one, when another
    /// node may have seen the last. `None` of a mirror: another node's program writes there.
    pub fn handle_write(&mut self, now: Time, frame: FrameNo) -> Option<Version> {
        if self.role(frame) == Role::Mirror {
            return None;
        }
        self.handle_use(now, frame);
        let page = self.page_mut(frame);
        if page.seen || page.durability == Durability::Clean {
            page.version.0 += 1;
            (page.seen, page.duplicate) = (false, false);
            page.durability = Durability::Dirty { copies: 0 };
        }
        Some(page.version)
    }

    /// The node's own program has put new content into a page, and says which version that is. Counts only when that is
    /// newer than what is here, which no other node's program wrote; says whether it does. It is dirty then.
    pub fn overwrite(&mut self, now: Time, frame: FrameNo, version: Version, class: Class) -> bool {
        if self.role(frame) == Role::Mirror || version <= self.page_mut(frame).version {
            return false;
        }
        self.handle_use(now, frame);
        let page = self.page_mut(frame);
        (page.version, page.class) = (version, class);
        (page.seen, page.duplicate) = (false, false);
        page.durability = Durability::Dirty { copies: 0 };
        true
    }

    /// The pages in all frames that are not free, in the order of the frames.
    pub fn pages(&self) -> impl Iterator<Item = (FrameNo, Role, &Page)> {
        let all = (0..self.config.frames).map(FrameNo);
        all.filter_map(|frame| Some((frame, self.role(frame), self.page(frame)?)))
    }

    /// A page's bytes begin to leave, as an answer or for a copy.
    pub fn handle_sending(&mut self, frame: FrameNo) {
        let page = self.page_mut(frame);
        (page.busy, page.seen) = (true, true);
    }

    /// They have left, or will not.
    pub fn handle_sent(&mut self, frame: FrameNo) {
        self.page_mut(frame).busy = false;
    }

    /// A mirror has a version. Counts if it is the present one; says whether it is.
    pub fn handle_stored(&mut self, frame: FrameNo, version: Version) -> bool {
        let page = self.page_mut(frame);
        match &mut page.durability {
            Durability::Dirty { copies } if page.version == version => {
                *copies = copies.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    /// A mirror of a version has gone down. Counts if it is the present one; says whether it is.
    pub fn handle_mirror_lost(&mut self, frame: FrameNo, version: Version) -> bool {
        let page = self.page_mut(frame);
        match &mut page.durability {
            Durability::Dirty { copies } if page.version == version => {
                *copies = copies.saturating_sub(1);
                true
            }
            _ => false,
        }
    }

    /// Stable storage has a version. If it is the present one, the page is clean, and a mirror no more than hosted.
    /// Says whether it is.
    pub fn handle_written(&mut self, frame: FrameNo, version: Version) -> bool {
        let role = self.role(frame);
        let page = self.page_mut(frame);
        if page.version != version {
            return false;
        }
        page.durability = Durability::Clean;
        if role == Role::Mirror {
            self.lists.put(frame.0, Role::Hosted);
        }
        true
    }

    /// Gives a page up, if nothing is lost by that. A mirror is never given up so: it is dirty, and its own copy is not
    /// for this node to count on.
    pub fn release(&mut self, frame: FrameNo) -> Result<Page, Kept> {
        let page = *self.page_mut(frame);
        if page.busy {
            return Err(Kept::Busy);
        }
        if !page.is_durable() {
            return Err(Kept::NotDurable);
        }
        self.clear(frame.0);
        Ok(page)
    }

    /// The directory has a newer version of a page: what is here is worth nothing, and is given up unless its bytes are
    /// just leaving. Says whether it was.
    pub fn handle_superseded(&mut self, frame: FrameNo, newer: Version) -> bool {
        let page = *self.page_mut(frame);
        let goes = page.version < newer && !page.busy;
        if goes {
            self.clear(frame.0);
        }
        goes
    }

    /// Its owner has freed a space: every page of it goes, dirty ones too. Answers with the number of pages whose bytes
    /// are just leaving, for which it must be called again. Takes time for every frame.
    pub fn free_space(&mut self, space: SpaceId) -> u32 {
        self.free_pages(|id| id.space == space)
    }

    /// As [`free_space`](Memory::free_space), of the pages that are named.
    pub fn free_pages(&mut self, is_freed: impl Fn(PageId) -> bool) -> u32 {
        let mut busy = 0;
        for frame in 0..self.config.frames {
            let page = self.pages[frame as usize];
            match !self.lists.role(frame).is_empty() && is_freed(page.id) {
                true if page.busy => busy += 1,
                true => self.clear(frame),
                false => (),
            }
        }
        busy
    }

    /// This node's digest for the initiator, without what only the service knows. Takes time for every frame, at most
    /// for [`DIGEST_FRAMES`](crate::limits::DIGEST_FRAMES): of more it is a sample.
    pub fn digest(&self, now: Time) -> Digest {
        let (mut local, mut hosted) = (Histogram::default(), Histogram::default());
        let step = self.pages.len().div_ceil(DIGEST_FRAMES);
        for frame in (0..self.config.frames).step_by(step) {
            let page = &self.pages[frame as usize];
            match self.lists.role(frame) {
                Role::Local | Role::Staged | Role::Ahead => local.add(page.age(now), step as u32),
                Role::Hosted | Role::Passing => hosted.add(page.age(now), step as u32),
                Role::Mirror | Role::Free | Role::Withheld => (),
            }
        }
        Digest {
            capacity: self.size,
            local_min: self.local_min(),
            free: self.counts().free,
            local,
            hosted,
            oldest: self.oldest_taken(now),
            ..Digest::default()
        }
    }

    /// The page in a frame that is not free. Panics in a free one: the caller lost track.
    fn page_mut(&mut self, frame: FrameNo) -> &mut Page {
        assert!(!self.lists.role(frame.0).is_empty(), "frame {} holds nothing", frame.0);
        &mut self.pages[frame.0 as usize]
    }

    fn touch(&mut self, now: Time, frame: FrameNo) {
        if self.role(frame) == Role::Ahead {
            self.ahead.used += 1;
            // its first use, as if it had been fetched only now
            return self.page_mut(frame).used = now;
        }
        let counts = self.config.counts_uses;
        let page = self.page_mut(frame);
        (page.used, page.chances, page.reused) = (now, CHANCES, true);
        if counts {
            page.uses.hit();
        }
    }

    fn fill(&mut self, frame: u32, role: Role, page: Page) {
        assert!(self.lists.role(frame).is_empty(), "frame {frame} holds a page");
        assert!(!role.is_empty(), "a page has a role");
        self.pages[frame as usize] = page;
        self.index.insert(page.id, frame, |frame| self.pages[frame as usize].id);
        self.lists.put(frame, role);
        self.lists.set_blocks(frame, 1);
    }

    fn clear(&mut self, frame: u32) {
        self.ahead.wasted += u64::from(self.lists.role(frame) == Role::Ahead);
        let Page { id, busy, .. } = self.pages[frame as usize];
        assert!(!busy, "the bytes of frame {frame} are just leaving");
        self.index.remove(id, |frame| self.pages[frame as usize].id);
        self.lists.set_blocks(frame, 0);
        self.lists.put(frame, Role::Free);
        self.withhold();
    }
}

impl Page {
    fn new(used: Time) -> Page {
        Page { used, seen: true, chances: CHANCES, ..Page::default() }
    }
}

#[cfg(test)]
mod tests;
