//! Links and crossbars of a wormhole network: a packet holds every channel of its path from its head to its tail.
//!
//! Nothing is stored on the way and nothing is dropped. When the receiver takes no more, the packet stands
//! still where it is and holds its channels: that is back-pressure, and what waits behind it waits too (HPDC'97
//! section 2.3; forwarding paper, section 4). Channels are claimed in the order of the path, each first come,
//! first served. Paths go up a tree of crossbars and down again, so that no circle of packets can wait for each
//! other.

use super::flow::Rate;
use super::preset::Section;
use crate::queue::Picos;
use crate::source::Fault;
use std::collections::VecDeque;

/// A kind of link and the crossbars it is plugged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bytes a second, each way.
    pub rate: Rate,
    /// Time of a packet's head over one cable.
    pub cable: Picos,
    /// Time of a packet's head through one crossbar.
    pub crossing: Picos,
    /// Ports of a crossbar.
    pub ports: u64,
    /// Bytes that a packet has beside its message: route, type, CRC; or frame header, gap and preamble.
    pub framing: u64,
}

impl Link {
    /// Reads the table [link].
    pub fn read(table: &Section<'_>) -> Result<Link, Fault> {
        Ok(Link {
            rate: table.rate("rate", 1_000_000..=1_000_000_000_000)?,
            cable: table.time("cable", Picos::millis(1))?,
            crossing: table.time("crossing", Picos::millis(1))?,
            ports: table.count("ports", 2..=1_024)?,
            framing: table.size("framing", 0..=256)?,
        })
    }
}

impl Link {
    /// Most adapters on two levels of crossbars: a port of each leaf goes to the root, a port of the root to each leaf.
    pub fn adapters_max(&self) -> usize {
        (self.ports * (self.ports - 1)) as usize
    }
}

/// Most channels on a path: up to a leaf crossbar, to the root, to another leaf, down.
pub const PATH_MAX: usize = 4;

/// The channels a packet goes over, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    channels: [u16; PATH_MAX],
    length: u8,
}

impl Path {
    /// The channels.
    pub fn channels(&self) -> &[u16] {
        &self.channels[..usize::from(self.length)]
    }

    fn of(channels: &[usize]) -> Path {
        let mut path = Path { length: channels.len() as u8, ..Path::default() };
        let all = path.channels.iter_mut().zip(channels);
        all.for_each(|(place, channel)| *place = u16::try_from(*channel).expect("few channels"));
        path
    }
}

#[derive(Clone, Debug, Default)]
struct Channel {
    owner: Option<u32>,
    waiting: VecDeque<u32>,
}

/// All channels between the adapters of a world. Packets are known by tickets, which their sender gives.
#[derive(Clone, Debug)]
pub struct Fabric {
    link: Link,
    adapters: usize,
    /// Adapters on each leaf crossbar.
    per_leaf: usize,
    channels: Vec<Channel>,
}

impl Fabric {
    /// `adapters` on crossbars of `link`'s size: on one if they fit, else on leaves that one root joins.
    ///
    /// Panics if more leaves are needed than the root has ports.
    pub fn new(link: Link, adapters: usize) -> Fabric {
        let ports = link.ports as usize;
        let per_leaf = if adapters <= ports { adapters.max(1) } else { ports - 1 };
        let leaves = adapters.div_ceil(per_leaf);
        assert!(
            adapters <= link.adapters_max(),
            "{adapters} adapters are too many for two levels of {ports} ports"
        );
        // each adapter has a channel up and one down, and so has each leaf
        let channels = vec![Channel::default(); 2 * (adapters + leaves)];
        Fabric { link, adapters, per_leaf, channels }
    }

    /// The kind of link.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The way from one adapter to another.
    pub fn path(&self, from: usize, to: usize) -> Path {
        assert!(from < self.adapters && to < self.adapters, "adapters of this fabric");
        let (leaf_from, leaf_to) = (from / self.per_leaf, to / self.per_leaf);
        let leaf = |leaf: usize, down: usize| 2 * (self.adapters + leaf) + down;
        if leaf_from == leaf_to {
            return Path::of(&[2 * from, 2 * to + 1]);
        }
        Path::of(&[2 * from, leaf(leaf_from, 0), leaf(leaf_to, 1), 2 * to + 1])
    }

    /// How long a packet's head takes over `path`.
    pub fn head_time(&self, path: &Path) -> Picos {
        let cables = u64::from(path.length);
        Picos(self.link.cable.0 * cables + self.link.crossing.0 * (cables - 1))
    }

    /// The packet `ticket` wants `channel`: whether it has it now. If not it waits in line.
    pub fn claim(&mut self, channel: u16, ticket: u32) -> bool {
        let channel = &mut self.channels[usize::from(channel)];
        match channel.owner {
            None => channel.owner = Some(ticket),
            Some(owner) if owner == ticket => {}
            Some(_) => channel.waiting.push_back(ticket),
        }
        channel.owner == Some(ticket)
    }

    /// The tail of `ticket` has passed `channel`: who has it now, if anybody waited.
    pub fn release(&mut self, channel: u16, ticket: u32) -> Option<u32> {
        let channel = &mut self.channels[usize::from(channel)];
        assert_eq!(channel.owner, Some(ticket), "only its packet leaves a channel");
        channel.owner = channel.waiting.pop_front();
        channel.owner
    }

    /// Channels that a packet holds or waits for.
    pub fn in_use(&self) -> usize {
        self.channels.iter().filter(|channel| channel.owner.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link {
        rate: Rate::mega(160),
        cable: Picos::nanos(10),
        crossing: Picos::nanos(100),
        ports: 8,
        framing: 8,
    };

    #[test]
    fn neighbours_share_a_crossbar_and_others_go_over_the_root() {
        let fabric = Fabric::new(LINK, 20);
        assert_eq!(fabric.path(0, 1).channels(), [0, 3]);
        let far = fabric.path(0, 19);
        assert_eq!(far.channels().len(), 4);
        assert_eq!(fabric.head_time(&far), Picos::nanos(4 * 10 + 3 * 100));
        assert_eq!(fabric.head_time(&Fabric::new(LINK, 2).path(0, 1)), Picos::nanos(120));
    }

    #[test]
    fn both_ways_between_two_leaves_use_channels_of_their_own() {
        let fabric = Fabric::new(LINK, 20);
        let there = fabric.path(0, 19);
        let back = fabric.path(19, 0);
        assert!(there.channels().iter().all(|channel| !back.channels().contains(channel)));
    }

    #[test]
    fn who_waits_gets_the_channel_in_order() {
        let mut fabric = Fabric::new(LINK, 3);
        assert!(fabric.claim(1, 7));
        assert!(fabric.claim(1, 7));
        assert!(!fabric.claim(1, 8));
        assert!(!fabric.claim(1, 9));
        assert_eq!(fabric.release(1, 7), Some(8));
        assert_eq!(fabric.release(1, 8), Some(9));
        assert_eq!(fabric.release(1, 9), None);
        assert_eq!(fabric.in_use(), 0);
    }

    #[test]
    #[should_panic(expected = "too many for two levels")]
    fn a_tree_has_two_levels() {
        Fabric::new(LINK, 57);
    }
}
