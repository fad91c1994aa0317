//! The end of a region whose process cannot end it itself: the nodes that have its pages are told by another one.

use super::PeerConfig;
use super::way::Connection;
use endpoint::limits::PAGE_BYTES;
use live::link::{Address, Keys, Security};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Times that a node is told which does not answer, and the pause between two: then it forgets the region by itself
/// ([`GUEST_SPAN`](netmem::limits::GUEST_SPAN)).
const FREE_TRIES: u32 = 10;
const FREE_PAUSE: Duration = Duration::from_secs(1);

impl PeerConfig {
    /// As a process is told that another one starts: addresses with blanks between them, and the file with their
    /// cluster's key, 64 hexadecimal digits, if links to them are encrypted. In a new space.
    pub fn told(holders: &str, key: Option<&Path>) -> io::Result<PeerConfig> {
        let holders = holders.split(' ').map(str::parse).collect::<Result<Vec<Address>, _>>();
        let security = match key {
            Some(path) => {
                let wrong = || io::Error::other("a cluster key is 64 hexadecimal digits");
                let key = key_of(&std::fs::read_to_string(path)?).ok_or_else(wrong)?;
                Security::Encrypted(Keys::generate(key))
            }
            None => Security::Insecure,
        };
        PeerConfig::new(holders.map_err(io::Error::other)?, security)
    }
}

fn key_of(text: &str) -> Option<[u8; 32]> {
    let digits = Some(text.trim()).filter(|text| text.len() == 64 && text.is_ascii())?;
    let mut key = [0; 32];
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(key)
}

/// Has all holders forget the pages of a region that is gone. Those that do not answer are told again, for some
/// seconds. Says whether all have heard it.
pub fn free(config: &PeerConfig) -> bool {
    let mut left: Vec<usize> = (0..config.holders.len()).collect();
    for attempt in 0..FREE_TRIES {
        if attempt > 0 {
            std::thread::sleep(FREE_PAUSE);
        }
        left.retain(|at| free_at(config, *at).is_err());
        if left.is_empty() {
            return true;
        }
    }
    false
}

fn free_at(config: &PeerConfig, at: usize) -> io::Result<()> {
    let mut way = Connection::reach(config, at, PAGE_BYTES)?;
    way.free(config.space).map_err(io::Error::other)
}
