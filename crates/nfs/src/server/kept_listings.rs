//! Replies to READDIR and READDIRPLUS that were sent, for as long as what they list is unchanged: the manager is asked
//! each time, by the version that it gave them.

use crate::limits::KEPT_LISTINGS_BYTES;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{FileId, ListingVersion};

/// All that a reply depends on beside what is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    /// Handles are of this export.
    pub export: u32,
    pub directory: FileId,
    pub cookie: u64,
    pub count: u32,
    /// Of READDIRPLUS.
    pub dircount: Option<u32>,
}

/// The results of a reply.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub version: ListingVersion,
    pub results: Rc<[u8]>,
    used: u64,
}

/// Those of one server, of bounded size: the one that was not used for the longest time goes first.
#[derive(Debug, Default)]
pub(super) struct KeptListings {
    kept: BTreeMap<Request, Kept>,
    by_use: BTreeMap<u64, Request>,
    uses: u64,
    bytes: usize,
}

impl KeptListings {
    /// The reply to this request as of a version, if there is one.
    pub fn get(&mut self, request: &Request) -> Option<Kept> {
        let kept = self.kept.get_mut(request)?;
        self.uses += 1;
        self.by_use.remove(&kept.used);
        kept.used = self.uses;
        self.by_use.insert(kept.used, *request);
        Some(kept.clone())
    }

    /// The reply as of this version; without one nothing is kept.
    pub fn set(&mut self, request: Request, version: Option<ListingVersion>, results: &[u8]) {
        self.remove(&request);
        let Some(version) = version else { return };
        self.uses += 1;
        self.bytes += results.len();
        self.by_use.insert(self.uses, request);
        self.kept.insert(request, Kept { version, results: results.into(), used: self.uses });
        while self.bytes > KEPT_LISTINGS_BYTES
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = *oldest;
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, request: &Request) {
        if let Some(kept) = self.kept.remove(request) {
            self.by_use.remove(&kept.used);
            assert!(kept.results.len() <= self.bytes, "what is kept was counted");
            self.bytes -= kept.results.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::NodeId;

    fn request(number: u64) -> Request {
        Request { export: 1, directory: FileId(number), cookie: 0, count: 9, dircount: None }
    }

    fn version(number: u64) -> Option<ListingVersion> {
        Some(ListingVersion { manager: NodeId(1), incarnation: 1, number })
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let mut kept = KeptListings::default();
        let results = vec![7; 30_000];
        for number in 0..2000 {
            kept.set(request(number), version(number), &results);
            assert!(kept.get(&request(0)).is_some_and(|kept| *kept.results == results));
            assert!(kept.bytes <= KEPT_LISTINGS_BYTES && kept.kept.len() == kept.by_use.len());
        }
        assert!(kept.get(&request(1)).is_none());
        assert!(kept.get(&request(1999)).is_some());
    }

    #[test]
    fn a_reply_without_a_version_takes_the_earlier_ones_place() {
        let mut kept = KeptListings::default();
        kept.set(request(1), version(1), &[1]);
        kept.set(request(1), version(2), &[2, 2]);
        assert_eq!(kept.get(&request(1)).map(|kept| kept.version), version(2));
        kept.set(request(1), None, &[3]);
        assert!(kept.get(&request(1)).is_none() && kept.bytes == 0);
    }
}
