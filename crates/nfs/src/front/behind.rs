//! Operations that no call waits for: files that are closed, locks that wait, releases.

use crate::locks::LockOp;
use crate::server::Server;
use node::rings::{Caller, FileDone, FileOp, FileRequest};
use std::collections::BTreeMap;
use wire::FileId;

#[derive(Clone, Copy, Debug)]
enum What {
    Close(FileId),
    /// Of locks, by their number of it.
    Lock(u64),
    Interrupt,
}

/// Operations under way, by their numbers at the front.
#[derive(Debug, Default)]
pub(super) struct Behind(BTreeMap<u64, What>);

impl Behind {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Files that are being closed.
    pub fn closing(&self) -> impl Iterator<Item = FileId> {
        self.0.values().filter_map(|what| match what {
            What::Close(file) => Some(*file),
            _ => None,
        })
    }

    /// The next one, which gets this number.
    pub fn poll(&mut self, server: &Server, front: u64) -> Option<FileRequest> {
        let (what, caller, op) = self.next(server)?;
        self.0.insert(front, what);
        Some(FileRequest { front, caller, op })
    }

    fn next(&self, server: &Server) -> Option<(What, Caller, FileOp)> {
        if let Some((file, handle)) = server.open_files().borrow_mut().poll_close() {
            let op = FileOp::Release { file, handle, owner: None };
            return Some((What::Close(file), Caller::default(), op));
        }
        loop {
            match server.locks().borrow_mut().poll_op()? {
                LockOp::Ask(number, caller, op) => return Some((What::Lock(number), caller, op)),
                LockOp::Interrupt(number) => {
                    if let Some(front) = self.of_lock(number) {
                        let op = FileOp::Interrupt { front };
                        return Some((What::Interrupt, Caller::default(), op));
                    }
                }
            }
        }
    }

    fn of_lock(&self, number: u64) -> Option<u64> {
        let is_it = |what: &What| matches!(what, What::Lock(its) if *its == number);
        self.0.iter().find(|(_, what)| is_it(what)).map(|(front, _)| *front)
    }

    /// An operation has ended; it is given back when it is a call's.
    pub fn done(&mut self, server: &Server, done: FileDone) -> Option<FileDone> {
        match self.0.remove(&done.front) {
            None => return Some(done),
            Some(What::Lock(number)) => {
                server.locks().borrow_mut().op_done(number, done.result);
            }
            Some(What::Close(_) | What::Interrupt) => {}
        }
        None
    }
}
