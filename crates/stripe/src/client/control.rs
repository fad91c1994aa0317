//! Operations without data: commit, attributes, and those of managers.

use super::*;
use crate::description::{Description, Told, encode_some};
use crate::protocol::{DeviceRoom, Kept, op};
use crate::witness::Witness;
use wire::codec::{Decoder, Encoder};
use wire::field::Field;
use wire::layout::WIDTH_MAX;

impl Client {
    /// Makes everything written to the columns that `columns` names stable. The verifiers are those of the servers'
    /// present incarnations: where one differs from what the write said, the data was lost and must be written again.
    pub async fn commit(&self, file: &FileRef, columns: &Verifiers) -> Result<Verifiers, Errno> {
        let calls = columns.columns().filter(|column| *column < file.layout.width());
        let replies = self.ask_columns(file, calls, op::COMMIT, |_, _| ()).await;
        let mut verifiers = Verifiers::default();
        for (column, reply) in replies {
            verifiers.set(column, reply?.verifier);
        }
        Ok(verifiers)
    }

    /// Columns on disks that were not declared gone: only these can be changed, removed or asked.
    fn left<'a>(&'a self, file: &'a FileRef) -> impl Iterator<Item = u16> + 'a {
        (0..file.layout.width()).filter(|column| !self.is_gone(file.layout.home(*column)))
    }

    /// Size, storage and latest write, from all columns that are left.
    pub async fn attributes(&self, file: &FileRef) -> Result<ObjectTotals, Errno> {
        let fragments = self.fragments(file)?;
        let map = BlockMap::new(&file.layout, &fragments);
        let replies = self.ask_columns(file, self.left(file), op::ATTRIBUTES, |_, _| ());
        let mut totals = ObjectTotals::default();
        for (column, reply) in replies.await {
            let reply = match reply {
                Err(Errno::ENOENT) => continue,
                reply => reply?,
            };
            totals.size = totals.size.max(map.file_bytes(column, reply.length));
            totals.used += reply.used;
            totals.present |= 1u32 << column;
            totals.mtime = totals.mtime.max(reply.mtime);
            totals.uncut |= reply.truncations < file.truncations;
        }
        if self.left(file).count() < usize::from(file.layout.width()) {
            // A column that is lost may have been the longest. With its part of the last row inside the file, reading
            // there is an error; without, the file would end sooner than it did, and nothing would say so.
            let row = u64::from(file.layout.unit_bytes) * u64::from(file.layout.width());
            totals.size = (totals.size / row + 1) * row;
        }
        Ok(totals)
    }

    /// Gives the file this size, on stable storage. `file.truncations` is the new generation: writes that know only an
    /// older one are refused from here on. For managers.
    pub async fn truncate(&self, file: &FileRef, size: u64) -> Result<(), Errno> {
        let fragments = self.fragments(file)?;
        let map = BlockMap::new(&file.layout, &fragments);
        let mtime = self.cx().wall();
        let truncated = self.change_columns(file, self.left(file), op::TRUNCATE, |column, ask| {
            (ask.offset, ask.mtime) = (map.object_bytes(column, size), mtime);
        });
        truncated.await
    }

    /// Removes all objects of the file. For managers.
    pub async fn remove(&self, file: &FileRef) -> Result<(), Errno> {
        self.remove_all(std::slice::from_ref(file)).await.remove(0)
    }

    /// Removes all objects of these files; returns the outcome for each file. Objects on one disk go by the same
    /// requests. For managers.
    pub async fn remove_all(&self, files: &[FileRef]) -> Vec<Result<(), Errno>> {
        let mut disks: BTreeMap<Home, Vec<(usize, ObjectId)>> = BTreeMap::new();
        for (at, file) in files.iter().enumerate() {
            for column in self.left(file) {
                let object = ObjectId { volume: self.volume(), file: file.file, column };
                disks.entry(file.layout.home(column)).or_default().push((at, object));
            }
        }
        let some = disks.iter().flat_map(|(home, objects)| {
            objects.chunks(REMOVALS_MAX).map(|objects| (*home, objects))
        });
        let removed = node::all(some.map(|(home, objects)| self.remove_some(home, objects))).await;
        let mut results = vec![Ok(()); files.len()];
        for (at, result) in removed.into_iter().flatten() {
            results[at] = results[at].and(result);
        }
        results
    }

    /// Removes objects of one disk, as many as a request names.
    async fn remove_some(
        &self,
        home: Home,
        objects: &[(usize, ObjectId)],
    ) -> Vec<(usize, Result<(), Errno>)> {
        let mut trailer = vec![0; objects.len() * Kept::BYTES];
        let mut out = Encoder::new(&mut trailer);
        for (_, object) in objects {
            Kept { object: *object, disk: home.disk }.put(&mut out);
        }
        let ask = ObjectRequest { disk: home.disk, ..ObjectRequest::default() };
        let reply = self.ask_with(home.server, op::REMOVE, &ask, &trailer).await;
        let results = objects.iter().enumerate();
        results.map(|(at, (file, _))| (*file, status_at(&reply, at))).collect()
    }

    /// Tells objects on one disk what is known of their files; what became of each, and the verifier of the server that
    /// answered last, also when there are none. It is in their headers after the disk's next checkpoint, and goes with
    /// a crash before: after another verifier they must be told again. For managers.
    pub async fn describe(
        &self,
        home: Home,
        objects: &[(ObjectId, Description)],
    ) -> (Option<u64>, Vec<Result<(), Errno>>) {
        let (mut verifier, mut results) = (None, Vec::with_capacity(objects.len()));
        loop {
            let (trailer, count) = encode_some(&objects[results.len()..]);
            let bytes = count as u32;
            let ask = ObjectRequest { disk: home.disk, bytes, ..ObjectRequest::default() };
            let reply = self.ask_with(home.server, op::DESCRIBE, &ask, &trailer).await;
            results.extend((0..count).map(|at| status_at(&reply, at)));
            let told = reply.and_then(|reply| decoded(&reply));
            verifier = told.as_ref().map_or(verifier, |told| Some(told.verifier));
            if results.len() == objects.len() || told.is_err() {
                break;
            }
        }
        results.resize(objects.len(), Err(Errno::ETIMEDOUT));
        (verifier, results)
    }

    /// All objects of the file know this of it, on stable storage. For managers.
    pub async fn describe_all(
        &self,
        file: &FileRef,
        description: &Description,
    ) -> Result<(), Errno> {
        let calls = self.left(file).map(async |column| {
            let ask = ObjectRequest { bytes: 1, stable: true, ..self.request(file, column) };
            let (trailer, _) = encode_some(&[(ask.object, description.clone())]);
            let server = file.layout.server(column);
            let reply = self.ask_with(server, op::DESCRIBE, &ask, &trailer).await;
            match status_at(&reply, 0) {
                Err(Errno::ENODATA) => Ok(()),
                told => told,
            }
        });
        node::all(calls).await.into_iter().collect()
    }

    /// An object's attributes, and the description of its file.
    pub async fn description(
        &self,
        server: NodeId,
        kept: Kept,
    ) -> Result<(ObjectReply, Told), Errno> {
        let Kept { object, disk } = kept;
        let ask = ObjectRequest { object, disk, ..ObjectRequest::default() };
        let reply = self.ask_with(server, op::DESCRIPTION, &ask, &[]).await?;
        let told = Told::decode(reply.trailer()).map_err(|_| Errno::EPROTO)?;
        Ok((decoded(&reply)?, told))
    }

    /// Sets the layout's epoch on all objects. For managers.
    pub async fn set_layout(&self, file: &FileRef) -> Result<(), Errno> {
        self.change_columns(file, self.left(file), op::SET_LAYOUT, |_, _| ()).await
    }

    /// As [`set_layout`](Client::set_layout), before the last copy of a column that moves: its object counts no longer
    /// than until that copy has arrived.
    pub async fn leave_column(&self, file: &FileRef, column: u16) -> Result<(), Errno> {
        let leave = |number: u16, ask: &mut ObjectRequest| {
            if number == column {
                ask.shape.role = Role::Left;
            }
        };
        self.change_columns(file, self.left(file), op::SET_LAYOUT, leave).await
    }

    /// Room on all of `servers` together. A server that does not answer soon counts with what it said last, one that
    /// never said anything not at all; an error when that is all of them. Applications wait for this: a server that was
    /// asked before is waited for only briefly.
    pub async fn space(&self, servers: &[NodeId]) -> Result<VolumeRoom, Errno> {
        let (servers, copies) = self.with_disks(servers);
        let rooms = node::all(servers.iter().map(|server| self.last_room(*server))).await;
        let known = servers.is_empty() || rooms.iter().any(Option::is_some);
        let VolumeRoom { total_bytes, free_bytes } =
            VolumeRoom::of(rooms.iter().flatten().flatten());
        let room =
            VolumeRoom { total_bytes: total_bytes / copies, free_bytes: free_bytes / copies };
        if known { Ok(room) } else { Err(Errno::ETIMEDOUT) }
    }

    /// The servers with the disks of these, of which some may be groups, and how often each byte is kept there.
    fn with_disks(&self, servers: &[NodeId]) -> (Vec<NodeId>, u64) {
        let (mut with, mut copies) = (BTreeSet::new(), 1);
        let groups = self.0.groups.borrow();
        for server in servers {
            let id = GroupId::from(Home::from(*server));
            match groups.as_ref().filter(|_| id.is_listed()).and_then(|groups| groups.get(id)) {
                Some(group) => {
                    copies = copies.max(u64::from(group.copies()));
                    with.extend(group.replicas().iter().map(|replica| replica.server));
                }
                None => drop(with.insert(*server)),
            }
        }
        (with.into_iter().collect(), copies)
    }

    async fn last_room(&self, server: NodeId) -> Option<Vec<DeviceRoom>> {
        let known = self.0.rooms.borrow().get(&server).cloned();
        let span = if known.is_some() { SPACE_AGAIN_SPAN } else { SPACE_SPAN };
        let room = self.room(server, span).await.ok().or(known.flatten());
        self.0.rooms.borrow_mut().insert(server, room.clone());
        room
    }

    async fn room(&self, server: NodeId, span: Duration) -> Result<Vec<DeviceRoom>, Errno> {
        let ask = ObjectRequest::default();
        let asked = self.ask_server(server, op::SPACE, &ask, WIDTH_MAX * DeviceRoom::BYTES);
        let late = |_| Errno::ETIMEDOUT;
        let reply = self.cx().with_deadline(span, asked).await.map_err(late)??;
        let own = decoded(&reply)?;
        let mut rooms = rows(&reply, DeviceRoom::BYTES)?;
        let (device, total_bytes, free_bytes) = (0, own.length, own.used);
        rooms.push(DeviceRoom { device, total_bytes, free_bytes });
        Ok(rooms)
    }

    /// Room on each of `servers`, or why it does not say.
    pub async fn rooms(&self, servers: &[NodeId]) -> Vec<Result<VolumeRoom, Errno>> {
        let asked = servers.iter().map(|server| self.room(*server, SPACE_SPAN));
        let told = node::all(asked).await;
        told.into_iter().map(|room| room.map(|rooms| VolumeRoom::of(rooms.iter()))).collect()
    }

    /// Tells a server how far the store of a manager is (0 is the first one), and what it knows of that; an answer
    /// within `span`. For managers.
    pub async fn witness(
        &self,
        server: NodeId,
        manager: NodeId,
        told: Witness,
        span: Duration,
    ) -> Result<Witness, Errno> {
        let volume = self.volume();
        let object = ObjectId { volume, column: manager.0, ..ObjectId::default() };
        // The disks that are left of the server know it.
        let left = (0..u32::BITS as u8).find(|disk| !self.is_gone(Home { server, disk: *disk }));
        let disk = left.unwrap_or_default();
        let mut ask = ObjectRequest { object, disk, ..ObjectRequest::default() };
        told.tell(&mut ask);
        let asked = self.ask(server, op::WITNESS, &ask);
        let late = |_| Errno::ETIMEDOUT;
        Witness::of_reply(&self.cx().with_deadline(span, asked).await.map_err(late)??)
    }

    /// The servers' replies on the file's objects, in the order of the columns. ENOENT: nothing was written there.
    pub async fn columns(&self, file: &FileRef) -> Vec<Result<ObjectReply, Errno>> {
        let columns = 0..file.layout.width();
        let replies = self.ask_columns(file, columns, op::ATTRIBUTES, |_, _| ()).await;
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    /// At most `count` objects (4096 at most) that a server keeps, in ascending order after `after`.
    pub async fn list(
        &self,
        server: NodeId,
        after: Option<ObjectId>,
        count: usize,
    ) -> Result<Vec<Kept>, Errno> {
        let count = count.min(LIST_COUNT_MAX);
        let ask = ObjectRequest {
            object: after.unwrap_or_default(),
            bytes: count as u32,
            ..ObjectRequest::default()
        };
        let reply = self.ask_server(server, op::LIST, &ask, count * Kept::BYTES).await?;
        rows(&reply, Kept::BYTES)
    }

    /// Shows `each` all objects that a server keeps, in ascending order, in parts.
    pub async fn list_all(
        &self,
        server: NodeId,
        mut each: impl FnMut(&[Kept]),
    ) -> Result<(), Errno> {
        let mut after = None;
        loop {
            let some = self.list(server, after, LIST_COUNT_MAX).await?;
            each(&some);
            after = some.last().map(|kept| kept.object);
            if some.len() < LIST_COUNT_MAX {
                return Ok(());
            }
        }
    }

    /// A question to a server as a whole, whose answer has at most `bytes` of data.
    async fn ask_server(
        &self,
        to: NodeId,
        op: u16,
        ask: &ObjectRequest,
        bytes: usize,
    ) -> Result<Reply, Errno> {
        let mut tries = self.tries(Some((to, None)));
        loop {
            let into = self.fresh(bytes.max(1), &mut tries).await?;
            let (home, into) = (Home::from(to), self.cx().piece(into));
            let trouble = match self.send(home, op, *ask, Sent::default(), into, &tries).await {
                Ok(reply) if reply.status == 0 => return Ok(reply),
                Ok(reply) => Trouble::of_reply(home, reply.status),
                Err(trouble) => trouble,
            };
            tries.again(trouble).await?;
        }
    }

    /// Bytes of an object where it is kept, whatever layout its file has. ENOENT: nothing was written there.
    pub async fn kept_bytes(&self, server: NodeId, kept: Kept) -> Result<u64, Errno> {
        let reply = self.ask(server, op::ATTRIBUTES, &about(kept)).await?;
        Ok(reply.length)
    }

    /// Sets an object aside on a server; how many bytes it has. For managers.
    pub async fn quarantine(&self, server: NodeId, kept: Kept) -> Result<u64, Errno> {
        let reply = self.ask(server, op::QUARANTINE, &about(kept)).await?;
        Ok(reply.length)
    }

    /// Makes what was set aside an object again. For managers.
    pub async fn restore(&self, server: NodeId, kept: Kept) -> Result<(), Errno> {
        self.ask(server, op::RESTORE, &about(kept)).await.map(drop)
    }

    /// Removes for good what was set aside. For managers.
    pub async fn purge(&self, server: NodeId, kept: Kept) -> Result<(), Errno> {
        self.ask(server, op::PURGE, &about(kept)).await.map(drop)
    }

    /// Begins a column anew as an empty object, in place of one that is missing or damaged; EEXIST when it is neither.
    /// For a person who takes the loss as final.
    pub async fn accept_loss(&self, file: &FileRef, column: u16) -> Result<(), Errno> {
        let request = self.request(file, column);
        self.ask(file.layout.server(column), op::ACCEPT_LOSS, &request).await.map(drop)
    }

    /// Asks for a change of the objects of these columns; the first error that one of them tells.
    pub(super) async fn change_columns(
        &self,
        file: &FileRef,
        columns: impl Iterator<Item = u16>,
        op: u16,
        adapt: impl Fn(u16, &mut ObjectRequest),
    ) -> Result<(), Errno> {
        let replies = self.ask_columns(file, columns, op, adapt).await;
        replies.into_iter().try_for_each(|(_, reply)| reply.map(drop))
    }

    /// Asks the objects of these columns; the reply of each.
    pub(super) async fn ask_columns(
        &self,
        file: &FileRef,
        columns: impl Iterator<Item = u16>,
        op: u16,
        adapt: impl Fn(u16, &mut ObjectRequest),
    ) -> Vec<(u16, Result<ObjectReply, Errno>)> {
        let calls = columns.map(|column| {
            let mut request = self.request(file, column);
            adapt(column, &mut request);
            async move { (column, self.ask(file.layout.server(column), op, &request).await) }
        });
        node::all(calls).await
    }
}

/// A request about an object wherever its file has it.
fn about(Kept { object, disk }: Kept) -> ObjectRequest {
    ObjectRequest { object, disk, ..ObjectRequest::default() }
}

/// The rows of so many bytes that a reply's data is.
fn rows<T: for<'a> Field<'a>>(reply: &Reply, bytes: usize) -> Result<Vec<T>, Errno> {
    let Some(frame) = reply.data.first() else { return Ok(Vec::new()) };
    let all = frame[..reply.bytes.min(frame.len())].chunks_exact(bytes);
    all.map(|row| T::take(&mut Decoder::new(row)).map_err(|_| Errno::EPROTO)).collect()
}

/// The status of one of several objects, from the trailer of a reply.
fn status_at(reply: &Result<Reply, Errno>, at: usize) -> Result<(), Errno> {
    let trailer = reply.as_ref().map_err(|errno| *errno)?.trailer();
    let status = trailer.chunks_exact(2).nth(at).ok_or(Errno::EPROTO)?;
    match u16::from_le_bytes([status[0], status[1]]) {
        0 => Ok(()),
        status => Err(Errno(status)),
    }
}
