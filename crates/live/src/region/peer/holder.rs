//! A node that keeps pages for regions in its memory and answers GET and PUT for them, without a directory:
//! the other end of measurements and tests. What it keeps is gone with it.

use endpoint::Frame;
use netmem::protocol::{Data, Get, GetReply, Message, No, Put, PutReply, Stale, op};
use netmem::{Memory, MemoryConfig, Offer, PageStamp, Reason, Wanted};
use node::{Answer, Cx, Request};
use wire::{Channel, Encoder, Errno};

/// The pages, and the frames that they are in.
pub struct Holder {
    memory: Memory,
    frames: Vec<Option<(PageStamp, Frame)>>,
}

impl Holder {
    /// Room for `pages` pages, which are taken from the node's pool as they come.
    pub fn new(pages: u32) -> Holder {
        let config = MemoryConfig { frames: pages, local_min: 0, counts_uses: true };
        Holder { memory: Memory::new(config), frames: vec![None; pages as usize] }
    }

    /// Answers requests for ever.
    pub async fn serve(mut self, cx: Cx) {
        loop {
            let request = cx.accept(Channel::MEMORY).await;
            match request.op {
                op::GET => self.get(&cx, request),
                op::PUT => self.put(&cx, request),
                _ => cx.reply(request, Answer::error(Errno::ENOSYS)),
            }
        }
    }

    fn get(&mut self, cx: &Cx, request: Request) {
        let Ok(get) = Get::decode(&request.body) else {
            return cx.reply(request, Answer::error(Errno::EINVAL));
        };
        let kept = self.memory.find(get.id).and_then(|frame| self.frames[frame.0 as usize].clone());
        let (node, incarnation) = (cx.id(), cx.incarnation());
        let stale = |version| Stale { node, incarnation, version };
        match kept {
            Some((stamp, frame)) if stamp.version >= get.at_least => {
                let (kept, leased, swapped, clean) = (true, false, false, false);
                let reply = GetReply::Data(Data { stamp, node, kept, leased, clean, swapped });
                let mut trailer = [0; PageStamp::BYTES];
                stamp.encode(&mut Encoder::new(&mut trailer));
                let (body, data) = (reply.encode(), [frame]);
                cx.reply(
                    request,
                    Answer { status: 0, body: &body, data: &data, trailer: &trailer },
                );
            }
            Some((stamp, _)) => {
                let reply = GetReply::Older { stale: stale(stamp.version), hint: None };
                cx.reply(request, Answer::body(&reply.encode()));
            }
            None => {
                let reply = GetReply::NotHere { stale: stale(get.at_least), hint: None };
                cx.reply(request, Answer::body(&reply.encode()));
            }
        }
    }

    fn put(&mut self, cx: &Cx, mut request: Request) {
        let Ok(put) = Put::decode(&request.body) else {
            return cx.reply(request, Answer::error(Errno::EINVAL));
        };
        let stored = self.keep(cx, &put, &mut request).map(|()| cx.id());
        let reply = PutReply { stored, oldest: self.memory.oldest_taken(cx.now()) };
        cx.reply(request, Answer::body(&reply.encode()));
    }

    fn keep(&mut self, cx: &Cx, put: &Put, request: &mut Request) -> Result<(), No> {
        let stamp = put.stamp;
        let wanted = Wanted { id: stamp.id, at_least: stamp.version, bytes: stamp.bytes };
        let mut data = request.data.pop().ok_or(No::Damaged)?;
        data.truncate(request.bytes);
        if !request.data.is_empty() || stamp.check(wanted, [&data[..]]).is_err() {
            return Err(No::Damaged);
        }
        let PageStamp { id, version, .. } = stamp;
        let Put { age, chances, reused, .. } = *put;
        let offer = Offer { id, version, age, chances, reused, mirror: put.is_mirror() };
        let accepted =
            self.memory.accept(cx.now(), offer).map_err(|refused| match refused.reason {
                Reason::NoRoom => No::Room,
                Reason::InUse => No::InUse,
                Reason::Stale => No::Stale,
            })?;
        self.frames[accepted.frame.0 as usize] = Some((stamp, data.freeze()));
        Ok(())
    }
}
