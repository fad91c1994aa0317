//! The asker's side: every server's report.

use crate::client::VisitError;
use crate::config::CLIENT_POOL_BYTES;
use crate::machine::Looker;
use crate::reach::{Reach, ReachError};
use crate::status::report::{Lease, Report};
use crate::status::service::{PART_BYTES, RELEASE, REPORT};
use live::signals;
use live::wait::WaitPolicy;
use members::Member;
use node::{Call, Cx};
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use wire::codec::{Decoder, Encoder};
use wire::{Channel, Errno, NodeId, Time};

/// How long a machine's answer is waited for.
const ANSWER_SPAN: Duration = Duration::from_secs(2);

/// How often it is looked at whether a wait is over.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// A member and what it told.
pub struct Told {
    /// The member.
    pub member: Member,
    /// How long it still is a member, as the manager tells.
    pub lease: Option<Lease>,
    /// `None`: it was not asked, because it listens nowhere.
    pub report: Option<Result<Report, Errno>>,
}

impl Told {
    /// The report, if there is one.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()?.as_ref().ok()
    }
}

/// The asking node. It is no member.
pub struct Asker(Looker);

impl Asker {
    /// Comes to the cluster. From now on signals only end its waits.
    pub fn start(reach: &Reach) -> Result<Asker, VisitError> {
        let setup = reach.setup(CLIENT_POOL_BYTES, WaitPolicy::Block)?;
        Ok(Asker(Looker::start(&setup).map_err(ReachError::from)?))
    }

    /// Ends its links.
    pub fn stop(self) -> Result<(), VisitError> {
        Ok(self.0.stop().map_err(ReachError::from)?)
    }

    /// Now, on the clock of the rates.
    pub fn now(&mut self) -> Time {
        self.0.host().node().cx().now()
    }

    /// Waits; false when asked to stop, by a signal or because `is_ended`, which is looked at now and then.
    pub fn wait(&mut self, span: Duration, is_ended: impl Fn() -> bool) -> io::Result<bool> {
        let until = self.now() + span;
        let cx = self.0.host().node().cx().clone();
        cx.spawn("watch", {
            let cx = cx.clone();
            async move {
                // Its end may wake nothing, as with a key.
                while cx.now() < until {
                    cx.sleep_until(until.min(cx.now() + LOOK_PERIOD)).await;
                }
            }
        });
        let mut quits = false;
        self.0.host().run(|| {
            quits = quits || is_ended();
            signals::asked() || quits || cx.now() >= until
        })?;
        Ok(!signals::asked() && !quits)
    }

    /// The present reports of all members.
    pub fn ask(&mut self) -> Result<Vec<Told>, VisitError> {
        let directory = self.0.members().map_err(ReachError::from)?;
        let members: Vec<Member> = directory.iter().cloned().collect();
        let cx = self.0.host().node().cx().clone();
        let told = self.0.host().block_on(async move {
            let asks = members.iter().map(|member| report_of(&cx, member));
            let reports = node::all(asks).await;
            with_leases(members, reports)
        });
        Ok(told?)
    }
}

/// Releases the locks that a client of NFS has at any server of NFS that is reached; how many, of which server.
pub fn release_nfs_locks(
    reach: &Reach,
    client: IpAddr,
) -> Result<Vec<(Member, Result<u64, Errno>)>, VisitError> {
    let mut asker = Asker::start(reach)?;
    let directory = asker.0.members().map_err(ReachError::from)?;
    let reached = |member: &&Member| member.alive && !member.addresses.is_empty();
    let members: Vec<Member> = directory.iter().filter(reached).cloned().collect();
    let cx = asker.0.host().node().cx().clone();
    let answers = asker.0.host().block_on(async move {
        let asks = members.iter().map(|member| release(&cx, member.id, client));
        let answers = node::all(asks).await;
        members.into_iter().zip(answers).collect::<Vec<_>>()
    })?;
    asker.stop()?;
    let serves = |answer: &Result<u64, Errno>| *answer != Err(Errno::EOPNOTSUPP);
    Ok(answers.into_iter().filter(|(_, answer)| serves(answer)).collect())
}

async fn release(cx: &Cx, server: NodeId, client: IpAddr) -> Result<u64, Errno> {
    let address = match client {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let call = Call {
        to: server,
        channel: Channel::STATUS,
        op: RELEASE,
        once: false,
        deadline: Some(ANSWER_SPAN),
        body: &address.octets(),
        data: cx.pieces(),
        trailer: &[],
        into: cx.pieces(),
    };
    let reply = cx.call(call).await.map_err(Errno::from)?.ok()?;
    Decoder::new(&reply.body).u64().map_err(|_| Errno::EPROTO)
}

/// The present reports of all members.
pub fn ask_once(reach: &Reach) -> Result<Vec<Told>, VisitError> {
    let mut asker = Asker::start(reach)?;
    let told = asker.ask()?;
    asker.stop()?;
    Ok(told)
}

/// How many disks the server has been given, those that it serves without included.
pub fn disks_of(reach: &Reach, server: NodeId) -> Result<usize, VisitError> {
    let told = ask_once(reach)?;
    let report = told.iter().find(|told| told.member.id == server).and_then(Told::report);
    Ok(report.map_or(0, |report| report.disks.len()))
}

fn with_leases(members: Vec<Member>, reports: Vec<Option<Result<Report, Errno>>>) -> Vec<Told> {
    let leases = reports.iter().flatten().flatten().flat_map(|report| &report.leases);
    let leases: Vec<Lease> = leases.copied().collect();
    let tell = |(member, report): (Member, Option<Result<Report, Errno>>)| {
        let lease = leases.iter().find(|lease| lease.node == member.id.0).copied();
        let alive = lease.map_or(member.alive, |lease| lease.alive);
        Told { member: Member { alive, ..member }, lease, report }
    };
    members.into_iter().zip(reports).map(tell).collect()
}

async fn report_of(cx: &Cx, member: &Member) -> Option<Result<Report, Errno>> {
    if !member.roles.is_server() && member.addresses.is_empty() {
        return None;
    }
    if !member.alive {
        return Some(Err(Errno::EHOSTDOWN));
    }
    let asked = cx.with_deadline(ANSWER_SPAN, fetch(cx, member.id)).await;
    Some(asked.unwrap_or(Err(Errno::ETIMEDOUT)))
}

async fn fetch(cx: &Cx, server: NodeId) -> Result<Report, Errno> {
    let mut text = Vec::new();
    loop {
        let mut body = [0; 4];
        Encoder::new(&mut body).u32(text.len() as u32);
        let frame = cx.frames().alloc(PART_BYTES).ok_or(Errno::ENOMEM)?;
        let call = Call {
            to: server,
            channel: Channel::STATUS,
            op: REPORT,
            once: false,
            deadline: Some(ANSWER_SPAN),
            body: &body,
            data: cx.pieces(),
            trailer: &[],
            into: cx.piece(frame),
        };
        let reply = cx.call(call).await.map_err(Errno::from)?.ok()?;
        let whole = Decoder::new(&reply.body).u32().map_err(|_| Errno::EPROTO)? as usize;
        let part = reply.data.first().map_or(&[][..], |frame| &frame[..reply.bytes]);
        text.extend_from_slice(part);
        if text.len() >= whole {
            return serde_json::from_slice(&text).map_err(|_| Errno::EPROTO);
        }
        if part.is_empty() {
            return Err(Errno::EPROTO);
        }
    }
}
