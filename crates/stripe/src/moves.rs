//! HISTORY, INHERIT, VACATE: what a column that moves to another disk needs besides being read and written. The manager
//! moves it, and keeps other writers out.
//!
//! A copy begins where the order of writes of its source ends, so that retransmitted writes of the source are judged
//! where the copy is, as if it had always been there.

use crate::log::{Kind, Record};
use crate::object::Head;
use crate::objects::{Gates, Object};
use crate::protocol::{ObjectReply, ObjectRequest};
use crate::recent::Past;
use crate::server::Inner;
use node::{Answer, Request};
use std::rc::Rc;
use wire::Errno;

impl Inner {
    /// HISTORY.
    pub async fn tell_history(self: &Rc<Self>, request: Request, ask: &ObjectRequest) {
        match self.history(ask).await {
            Ok((reply, past)) => {
                let (body, trailer) = (reply.encode(), past.encode());
                self.cx.reply(request, Answer { trailer: &trailer, ..Answer::body(&body) });
            }
            Err(errno) => self.refuse(request, ask, errno),
        }
    }

    async fn history(self: &Rc<Self>, ask: &ObjectRequest) -> Result<(ObjectReply, Past), Errno> {
        let reply = self.commit_request(ask).await?;
        let object = self.object(ask).await?;
        let history = object.state.borrow().stable.map(|head| head.history).unwrap_or_default();
        let incarnations = self.disk(&object).incarnations.borrow();
        let past = self.recent.borrow().past(&incarnations, object.spot(), history);
        Ok((reply, past))
    }

    /// INHERIT.
    pub async fn inherit(
        self: &Rc<Self>,
        request: &Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let past = Past::decode(request.trailer()).map_err(|_| Errno::EPROTO)?;
        let object = self.object(ask).await?;
        let _gates = self.hold_settled(&object, ask).await?;
        let stable = object.state.borrow().stable.ok_or(Errno::ENOENT)?;
        // Writes from now on are distinguishable from earlier ones, if they are lost.
        let (verifier, orders) = {
            let state = object.state.borrow();
            (self.verifier_of(&state), self.last_order(&state))
        };
        let history = past.history.moved().after(verifier, orders, 0);
        let head = Head { history, shape: ask.shape, ..stable };
        self.put_record(&object, Record::bare(Kind::Commit, object.id, head)).await?;
        self.note_change(&object, head);
        // The copy has no writer.
        object.state.borrow_mut().writer = 0;
        if self.recent.borrow_mut().inherit(object.spot(), verifier, past.memory) {
            self.forget_later();
        }
        Ok(self.describe(&object))
    }

    /// The object in the caller's hands alone, with everything that was written to it stable.
    async fn hold_settled<'a>(
        self: &Rc<Self>,
        object: &'a Rc<Object>,
        ask: &ObjectRequest,
    ) -> Result<Gates<'a>, Errno> {
        let gates = self.hold(object).await?;
        self.check_write(object, ask)?;
        self.commit_all(object).await?;
        Ok(gates)
    }

    /// VACATE.
    pub async fn vacate(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let object = self.object(ask).await?;
        let _gates = self.hold_settled(&object, ask).await?;
        let history = self.history_now(&object.state.borrow()).cut(0);
        let (epoch, shape) = (ask.epoch, ask.shape);
        let head = Head { epoch, shape, history, group: ask.group, ..Head::default() };
        self.cut(&object, head).await?;
        self.note_change(&object, head);
        self.recent.borrow_mut().note(object.spot(), 0..u64::MAX);
        Ok(self.describe(&object))
    }
}
