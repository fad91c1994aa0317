//! A client's half: what it asks of importers.

use crate::limits::*;
use crate::protocol::{CHECK, Check, FETCH, Fetch, Import, Said, record_name};
use names::Who;
use node::{Call, CallError, Cx};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use wire::field::{Field, Message};
use wire::{Channel, Decoder, Errno, FileId, NodeId};

/// The imports of a volume, as a client of its files uses them.
pub struct Client {
    cx: Cx,
    names: names::Client,
    importers: RefCell<BTreeMap<u32, NodeId>>,
    /// Files of which all is there, and the truncate generation of which that is said.
    whole: RefCell<BTreeMap<FileId, u32>>,
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

    async fn call(&self, import: u32, op: u16, body: &impl Message) -> Result<bool, Errno> {
        let begun = self.cx.now();
        let mut lost_since = None;
        loop {
            let to = self.importer(import).await?;
            let result = self.call_once(to, op, body).await;
            let is_late = match result {
                // another node has the importer's number by now
                Ok(Err(Errno::EINVAL)) => self.is_lost(&mut lost_since),
                Ok(answer) => return answer,
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

    async fn call_once(
        &self,
        to: NodeId,
        op: u16,
        body: &impl Message,
    ) -> Result<Result<bool, Errno>, CallError> {
        let (data, into) = (self.cx.pieces(), self.cx.pieces());
        let call = Call {
            to,
            channel: Channel::IMPORTS,
            op,
            once: false,
            deadline: Some(ANSWER_SPAN),
            body: &body.encode(),
            data,
            trailer: &[],
            into,
        };
        let reply = self.cx.call(call).await?;
        let said = |body: &[u8]| Said::decode(body).map_err(|_| Errno::EPROTO);
        Ok(reply.ok().and_then(|reply| said(&reply.body)).map(|said| said.yes))
    }

    fn is_lost(&self, since: &mut Option<wire::Time>) -> bool {
        let now = self.cx.now();
        now >= *since.get_or_insert(now) + IMPORTER_PATIENCE
    }

    async fn importer(&self, import: u32) -> Result<NodeId, Errno> {
        if let Some(node) = self.importers.borrow().get(&import) {
            return Ok(*node);
        }
        let record = self.names.get_xattr(&Who::ROOT, FileId::ROOT, &record_name(import)).await;
        // without a record nobody imports
        let record = record
            .map_err(|errno| if errno == Errno::ENODATA { Errno::EHOSTDOWN } else { errno })?;
        let known = Import::take(&mut Decoder::new(&record)).map_err(|_| Errno::EIO)?;
        self.importers.borrow_mut().insert(import, known.importer);
        Ok(known.importer)
    }
}
