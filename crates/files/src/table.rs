//! The files that this client knows, and its open handles. Unused files go in the order of their last use.

use crate::inode::File;
use crate::limits::EVICTIONS_PER_FILE;
use crate::stream::Stream;
use node::Cx;
use node::rings::Handle;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{Errno, FileId};

/// An open file.
pub(crate) struct Open {
    pub handle: Handle,
    pub file: Rc<File>,
    pub flags: u32,
    /// The last failure of the file that this handle has reported.
    pub reported: Cell<u64>,
    /// The last that a write of this handle has told of. Failures from before it was opened do not count.
    pub warned: Cell<u64>,
    /// Of a file of an import that is written: who writes at its origin. The manager knows the open as a reader's.
    pub through: OnceCell<imports::User>,
    pub stream: RefCell<Stream>,
}

#[derive(Default)]
pub(crate) struct Table {
    files: BTreeMap<FileId, Rc<File>>,
    order: BTreeMap<u64, FileId>,
    uses: u64,
    handles: BTreeMap<Handle, Rc<Open>>,
    /// Open directories, and where the listings end that were begun through them; 0: not begun.
    listings: BTreeMap<Handle, (FileId, u64)>,
    last_handle: u64,
}

impl Table {
    /// The file, if it is known.
    pub fn get(&mut self, id: FileId) -> Option<Rc<File>> {
        let file = self.files.get(&id)?.clone();
        self.touch(&file);
        Some(file)
    }

    /// The file, if it is known, which is no use of it.
    pub fn peek(&self, id: FileId) -> Option<Rc<File>> {
        self.files.get(&id).cloned()
    }

    /// The file, known from now on; others that `may_go` are `forgotten` when there are more than `most`.
    pub fn file(
        &mut self,
        cx: &Cx,
        id: FileId,
        most: usize,
        may_go: impl Fn(&File) -> bool,
        forgotten: impl Fn(FileId),
    ) -> Rc<File> {
        if let Some(file) = self.get(id) {
            return file;
        }
        let file = Rc::new(File::new(cx, id));
        self.files.insert(id, file.clone());
        self.touch(&file);
        self.evict(most, may_go, forgotten);
        file
    }

    /// All files that are known.
    pub fn files(&self) -> Vec<Rc<File>> {
        self.files.values().cloned().collect()
    }

    /// How many files are known.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// How many handles are open.
    pub fn open_handles(&self) -> usize {
        self.handles.len()
    }

    /// A new handle of `file`.
    pub fn open(&mut self, file: Rc<File>, flags: u32) -> Handle {
        self.last_handle += 1;
        let handle = Handle(self.last_handle);
        let failure = file.state.borrow().failure;
        let (reported, warned) = (Cell::new(failure.told), Cell::new(failure.count));
        let (through, stream) = Default::default();
        let open = Open { handle, file, flags, reported, warned, through, stream };
        let before = self.handles.insert(handle, Rc::new(open));
        assert!(before.is_none(), "a handle's number is used once");
        handle
    }

    /// A new handle of a directory.
    pub fn open_directory(&mut self, id: FileId) -> Handle {
        self.last_handle += 1;
        let handle = Handle(self.last_handle);
        self.listings.insert(handle, (id, 0));
        handle
    }

    /// Ends a handle of a directory.
    pub fn close_directory(&mut self, handle: Handle) {
        self.listings.remove(&handle);
    }

    /// Whether the directory is open.
    pub fn is_open_directory(&self, id: FileId) -> bool {
        self.listings.values().any(|(open, _)| *open == id)
    }

    /// Where the listing of this handle ends; 0 is not known.
    pub fn listing_end(&self, handle: Handle) -> u64 {
        self.listings.get(&handle).map_or(0, |(_, until)| *until)
    }

    /// The listing of this handle ends here from now on.
    pub fn end_listing(&mut self, handle: Handle, until: u64) {
        if let Some((_, known)) = self.listings.get_mut(&handle) {
            *known = until;
        }
    }

    /// The open file of this number; EBADF when there is none.
    pub fn handle(&self, handle: Handle) -> Result<Rc<Open>, Errno> {
        self.handles.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    /// Ends a handle.
    pub fn close(&mut self, handle: Handle) -> Result<Rc<Open>, Errno> {
        self.handles.remove(&handle).ok_or(Errno::EBADF)
    }

    /// Every open file.
    pub fn opens(&self) -> impl Iterator<Item = &Open> {
        self.handles.values().map(|open| &**open)
    }

    /// Every open handle.
    pub fn handles(&self) -> Vec<Handle> {
        self.handles.keys().copied().collect()
    }

    fn touch(&mut self, file: &File) {
        self.uses += 1;
        self.order.remove(&file.used.replace(self.uses));
        self.order.insert(self.uses, file.id);
        assert_eq!(
            self.order.len(),
            self.files.len(),
            "every file has one place in the order of use"
        );
    }

    fn evict(&mut self, most: usize, may_go: impl Fn(&File) -> bool, forgotten: impl Fn(FileId)) {
        for _ in 0..EVICTIONS_PER_FILE {
            if self.files.len() <= most {
                return;
            }
            let Some((_, id)) = self.order.pop_first() else { return };
            let file = self.files[&id].clone();
            // The table's handle and ours: no other task is at work on it.
            let idle = file.state.borrow().is_idle() && may_go(&file);
            let unnamed = file.state.borrow().unnamed.is_some() && self.is_open_directory(id);
            if Rc::strong_count(&file) == 2 && idle && !unnamed {
                self.files.remove(&id);
                forgotten(id);
            } else {
                self.touch(&file);
            }
        }
    }
}
