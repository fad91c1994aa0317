//! Conclusions from an operation that failed, was refused, or had an unknown outcome.

use super::*;

impl Worker {
    pub(super) fn failed(
        &mut self,
        asked: InFlight,
        errno: Errno,
        model: &mut Model,
        now: Picos,
    ) -> Picos {
        model.failed += 1;
        let lost = |since: Picos| errno == Errno::ESTALE && model.names.was_cut_since(since);
        let tells_loss =
            errno == Errno::EIO && matches!(asked, InFlight::Fsync | InFlight::SyncHome);
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
            // Data that a full disk did not take, reported late. A manager whose log was full says so too.
        } else if !model.troubled {
            let text = format!("{asked:?} fails with {errno:?} although nothing is wrong");
            model.violations.push(format!("{now} worker {}: {text}", self.number));
        }
        if matches!(asked, InFlight::Release) {
            self.open = None;
        }
        self.outcome_unknown(asked, model, now);
        LINGER
    }

    /// Whether this operation is one that tells what a full disk did not take.
    fn may_tell_late(&self, asked: &InFlight, full_until: Option<Picos>) -> bool {
        let Some(until) = full_until else { return false };
        match asked {
            InFlight::Fsync | InFlight::Flush => true,
            InFlight::Write { .. } | InFlight::Zero { .. } => {
                self.open.as_ref().is_some_and(|open| open.opened <= until)
            }
            _ => false,
        }
    }

    pub(super) fn outcome_unknown(&mut self, asked: InFlight, model: &mut Model, now: Picos) {
        match asked {
            InFlight::Create { name } => {
                let home = self.parent_of(&name);
                model.names.unknown(&Change(vec![(home, name, Value::Something)]));
            }
            InFlight::Names { change, .. } => model.names.unknown(&change),
            InFlight::Write { id, .. } | InFlight::Truncate { id } | InFlight::Zero { id } => {
                model.data.ends(id, false, now);
            }
            InFlight::SyncHome => {
                self.home.into_iter().for_each(|home| model.names.sync_failed(home))
            }
            InFlight::Fsync | InFlight::Flush => {
                if let Some(open) = &self.open {
                    model.data.publishing_failed(self.mount, open.file, now);
                }
            }
            _ => {}
        }
    }

    /// Whether this opened a shared file, which is looked for anew from now on.
    fn forget_shared(&mut self, asked: &InFlight) -> bool {
        let InFlight::Open { file } = asked else { return false };
        let shared = self.shared.iter_mut().find(|shared| **shared == Some(*file));
        shared.map(|shared| *shared = None).is_some()
    }

    /// Takes a definite refusal into the model; an error says why it is wrong.
    pub(super) fn refused(
        &mut self,
        asked: InFlight,
        errno: Errno,
        model: &mut Model,
        now: Picos,
    ) -> Result<(), String> {
        match asked {
            InFlight::Home if errno == Errno::EEXIST => {
                let name = name(format!("home{}", self.number));
                let asked = InFlight::Find { directory: FileId::ROOT, name };
                self.follow = Some(asked);
                Ok(())
            }
            InFlight::Find { directory, name } if errno == Errno::ENOENT => {
                if name.starts_with(b"shared") {
                    return Ok(());
                }
                model.names.saw(directory, &name, None)
            }
            InFlight::Create { name } if errno == Errno::EEXIST && name.starts_with(b"shared") => {
                let asked = InFlight::Find { directory: FileId::ROOT, name };
                self.follow = Some(asked);
                Ok(())
            }
            InFlight::Names { may_fail, .. } if errno == may_fail => Ok(()),
            // A power cut that came meanwhile may have taken back what was done before.
            InFlight::Create { name } if errno == Errno::EEXIST => {
                let home = self.parent_of(&name);
                model.names.saw_something(home, &name)
            }
            InFlight::Names { change, .. } if errno == Errno::EEXIST => {
                model.names.refused(&change, Value::Something)
            }
            InFlight::Names { change, .. } if errno == Errno::ENOENT => {
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
