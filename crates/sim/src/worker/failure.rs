//! What it says of the cluster that an operation failed, was refused, or had an outcome that nobody learnt.

use super::*;

impl Worker {
    pub(super) fn failed(
        &mut self,
        asked: Asked,
        errno: Errno,
        model: &mut Model,
        now: Picos,
    ) -> Picos {
        model.failed += 1;
        let lost = |since: Picos| errno == Errno::ESTALE && model.names.was_cut_since(since);
        let tells_loss = errno == Errno::EIO && matches!(asked, Asked::Fsync | Asked::SyncHome);
        // A power cut took the file or the directory, which no sync had covered.
        if self.open.as_ref().is_some_and(|open| lost(open.opened)) {
            self.closing = true;
        } else if lost(Picos::ZERO) && self.forget_shared(&asked) {
            // Looked up again, and made if need be. It is not in the home, of which this tells nothing.
        } else if self.open.is_none() && lost(self.home_since) {
            self.home = None;
        } else if tells_loss && model.names.was_cut_since(Picos::ZERO) {
            // A power cut took a change that no sync had covered; told once.
        } else if matches!(errno, Errno::ENOSPC | Errno::EIO)
            && self.may_tell_late(&asked, model.full_until)
        {
            // What a full disk did not take, told late. A manager whose log was full says so too.
        } else if !model.troubled {
            let text = format!("{asked:?} fails with {errno:?} although nothing is wrong");
            model.violations.push(format!("{now} worker {}: {text}", self.number));
        }
        if matches!(asked, Asked::Release) {
            self.open = None;
        }
        self.outcome_unknown(asked, model, now);
        LINGER
    }

    /// Whether this operation is one that tells what a full disk did not take.
    fn may_tell_late(&self, asked: &Asked, full_until: Option<Picos>) -> bool {
        let Some(until) = full_until else { return false };
        match asked {
            Asked::Fsync | Asked::Flush => true,
            Asked::Write { .. } | Asked::Zero { .. } => {
                self.open.as_ref().is_some_and(|open| open.opened <= until)
            }
            _ => false,
        }
    }

    pub(super) fn outcome_unknown(&mut self, asked: Asked, model: &mut Model, now: Picos) {
        match asked {
            Asked::Create { name } => {
                let home = self.parent_of(&name);
                model.names.unknown(&Change(vec![(home, name, Value::Something)]));
            }
            Asked::Names { change, .. } => model.names.unknown(&change),
            Asked::Write { id, .. } | Asked::Truncate { id } | Asked::Zero { id } => {
                model.data.ends(id, false, now);
            }
            Asked::SyncHome => self.home.into_iter().for_each(|home| model.names.sync_failed(home)),
            Asked::Fsync | Asked::Flush => {
                if let Some(open) = &self.open {
                    model.data.publishing_failed(self.mount, open.file, now);
                }
            }
            _ => {}
        }
    }

    /// Whether this opened a shared file, which is looked for anew from now on.
    fn forget_shared(&mut self, asked: &Asked) -> bool {
        let Asked::Open { file } = asked else { return false };
        let shared = self.shared.iter_mut().find(|shared| **shared == Some(*file));
        shared.map(|shared| *shared = None).is_some()
    }

    /// Takes a definite refusal into the model; an error says why it is wrong.
    pub(super) fn refused(
        &mut self,
        asked: Asked,
        errno: Errno,
        model: &mut Model,
        now: Picos,
    ) -> Result<(), String> {
        match asked {
            Asked::Home if errno == Errno::EEXIST => {
                let name = name(format!("home{}", self.number));
                let asked = Asked::Find { directory: FileId::ROOT, name };
                self.follow = Some(asked);
                Ok(())
            }
            Asked::Find { directory, name } if errno == Errno::ENOENT => {
                if name.starts_with(b"shared") {
                    return Ok(());
                }
                model.names.saw(directory, &name, None)
            }
            Asked::Create { name } if errno == Errno::EEXIST && name.starts_with(b"shared") => {
                let asked = Asked::Find { directory: FileId::ROOT, name };
                self.follow = Some(asked);
                Ok(())
            }
            Asked::Names { may_fail, .. } if errno == may_fail => Ok(()),
            // A power cut that came meanwhile may have taken back what was done before.
            Asked::Create { name } if errno == Errno::EEXIST => {
                let home = self.parent_of(&name);
                model.names.saw_something(home, &name)
            }
            Asked::Names { change, .. } if errno == Errno::EEXIST => {
                model.names.refused(&change, Value::Something)
            }
            Asked::Names { change, .. } if errno == Errno::ENOENT => {
                model.names.refused(&change, Value::Nothing)
            }
            asked => {
                let text = format!("{asked:?} is refused with {errno:?}");
                self.outcome_unknown(asked, model, now);
                Err(text)
            }
        }
    }
}
