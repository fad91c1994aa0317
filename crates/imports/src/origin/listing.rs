//! Directories of the origin: names with handles and attributes, by READDIRPLUS; where the origin has none (RFC 1813
//! section 3.3.17, NFS3ERR_NOTSUPP), names by READDIR, and a LOOKUP of each.

use super::{Origin, failure};
use crate::limits::{LISTING_BYTES, NAMES_AT_ONCE};
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

/// One name of a part.
pub(crate) struct Entry {
    pub name: Vec<u8>,
    /// Its handle and attributes, where the origin told both.
    pub known: Option<(Vec<u8>, Fattr)>,
    /// The position behind it.
    pub cookie: u64,
}

/// One part of a directory.
pub(crate) struct Part {
    pub entries: Vec<Entry>,
    /// Where the next one begins; `None` at the end.
    pub next: Option<Position>,
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

    /// Whether listings come with attributes, as far as is known.
    pub(crate) fn lists_attributes(&self) -> bool {
        !self.lists_names_only.get()
    }

    /// All names of a directory that ours can have, with handles and attributes.
    pub(crate) async fn list(&self, dir: &[u8]) -> Result<Vec<Listed>, Errno> {
        let (mut all, mut bare) = (Vec::new(), Vec::new());
        let mut at = Some(Position::default());
        while let Some(from) = at {
            let part = self.part(dir, from).await?;
            for Entry { name, known, .. } in part.entries {
                match known {
                    Some((handle, attributes)) => all.push(Listed { name, handle, attributes }),
                    None => bare.push(name),
                }
            }
            at = part.next;
        }
        for some in bare.chunks(NAMES_AT_ONCE) {
            let found = node::all(some.iter().map(|name| self.look_up(dir, name))).await;
            for listed in found {
                all.extend(listed?);
            }
        }
        Ok(all)
    }

    /// A part of a directory, with attributes if the origin lists them.
    pub(crate) async fn part(&self, dir: &[u8], from: Position) -> Result<Part, Errno> {
        if self.lists_attributes() {
            match self.part_with_attributes(dir, from).await {
                Err(Errno::EOPNOTSUPP) => self.lists_names_only.set(true),
                part => return part,
            }
        }
        self.part_of_names(dir, from).await
    }

    async fn part_with_attributes(&self, dir: &[u8], from: Position) -> Result<Part, Errno> {
        let Position { cookie, verifier } = from;
        let (dir, dircount, maxcount) = (Handle(dir), LISTING_BYTES, LISTING_BYTES);
        let args = ReaddirplusArgs { dir, cookie, verifier, dircount, maxcount };
        self.call(Args::Readdirplus(args), |results| match results {
            Results::Readdirplus(Outcome::Ok(ok)) => {
                let entries = ok.entries.into_iter().map(|entry| {
                    let handle = entry.handle.map(|handle| handle.0.to_vec());
                    let known = handle.zip(entry.attributes);
                    Entry { name: entry.name.0.to_vec(), known, cookie: entry.cookie }
                });
                Part::new(from, entries.collect(), (ok.verifier, ok.eof))
            }
            other => Err(failure(&other)),
        })
        .await
    }

    async fn part_of_names(&self, dir: &[u8], from: Position) -> Result<Part, Errno> {
        let Position { cookie, verifier } = from;
        let args = ReaddirArgs { dir: Handle(dir), cookie, verifier, count: LISTING_BYTES };
        self.call(Args::Readdir(args), |results| match results {
            Results::Readdir(Outcome::Ok(ok)) => {
                let entries = ok.entries.into_iter().map(|entry| {
                    let name = entry.name.0.to_vec();
                    Entry { name, known: None, cookie: entry.cookie }
                });
                Part::new(from, entries.collect(), (ok.verifier, ok.eof))
            }
            other => Err(failure(&other)),
        })
        .await
    }
}

impl Part {
    /// EIO where the listing would come to no end.
    fn new(
        from: Position,
        mut entries: Vec<Entry>,
        (verifier, is_end): ([u8; 8], bool),
    ) -> Result<Part, Errno> {
        let last = entries.last().map(|entry| entry.cookie).filter(|_| !is_end);
        entries.retain(|entry| is_name(&entry.name));
        match last {
            Some(cookie) if cookie == from.cookie => Err(Errno::EIO),
            last => Ok(Part { entries, next: last.map(|cookie| Position { cookie, verifier }) }),
        }
    }
}

/// Whether a directory of ours can have the name, and it is not one that every directory has.
fn is_name(name: &[u8]) -> bool {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    fits && !name.contains(&0) && !name.contains(&b'/') && !matches!(name, b"." | b"..")
}
