//! The manager's requests to the I/O servers.
//!
//! It is a trait so that the service is tested with objects that fail and wait on purpose; the one implementation that
//! runs is the striping client.

use crate::limits::WITNESS_DEADLINE;
use crate::sessions::Final;
use node::rings::VolumeSpace;
use stripe::protocol::ObjectReply;
use stripe::{Description, FileRef, Kept, Told, Witness};
use wire::{Errno, FileId, Fragment, Home, Layout, NodeId, ObjectId};

/// The objects of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectsOf {
    /// The file.
    pub file: FileId,
    /// Their layout.
    pub layout: Layout,
    /// The truncate generation.
    pub truncations: u32,
}

/// The I/O servers, as the manager needs them. All of it is repeatable: asking twice is asking once.
#[allow(async_fn_in_trait)] // everything belongs to one thread
pub trait Objects: 'static {
    /// Every object has the length that follows from `size`, and the generation.
    async fn truncate(&self, objects: &ObjectsOf, size: u64) -> Result<(), Errno>;
    /// No object is left; what became of each file.
    async fn remove(&self, files: &[ObjectsOf]) -> Vec<Result<(), Errno>>;
    /// Length, last write and storage, from all objects.
    async fn totals(&self, objects: &ObjectsOf) -> Result<Final, Errno>;
    /// The servers' replies on the objects, in the order of the columns; ENOENT where there is none.
    async fn columns(&self, objects: &ObjectsOf) -> Vec<Result<ObjectReply, Errno>>;
    /// Every object knows the layout's epoch.
    async fn set_layout(&self, objects: &ObjectsOf) -> Result<(), Errno>;
    /// The block map of a file, all of it, as of this layout epoch.
    fn learn_map(&self, file: FileId, epoch: u32, fragments: &[Fragment]);
    /// As [`set_layout`](Objects::set_layout); the object of this column is one that is left: as soon as a copy of it
    /// has arrived under this epoch it is no column any more.
    async fn leave_column(&self, objects: &ObjectsOf, column: u16) -> Result<(), Errno>;
    /// `to`'s disk of this column gets the content of `from`'s, on stable storage. At most `rate` bytes a second are
    /// copied; 0 is as fast as it goes. It `arrives` when nothing writes meanwhile.
    async fn copy_column(
        &self,
        from: &ObjectsOf,
        to: &ObjectsOf,
        column: u16,
        rate: u64,
        arrives: bool,
    ) -> Result<(), Errno>;
    /// The object of a column that is kept elsewhere from now on is empty, and tells that it moved.
    async fn vacate_column(&self, objects: &ObjectsOf, column: u16) -> Result<(), Errno>;
    /// At most `count` objects that the server has, with their disks, in ascending order after `after`.
    async fn list(
        &self,
        server: NodeId,
        after: Option<ObjectId>,
        count: usize,
    ) -> Result<Vec<Kept>, Errno>;
    /// The object is set aside on the server; how many bytes it has.
    async fn quarantine(&self, server: NodeId, object: Kept) -> Result<u64, Errno>;
    /// The quarantined object is an object again.
    async fn restore(&self, server: NodeId, object: Kept) -> Result<(), Errno>;
    /// The quarantined object is gone for good.
    async fn purge(&self, server: NodeId, object: Kept) -> Result<(), Errno>;
    /// Tells the server how far the store of this manager is, where 0 is the volume's first one; what it knows of that.
    async fn witness(
        &self,
        server: NodeId,
        manager: NodeId,
        told: Witness,
    ) -> Result<Witness, Errno>;
    /// Tells objects on one disk what is known of their files: the verifier of the server's incarnation, if it
    /// answered, and what became of each.
    async fn describe(
        &self,
        home: Home,
        objects: &[(ObjectId, Description)],
    ) -> (Option<u64>, Vec<Result<(), Errno>>);
    /// Every object knows this of its file, on stable storage.
    async fn describe_all(
        &self,
        objects: &ObjectsOf,
        description: &Description,
    ) -> Result<(), Errno>;
    /// An object's attributes and description of its file; ENOENT where there is none.
    async fn description(&self, server: NodeId, object: Kept)
    -> Result<(ObjectReply, Told), Errno>;
    /// Room on these servers, in bytes; the counts of files are 0.
    async fn space(&self, servers: &[NodeId]) -> Result<VolumeSpace, Errno>;
}

impl ObjectsOf {
    fn reference(&self) -> FileRef {
        FileRef { file: self.file, layout: self.layout, truncations: self.truncations }
    }
}

impl Objects for stripe::Client {
    async fn truncate(&self, objects: &ObjectsOf, size: u64) -> Result<(), Errno> {
        stripe::Client::truncate(self, &objects.reference(), size).await
    }

    async fn remove(&self, files: &[ObjectsOf]) -> Vec<Result<(), Errno>> {
        let files: Vec<FileRef> = files.iter().map(ObjectsOf::reference).collect();
        self.remove_all(&files).await
    }

    async fn totals(&self, objects: &ObjectsOf) -> Result<Final, Errno> {
        let totals = self.attributes(&objects.reference()).await?;
        if totals.uncut {
            return Err(Errno::EAGAIN);
        }
        let used = Some(totals.used);
        let (truncations, present) = (objects.truncations, totals.present);
        Ok(Final { size: totals.size, mtime: totals.mtime, used, truncations, present })
    }

    async fn columns(&self, objects: &ObjectsOf) -> Vec<Result<ObjectReply, Errno>> {
        stripe::Client::columns(self, &objects.reference()).await
    }

    async fn set_layout(&self, objects: &ObjectsOf) -> Result<(), Errno> {
        stripe::Client::set_layout(self, &objects.reference()).await
    }

    async fn leave_column(&self, objects: &ObjectsOf, column: u16) -> Result<(), Errno> {
        stripe::Client::leave_column(self, &objects.reference(), column).await
    }

    fn learn_map(&self, file: FileId, epoch: u32, fragments: &[Fragment]) {
        stripe::Client::learn_map(self, file, epoch, fragments);
    }

    async fn copy_column(
        &self,
        from: &ObjectsOf,
        to: &ObjectsOf,
        column: u16,
        rate: u64,
        arrives: bool,
    ) -> Result<(), Errno> {
        let (from, to) = (from.reference(), to.reference());
        stripe::Client::copy_column(self, &from, &to, column, rate, arrives).await
    }

    async fn vacate_column(&self, objects: &ObjectsOf, column: u16) -> Result<(), Errno> {
        stripe::Client::vacate_column(self, &objects.reference(), column).await
    }

    async fn list(
        &self,
        server: NodeId,
        after: Option<ObjectId>,
        count: usize,
    ) -> Result<Vec<Kept>, Errno> {
        stripe::Client::list(self, server, after, count).await
    }

    async fn quarantine(&self, server: NodeId, object: Kept) -> Result<u64, Errno> {
        stripe::Client::quarantine(self, server, object).await
    }

    async fn restore(&self, server: NodeId, object: Kept) -> Result<(), Errno> {
        stripe::Client::restore(self, server, object).await
    }

    async fn purge(&self, server: NodeId, object: Kept) -> Result<(), Errno> {
        stripe::Client::purge(self, server, object).await
    }

    async fn witness(
        &self,
        server: NodeId,
        manager: NodeId,
        told: Witness,
    ) -> Result<Witness, Errno> {
        stripe::Client::witness(self, server, manager, told, WITNESS_DEADLINE).await
    }

    async fn describe(
        &self,
        home: Home,
        objects: &[(ObjectId, Description)],
    ) -> (Option<u64>, Vec<Result<(), Errno>>) {
        stripe::Client::describe(self, home, objects).await
    }

    async fn describe_all(
        &self,
        objects: &ObjectsOf,
        description: &Description,
    ) -> Result<(), Errno> {
        stripe::Client::describe_all(self, &objects.reference(), description).await
    }

    async fn description(
        &self,
        server: NodeId,
        object: Kept,
    ) -> Result<(ObjectReply, Told), Errno> {
        stripe::Client::description(self, server, object).await
    }

    async fn space(&self, servers: &[NodeId]) -> Result<VolumeSpace, Errno> {
        let room = stripe::Client::space(self, servers).await?;
        let (total_bytes, free_bytes) = (room.total_bytes, room.free_bytes);
        Ok(VolumeSpace { total_bytes, free_bytes, ..VolumeSpace::default() })
    }
}
