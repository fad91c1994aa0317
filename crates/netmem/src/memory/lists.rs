//! Every frame is on one list, that of its role; so the roles' counts sum up to the frames by construction.

/// The role of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Nothing.
    Free,
    /// A page of the node's own program.
    Local,
    /// Another node's clean page (SOSP'95: a global page).
    Hosted,
    /// Another node's dirty page, which must not be lost.
    Mirror,
    /// A page of the node's own on its way out.
    Staged,
    /// A page that was prefetched and has not been used yet.
    Ahead,
    /// A clean page of another node's cache that was used once since it was read from disk. To others it is a hosted
    /// one.
    Passing,
    /// Nothing: the frame is beyond the node's present size, and no page may use it.
    Withheld,
}

impl Role {
    /// Whether the page is here for the node's own program.
    pub fn is_own(self) -> bool {
        matches!(self, Role::Local | Role::Staged | Role::Ahead)
    }

    /// Whether there is no page.
    pub fn is_empty(self) -> bool {
        matches!(self, Role::Free | Role::Withheld)
    }
}

const ROLES: usize = 8;

/// Frames by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Without a page.
    pub free: u32,
    /// With the node's own pages.
    pub local: u32,
    /// With other nodes' clean pages.
    pub hosted: u32,
    /// With other nodes' dirty pages.
    pub mirror: u32,
    /// With the node's own pages on their way out.
    pub staged: u32,
    /// With pages that were fetched ahead of their use.
    pub ahead: u32,
    /// Without a page, and beyond the node's present size.
    pub withheld: u32,
}

impl Counts {
    /// The node's own pages, those on their way out and those ahead of their use included.
    pub fn own(&self) -> u32 {
        self.local + self.staged + self.ahead
    }

    /// All frames.
    pub fn total(&self) -> u32 {
        self.free + self.own() + self.hosted + self.mirror + self.withheld
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    role: Role,
    /// Of the page.
    blocks: u8,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    len: u32,
    blocks: u32,
}

/// The lists, each from the frame that was put last to the one that was put first.
#[derive(Debug)]
pub struct Lists {
    links: Box<[Link]>,
    lists: [List; ROLES],
}

impl Lists {
    /// With all frames free; frame 0 is used first.
    pub fn new(frames: u32) -> Lists {
        let link = Link { role: Role::Free, blocks: 0, newer: NONE, older: NONE };
        let list = List { newest: NONE, oldest: NONE, len: 0, blocks: 0 };
        let mut lists = Lists { links: vec![link; frames as usize].into(), lists: [list; ROLES] };
        (0..frames).for_each(|frame| lists.push(frame, Role::Free));
        lists
    }

    pub fn role(&self, frame: u32) -> Role {
        self.links[frame as usize].role
    }

    pub fn len(&self, role: Role) -> u32 {
        self.lists[role as usize].len
    }

    pub fn counts(&self) -> Counts {
        self.by_role(|list| list.len)
    }

    /// Blocks by role.
    pub fn blocks(&self) -> Counts {
        self.by_role(|list| list.blocks)
    }

    fn by_role(&self, count: impl Fn(&List) -> u32) -> Counts {
        let of = |role| count(&self.lists[role as usize]);
        Counts {
            free: of(Role::Free),
            local: of(Role::Local),
            hosted: of(Role::Hosted) + of(Role::Passing),
            mirror: of(Role::Mirror),
            staged: of(Role::Staged),
            ahead: of(Role::Ahead),
            withheld: of(Role::Withheld),
        }
    }

    /// Blocks that the page in a frame takes.
    pub fn blocks_in(&self, frame: u32) -> u32 {
        self.links[frame as usize].blocks.into()
    }

    /// Says how many blocks the page in a frame takes.
    pub fn set_blocks(&mut self, frame: u32, blocks: u8) {
        let link = &mut self.links[frame as usize];
        let before = std::mem::replace(&mut link.blocks, blocks);
        let list = &mut self.lists[link.role as usize];
        list.blocks = list.blocks - u32::from(before) + u32::from(blocks);
    }

    /// Makes a frame the newest of a role.
    pub fn put(&mut self, frame: u32, role: Role) {
        self.unlink(frame);
        self.push(frame, role);
    }

    /// The oldest frame of a role.
    pub fn oldest(&self, role: Role) -> Option<u32> {
        self.old_end(role).next()
    }

    /// The frames of a role, from the oldest on.
    pub fn old_end(&self, role: Role) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.lists[role as usize].oldest;
        std::iter::from_fn(move || {
            let frame = (at != NONE).then_some(at)?;
            at = self.links[frame as usize].newer;
            Some(frame)
        })
    }

    fn push(&mut self, frame: u32, role: Role) {
        let list = &mut self.lists[role as usize];
        let behind = std::mem::replace(&mut list.newest, frame);
        list.len += 1;
        let blocks = self.links[frame as usize].blocks;
        list.blocks += u32::from(blocks);
        match behind {
            NONE => list.oldest = frame,
            behind => self.links[behind as usize].newer = frame,
        }
        assert_ne!(list.oldest, NONE, "a list with a newest frame has an oldest");
        self.links[frame as usize] = Link { role, blocks, newer: NONE, older: behind };
    }

    fn unlink(&mut self, frame: u32) {
        let Link { role, blocks, newer, older } = self.links[frame as usize];
        let list = &mut self.lists[role as usize];
        list.len -= 1;
        list.blocks -= u32::from(blocks);
        match newer {
            NONE => list.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.lists[role as usize].oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_are_queues(ops in prop::collection::vec((0u32..9, 0usize..8), 0..200)) {
            const ALL: [Role; 8] = [
                Role::Free,
                Role::Local,
                Role::Hosted,
                Role::Mirror,
                Role::Staged,
                Role::Ahead,
                Role::Withheld,
                Role::Passing,
            ];
            let mut lists = Lists::new(9);
            let mut model = vec![vec![]; ALL.len()];
            model[0] = (0..9).collect::<Vec<u32>>();
            (0..9).for_each(|frame| lists.set_blocks(frame, frame as u8));
            for (frame, role) in ops {
                model.iter_mut().for_each(|list| list.retain(|other| *other != frame));
                model[role].push(frame);
                lists.put(frame, ALL[role]);
                for (role, list) in ALL.iter().zip(&model) {
                    prop_assert_eq!(&lists.old_end(*role).collect::<Vec<u32>>(), list);
                    prop_assert_eq!(lists.len(*role) as usize, list.len());
                    prop_assert_eq!(lists.lists[*role as usize].blocks, list.iter().sum::<u32>());
                }
                prop_assert_eq!((lists.counts().total(), lists.blocks().total()), (9, 36));
            }
        }
    }
}
