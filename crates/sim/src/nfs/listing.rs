//! A listing of a directory in several calls, between which its names may change.

use super::tree::Names;
use nfs::v3::{EntryPlus, Results};
use std::collections::{BTreeMap, BTreeSet};

/// One page: where the next one begins, and whether there is one.
#[derive(Debug)]
pub struct Page {
    verifier: [u8; 8],
    /// Name, id and cookie of each entry.
    entries: Vec<(Vec<u8>, u64, u64)>,
    eof: bool,
}

impl Page {
    /// Of the results of READDIR or READDIRPLUS.
    pub fn of(results: &Results<'_>) -> Option<Page> {
        use nfs::v3::Outcome::Ok;
        match results {
            Results::Readdir(Ok(page)) => {
                let entry = |it: &nfs::v3::Entry<'_>| (it.name.0.to_vec(), it.fileid, it.cookie);
                let entries = page.entries.iter().map(entry).collect();
                Some(Page { verifier: page.verifier, entries, eof: page.eof })
            }
            Results::Readdirplus(Ok(page)) => {
                let entry = |it: &EntryPlus<'_>| (it.name.0.to_vec(), it.fileid, it.cookie);
                let entries = page.entries.iter().map(entry).collect();
                Some(Page { verifier: page.verifier, entries, eof: page.eof })
            }
            _ => None,
        }
    }
}

/// The listing.
#[derive(Debug, Default)]
pub struct Listing {
    /// READDIRPLUS.
    pub plus: bool,
    /// Bytes of each page.
    pub bytes: u32,
    /// Where the next page begins.
    pub cookie: u64,
    /// The verifier of the page before.
    pub verifier: [u8; 8],
    cookies: BTreeSet<u64>,
    seen: Vec<(Vec<u8>, u64)>,
    touched: BTreeSet<u8>,
}

impl Listing {
    /// From the beginning.
    pub fn new(plus: bool, bytes: u32) -> Listing {
        Listing { plus, bytes, ..Listing::default() }
    }

    /// A name was changed, or may have been.
    pub fn touched(&mut self, names: impl Iterator<Item = u8>) {
        self.touched.extend(names);
    }

    /// A page came; whether it was the last. The error names the violation.
    pub fn listed(&mut self, page: Page) -> Result<bool, String> {
        self.verifier = page.verifier;
        if page.entries.is_empty() && !page.eof {
            return Err("an empty page of a directory that goes on".into());
        }
        for (name, id, cookie) in page.entries {
            if !self.cookies.insert(cookie) {
                return Err(format!("cookie {cookie:#x} is listed twice"));
            }
            self.cookie = cookie;
            self.seen.push((name, id));
        }
        Ok(page.eof)
    }

    /// Checks the whole listing of a directory that has these names now. Names are numbered by `number_of`.
    pub fn check(
        &self,
        names: &Names,
        number_of: impl Fn(&[u8]) -> Option<u8>,
    ) -> Result<(), String> {
        let mut listed: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        for (name, id) in self.seen.iter().filter(|(name, _)| name != b"." && name != b"..") {
            let number = number_of(name);
            let number = number.ok_or_else(|| format!("a listing has the name {name:?}"))?;
            listed.entry(number).or_default().push(*id);
        }
        let stood = names.iter().filter(|(name, _)| !self.touched.contains(name));
        for (name, node) in stood {
            let ids = listed.remove(name).unwrap_or_default();
            if ids != node.id.into_iter().collect::<Vec<_>>() {
                return Err(format!("name {name} is {node:?}, and is listed as {ids:?}"));
            }
        }
        listed.retain(|name, _| !self.touched.contains(name));
        match listed.is_empty() {
            true => Ok(()),
            false => Err(format!("names that are not there are listed: {listed:?}")),
        }
    }
}
