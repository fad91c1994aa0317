//! Choice of a worker's next request.

use super::*;

/// Linux's open(2) flags.
const O_RDWR: u32 = 2;
const O_CREATE_EXCLUSIVE: u32 = 0o100 | 0o200 | O_RDWR;
/// Bytes of a directory page that is asked for.
const LISTING_BYTES: u32 = 1024;

impl Worker {
    pub(super) fn choose(
        &mut self,
        model: &mut Model,
        frames: &Frames,
        now: Picos,
    ) -> Option<(FileOp, InFlight)> {
        if let Some(asked) = self.follow.take() {
            return Some(self.go_on(asked));
        }
        if self.audit.is_some() {
            return self.choose_audit();
        }
        let Some(home) = self.home else { return Some(self.choose_home()) };
        if self.open.is_some() {
            return self.choose_data(model, frames, now);
        }
        if let Some(index) = self.shared.iter().position(Option::is_none) {
            return Some(self.choose_shared(index));
        }
        if self.last.begun {
            return self.choose_last(home, model);
        }
        match self.random.below(12) {
            0 => Some((FileOp::OpenDirectory { file: home }, InFlight::OpenListing)),
            1 => Some((FileOp::FsyncDirectory { file: home }, InFlight::SyncHome)),
            2..=5 => {
                let file = self.random.pick(&self.shared).expect("all are known");
                Some(open_file(file))
            }
            6 => Some(self.choose_directory(home, model)),
            _ => Some(self.choose_name(home, model)),
        }
    }

    /// The operation that completes an earlier one.
    fn go_on(&mut self, asked: InFlight) -> (FileOp, InFlight) {
        let home = self.home.unwrap_or(FileId::ROOT);
        let op = match &asked {
            InFlight::Listing { handle, cookie, .. } => FileOp::ReadDirectory {
                file: home,
                handle: *handle,
                cookie: *cookie,
                bytes: LISTING_BYTES,
                with_attributes: false,
            },
            InFlight::CloseListing { handle } => {
                FileOp::ReleaseDirectory { file: home, handle: *handle }
            }
            InFlight::Find { directory, name } => {
                FileOp::Lookup { parent: *directory, name: name.clone() }
            }
            other => unreachable!("nothing is completed by {other:?}"),
        };
        (op, asked)
    }

    fn choose_home(&mut self) -> (FileOp, InFlight) {
        let name = name(format!("home{}", self.number));
        (FileOp::MakeDirectory { parent: FileId::ROOT, name, mode: 0o755 }, InFlight::Home)
    }

    /// The first worker makes the shared files, the others look for them.
    fn choose_shared(&mut self, index: usize) -> (FileOp, InFlight) {
        let name = shared_name(index);
        let parent = FileId::ROOT;
        if self.number == 0 {
            let asked = InFlight::Create { name: name.clone() };
            return (
                FileOp::Create { parent, name, mode: 0o644, flags: O_CREATE_EXCLUSIVE },
                asked,
            );
        }
        let asked = InFlight::Find { directory: parent, name: name.clone() };
        (FileOp::Lookup { parent, name }, asked)
    }

    fn choose_last(&mut self, home: FileId, model: &mut Model) -> Option<(FileOp, InFlight)> {
        if self.last.left.is_none() {
            let mut files: Vec<FileId> = self.shared.iter().flatten().copied().collect();
            for name in model.names.names(home) {
                if let [Value::File(file)] = model.names.may(home, &name)
                    && name.starts_with(b"f")
                {
                    files.push(*file);
                }
            }
            self.last.left = Some(files);
        }
        let file = self.last.left.as_mut()?.pop()?;
        Some(open_file(file))
    }

    fn choose_directory(&mut self, home: FileId, model: &mut Model) -> (FileOp, InFlight) {
        let name = name(format!("d{}", self.random.below(4)));
        let parent = home;
        if model.names.may(home, &name).len() > 1 {
            return (
                FileOp::Lookup { parent, name: name.clone() },
                InFlight::Find { directory: home, name },
            );
        }
        let exists = model.names.exists(home, &name);
        if exists && self.random.chance(500_000) {
            let change = Change(vec![(home, name.clone(), Value::Nothing)]);
            let asked = InFlight::Names { change, may_fail: Errno(0) };
            return (FileOp::RemoveDirectory { parent, name }, asked);
        }
        let change = Change(vec![(home, name.clone(), Value::Something)]);
        let may_fail = if exists { Errno::EEXIST } else { Errno(0) };
        (FileOp::MakeDirectory { parent, name, mode: 0o755 }, InFlight::Names { change, may_fail })
    }

    fn choose_name(&mut self, home: FileId, model: &mut Model) -> (FileOp, InFlight) {
        let (parent, name) = (home, name(format!("f{}", self.random.below(10))));
        let look = |name: Name| {
            let asked = InFlight::Find { directory: home, name: name.clone() };
            (FileOp::Lookup { parent, name }, asked)
        };
        let file = match model.names.may(home, &name) {
            [Value::File(file)] => *file,
            [Value::Nothing] if self.random.chance(800_000) => {
                let asked = InFlight::Create { name: name.clone() };
                let op = FileOp::Create { parent, name, mode: 0o644, flags: O_CREATE_EXCLUSIVE };
                return (op, asked);
            }
            _ => return look(name),
        };
        match self.random.below(10) {
            0 => look(name),
            1 => {
                let asked = InFlight::Names { change: Change::default(), may_fail: Errno::EEXIST };
                (FileOp::Create { parent, name, mode: 0o644, flags: O_CREATE_EXCLUSIVE }, asked)
            }
            2 => {
                let change = Change(vec![(home, name.clone(), Value::Nothing)]);
                (FileOp::Unlink { parent, name }, InFlight::Names { change, may_fail: Errno(0) })
            }
            3 => self.choose_rename(home, name, file),
            4 => (FileOp::GetAttr { file, handle: None }, InFlight::Size { file }),
            _ => open_file(file),
        }
    }

    fn choose_rename(&mut self, home: FileId, from: Name, file: FileId) -> (FileOp, InFlight) {
        let to = name(format!("f{}", self.random.below(10)));
        let mut changes = vec![(home, to.clone(), Value::File(file))];
        if to != from {
            changes.push((home, from.clone(), Value::Nothing));
        }
        let op =
            FileOp::Rename { parent: home, name: from, new_parent: home, new_name: to, flags: 0 };
        (op, InFlight::Names { change: Change(changes), may_fail: Errno(0) })
    }

    fn choose_data(
        &mut self,
        model: &mut Model,
        frames: &Frames,
        now: Picos,
    ) -> Option<(FileOp, InFlight)> {
        let Open { file, handle, left, .. } = *self.open.as_ref().expect("checked by the caller");
        if self.closing {
            return Some((FileOp::Release { file, handle, owner: None }, InFlight::Release));
        }
        if self.last.begun {
            return Some(self.choose_last_data(file, handle));
        }
        if left == 0 {
            return Some((FileOp::Flush { file, handle, owner: 0 }, InFlight::Flush));
        }
        self.open.as_mut().expect("as above").left -= 1;
        // Drawn only where there are hints: the seeds of other experiments stay what they are.
        if self.hints && self.random.below(6) == 0 {
            let offset = self.random.below(self.sizes.file);
            let bytes = self.random.within(1, self.sizes.file);
            let op = FileOp::Prefetch { file, handle, offset, bytes };
            return Some((op, InFlight::Hint));
        }
        if self.random.below(8) == 0 {
            return Some(self.choose_hole((file, handle), model, now));
        }
        match self.random.below(20) {
            0 | 19 => Some((FileOp::Fsync { file, handle, data_only: false }, InFlight::Fsync)),
            1 => {
                let size = self.random.below(self.sizes.file);
                let id = model.data.truncation_begins(self.mount, file, size, now);
                let changes = SetAttr { size: Some(size), ..SetAttr::default() };
                let op = FileOp::SetAttr { file, handle: Some(handle), changes };
                Some((op, InFlight::Truncate { id }))
            }
            2 | 3 => {
                Some((FileOp::GetAttr { file, handle: Some(handle) }, InFlight::Size { file }))
            }
            4..=11 => self.choose_write(file, handle, model, frames, now),
            _ => {
                let offset = self.random.below(self.sizes.file);
                let asked = self.random.within(1, self.sizes.read);
                let op = FileOp::Read { file, handle, offset, bytes: asked as u32 };
                Some((op, InFlight::Read { offset, asked }))
            }
        }
    }

    /// In the last phase a file is read from end to end and closed.
    fn choose_last_data(&mut self, file: FileId, handle: Handle) -> (FileOp, InFlight) {
        let offset = self.last.offset;
        if offset >= self.sizes.file + self.sizes.write {
            return (FileOp::Flush { file, handle, owner: 0 }, InFlight::Flush);
        }
        self.last.offset += self.sizes.read;
        let op = FileOp::Read { file, handle, offset, bytes: self.sizes.read as u32 };
        (op, InFlight::Read { offset, asked: self.sizes.read })
    }

    fn choose_write(
        &mut self,
        file: FileId,
        handle: Handle,
        model: &mut Model,
        frames: &Frames,
        now: Picos,
    ) -> Option<(FileOp, InFlight)> {
        let mut offset = self.random.below(self.sizes.file);
        let mut bytes = self.random.within(1, self.sizes.write);
        if self.random.chance(500_000) {
            (offset, bytes) = (offset & !4095, bytes.next_multiple_of(4096));
        }
        let mut frame = frames.alloc_exact(bytes as usize)?;
        let id = model.data.write_begins(self.mount, file, offset, bytes, now);
        model.data.goes_through(id, handle.0);
        fill(id, offset, &mut frame);
        let data = vec![frame.freeze()];
        Some((
            FileOp::Write { file, handle, offset, data, flags: Default::default() },
            InFlight::Write { id, bytes },
        ))
    }
}

pub(super) fn open_file(file: FileId) -> (FileOp, InFlight) {
    (FileOp::Open { file, flags: O_RDWR }, InFlight::Open { file })
}
