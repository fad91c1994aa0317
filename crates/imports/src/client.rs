//! A client's half: what it asks of importers.

use crate::limits::*;
use crate::protocol::{
    CHANGE, CHECK, CHECK_LISTED, Change, Changed, Check, CheckListed, Compared, FETCH, Fetch,
    Import, LOST, Said, WRITE, Written, record_name,
};
use endpoint::{Frame, FrameMut};
use names::Who;
use node::{Call, CallError, Cx};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use wire::field::{Field, Message, encoded};
use wire::{Channel, Decoder, Errno, FileId, NodeId};

/// The user that makes a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups, each as 4 bytes.
    pub groups: Rc<[u8]>,
}

/// Files of a listing that were compared with the origin's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// One of them has changed, so that the manager is to be asked again.
    pub changed: bool,
    /// These are as the manager says.
    pub files: BTreeSet<FileId>,
}

/// The imports of a volume, as a client of its files uses them.
pub struct Client {
    cx: Cx,
    names: names::Client,
    importers: RefCell<BTreeMap<u32, Importer>>,
    /// Files of which all is there, and the truncate generation of which that is said.
    whole: RefCell<BTreeMap<FileId, u32>>,
}

/// The importer of an import, as its record says.
#[derive(Clone, Copy)]
struct Importer {
    node: NodeId,
    writable: bool,
}

/// A request to an importer.
#[derive(Clone, Copy)]
struct ImportRequest<'a> {
    op: u16,
    body: &'a [u8],
    data: Option<&'a Frame>,
}

impl ImportRequest<'_> {
    fn is_change(&self) -> bool {
        matches!(self.op, WRITE | CHANGE)
    }
}

impl Client {
    /// For the volume of `names`.
    pub fn new(cx: &Cx, names: names::Client) -> Client {
        let (importers, whole) = Default::default();
        Client { cx: cx.clone(), names, importers, whole }
    }

    /// Has a foreign file compared with the origin's, unless that was done a moment ago. Whether it has changed, so
    /// that the manager is to be asked again; ESTALE: the origin has it no longer; EHOSTDOWN: the origin, or the
    /// importer, is away.
    pub async fn check(&self, import: u32, file: FileId) -> Result<bool, Errno> {
        self.call(import, CHECK, &Check { import, file }).await
    }

    /// Has files of a directory compared with the origin's, as [`check`](Client::check), with few calls to that. Of
    /// others than the compared ones nothing is known.
    pub async fn check_listed(
        &self,
        import: u32,
        directory: FileId,
        files: &[FileId],
    ) -> Result<Listed, Errno> {
        let mut listed = Listed::default();
        for some in files.chunks(LISTED_MAX) {
            let count = some.len() as u32;
            let body = CheckListed { import, directory, count }.encode();
            let ids: Vec<u8> = some.iter().flat_map(|file| file.0.to_le_bytes()).collect();
            let mut frame = alloc(&self.cx, ids.len()).await;
            frame.copy_from_slice(&ids);
            let asked =
                ImportRequest { op: CHECK_LISTED, body: &body, data: Some(&frame.freeze()) };
            let compared: Compared = self.ask(import, asked).await?;
            let is_told = |at: &usize| compared.files[at / 64] >> (at % 64) & 1 == 1;
            listed.files.extend((0..some.len()).filter(is_told).map(|at| some[at]));
            listed.changed |= compared.changed;
        }
        Ok(listed)
    }

    /// Whether changes go through to the origin.
    pub async fn is_writable(&self, import: u32) -> Result<bool, Errno> {
        self.importer(import).await.map(|importer| importer.writable)
    }

    /// Writes bytes at the origin, as many as [`write_bytes_max`] at most: they are on its stable storage then. `fill`
    /// copies them.
    pub async fn write(
        &self,
        import: u32,
        (file, offset): (FileId, u64),
        user: &User,
        (bytes, fill): (usize, impl FnOnce(&mut [u8])),
    ) -> Result<(), Errno> {
        assert!(bytes <= write_bytes_max(user), "a WRITE has one payload");
        let change = changed(import, user, bytes);
        let frame = self.frame(bytes, user, fill).await;
        let body = Written { change, file, offset }.encode();
        self.ask::<Said>(import, ImportRequest { op: WRITE, body: &body, data: Some(&frame) })
            .await
            .map(drop)
    }

    /// Makes a change at the origin: it is on its stable storage then. One that the origin has made, and the answer to
    /// which was lost with the importer, is made again: EEXIST or ENOENT may tell of the first.
    pub async fn change(&self, import: u32, user: &User, change: &Change<'_>) -> Result<(), Errno> {
        let message = encoded(change);
        let body = changed(import, user, message.len()).encode();
        let copy = |into: &mut [u8]| into.copy_from_slice(&message);
        let frame = self.frame(message.len(), user, copy).await;
        self.ask::<Said>(import, ImportRequest { op: CHANGE, body: &body, data: Some(&frame) })
            .await
            .map(drop)
    }

    /// A frame with so many bytes, and the user's groups behind them.
    async fn frame(&self, bytes: usize, user: &User, fill: impl FnOnce(&mut [u8])) -> Frame {
        let mut frame = alloc(&self.cx, bytes + user.groups.len()).await;
        fill(&mut frame[..bytes]);
        frame[bytes..].copy_from_slice(&user.groups);
        frame.freeze()
    }

    /// Has a range of a foreign file brought to the I/O servers. ESTALE: its version is another one.
    pub async fn fetch(
        &self,
        import: u32,
        (file, truncations): (FileId, u32),
        range: Range<u64>,
    ) -> Result<(), Errno> {
        if range.is_empty() || self.whole.borrow().get(&file) == Some(&truncations) {
            return Ok(());
        }
        for piece in range.start / PIECE_BYTES..=(range.end - 1) / PIECE_BYTES {
            let fetch = Fetch { import, file, truncations, piece };
            if self.call(import, FETCH, &fetch).await? {
                let mut whole = self.whole.borrow_mut();
                if whole.len() >= WHOLE_MAX {
                    whole.clear();
                }
                whole.insert(file, truncations);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Bytes of a range that was fetched cannot be read. Whether they are to be had again, under another version: the
    /// importer finds that out.
    pub async fn report_lost(
        &self,
        import: u32,
        (file, truncations): (FileId, u32),
        range: Range<u64>,
    ) -> Result<bool, Errno> {
        for piece in range.start / PIECE_BYTES..=(range.end - 1) / PIECE_BYTES {
            let fetch = Fetch { import, file, truncations, piece };
            if self.call(import, LOST, &fetch).await? {
                self.whole.borrow_mut().remove(&file);
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn call(&self, import: u32, op: u16, body: &impl Message) -> Result<bool, Errno> {
        let asked = ImportRequest { op, body: &body.encode(), data: None };
        self.ask::<Said>(import, asked).await.map(|said| said.yes)
    }

    async fn ask<T: Message>(&self, import: u32, asked: ImportRequest<'_>) -> Result<T, Errno> {
        let begun = self.cx.now();
        let mut lost_since = None;
        loop {
            let to = self.importer(import).await?.node;
            let result = self.call_once(to, asked).await;
            let is_late = match result {
                // another node has the importer's number by now
                Ok(Err(Errno::EINVAL)) => self.is_lost(&mut lost_since),
                Ok(answer) => return answer,
                // the first execution may go on
                Err(CallError::Deadline) if asked.is_change() => true,
                Err(CallError::Deadline | CallError::Overloaded) => {
                    self.cx.now() >= begun + CHECK_PATIENCE
                }
                Err(_) => self.is_lost(&mut lost_since),
            };
            if is_late {
                return Err(Errno::EHOSTDOWN);
            }
            // it may run elsewhere by now
            self.importers.borrow_mut().remove(&import);
            self.cx.sleep(CLIENT_PAUSE).await;
        }
    }

    async fn call_once<T: Message>(
        &self,
        to: NodeId,
        asked: ImportRequest<'_>,
    ) -> Result<Result<T, Errno>, CallError> {
        let is_change = asked.is_change();
        let data = asked.data.map(|frame| self.cx.piece(frame.clone()));
        let call = Call {
            to,
            channel: Channel::IMPORTS,
            op: asked.op,
            once: is_change,
            deadline: Some(if is_change { CHECK_PATIENCE } else { ANSWER_SPAN }),
            body: asked.body,
            data: data.unwrap_or_else(|| self.cx.pieces()),
            trailer: &[],
            into: self.cx.pieces(),
        };
        let reply = self.cx.call(call).await?;
        Ok(reply.ok().and_then(|reply| T::decode(&reply.body).map_err(|_| Errno::EPROTO)))
    }

    fn is_lost(&self, since: &mut Option<wire::Time>) -> bool {
        let now = self.cx.now();
        now >= *since.get_or_insert(now) + IMPORTER_PATIENCE
    }

    async fn importer(&self, import: u32) -> Result<Importer, Errno> {
        if let Some(importer) = self.importers.borrow().get(&import) {
            return Ok(*importer);
        }
        let record = self.names.get_xattr(&Who::ROOT, FileId::ROOT, &record_name(import)).await;
        // without a record nobody imports
        let record = record
            .map_err(|errno| if errno == Errno::ENODATA { Errno::EHOSTDOWN } else { errno })?;
        let known = Import::take(&mut Decoder::new(&record)).map_err(|_| Errno::EIO)?;
        let importer = Importer { node: known.importer, writable: known.writable };
        self.importers.borrow_mut().insert(import, importer);
        Ok(importer)
    }
}

/// Bytes of a WRITE in the name of this user, at most: with groups it is even pages less.
pub fn write_bytes_max(user: &User) -> usize {
    PIECE_BYTES as usize - user.groups.len().next_multiple_of(wire::limits::BLOCK_BYTES)
}

fn changed(import: u32, user: &User, bytes: usize) -> Changed {
    let bytes = u32::try_from(bytes).expect("a payload");
    Changed { import, uid: user.uid, gid: user.gid, bytes }
}

/// A frame, once the pool has one.
pub(crate) async fn alloc(cx: &Cx, bytes: usize) -> FrameMut {
    loop {
        match cx.frames().alloc_exact(bytes) {
            Some(frame) => return frame,
            None => cx.sleep(RETRY_PAUSE).await,
        }
    }
}
