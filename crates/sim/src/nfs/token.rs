//! A file that one application renames on and on, from one of two directories to the other, each time to a name that
//! was never used; all others look its names up meanwhile. No look sees half of a rename:
//!
//! - a name that was left is not there any more when the next one is;
//! - when a name is not there any more, the next one is, or a later one.
//!
//! A rename that was seen and not answered may be taken back by a power cut, so two looks count where no machine that
//! keeps data was started anew from the first one on.

use super::act::Act;
use super::shared::Shared;
use crate::random::{MILLION, Random};
use nfs::v3::{
    Args, CreateArgs, CreateHow, DirOpArgs, Handle, MkdirArgs, Path, RenameArgs, Sattr, Status,
};

/// The application that renames it.
pub const MOVER: usize = 0;

/// The file, as far as replies have told.
#[derive(Debug, Default)]
pub struct Token {
    /// The directory beside the root.
    directory: Option<u64>,
    file: Option<u64>,
    is_made: bool,
    /// The number of the name that it had after the last rename that was answered.
    at: u64,
    /// The number of the last name that it may have.
    last: u64,
}

/// A call about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// MKDIR of the directory beside the root.
    Directory,
    /// LOOKUP of it.
    FindDirectory,
    /// CREATE of its first name.
    Make,
    /// RENAME from the name with this number to the next.
    Pass(u64),
    /// LOOKUP of a name.
    Look(Look),
}

/// A look at one of two names that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The number of the earlier name.
    source: u64,
    /// The later one is looked up, not that one.
    at_target: bool,
    /// The other one was looked up before: the source was not there, or the target was.
    is_second: bool,
    /// Starts of machines that keep data, when the first of both began.
    keepers: u32,
}

fn name(number: u64) -> Vec<u8> {
    format!("token{number}").into_bytes()
}

impl Token {
    /// The next call of an application; none as long as there is no such file.
    pub fn next(&mut self, by: usize, keepers: u32, random: &mut Random) -> Option<Step> {
        if by == MOVER {
            return Some(match (self.directory, self.is_made) {
                (None, _) => Step::Directory,
                (_, false) => Step::Make,
                _ => {
                    self.last = self.at + 1;
                    Step::Pass(self.at)
                }
            });
        }
        let (source, at_target) = (self.at, random.chance(MILLION / 2));
        let look = Look { source, at_target, is_second: false, keepers };
        self.is_made.then_some(Step::Look(look))
    }

    /// A look was answered. The look that follows it, or the violation.
    fn looked(&self, look: Look, seen: Option<u64>, keepers: u32) -> Result<Option<Look>, String> {
        if seen.is_some() && self.file.is_some() && seen != self.file {
            return Err(format!("{look:?} finds {seen:?}, but the file is {:?}", self.file));
        }
        let Look { source, at_target, is_second, .. } = look;
        let is_there = seen.is_some();
        if !is_second {
            let follows = is_there == at_target;
            let next = Look { at_target: !at_target, is_second: true, ..look };
            return Ok(follows.then_some(next));
        }
        if look.keepers != keepers {
            return Ok(None);
        }
        match (at_target, is_there) {
            (true, false) if self.last <= source + 1 => {
                Err(format!("a rename is seen half: neither name {source} nor the next is there"))
            }
            (false, true) => {
                Err(format!("a rename is seen half: name {source} and the next are both there"))
            }
            _ => Ok(None),
        }
    }

    fn passed(&mut self, from: u64) {
        self.at = from + 1;
    }
}

impl Step {
    /// Whether it changes names.
    pub fn is_change(self) -> bool {
        matches!(self, Step::Directory | Step::Make | Step::Pass(_))
    }

    /// Gives the call's arguments to `send`.
    pub fn arguments<T>(self, root: &[u8], shared: &Shared, send: impl FnOnce(Args<'_>) -> T) -> T {
        let beside = shared.token.directory.map_or(&[][..], |directory| shared.handle(directory));
        let directory = |number: u64| Handle(if number.is_multiple_of(2) { root } else { beside });
        let of = |number: u64, name| DirOpArgs { dir: directory(number), name: Path(name) };
        let place = DirOpArgs { dir: Handle(root), name: Path(b"tokens") };
        let attributes = Sattr::default();
        match self {
            Step::Directory => send(Args::Mkdir(MkdirArgs { place, attributes })),
            Step::FindDirectory => send(Args::Lookup(place)),
            Step::Make => {
                let (first, how) = (name(0), CreateHow::Guarded(attributes));
                send(Args::Create(CreateArgs { place: of(0, &first), how }))
            }
            Step::Pass(from) => {
                let (old, new) = (name(from), name(from + 1));
                send(Args::Rename(RenameArgs { from: of(from, &old), to: of(from + 1, &new) }))
            }
            Step::Look(look) => {
                let number = look.source + u64::from(look.at_target);
                send(Args::Lookup(of(number, &name(number))))
            }
        }
    }
}

impl Shared {
    /// A call was answered, and found or made this; it may have been executed so many times more. The call that
    /// follows. The error names the violation.
    pub fn token_answered(
        &mut self,
        step: Step,
        (status, found): (Status, Option<u64>),
        others: u32,
        keepers: u32,
    ) -> Result<Option<Act>, String> {
        let again = others > 0;
        let follow = match (step, status) {
            (Step::Directory | Step::FindDirectory, Status::Ok) => {
                self.token.directory = found;
                None
            }
            (Step::Directory, Status::Exist) if again => Some(Step::FindDirectory),
            (Step::Make, Status::Ok) => {
                (self.token.is_made, self.token.file) = (true, found);
                None
            }
            (Step::Make, Status::Exist) if again => {
                self.token.is_made = true;
                None
            }
            (Step::Pass(from), Status::Ok) => {
                self.token.passed(from);
                None
            }
            // the name is used once: it was renamed
            (Step::Pass(from), Status::NoEnt) if again => {
                self.token.passed(from);
                None
            }
            (Step::Look(look), Status::Ok | Status::NoEnt) => {
                self.token.looked(look, found, keepers)?.map(Step::Look)
            }
            _ => return Err(format!("{status:?}")),
        };
        Ok(follow.map(Act::Token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two looks find while the file is on its way from name 3 to name 4, and may have got there.
    fn looks(at_target: bool, first: bool, second: bool) -> Result<Option<bool>, String> {
        let token = Token { is_made: true, at: 3, last: 4, ..Token::default() };
        let look = Look { source: 3, at_target, is_second: false, keepers: 9 };
        let seen = |is_there: bool| is_there.then_some(7);
        let Some(next) = token.looked(look, seen(first), 9)? else { return Ok(None) };
        assert!(token.looked(next, seen(second), 10).is_ok(), "a machine was started anew");
        token.looked(next, seen(second), 9).map(|_| Some(next.at_target))
    }

    #[test]
    fn a_rename_is_seen_whole() {
        assert_eq!(looks(false, true, false), Ok(None), "not renamed yet");
        assert_eq!(looks(false, false, true), Ok(Some(true)));
        assert!(looks(false, false, false).unwrap_err().contains("neither"));
        assert_eq!(looks(true, false, false), Ok(None), "not renamed yet");
        assert_eq!(looks(true, true, false), Ok(Some(false)));
        assert!(looks(true, true, true).unwrap_err().contains("both"));
    }

    #[test]
    fn a_file_that_went_on_is_at_a_later_name() {
        let token = Token { is_made: true, at: 4, last: 5, ..Token::default() };
        let second = Look { source: 3, at_target: true, is_second: true, keepers: 1 };
        assert_eq!(token.looked(second, None, 1), Ok(None));
    }
}
