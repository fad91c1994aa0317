//! A machine that locks bytes of one file over NLM and UDP, one lock at a time, waits for some, crashes now and then,
//! and reclaims its lock when the status monitor of a front tells it that the front has restarted.

use super::ledger::{Ledger, Wanted};
use crate::queue::Picos;
use crate::random::{MILLION, Random};
use nfs::nlm::{
    self, Answer, Args, CancelArgs, LockArgs, NetObject, NlmLock, Procedure, Status, UnlockArgs,
};
use nfs::nsm;
use nfs::portmap::{self, Mapping};
use nfs::rpc::{Acceptance, Call, Credential, Reply, System};
use nfs::xdr::{decoded, encoded};

/// Ports of its programs.
const LOCKD: u16 = 4001;
const STATD: u16 = 4002;
/// The port that its calls come from.
pub const CALLS: u16 = 700;
/// Bytes that are locked.
const BYTES: u64 = 4;
/// Time without a reply before a call is retransmitted.
const TIMEOUT_MS: (u64, u64) = (300, 2_000);
/// Time that a lock is held: longer than a datagram is late, since a LOCK that arrived after its UNLOCK would hold.
const HOLD_MS: (u64, u64) = (50, 400);
/// The same of one lock in so many: over restarts of managers and fronts, which take up to 8 s.
const LONG_ONE_IN: u64 = 8;
const LONG_HOLD_MS: (u64, u64) = (2_000, 12_000);
/// Longest time between two.
const IDLE_MS_MAX: u64 = 300;
/// Pause before a lock that was denied, or waits, is asked for anew.
const AGAIN_MS: (u64, u64) = (500, 4_000);
/// Longest time that a crashed machine is down.
const DOWN_MS_MAX: u64 = 3_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// LOCK was sent.
    Asks {
        reclaims: bool,
    },
    /// The front will call.
    Blocked,
    Holds,
    /// UNLOCK was sent.
    Unlocks,
    /// CANCEL was: the front may have taken the lock for one that waits, although it answered otherwise later.
    Cancels,
    Down,
    /// It was started again, and tells the front.
    Notifies,
    Finished,
}

/// Bytes to a front, from this port, and when the machine is to be looked at next.
#[derive(Debug, Default)]
pub struct Steps {
    /// Datagrams.
    pub sends: Vec<(u16, Vec<u8>)>,
    /// The time.
    pub wake: Option<Picos>,
}

/// The machine.
#[derive(Debug)]
pub struct Locker {
    /// Its number among all, and its front.
    pub number: usize,
    pub front: usize,
    random: Random,
    stage: Stage,
    wanted: Wanted,
    attempt: u32,
    xid: u32,
    /// The call under way, and when it is retransmitted.
    record: Vec<u8>,
    /// Its own number of restarts (NSM), and the front's that it heard of.
    state: i32,
    heard: i32,
    due: Picos,
    finishes: bool,
}

impl Locker {
    /// The machine with this number.
    pub fn new(seed: u64, number: usize, front: usize) -> Locker {
        Locker {
            number,
            front,
            random: Random::new(seed, &format!("nfs locker {number}")),
            stage: Stage::Idle,
            wanted: Wanted { offset: 0, bytes: BYTES, exclusive: true },
            attempt: 0,
            xid: 0,
            record: Vec::new(),
            state: 1,
            heard: 0,
            due: Picos::ZERO,
            finishes: false,
        }
    }

    /// From now on it locks everything once more.
    pub fn finish(&mut self) {
        self.finishes = true;
    }

    /// Whether it did.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Finished
    }

    /// Its state, for people.
    pub fn describe(&self) -> String {
        format!("locker {}: {:?}, {:?}", self.number, self.stage, self.wanted)
    }

    /// A message, for people.
    pub fn tell(bytes: &[u8]) -> String {
        let call = Call::parse(bytes).map(|call| (call.program, call.procedure, call.arguments));
        match (Reply::parse(bytes), call) {
            (Ok((xid, _, results)), _) => {
                format!("reply {xid} {:?}", decoded::<Answer<'_>>(results))
            }
            (_, Ok((nlm::PROGRAM, procedure, arguments))) => {
                let args = Procedure::of(procedure).map(|it| Args::decode(it, arguments));
                format!("{args:?}")
            }
            (_, call) => format!("{call:?}"),
        }
    }

    fn host(&self) -> Vec<u8> {
        format!("locker{}", self.number).into_bytes()
    }

    fn rest(&mut self, now: Picos, (least, most): (u64, u64)) -> Steps {
        self.due = now + Picos::millis(self.random.within(least, most));
        Steps { sends: Vec::new(), wake: Some(self.due) }
    }

    fn send(&mut self, now: Picos) -> Steps {
        let steps = self.rest(now, TIMEOUT_MS);
        Steps { sends: vec![(CALLS, self.record.clone())], ..steps }
    }

    fn call(&mut self, of: (u32, u32, u32), arguments: &[u8], now: Picos) -> Steps {
        self.xid += 1;
        let host = self.host();
        let credential = Credential::System(System { machine: &host, ..System::default() });
        let (program, version, procedure) = of;
        self.record.clear();
        Call { xid: self.xid, program, version, procedure, credential, arguments }
            .put(&mut self.record);
        self.send(now)
    }

    fn call_nlm(&mut self, procedure: Procedure, file: &[u8], now: Picos) -> Steps {
        let (host, cookie) = (self.host(), self.attempt.to_be_bytes());
        let Wanted { offset, bytes, exclusive } = self.wanted;
        let (host, handle, owner) = (nlm::Host(&host), NetObject(file), NetObject(b"owner"));
        let lock = NlmLock { host, handle, owner, process: 1, offset, bytes };
        let cookie = NetObject(&cookie);
        let args = match procedure {
            Procedure::Unlock => Args::Unlock(UnlockArgs { cookie, lock }),
            Procedure::Cancel => Args::Cancel(CancelArgs { cookie, block: true, exclusive, lock }),
            _ => {
                let reclaim = self.stage == Stage::Asks { reclaims: true };
                let block = !reclaim && self.blocks();
                Args::Lock(LockArgs { cookie, block, exclusive, lock, reclaim, state: self.state })
            }
        };
        let mut arguments = Vec::new();
        args.put(&mut arguments);
        self.call((nlm::PROGRAM, nlm::VERSION, procedure as u32), &arguments, now)
    }

    /// Whether it waits for the lock that it wants.
    fn blocks(&self) -> bool {
        self.attempt.is_multiple_of(2)
    }

    fn ask(&mut self, file: &[u8], reclaims: bool, now: Picos) -> Steps {
        self.stage = Stage::Asks { reclaims };
        self.call_nlm(Procedure::Lock, file, now)
    }

    /// A time that it asked for has come.
    pub fn due(&mut self, file: Option<&[u8]>, ledger: &mut Ledger, now: Picos) -> Steps {
        let Some(file) = file.filter(|_| now >= self.due) else { return Steps::default() };
        match self.stage {
            Stage::Finished => Steps::default(),
            Stage::Idle => {
                self.want();
                self.ask(file, false, now)
            }
            Stage::Blocked => self.ask(file, false, now),
            Stage::Asks { .. } | Stage::Unlocks | Stage::Cancels | Stage::Notifies => {
                self.send(now)
            }
            Stage::Holds => {
                ledger.ends(self.number);
                self.stage = Stage::Unlocks;
                self.call_nlm(Procedure::Unlock, file, now)
            }
            Stage::Down => {
                self.stage = Stage::Notifies;
                self.state += 2;
                let host = self.host();
                let notice = nsm::Notice { host: nsm::Host(&host), state: self.state };
                let of = (nsm::PROGRAM, nsm::VERSION, nsm::Procedure::Notify as u32);
                self.call(of, &encoded(&notice), now)
            }
        }
    }

    fn want(&mut self) {
        self.attempt += 1;
        let offset = if self.finishes { 0 } else { self.random.below(BYTES) };
        let bytes = if self.finishes { BYTES } else { self.random.within(1, BYTES - offset) };
        let exclusive = self.finishes || self.random.chance(MILLION / 10 * 7);
        self.wanted = Wanted { offset, bytes, exclusive };
    }

    /// It crashes, with what it has.
    pub fn crash(&mut self, ledger: &mut Ledger, now: Picos) -> Steps {
        if self.finishes {
            return Steps::default();
        }
        ledger.ends(self.number);
        self.stage = Stage::Down;
        self.rest(now, (100, DOWN_MS_MAX))
    }

    /// A datagram comes to one of its ports. The error names the violation.
    pub fn receive(
        &mut self,
        port: u16,
        bytes: &[u8],
        file: &[u8],
        (ledger, now): (&mut Ledger, Picos),
    ) -> Result<Steps, String> {
        if self.stage == Stage::Down {
            return Ok(Steps::default());
        }
        if nfs::rpc::is_reply(bytes) {
            let (xid, reply, results) = Reply::parse(bytes).map_err(|it| format!("{it:?}"))?;
            let is_its = xid == self.xid && reply == Reply::Accepted(Acceptance::Success);
            if !is_its {
                return Ok(Steps::default());
            }
            return self.replied(results, file, (ledger, now));
        }
        let call = Call::parse(bytes).map_err(|it| format!("{it:?}"))?;
        match (port, call.program) {
            (portmap::PORT, portmap::PROGRAM) => {
                let asked: Mapping = decoded(call.arguments).map_err(|it| format!("{it:?}"))?;
                let its = if asked.program == nlm::PROGRAM { LOCKD } else { STATD };
                Ok(answer(port, call.xid, &encoded(&u32::from(its))))
            }
            (LOCKD, nlm::PROGRAM) => self.told(&call, ledger, now),
            (STATD, nsm::PROGRAM) => self.notified(&call, file, now),
            _ => Err(format!("{}: a call of {} to port {port}", self.describe(), call.program)),
        }
    }

    fn replied(
        &mut self,
        results: &[u8],
        file: &[u8],
        (ledger, now): (&mut Ledger, Picos),
    ) -> Result<Steps, String> {
        let status = decoded::<Answer<'_>>(results).map(|answer| answer.status);
        match (self.stage, status) {
            (Stage::Notifies, _) => {
                self.stage = Stage::Idle;
                Ok(self.rest(now, (1, IDLE_MS_MAX)))
            }
            (Stage::Asks { .. }, Ok(Status::Granted)) => self.granted(ledger, now),
            (Stage::Asks { reclaims: false }, Ok(Status::Blocked)) => {
                ledger.answers(self.front, now);
                self.stage = Stage::Blocked;
                Ok(self.rest(now, AGAIN_MS))
            }
            (Stage::Asks { .. }, Ok(status)) => {
                if status == Status::Denied {
                    ledger.answers(self.front, now);
                }
                ledger.ends(self.number);
                if self.stage == (Stage::Asks { reclaims: false }) && self.blocks() {
                    self.stage = Stage::Cancels;
                    return Ok(self.call_nlm(Procedure::Cancel, file, now));
                }
                self.stage = Stage::Idle;
                Ok(self.rest(now, AGAIN_MS))
            }
            (Stage::Cancels, Ok(Status::Granted)) => {
                self.stage = Stage::Idle;
                Ok(self.rest(now, AGAIN_MS))
            }
            (Stage::Unlocks, Ok(Status::Granted)) => {
                ledger.answers(self.front, now);
                let is_last = self.finishes && self.wanted.bytes == BYTES && self.wanted.exclusive;
                self.stage = if is_last { Stage::Finished } else { Stage::Idle };
                Ok(self.rest(now, (1, IDLE_MS_MAX)))
            }
            (Stage::Unlocks, _) => Ok(self.rest(now, AGAIN_MS)),
            // a late copy
            _ => Ok(Steps::default()),
        }
    }

    fn granted(&mut self, ledger: &mut Ledger, now: Picos) -> Result<Steps, String> {
        ledger.granted(self.number, self.front, self.wanted, now)?;
        self.stage = Stage::Holds;
        let is_long = !self.finishes && self.random.below(LONG_ONE_IN) == 0;
        Ok(self.rest(now, if is_long { LONG_HOLD_MS } else { HOLD_MS }))
    }

    /// GRANTED: a lock that it waited for is its own, or one that it does not want any more.
    fn told(&mut self, call: &Call<'_>, ledger: &mut Ledger, now: Picos) -> Result<Steps, String> {
        if call.procedure != Procedure::Granted as u32 {
            return Err(format!("{}: NLM procedure {}", self.describe(), call.procedure));
        }
        let args = Args::decode(Procedure::Granted, call.arguments);
        let Ok(Args::Granted(args)) = args else { return Err("GRANTED is garbage".into()) };
        let is_its = args.cookie.0 == self.attempt.to_be_bytes();
        let mut steps = Steps::default();
        let status = match self.stage {
            Stage::Blocked | Stage::Asks { reclaims: false } if is_its => {
                steps = self.granted(ledger, now)?;
                Status::Granted
            }
            Stage::Holds if is_its => Status::Granted,
            _ => Status::Denied,
        };
        let reply = answer(LOCKD, call.xid, &encoded(&Answer { cookie: args.cookie, status }));
        Ok(Steps { sends: reply.sends, ..steps })
    }

    /// NOTIFY: its front has restarted.
    fn notified(&mut self, call: &Call<'_>, file: &[u8], now: Picos) -> Result<Steps, String> {
        let nsm::Notice { state, .. } =
            decoded(call.arguments).map_err(|it| format!("NOTIFY: {it:?}"))?;
        let mut reply = answer(STATD, call.xid, &[]);
        if std::mem::replace(&mut self.heard, state) == state {
            return Ok(reply);
        }
        let steps = match self.stage {
            Stage::Holds | Stage::Asks { reclaims: true } => self.ask(file, true, now),
            Stage::Blocked => self.ask(file, false, now),
            _ => return Ok(reply),
        };
        reply.sends.extend(steps.sends);
        Ok(Steps { wake: steps.wake, ..reply })
    }
}

fn answer(port: u16, xid: u32, results: &[u8]) -> Steps {
    let mut bytes = Vec::new();
    Reply::Accepted(Acceptance::Success).put(xid, &mut bytes);
    bytes.extend_from_slice(results);
    Steps { sends: vec![(port, bytes)], wake: None }
}
