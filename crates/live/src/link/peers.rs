//! The peers of a node and how connections to them are made, chosen and ended.

use super::channels::{Channel, Kind};
use super::dial::{self, Dial};
use super::frames::Agreed;
use super::greeting::Greeted;
use super::refusals::Cause;
use super::shared_greeting::Passed;
use super::stream::Stream;
use super::*;
use std::net::IpAddr;
use wire::checksum::crc32c;

/// Where a handshake stands.
enum Next {
    /// It waits for the peer.
    Wait,
    /// The host name was found.
    Became(Kind),
    /// It is finished.
    Done,
}

/// Result of a finished handshake.
struct Made {
    id: NodeId,
    caller: NodeId,
    incarnation: u64,
    session: u64,
    /// Of a connection over TCP whose sides both take frames.
    frames: Option<Agreed>,
}

impl Links {
    /// Moves everything that leads to connections: listeners, handshakes, attempts that are due.
    pub(super) fn make_connections(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
    ) -> io::Result<()> {
        let summaries = [self.refusals.summary(now), self.failures.summary(now)];
        summaries.iter().flatten().for_each(|line| (self.log)(line));
        while let Some(peer) = self.peers.to_call(now) {
            self.call_peer(peer, endpoint, now);
        }
        for at in 0..self.channels.len() {
            let Some(channel) = self.channels.get(at) else { continue };
            match &channel.kind {
                Kind::Listener(..) if std::mem::take(&mut channel.readable) => {
                    self.accept(at, now)?
                }
                Kind::Lookup(..) | Kind::Greeting(_) | Kind::SharedGreeting(_) => {
                    self.advance(at, endpoint, now)?
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn call_peer(&mut self, id: NodeId, endpoint: &mut Endpoint, now: Time) {
        let attempt = self.peers.get(id).attempt;
        let called = match self.directory.address(id, attempt) {
            Some(address) => {
                self.call(id, &address, false, now).map_err(|e| format!("{address}: {e}"))
            }
            None => Err("no address of it is known".to_string()),
        };
        self.peers.get(id).dialing = true;
        if let Err(error) = called {
            self.call_failed(id, &error, None, endpoint, now);
        }
    }

    /// Starts a connection to `peer` (0: any node at that address).
    pub(super) fn call(
        &mut self,
        peer: NodeId,
        address: &Address,
        bulk: bool,
        now: Time,
    ) -> Result<(), GreetingError> {
        let kind = match dial::dial(address)? {
            Dial::Lookup(lookup) => Kind::Lookup(lookup, now + HANDSHAKE_SPAN),
            Dial::Socket(socket) if address.is_local() => {
                let none = || GreetingError::Memory("this node's pool is not shared".into());
                let pool = self.pool.clone().ok_or_else(none)?;
                let adapter = matches!(address, Address::Adapter(_));
                let hello = Hello { adapter, ..self.introduce(peer, bulk) };
                let passed = Passed { pool: &pool, shape: &self.adapter };
                let greeting = SharedGreeting::call((socket, address), hello, passed, now)?;
                Kind::SharedGreeting(Box::new(greeting))
            }
            Dial::Socket(socket) => self.call_over(socket, peer, bulk, now),
        };
        let address = Some(address.clone());
        let channel = Channel { called: true, bulk, address, ..Channel::new(kind, peer) };
        self.channels.add(channel)?;
        Ok(())
    }

    /// Greets over a socket that connects.
    fn call_over(
        &mut self,
        socket: std::os::fd::OwnedFd,
        peer: NodeId,
        bulk: bool,
        now: Time,
    ) -> Kind {
        let frames = if bulk { None } else { self.offer_frames() };
        let hello = Hello { frames, ..self.introduce(peer, bulk) };
        Kind::Greeting(Box::new(Greeting::call(socket, hello, self.keys(), now)))
    }

    fn keys(&self) -> Option<&Keys> {
        match &self.config.security {
            Security::Encrypted(keys) => Some(keys),
            Security::Insecure => None,
        }
    }

    fn introduce(&mut self, peer: NodeId, bulk: bool) -> Hello {
        let session = if bulk { self.peers.get(peer).session } else { 0 };
        Hello {
            secure: self.keys().is_some(),
            bulk,
            node: self.config.node,
            assigned: peer,
            incarnation: self.config.incarnation,
            cluster: self.config.cluster,
            session,
            ..Hello::default()
        }
    }

    /// Takes some of those in the listener's line; the kernel says again that there are others.
    fn accept(&mut self, at: usize, now: Time) -> io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            let Some(Channel { kind: Kind::Listener(listener, unix), .. }) = self.channels.get(at)
            else {
                return Ok(());
            };
            let unix = *unix;
            let (socket, from) = match dial::accept(listener) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return Ok(()),
                // Out of descriptors, mostly: those who wait stay in line.
                Err(error) => {
                    self.refused(None, &error.into(), now);
                    return Ok(());
                }
            };
            let kind = match unix {
                Some(access) => SharedGreeting::accept(socket, access, now)
                    .map(|greeting| Kind::SharedGreeting(Box::new(greeting))),
                None => dial::tune(&socket)
                    .map(|()| Kind::Greeting(Box::new(Greeting::accept(socket, self.keys(), now))))
                    .map_err(GreetingError::from),
            };
            match kind {
                Err(error) => self.refused(from, &error, now),
                Ok(kind) => {
                    self.make_room(now);
                    self.channels.add(Channel { from, ..Channel::new(kind, NodeId(0)) })?;
                }
            }
        }
        Ok(())
    }

    /// Gives up the oldest handshake with an unregistered peer when there are as many as there may be.
    fn make_room(&mut self, now: Time) {
        let deadline = |at: &usize| self.channels.at(*at).and_then(Channel::stranger_deadline);
        let strangers = (0..self.channels.len()).filter_map(|at| Some((deadline(&at)?, at)));
        let (count, oldest) = (strangers.clone().count(), strangers.min());
        let Some((_, oldest)) = oldest.filter(|_| count >= STRANGERS_MAX) else { return };
        let stranger = self.channels.take(oldest).expect("it was found");
        self.refused(stranger.from, &GreetingError::Crowded, now);
    }

    fn refused(&mut self, from: Option<IpAddr>, error: &GreetingError, now: Time) {
        let from_where = from.map_or(String::new(), |address| format!(" from {address}"));
        let line = format!("a connection{from_where} was not made: {error}");
        self.tell(Cause::From(from, error.kind()), line, now);
    }

    fn tell(&mut self, cause: Cause, line: String, now: Time) {
        let lines = match cause {
            Cause::From(..) => &mut self.refusals,
            Cause::To(..) => &mut self.failures,
        };
        if let Some(line) = lines.note(cause, line, now) {
            (self.log)(&line);
        }
    }

    /// Goes on with one handshake.
    fn advance(&mut self, at: usize, endpoint: &mut Endpoint, now: Time) -> io::Result<()> {
        let Some(mut channel) = self.channels.lift(at) else { return Ok(()) };
        let late = channel.deadline().is_some_and(|deadline| deadline <= now);
        let next =
            if late { Err(GreetingError::Late) } else { self.advance_lifted(&mut channel, now) };
        let (called, peer) = (channel.called && !channel.bulk, channel.peer);
        let from = channel.from;
        let installed = match next {
            Ok(Next::Wait) => {
                self.channels.put_back(at, channel);
                return self.channels.watch(at);
            }
            Ok(Next::Became(kind)) => {
                self.channels.add(Channel { kind, ..channel })?;
                return Ok(());
            }
            Ok(Next::Done) => {
                self.channels.forget(&channel);
                self.install(channel, endpoint, now)
            }
            Err(error) => Err(error),
        };
        match installed {
            Err(error) if called => {
                self.call_failed(peer, &error.to_string(), error.refusal(), endpoint, now)
            }
            Err(error) => self.refused(from, &error, now),
            Ok(()) => {}
        }
        Ok(())
    }

    fn advance_lifted(&mut self, channel: &mut Channel, now: Time) -> Result<Next, GreetingError> {
        let done = match &mut channel.kind {
            Kind::Lookup(lookup, _) => {
                return Ok(match lookup.poll()? {
                    None => Next::Wait,
                    Some(socket) => {
                        Next::Became(self.call_over(socket, channel.peer, channel.bulk, now))
                    }
                });
            }
            Kind::Greeting(greeting) => greeting.advance(&mut |hello| self.decide(hello))?,
            Kind::SharedGreeting(greeting) => {
                let pool = self.pool.clone().expect("shared memory is offered only with a pool");
                let shape = self.adapter.clone();
                let passed = Passed { pool: &pool, shape: &shape };
                greeting.advance(passed, &mut |hello| self.decide(hello))?
            }
            _ => false,
        };
        Ok(if done { Next::Done } else { Next::Wait })
    }

    /// Answers a caller, or says why not.
    fn decide(&mut self, theirs: &Hello) -> Result<Hello, Refusal> {
        // A caller that only knows an address belongs to no cluster yet; the key shows that it may.
        if theirs.cluster != self.config.cluster && theirs.cluster != 0 {
            return Err(Refusal::Cluster);
        }
        if theirs.assigned != NodeId(0) && theirs.assigned != self.config.node {
            return Err(Refusal::Address);
        }
        if theirs.node == self.config.node && theirs.node != NodeId(0) {
            return Err(Refusal::Identity);
        }
        let known = self.peers.0.get(&theirs.node);
        let mut ours = Hello {
            secure: self.keys().is_some(),
            bulk: theirs.bulk,
            node: self.config.node,
            incarnation: self.config.incarnation,
            cluster: self.config.cluster,
            session: theirs.session,
            ..Hello::default()
        };
        if theirs.bulk {
            let pair =
                known.is_some_and(|peer| peer.main.is_some() && peer.session == theirs.session);
            return if pair { Ok(ours) } else { Err(Refusal::Duplicate) };
        }
        // Two that run at once would take each other's place for ever.
        if known.is_some_and(|peer| peer.main.is_some() && peer.incarnation > theirs.incarnation) {
            return Err(Refusal::Identity);
        }
        let better = known.is_some_and(|peer| {
            peer.main.is_some()
                && peer.incarnation == theirs.incarnation
                && peer.caller < theirs.node
        });
        if better {
            return Err(Refusal::Duplicate);
        }
        if theirs.node == NodeId(0) {
            ours.assigned = self.provisional().ok_or(Refusal::Busy)?;
        }
        self.next_session = self.next_session.wrapping_add(2);
        ours.session = self.next_session;
        ours.frames = theirs.frames.and_then(|_| self.offer_frames());
        Ok(ours)
    }

    /// An id that no connected peer has, if there is one.
    fn provisional(&mut self) -> Option<NodeId> {
        (PROVISIONAL_FIRST..=u16::MAX).find_map(|_| {
            let id = NodeId(self.next_provisional);
            self.next_provisional =
                self.next_provisional.checked_add(1).unwrap_or(PROVISIONAL_FIRST);
            self.peers.0.get(&id).is_none_or(|peer| peer.main.is_none()).then_some(id)
        })
    }

    /// A handshake is finished: the connection becomes its peer's, or the worse of two is dropped.
    fn install(
        &mut self,
        channel: Channel,
        endpoint: &mut Endpoint,
        now: Time,
    ) -> Result<(), GreetingError> {
        let (called, wanted, address) = (channel.called, channel.peer, channel.address);
        let mut frames = None;
        let (kind, ours, theirs) = match channel.kind {
            Kind::Greeting(greeting) => {
                let Greeted { socket, ours, theirs, cipher, frame_keys } = greeting.finish();
                frames = Agreed::of(&ours, &theirs, frame_keys);
                (Kind::Stream(Box::new(Stream::new(socket, cipher, self.pulses))), ours, theirs)
            }
            Kind::SharedGreeting(greeting) => {
                let (link, ours, theirs) = greeting.finish(&self.adapter, self.pulses);
                (Kind::Shared(link), ours, theirs)
            }
            _ => return Ok(()),
        };
        if called && wanted != NodeId(0) && theirs.node != wanted {
            return Err(GreetingError::Refused(Refusal::Address));
        }
        if called && self.config.cluster == 0 {
            self.config.cluster = theirs.cluster;
        }
        if called && theirs.cluster != self.config.cluster {
            return Err(GreetingError::Refused(Refusal::Cluster));
        }
        if called && self.config.node == NodeId(0) {
            self.config.node = theirs.assigned;
        }
        let id = if theirs.node == NodeId(0) { ours.assigned } else { theirs.node };
        let made = Made {
            id,
            caller: if called { self.config.node } else { id },
            incarnation: theirs.incarnation,
            session: if called { theirs.session } else { ours.session },
            frames,
        };
        let channel = Channel { called, address, ..Channel::new(kind, id) };
        if ours.bulk {
            self.install_bulk(channel, &made)
        } else {
            self.install_main(channel, made, endpoint, now)
        }
    }

    fn install_bulk(&mut self, channel: Channel, made: &Made) -> Result<(), GreetingError> {
        let peer = self.peers.get(made.id);
        if peer.main.is_some() && peer.session == made.session && peer.bulk.is_none() {
            let at = self.channels.add(Channel { bulk: true, ..channel })?;
            self.peers.get(made.id).bulk = Some(at);
        }
        Ok(())
    }

    fn install_main(
        &mut self,
        channel: Channel,
        made: Made,
        endpoint: &mut Endpoint,
        now: Time,
    ) -> Result<(), GreetingError> {
        let peer = self.peers.get(made.id);
        if let Some(old) = peer.main {
            // When both called at once, both keep the connection that the lower id made.
            if peer.incarnation == made.incarnation && peer.caller < made.caller {
                peer.dialing = false;
                return Ok(());
            }
            let restarted = peer.incarnation != made.incarnation;
            self.drop_connection(old, &Closed::Replaced, endpoint);
            if restarted {
                self.events.push_back(LinkEvent::Down(made.id));
            }
        }
        let (transport, address) = (channel.transport(), channel.address.clone());
        let bulk = channel.called && matches!(channel.kind, Kind::Stream(_));
        let at = self.channels.add(channel)?;
        self.processor = u32::MAX; // to be said to the new peer too
        let peer = self.peers.get(made.id);
        (peer.main, peer.bulk, peer.dialing, peer.backoff) = (Some(at), None, false, BACKOFF_MIN);
        // One that ends at once is not made again at once: two nodes with one id would take each other's place a
        // thousand times a second.
        peer.retry_at = now + BACKOFF_MAX;
        (peer.caller, peer.incarnation, peer.session) =
            (made.caller, made.incarnation, made.session);
        while let Some(message) = peer.waiting.queue.pop_front() {
            self.channels.get(at).expect("just added").push(message, endpoint);
        }
        if let Some(agreed) = made.frames {
            self.open_frames(made.id, agreed, made.session, now);
        }
        self.directory.update(made.id, |status| {
            status.transport = transport;
            status.connections += 1;
            status.last_error.clear();
            status.refused = None;
        });
        self.events.push_back(LinkEvent::Up(made.id));
        (self.log)(&format!("connected to {} by {transport}", made.id));
        if let (true, Some(address)) = (bulk, address)
            && let Err(error) = self.call(made.id, &address, true, now)
        {
            (self.log)(&format!("no second connection to {}: {error}", made.id));
        }
        Ok(())
    }

    fn call_failed(
        &mut self,
        id: NodeId,
        error: &str,
        refused: Option<Refusal>,
        endpoint: &mut Endpoint,
        now: Time,
    ) {
        let peer = self.peers.get(id);
        peer.dialing = false;
        peer.attempt += 1;
        peer.retry_at = now + peer.backoff;
        peer.backoff = (peer.backoff * 2).min(BACKOFF_MAX);
        if peer.main.is_some() {
            return; // the other side's call was better
        }
        if peer.backoff == BACKOFF_MAX {
            peer.waiting.close(endpoint, &mut peer.tally);
        }
        let mut news = false;
        self.directory.update(id, |status| {
            news = status.last_error != error;
            (status.last_error, status.refused) = (error.to_string(), refused);
        });
        if news {
            let cause = Cause::To(id, crc32c(error.as_bytes()));
            self.tell(cause, format!("cannot connect to {id}: {error}"), now);
        }
        self.events.push_back(LinkEvent::Down(id));
    }

    /// Ends a connection that broke.
    pub(super) fn close(&mut self, at: usize, reason: &Closed, endpoint: &mut Endpoint) {
        let Some((id, main)) = self.drop_connection(at, reason, endpoint) else { return };
        (self.log)(&format!(
            "the {} to {id} ended: {reason}",
            if main { "link" } else { "second connection" }
        ));
        if main {
            self.events.push_back(LinkEvent::Down(id));
        }
    }

    /// Takes a connection, and with a main one its second, out of the table. Returns its peer, and whether it was the
    /// main one.
    fn drop_connection(
        &mut self,
        at: usize,
        reason: &Closed,
        endpoint: &mut Endpoint,
    ) -> Option<(NodeId, bool)> {
        let mut channel = self.channels.take(at)?;
        let id = channel.peer;
        let peer = self.peers.get(id);
        peer.tally.add(&channel.close(endpoint));
        let main = peer.main == Some(at);
        if !main {
            peer.bulk = peer.bulk.filter(|bulk| *bulk != at);
            return Some((id, false));
        }
        (peer.main, peer.frames_pass) = (None, false);
        if let Some(bulk) = peer.bulk.take()
            && let Some(mut bulk) = self.channels.take(bulk)
        {
            peer.tally.add(&bulk.close(endpoint));
        }
        self.close_frames(id, endpoint);
        let tally = self.peers.get(id).tally;
        self.directory.update(id, |status| {
            (status.transport, status.tally) = ("", tally);
            status.last_error = reason.to_string();
        });
        Some((id, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_when_all_provisional_ids_are_taken_is_refused() {
        let (node, security) = (NodeId(1), Security::Insecure);
        let config = LinkConfig { node, incarnation: 1, cluster: 7, security };
        let mut links = Links::new(config, None, Box::new(|_| {})).unwrap();
        for id in PROVISIONAL_FIRST..u16::MAX {
            links.peers.get(NodeId(id)).main = Some(0);
        }
        assert_eq!(links.decide(&Hello::default()).unwrap().assigned, NodeId(u16::MAX));
        links.peers.get(NodeId(u16::MAX)).main = Some(0);
        assert_eq!(links.decide(&Hello::default()), Err(Refusal::Busy));
        let free = NodeId(PROVISIONAL_FIRST + 7);
        links.peers.get(free).main = None;
        assert_eq!(links.decide(&Hello::default()).unwrap().assigned, free);
    }
}
