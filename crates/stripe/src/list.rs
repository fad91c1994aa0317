//! LIST: the objects of a server's disks, or of a group.

use crate::disk::{Disk, errno};
use crate::limits::LIST_COUNT_MAX;
use crate::protocol::{Kept, ObjectReply, ObjectRequest};
use crate::server::Inner;
use node::{Answer, Request};
use wire::{Errno, GroupId, ObjectId};

impl Inner {
    pub async fn list(&self, request: Request, ask: &ObjectRequest) {
        let count = (ask.bytes as usize).min(LIST_COUNT_MAX);
        match self.list_objects(ask, count).await {
            Ok(names) => self.reply_names(request, &names),
            Err(errno) => self.cx.reply(request, Answer::error(errno)),
        }
    }

    /// At most `count` objects of a group, or of none, behind `ask`'s on the disks that serve, ascending.
    async fn list_objects(&self, ask: &ObjectRequest, count: usize) -> Result<Vec<Kept>, Errno> {
        let after = (ask.object != ObjectId::default()).then_some(ask.object);
        let in_group = ask.group.is_listed();
        // A list without what is on a disk that serves in a moment would be taken for all there is.
        if self.disks.iter().any(|disk| disk.check() == Err(Errno::EAGAIN)) {
            return Err(Errno::EAGAIN);
        }
        let mut names = Vec::new();
        for disk in self.disks.iter().filter(|disk| disk.check().is_ok()) {
            let number = disk.id.0 as u8;
            if in_group && number != ask.disk {
                continue;
            }
            let shown = if in_group { 0 } else { number };
            match self.list_of(number.into(), ask.group, after, count).await {
                Ok(some) => {
                    names.extend(some.into_iter().map(|object| Kept { object, disk: shown }));
                }
                Err(_) if disk.is_refused() => {} // by this very question
                Err(error) => return Err(error),
            }
        }
        names.sort_unstable();
        names.truncate(count);
        Ok(names)
    }

    /// At most `count` objects of a group, or of none, on one disk behind `after`, ascending. Of a group none is
    /// missing that is there all the time from the first page to the last, whatever a checkpoint does meanwhile: a
    /// replica that is filled by the list has what is in it.
    pub async fn list_of(
        &self,
        disk: usize,
        group: GroupId,
        mut after: Option<ObjectId>,
        count: usize,
    ) -> Result<Vec<ObjectId>, Errno> {
        let mut listed = Vec::new();
        // Tables in memory are looked through in larger pages: most of it may be of other groups.
        let page = if group.is_listed() { LIST_COUNT_MAX } else { count };
        loop {
            let some = self.some_objects(&self.disks[disk], group, after, page).await?;
            let bound = some.last().copied().filter(|_| some.len() == page);
            listed.extend(some.into_iter().filter(|id| self.group_of_object(disk, *id) == group));
            after = bound;
            if after.is_none() || listed.len() >= count {
                listed.truncate(count);
                return Ok(listed);
            }
            self.cx.yield_now().await;
        }
    }

    /// The first `count` objects behind `after` that may be of the group. Those of none also where the index does not
    /// know them.
    async fn some_objects(
        &self,
        disk: &Disk,
        group: GroupId,
        after: Option<ObjectId>,
        count: usize,
    ) -> Result<Vec<ObjectId>, Errno> {
        disk.check()?;
        match group.is_listed() {
            true => Ok(disk.known_objects(after, count)),
            false => disk.list_objects(after, count).await.map_err(errno),
        }
    }

    fn reply_names(&self, request: Request, names: &[Kept]) {
        let reply = ObjectReply { length: names.len() as u64, ..ObjectReply::default() };
        self.reply_rows(request, reply, (names.len(), Kept::BYTES), names.iter().copied());
    }
}
