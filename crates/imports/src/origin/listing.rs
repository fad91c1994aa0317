//! Directories of the origin: names with handles and attributes, by READDIRPLUS; where the origin has none (RFC 1813
//! section 3.3.17, NFS3ERR_NOTSUPP), names by READDIR, and a LOOKUP of each.

use super::gathering::{Entry, Gathering, Unlistable};
use super::{NamesOnly, Origin, failure};
use crate::limits::{
    LISTING_ATTEMPTS, LISTING_BYTES, LISTING_PAUSE, NAMES_AT_ONCE, NAMES_ONLY_SPAN,
};
use nfs::v3::{
    Args, DirOpArgs, Fattr, Handle, Outcome, Path, ReaddirArgs, ReaddirplusArgs, Results, Status,
};
use wire::Errno;
use wire::limits::NAME_BYTES_MAX;

/// A name of a directory of the origin's.
pub(crate) struct Listed {
    pub name: Vec<u8>,
    pub handle: Vec<u8>,
    pub attributes: Fattr,
}

/// A position in a directory, with the verifier that it is valid under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub cookie: u64,
    pub verifier: [u8; 8],
}

/// One part of a directory.
pub(crate) struct Part {
    pub entries: Vec<Entry>,
    /// Where the next one begins; `None` at the end.
    pub next: Option<Position>,
    /// What the cookies of its entries are valid under.
    pub verifier: [u8; 8],
}

impl Origin {
    /// The attributes of a name; `None` where there is no such name.
    pub(crate) async fn look_up(&self, dir: &[u8], name: &[u8]) -> Result<Option<Listed>, Errno> {
        let place = DirOpArgs { dir: Handle(dir), name: Path(name) };
        let found = self
            .call(Args::Lookup(place), |results| match results {
                Results::Lookup(Outcome::Ok(ok)) => Ok(Some((ok.object.0.to_vec(), ok.attributes))),
                Results::Lookup(Outcome::Err(Status::NoEnt, _)) => Ok(None),
                other => Err(failure(&other)),
            })
            .await?;
        let Some((handle, attributes)) = found else { return Ok(None) };
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => self.attributes(&handle).await?,
        };
        Ok(Some(Listed { name: name.to_vec(), handle, attributes }))
    }

    /// Whether listings come with attributes, as far as is known: an origin that was started anew may be a newer one.
    pub(crate) fn lists_attributes(&self) -> bool {
        self.names_only.get().is_none_or(|NamesOnly { at, reconnects }| {
            let is_same = self.session.borrow().reconnects() == reconnects;
            !is_same || self.cx.now() >= at + NAMES_ONLY_SPAN
        })
    }

    fn lists_names_only(&self) {
        let reconnects = self.session.borrow().reconnects();
        self.names_only.set(Some(NamesOnly { at: self.cx.now(), reconnects }));
    }

    /// All names of a directory that ours can have, with handles and attributes. EAGAIN where the directory changes so
    /// often that the origin knows its own cookies no more.
    pub(crate) async fn list(&self, dir: &[u8]) -> Result<Vec<Listed>, Errno> {
        let mut attempts = 0;
        let entries = loop {
            if let Some(entries) = self.entries(dir).await? {
                break entries;
            }
            attempts += 1;
            if attempts == LISTING_ATTEMPTS {
                self.report(
                    "a directory changes too often to be listed: the next request lists it again",
                );
                return Err(Errno::EAGAIN);
            }
            self.cx.sleep(LISTING_PAUSE).await;
        };
        let (mut all, mut bare) = (Vec::new(), Vec::new());
        for Entry { name, known, .. } in entries {
            match known {
                Some((handle, attributes)) => all.push(Listed { name, handle, attributes }),
                None => bare.push(name),
            }
        }
        for some in bare.chunks(NAMES_AT_ONCE) {
            let found = node::all(some.iter().map(|name| self.look_up(dir, name))).await;
            for listed in found {
                all.extend(listed?);
            }
        }
        Ok(all)
    }

    /// The entries of all parts, each name once; `None` where a part is not to be had because the directory has changed
    /// since the part before it. EFBIG where there are too many, EIO where they come again and again.
    async fn entries(&self, dir: &[u8]) -> Result<Option<Vec<Entry>>, Errno> {
        let mut all = Gathering::new(self.names_max);
        let mut at = Some(Position::default());
        // One listing is all of one procedure: cookies of the other may be others.
        let mut with_attributes = self.lists_attributes();
        while let Some(from) = at {
            let part = match with_attributes {
                true => self.part_with_attributes(dir, from).await,
                false => self.part_of_names(dir, from).await,
            };
            let part = match part {
                Err(Errno::EOPNOTSUPP) if with_attributes => {
                    (with_attributes, at) = (false, Some(Position::default()));
                    all = Gathering::new(self.names_max);
                    continue;
                }
                part => part?,
            };
            let Some(part) = part else { return Ok(None) };
            at = part.next;
            all.add(part.entries).map_err(|error| self.unlistable(error))?;
        }
        all.end().map(Some).map_err(|error| self.unlistable(error))
    }

    fn unlistable(&self, error: Unlistable) -> Errno {
        self.report(&error.to_string());
        match error {
            Unlistable::TooMany(_) => Errno::EFBIG,
            Unlistable::Circle => Errno::EIO,
        }
    }

    /// A part of a directory; `None` where the directory has changed, and the position is none of it any more.
    /// EOPNOTSUPP, which is remembered, where the origin has no such procedure.
    pub(crate) async fn part_with_attributes(
        &self,
        dir: &[u8],
        from: Position,
    ) -> Result<Option<Part>, Errno> {
        let Position { cookie, verifier } = from;
        let (dir, dircount, maxcount) = (Handle(dir), LISTING_BYTES, LISTING_BYTES);
        let args = ReaddirplusArgs { dir, cookie, verifier, dircount, maxcount };
        let part = self.call(Args::Readdirplus(args), |results| match results {
            Results::Readdirplus(Outcome::Ok(ok)) => {
                let entries = ok.entries.into_iter().map(|entry| {
                    let handle = entry.handle.map(|handle| handle.0.to_vec());
                    let known = handle.zip(entry.attributes);
                    Entry { name: entry.name.0.to_vec(), known, cookie: entry.cookie }
                });
                Part::new(from, entries.collect(), (ok.verifier, ok.eof)).map(Some)
            }
            other => no_part(from, &other),
        });
        part.await.inspect_err(|errno| {
            if *errno == Errno::EOPNOTSUPP {
                self.lists_names_only();
            }
        })
    }

    async fn part_of_names(&self, dir: &[u8], from: Position) -> Result<Option<Part>, Errno> {
        let Position { cookie, verifier } = from;
        let args = ReaddirArgs { dir: Handle(dir), cookie, verifier, count: LISTING_BYTES };
        self.call(Args::Readdir(args), |results| match results {
            Results::Readdir(Outcome::Ok(ok)) => {
                let entries = ok.entries.into_iter().map(|entry| {
                    let name = entry.name.0.to_vec();
                    Entry { name, known: None, cookie: entry.cookie }
                });
                Part::new(from, entries.collect(), (ok.verifier, ok.eof)).map(Some)
            }
            other => no_part(from, &other),
        })
        .await
    }
}

impl Part {
    /// EIO where the listing would come to no end: there are more names, and no cookie to ask for them by.
    fn new(
        from: Position,
        mut entries: Vec<Entry>,
        (verifier, is_end): ([u8; 8], bool),
    ) -> Result<Part, Errno> {
        let last = entries.last().map(|entry| entry.cookie);
        let next = match last {
            _ if is_end => None,
            Some(cookie) if cookie != from.cookie => Some(Position { cookie, verifier }),
            _ => return Err(Errno::EIO),
        };
        entries.retain(|entry| is_name(&entry.name));
        Ok(Part { entries, next, verifier })
    }
}

/// Why there is no part.
fn no_part(from: Position, results: &Results<'_>) -> Result<Option<Part>, Errno> {
    match results.status() {
        // the first part is asked for without a cookie
        Status::BadCookie if from.cookie != 0 => Ok(None),
        Status::BadCookie | Status::TooSmall => Err(Errno::EIO),
        _ => Err(failure(results)),
    }
}

/// Whether a directory of ours can have the name, and it is not one that every directory has.
fn is_name(name: &[u8]) -> bool {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    fits && !name.contains(&0) && !name.contains(&b'/') && !matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, cookie: u64) -> Entry {
        Entry { name: name.into(), known: None, cookie }
    }

    #[test]
    fn a_listing_that_comes_to_no_end_is_an_error() {
        let from = Position { cookie: 7, verifier: [1; 8] };
        let next = |entries, is_end| Part::new(from, entries, ([2; 8], is_end)).map(|it| it.next);
        assert_eq!(
            next(vec![entry("a", 8)], false),
            Ok(Some(Position { cookie: 8, verifier: [2; 8] }))
        );
        assert_eq!(next(vec![entry("a", 8)], true), Ok(None));
        assert_eq!(next(Vec::new(), true), Ok(None));
        assert_eq!(next(vec![entry("a", 7)], false), Err(Errno::EIO));
        assert_eq!(next(Vec::new(), false), Err(Errno::EIO));
    }
}
