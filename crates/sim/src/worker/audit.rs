//! An audit: a worker of a cluster that was started anew looks up, lists and reads all that it knows.
//!
//! Its answers must be right; refusals are passed over. So an audit has an end also where a disk is lost.

use super::choice::open_file;
use super::*;
use std::collections::VecDeque;

/// One thing to look at.
#[derive(Clone, Debug)]
enum Look {
    Home,
    Listing,
    Shared(usize),
    Name(Name),
    File(FileId),
}

/// The rest of an audit.
#[derive(Debug, Default)]
pub(super) struct Audit {
    left: VecDeque<Look>,
    home: Option<FileId>,
    shared: Vec<Option<FileId>>,
    /// Nothing is damaged: what the root directory has now is what it must have later.
    is_control: bool,
    /// In the file that is open: where to read next, and whether its size is known.
    offset: u64,
    sized: bool,
    /// Whether data or a hole was sought from there.
    sought: bool,
}

impl Worker {
    /// From now on only look at everything once; may be repeated.
    pub fn begin_audit(&mut self, model: &mut Model, is_control: bool) {
        let before = self.audit.take();
        let (home, shared) = match before {
            Some(audit) => (audit.home, audit.shared),
            None => (self.last_home, self.shared.clone()),
        };
        let mut left: VecDeque<Look> = (0..shared.len()).map(Look::Shared).collect();
        let mut files: Vec<FileId> = shared.iter().flatten().copied().collect();
        if let Some(home) = home {
            left.extend([Look::Home, Look::Listing]);
            for name in model.names.names(home) {
                if let [Value::File(file)] = model.names.may(home, &name)
                    && name.starts_with(b"f")
                {
                    files.push(*file);
                }
                left.push_back(Look::Name(name));
            }
        }
        if let Some(salvaged) = &model.salvaged {
            left.clear();
            files.clone_from(salvaged);
        }
        left.extend(files.into_iter().map(Look::File));
        (self.home, self.shared) = (home, shared.clone());
        (self.open, self.follow, self.closing) = (None, None, false);
        self.audit = Some(Audit { left, home, shared, is_control, ..Audit::default() });
    }

    /// From now on work again, as after a death of the mount.
    pub fn end_audit(&mut self) {
        if let Some(audit) = self.audit.take() {
            (self.home, self.shared) = (audit.home, audit.shared);
        }
    }

    /// Whether it has looked at everything.
    pub(super) fn has_audited(&self) -> Option<bool> {
        let idle = self.open.is_none() && self.asked.is_none() && self.follow.is_none();
        self.audit.as_ref().map(|audit| audit.left.is_empty() && idle)
    }

    pub(super) fn choose_audit(&mut self) -> Option<(FileOp, InFlight)> {
        if let Some(Open { file, handle, .. }) = self.open {
            return Some(self.audit_file(file, handle));
        }
        let audit = self.audit.as_mut()?;
        let look = audit.left.pop_front()?;
        let home = audit.home.unwrap_or(FileId::ROOT);
        let find = |directory, name: Name| {
            let asked = InFlight::Find { directory, name: name.clone() };
            (FileOp::Lookup { parent: directory, name }, asked)
        };
        Some(match look {
            Look::Home => find(FileId::ROOT, name(format!("home{}", self.number))),
            Look::Listing => (FileOp::OpenDirectory { file: home }, InFlight::OpenListing),
            Look::Shared(index) => find(FileId::ROOT, shared_name(index)),
            Look::Name(name) => find(home, name),
            Look::File(file) => {
                (audit.offset, audit.sized, audit.sought) = (0, false, false);
                open_file(file)
            }
        })
    }

    fn audit_file(&mut self, file: FileId, handle: Handle) -> (FileOp, InFlight) {
        let audit = self.audit.as_mut().expect("an audit is under way");
        if !audit.sized && !self.closing {
            audit.sized = true;
            return (FileOp::GetAttr { file, handle: Some(handle) }, InFlight::Size { file });
        }
        let offset = audit.offset;
        if offset >= self.sizes.file + self.sizes.write || self.closing {
            return (FileOp::Release { file, handle, owner: None }, InFlight::Release);
        }
        if !std::mem::replace(&mut audit.sought, true) {
            return self.seek(file, handle, offset);
        }
        (audit.offset, audit.sought) = (offset + self.sizes.audit, false);
        let bytes = self.sizes.audit;
        let op = FileOp::Read { file, handle, offset, bytes: bytes as u32 };
        (op, InFlight::Read { offset, asked: bytes })
    }

    /// Checks the answer of the operation that has ended. The error names the violation.
    pub(super) fn audited(
        &mut self,
        asked: InFlight,
        result: Result<FileReply, Errno>,
        begun: Picos,
        model: &mut Model,
        now: Picos,
    ) -> Result<(), String> {
        let at_root = matches!(asked, InFlight::Find { directory: FileId::ROOT, .. });
        match result {
            Ok(FileReply::Entry(attr)) if at_root => {
                self.found_at_root(&asked, Some(attr.file), model.restored)
            }
            Ok(reply) => {
                model.succeeded += 1;
                self.succeeded(asked, reply, begun, model, now)
            }
            Err(Errno::ENOENT) if at_root => self.found_at_root(&asked, None, model.restored),
            Err(errno) if !is_unknown(errno) && !matches!(asked, InFlight::Release) => {
                match (asked, errno) {
                    (InFlight::Find { directory, name }, Errno::ENOENT) => {
                        model.names.saw(directory, &name, None)
                    }
                    (asked, errno) => Err(format!("{asked:?} is refused with {errno:?}")),
                }
            }
            Err(errno) if model.salvaged.is_some() && !matches!(asked, InFlight::Release) => {
                Err(format!("{asked:?} of a file that was salvaged whole fails with {errno:?}"))
            }
            Err(errno) => {
                if let (InFlight::Open { file }, Errno::EIO) = (&asked, errno)
                    && model.whole.contains(file)
                {
                    return Err(format!(
                        "{file:?} is refused as lost, and all its objects are there"
                    ));
                }
                model.failed += 1;
                if matches!(asked, InFlight::Release) {
                    self.open = None;
                }
                Ok(())
            }
        }
    }

    fn found_at_root(
        &mut self,
        asked: &InFlight,
        found: Option<FileId>,
        may_lack: bool,
    ) -> Result<(), String> {
        let (Some(audit), InFlight::Find { name: asked, .. }) = (&mut self.audit, asked) else {
            return Ok(());
        };
        let shared = (0..audit.shared.len()).find(|index| shared_name(*index) == *asked);
        let known = match shared {
            Some(index) => &mut audit.shared[index],
            None => &mut audit.home,
        };
        if audit.is_control {
            *known = found;
        }
        if *known == found || may_lack && found.is_none() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(asked);
        Err(format!("{name} in the root is {found:?}, but was {known:?}"))
    }
}
