//! Attributes of the files of a listing: the origin tells those of many at once, by READDIRPLUS.
//!
//! ```text
//!   wanted  a b c d           one page of a client's listing
//!   walk    a b c d e f g | h ...  one part of the origin's: a to d are wanted now, e to g soon
//! ```
//!
//! The last part of a directory that was asked for is remembered, and where it ended: a client that lists page by page
//! finds its next page there or in the next part. Files that are not found soon are asked for one by one: a page never
//! costs more than [`MISSES_MAX`] calls more than without this.
//!
//! Invariants: what a part says is believed from the time when it was asked for, as any other attributes; it never
//! replaces what the origin said later.

use crate::limits::*;
use crate::origin::{Position, changes, version};
use crate::protocol::{CheckListed, Compared};
use crate::service::{Foreign, Service};
use crate::walks::{Seen, Walk};
use names::Who;
use nfs::convert::file_kind;
use nfs::v3::Fattr;
use node::Request;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::field::Message;
use wire::{Errno, FileId, FileKind, Time};

/// A file that is to be compared, and its place in the request.
struct Wanted {
    at: usize,
    file: Rc<Foreign>,
}

impl Compared {
    fn note(&mut self, at: usize, has_changed: bool) {
        self.files[at / 64] |= 1 << (at % 64);
        self.changed |= has_changed;
    }
}

impl Service {
    /// Executes a CHECK_LISTED.
    pub(crate) async fn serve_listed(&self, request: &Request) -> Result<Compared, Errno> {
        let arrived = self.cx.now();
        let CheckListed { import, directory, count } =
            CheckListed::decode(&request.body).map_err(|_| Errno::EPROTO)?;
        self.check_own(import)?;
        let bytes = request.data.copied(request.bytes);
        let ids = bytes.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().expect("8")));
        let ids: Vec<FileId> = ids.map(FileId).collect();
        if ids.len() != count as usize || ids.len() > LISTED_MAX {
            return Err(Errno::EPROTO);
        }
        let directory = self.load(directory).await?;
        self.check_listed(&directory, &ids, arrived).await
    }

    async fn check_listed(
        &self,
        directory: &Rc<Foreign>,
        ids: &[FileId],
        arrived: Time,
    ) -> Result<Compared, Errno> {
        let mut compared = Compared::default();
        let mut wanted = self.load_all(ids).await;
        wanted.retain(|Wanted { at, file }| {
            let is_young = self.is_shown(file, arrived);
            if is_young {
                compared.note(*at, false);
            }
            !is_young
        });
        if wanted.len() > LISTED_MIN && self.origin.lists_attributes() {
            match self.walk(directory, &mut wanted, arrived, &mut compared).await {
                Err(Errno::EHOSTDOWN) if self.config.stale_ok => {}
                walked => walked?,
            }
        }
        for some in wanted.chunks(NAMES_AT_ONCE) {
            let checks = some.iter().map(|it| self.check_attributes(&it.file));
            for (it, checked) in some.iter().zip(node::all(checks).await) {
                match checked {
                    Ok(has_changed) => compared.note(it.at, has_changed),
                    Err(Errno::ESTALE) => {} // gone meanwhile
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(compared)
    }

    /// The files that can be compared: others are of no import, or gone.
    async fn load_all(&self, ids: &[FileId]) -> Vec<Wanted> {
        let mut all = Vec::with_capacity(ids.len());
        for some in ids.chunks(NAMES_AT_ONCE) {
            let loaded = node::all(some.iter().map(|id| self.load(*id))).await;
            let first = all.len();
            all.extend(loaded.into_iter().enumerate().map(|(at, file)| (first + at, file)));
        }
        let usable = |(at, file): (usize, Result<Rc<Foreign>, Errno>)| {
            file.ok().map(|file| Wanted { at, file })
        };
        all.into_iter().filter_map(usable).collect()
    }

    /// Whether the attributes that the manager shows are believed of a request that has arrived then.
    fn is_shown(&self, file: &Foreign, arrived: Time) -> bool {
        let state = file.state.borrow();
        let shown = state.shown.map(|(_, at)| at);
        let at =
            if file.kind == FileKind::Directory { state.asked.max(shown) } else { state.asked };
        state.unflushed.is_none() && at.is_some_and(|at| self.is_young(at, arrived))
    }

    /// Asks for parts of the directory as long as they spare more calls than they are. Parts without wanted files are
    /// those of another client's place in the directory, or of another order than ours: few of them are asked for.
    async fn walk(
        &self,
        directory: &Rc<Foreign>,
        wanted: &mut Vec<Wanted>,
        arrived: Time,
        compared: &mut Compared,
    ) -> Result<(), Errno> {
        let walk = self.walks.borrow_mut().of(directory.id, || Walk::new(&self.cx));
        let _turn = walk.turn.acquire(1).await;
        let is_young = walk.part.borrow().asked.is_some_and(|at| self.is_young(at, arrived));
        if is_young {
            self.use_part(&walk, wanted, compared).await?;
        }
        let (mut misses, handle) = (0, directory.handle());
        while wanted.len() > LISTED_MIN && misses < MISSES_MAX && self.origin.lists_attributes() {
            let before = wanted.len();
            let from = self.next_part(&walk, &handle, wanted).await?;
            if from.is_some() {
                self.use_part(&walk, wanted, compared).await?;
            }
            if before - wanted.len() <= LISTED_MIN {
                misses += 1;
            }
            // another listing ended there, or the directory has changed: this one may have begun
            let is_elsewhere = misses == 1 && before == wanted.len();
            if from.is_none_or(|from| is_elsewhere && from != Position::default()) {
                *walk.part.borrow_mut() = Seen::default();
            }
        }
        Ok(())
    }

    /// Asks for the part that begins with a wanted file, where that is known, or else the one behind the last; where it
    /// begins. `None` where the directory has changed and has no such part, or the origin no such procedure.
    async fn next_part(
        &self,
        walk: &Walk,
        handle: &[u8],
        wanted: &[Wanted],
    ) -> Result<Option<Position>, Errno> {
        let from = {
            let part = walk.part.borrow();
            let before = |it: &Wanted| part.entries.get(&*it.file.handle()).map(|(_, at)| *at);
            wanted.iter().find_map(before).unwrap_or(part.next)
        };
        let asked = self.cx.now();
        let part = match self.origin.part_with_attributes(handle, from).await {
            Err(Errno::EOPNOTSUPP) => None,
            part => part?,
        };
        let Some(part) = part else { return Ok(None) };
        let (mut entries, mut before) = (BTreeMap::new(), from);
        for entry in part.entries {
            if let Some((handle, attributes)) = entry.known {
                entries.insert(handle, (attributes, before));
            }
            before = Position { cookie: entry.cookie, verifier: part.verifier };
        }
        let next = part.next.unwrap_or_default();
        walk.part.replace(Seen { asked: Some(asked), entries, next });
        Ok(Some(from))
    }

    /// Compares the wanted files that are in the part; the others remain.
    async fn use_part(
        &self,
        walk: &Walk,
        wanted: &mut Vec<Wanted>,
        compared: &mut Compared,
    ) -> Result<(), Errno> {
        let asked = walk.part.borrow().asked.expect("a part was asked for");
        let all = std::mem::take(wanted);
        let (mut found, mut attributes) = (Vec::new(), Vec::new());
        for it in all {
            match walk.part.borrow().entries.get(&*it.file.handle()) {
                Some((fattr, _)) => {
                    found.push(it);
                    attributes.push(*fattr);
                }
                None => wanted.push(it),
            }
        }
        let pairs: Vec<_> = found.iter().zip(&attributes).collect();
        for some in pairs.chunks(NAMES_AT_ONCE) {
            let learn = some.iter().map(|(it, fattr)| self.learn_listed(&it.file, fattr, asked));
            for ((it, _), learned) in some.iter().zip(node::all(learn).await) {
                match learned {
                    Ok(Some(has_changed)) => compared.note(it.at, has_changed),
                    Ok(None) | Err(Errno::ESTALE) => {} // another file's by now
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    /// Takes over what a part says of a file: whether it has changed. `None` where a change of ours has come after it,
    /// or another answer: which of the two is newer is not known, and the origin is to be asked again.
    pub(crate) async fn learn_listed(
        &self,
        file: &Rc<Foreign>,
        fattr: &Fattr,
        asked: Time,
    ) -> Result<Option<bool>, Errno> {
        file.in_turn(async {
            if file.is_outdated(asked) {
                return Ok(None);
            }
            if file.is_known_since(asked) {
                if !file.has_version(version(fattr)) {
                    file.state.borrow_mut().asked = None;
                    return Ok(None);
                }
                self.flush(file).await?;
                return Ok(Some(true));
            }
            if file.kind == FileKind::Directory {
                return self.show_directory(file, fattr, asked).await.map(Some);
            }
            let changed = self.learn(file, fattr).await?;
            file.note_asked(asked);
            Ok(Some(changed))
        })
        .await
    }

    /// As a check, but of a directory only its attributes.
    async fn check_attributes(&self, file: &Rc<Foreign>) -> Result<bool, Errno> {
        if file.kind != FileKind::Directory {
            return self.check(file.id).await;
        }
        let asked = self.cx.now();
        let fattr = match self.origin.attributes(&file.handle()).await {
            Err(Errno::EHOSTDOWN) if self.config.stale_ok => return Ok(false),
            fattr => fattr?,
        };
        let learned = self.learn_listed(file, &fattr, asked).await?;
        learned.ok_or(Errno::ESTALE)
    }

    /// Has the manager show a directory's attributes; whether it did not. Its names are compared when they are asked
    /// for.
    async fn show_directory(
        &self,
        file: &Foreign,
        fattr: &Fattr,
        asked: Time,
    ) -> Result<bool, Errno> {
        if file_kind(fattr.kind) != FileKind::Directory {
            return Err(Errno::ESTALE);
        }
        let now = version(fattr);
        let (is_listed, is_shown) = {
            let state = file.state.borrow();
            (state.kept.version == now, state.shown.is_some_and(|(shown, _)| shown == now))
        };
        if is_listed {
            file.note_asked(asked);
        } else {
            // names of another version are not believed beside these times
            file.state.borrow_mut().asked = None;
        }
        if !is_listed && !is_shown {
            self.names.set_attr(&Who::ROOT, file.id, changes(fattr), false).await?;
        }
        file.state.borrow_mut().shown = Some((now, asked));
        Ok(!is_listed && !is_shown)
    }
}
