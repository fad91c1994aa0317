//! ONC RPC version 2 (RFC 5531): the head of a call and of a reply, who calls, and every way to refuse.
//!
//! It is not `netrpc`, which is our own protocol between nodes. A call borrows from its record; a reply is built from
//! its head on in one buffer, so that the record's mark and the results need no copy.

use crate::limits::{AUTH_BYTES_MAX, GROUPS_MAX, MACHINE_BYTES_MAX};
use crate::xdr::{Garbage, Input, Xdr, put_opaque};

/// The version of RPC (section 9, `rpcvers`).
pub const VERSION: u32 = 2;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// The caller, as the client's machine names it (section 8.2, appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// AUTH_NONE: no user is named.
    None,
    /// AUTH_SYS.
    System(System<'a>),
}

/// A user by numbers (appendix A, `authsys_parms`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct System<'a> {
    /// Any number.
    pub stamp: u32,
    /// The machine's name for itself, which is not trusted.
    pub machine: &'a [u8],
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups, [`GROUPS_MAX`] at most.
    pub groups: Groups,
}

/// Supplementary groups of AUTH_SYS.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Groups {
    count: usize,
    all: [u32; GROUPS_MAX],
}

impl Groups {
    /// The first sixteen of these.
    pub fn of(groups: impl IntoIterator<Item = u32>) -> Groups {
        let mut found = Groups::default();
        for group in groups.into_iter().take(GROUPS_MAX) {
            found.all[found.count] = group;
            found.count += 1;
        }
        found
    }
}

impl std::ops::Deref for Groups {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        &self.all[..self.count]
    }
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Xdr<'a> for System<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.stamp.put(out);
        put_opaque(self.machine, out);
        self.uid.put(out);
        self.gid.put(out);
        (self.groups.count as u32).put(out);
        self.groups.iter().for_each(|group| group.put(out));
    }

    fn take(input: &mut Input<'a>) -> Result<System<'a>, Garbage> {
        let stamp = input.u32()?;
        let machine = input.opaque(MACHINE_BYTES_MAX)?;
        let (uid, gid) = (input.u32()?, input.u32()?);
        let count = input.u32()? as usize;
        let mut groups = Groups { count, ..Groups::default() };
        let places = groups.all.get_mut(..count).ok_or(Garbage)?;
        for place in places {
            *place = input.u32()?;
        }
        Ok(System { stamp, machine, uid, gid, groups })
    }
}

/// Why a call is refused before it is looked at (section 9, `reject_stat` and `auth_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The version of RPC is not 2.
    RpcMismatch,
    /// AUTH_BADCRED: the credential is malformed, or of a kind that is not known.
    BadCredential,
    /// AUTH_BADVERF: the verifier is malformed.
    BadVerifier,
    /// AUTH_TOOWEAK: this export, or this procedure, wants a credential that says who calls.
    TooWeak,
}

/// The outcome of a call that was taken (section 9, `accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// SUCCESS: the results follow.
    Success,
    /// PROG_UNAVAIL: no such program here.
    NoProgram,
    /// PROG_MISMATCH: the program is here in these versions.
    Versions {
        /// Lowest.
        low: u32,
        /// Highest.
        high: u32,
    },
    /// PROC_UNAVAIL: the program has no such procedure.
    NoProcedure,
    /// GARBAGE_ARGS: the arguments cannot be decoded.
    GarbageArguments,
    /// SYSTEM_ERR: no memory, for instance.
    SystemError,
}

/// The head of a call, and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The client's number of it.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure.
    pub procedure: u32,
    /// The caller.
    pub credential: Credential<'a>,
    /// The arguments, not decoded.
    pub arguments: &'a [u8],
}

/// Why a record is no call that can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCall {
    /// It is not even a call, and cannot be answered. A stream that carries such has lost its framing.
    Nonsense,
    /// It is refused, and the caller is told.
    Denied(u32, Denial),
    /// Its head ends early, and the caller is told GARBAGE_ARGS.
    Short(u32),
}

impl<'a> Call<'a> {
    /// The call in a record.
    pub fn parse(record: &'a [u8]) -> Result<Call<'a>, NoCall> {
        let mut input = Input::new(record);
        let xid = input.u32().map_err(|_| NoCall::Nonsense)?;
        if input.u32() != Ok(CALL) {
            return Err(NoCall::Nonsense);
        }
        let denied = |denial| NoCall::Denied(xid, denial);
        match input.u32() {
            Ok(VERSION) => {}
            Ok(_) => return Err(denied(Denial::RpcMismatch)),
            Err(Garbage) => return Err(NoCall::Short(xid)),
        }
        let mut word = || input.u32().map_err(|_| NoCall::Short(xid));
        let (program, version, procedure) = (word()?, word()?, word()?);
        let credential = credential(&mut input).map_err(|_| denied(Denial::BadCredential))?;
        take_verifier(&mut input).map_err(|_| denied(Denial::BadVerifier))?;
        Ok(Call { xid, program, version, procedure, credential, arguments: input.rest() })
    }

    /// Appends the call, arguments and all.
    pub fn put(&self, out: &mut Vec<u8>) {
        let head = [self.xid, CALL, VERSION, self.program, self.version, self.procedure];
        head.iter().for_each(|word| word.put(out));
        match &self.credential {
            Credential::None => [AUTH_NONE, 0].iter().for_each(|word| word.put(out)),
            Credential::System(system) => {
                AUTH_SYS.put(out);
                put_opaque(&crate::xdr::encoded(system), out);
            }
        }
        [AUTH_NONE, 0].iter().for_each(|word| word.put(out));
        out.extend_from_slice(self.arguments);
    }
}

/// Whether a record is a reply and no call.
pub fn is_reply(record: &[u8]) -> bool {
    record.get(4..8) == Some(&REPLY.to_be_bytes())
}

fn credential<'a>(input: &mut Input<'a>) -> Result<Credential<'a>, Garbage> {
    let flavor = input.u32()?;
    let body = input.opaque(AUTH_BYTES_MAX)?;
    match flavor {
        AUTH_NONE => Ok(Credential::None),
        AUTH_SYS => crate::xdr::decoded(body).map(Credential::System),
        _ => Err(Garbage),
    }
}

/// A verifier says nothing with the credentials that are taken here (section 8.2, appendix A), but has its limit.
fn take_verifier(input: &mut Input<'_>) -> Result<(), Garbage> {
    input.u32()?;
    input.opaque(AUTH_BYTES_MAX)?;
    Ok(())
}

/// The head of a reply (section 9, `reply_body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was taken, with this outcome.
    Accepted(Acceptance),
    /// It was refused.
    Denied(Denial),
    /// It was refused for a reason (`auth_stat`) that we never give.
    DeniedOtherwise(u32),
}

impl Reply {
    /// Appends the head; behind that of a success follow the results.
    pub fn put(&self, xid: u32, out: &mut Vec<u8>) {
        [xid, REPLY].iter().for_each(|word| word.put(out));
        let words: &[u32] = match self {
            Reply::Accepted(acceptance) => return put_acceptance(*acceptance, out),
            Reply::Denied(Denial::RpcMismatch) => &[DENIED, 0, VERSION, VERSION],
            Reply::Denied(Denial::BadCredential) => &[DENIED, 1, 1],
            Reply::Denied(Denial::BadVerifier) => &[DENIED, 1, 3],
            Reply::Denied(Denial::TooWeak) => &[DENIED, 1, 5],
            Reply::DeniedOtherwise(why) => &[DENIED, 1, *why],
        };
        words.iter().for_each(|word| word.put(out));
    }

    /// The number and head of a reply, and its results.
    pub fn parse(record: &[u8]) -> Result<(u32, Reply, &[u8]), Garbage> {
        let mut input = Input::new(record);
        let xid = input.u32()?;
        if input.u32()? != REPLY {
            return Err(Garbage);
        }
        let reply = match input.u32()? {
            ACCEPTED => {
                take_verifier(&mut input)?;
                Reply::Accepted(take_acceptance(&mut input)?)
            }
            DENIED => take_denial(&mut input)?,
            _ => return Err(Garbage),
        };
        Ok((xid, reply, input.rest()))
    }
}

fn put_acceptance(acceptance: Acceptance, out: &mut Vec<u8>) {
    [ACCEPTED, AUTH_NONE, 0].iter().for_each(|word| word.put(out));
    let words: &[u32] = match acceptance {
        Acceptance::Success => &[0],
        Acceptance::NoProgram => &[1],
        Acceptance::Versions { low, high } => &[2, low, high],
        Acceptance::NoProcedure => &[3],
        Acceptance::GarbageArguments => &[4],
        Acceptance::SystemError => &[5],
    };
    words.iter().for_each(|word| word.put(out));
}

fn take_acceptance(input: &mut Input<'_>) -> Result<Acceptance, Garbage> {
    Ok(match input.u32()? {
        0 => Acceptance::Success,
        1 => Acceptance::NoProgram,
        2 => Acceptance::Versions { low: input.u32()?, high: input.u32()? },
        3 => Acceptance::NoProcedure,
        4 => Acceptance::GarbageArguments,
        5 => Acceptance::SystemError,
        _ => return Err(Garbage),
    })
}

fn take_denial(input: &mut Input<'_>) -> Result<Reply, Garbage> {
    match input.u32()? {
        0 => {
            input.u32()?;
            input.u32()?;
            Ok(Reply::Denied(Denial::RpcMismatch))
        }
        1 => Ok(match input.u32()? {
            1 => Reply::Denied(Denial::BadCredential),
            3 => Reply::Denied(Denial::BadVerifier),
            5 => Reply::Denied(Denial::TooWeak),
            why => Reply::DeniedOtherwise(why),
        }),
        _ => Err(Garbage),
    }
}

/// The answer to a call that cannot be executed; `None`: none.
pub fn refusal(no: NoCall) -> Option<Vec<u8>> {
    let (xid, reply) = match no {
        NoCall::Nonsense => return None,
        NoCall::Denied(xid, denial) => (xid, Reply::Denied(denial)),
        NoCall::Short(xid) => (xid, Reply::Accepted(Acceptance::GarbageArguments)),
    };
    let mut out = Vec::with_capacity(32);
    reply.put(xid, &mut out);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn each_refusal_has_its_reply() {
        let denied = |denial| refusal(NoCall::Denied(7, denial)).unwrap();
        assert_eq!(denied(Denial::RpcMismatch), words(&[7, 1, 1, 0, 2, 2]));
        assert_eq!(denied(Denial::BadCredential), words(&[7, 1, 1, 1, 1]));
        assert_eq!(denied(Denial::TooWeak), words(&[7, 1, 1, 1, 5]));
        assert_eq!(refusal(NoCall::Short(7)).unwrap(), words(&[7, 1, 0, 0, 0, 4]));
        assert_eq!(refusal(NoCall::Nonsense), None);
    }

    #[test]
    fn what_is_wrong_with_a_call_is_told() {
        let parse = |bytes: &[u8]| Call::parse(bytes).unwrap_err();
        assert_eq!(parse(&words(&[7])), NoCall::Nonsense);
        assert_eq!(parse(&words(&[7, 1, 2])), NoCall::Nonsense);
        assert_eq!(parse(&words(&[7, 0, 3])), NoCall::Denied(7, Denial::RpcMismatch));
        assert_eq!(parse(&words(&[7, 0, 2, 1])), NoCall::Short(7));
        let bad = NoCall::Denied(7, Denial::BadCredential);
        // a credential of RPCSEC_GSS, one that is too long, one with 17 groups
        assert_eq!(parse(&words(&[7, 0, 2, 1, 1, 1, 6, 0, 0, 0])), bad);
        assert_eq!(parse(&words(&[&[7, 0, 2, 1, 1, 1, 0, 404][..], &[0; 103]].concat())), bad);
        let groups = [&[7, 0, 2, 1, 1, 1, 1, 88, 0, 0, 0, 0, 17][..], &[0; 17], &[0, 0]].concat();
        assert_eq!(parse(&words(&groups)), bad);
        let verifier = words(&[7, 0, 2, 1, 1, 1, 0, 0, 0, 401]);
        assert_eq!(parse(&verifier), NoCall::Denied(7, Denial::BadVerifier));
    }

    fn credentials() -> impl Strategy<Value = (u32, Vec<u8>, u32, u32, Vec<u32>)> {
        let machine = prop::collection::vec(any::<u8>(), 0..=MACHINE_BYTES_MAX);
        (
            any::<u32>(),
            machine,
            any::<u32>(),
            any::<u32>(),
            prop::collection::vec(any::<u32>(), 0..=16),
        )
    }

    proptest! {
        #[test]
        fn calls_come_back(
            head: [u32; 4],
            who in prop::option::of(credentials()),
            arguments in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let credential = match &who {
                None => Credential::None,
                Some((stamp, machine, uid, gid, groups)) => Credential::System(System {
                    stamp: *stamp, machine, uid: *uid, gid: *gid, groups: Groups::of(groups.iter().copied()),
                }),
            };
            let [xid, program, version, procedure] = head;
            let call = Call { xid, program, version, procedure, credential, arguments: &arguments };
            let mut out = Vec::new();
            call.put(&mut out);
            prop_assert_eq!(Call::parse(&out), Ok(call));
        }

        #[test]
        fn replies_come_back(xid: u32, which in 0usize..11, number: u32) {
            let reply = [
                Reply::Accepted(Acceptance::Success),
                Reply::Accepted(Acceptance::NoProgram),
                Reply::Accepted(Acceptance::Versions { low: 3, high: number }),
                Reply::Accepted(Acceptance::NoProcedure),
                Reply::Accepted(Acceptance::GarbageArguments),
                Reply::Accepted(Acceptance::SystemError),
                Reply::Denied(Denial::RpcMismatch),
                Reply::Denied(Denial::BadCredential),
                Reply::Denied(Denial::BadVerifier),
                Reply::Denied(Denial::TooWeak),
                Reply::DeniedOtherwise(2),
            ][which];
            let mut out = Vec::new();
            reply.put(xid, &mut out);
            out.extend(b"rest");
            prop_assert_eq!(Reply::parse(&out), Ok((xid, reply, &b"rest"[..])));
        }

        #[test]
        fn any_bytes_are_a_call_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(no) = Call::parse(&bytes) {
                refusal(no);
            }
            let _ = Reply::parse(&bytes);
        }
    }
}
