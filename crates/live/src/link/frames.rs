//! How links use Ethernet: when a connection over it begins and ends, and which messages go that way.

use super::ether::{Broken, Ethernet, Port};
use super::frame_keys::FrameKeys;
use super::hello::Frames;
use super::*;
use nic::ether::limits::FRAME_BYTES_MIN;
use nic::ether::{Checked, Config, Fault, Messages, Seal};

/// What two hellos agreed on.
pub(super) struct Agreed {
    /// This side's frames.
    pub ours: Frames,
    /// The peer's.
    pub theirs: Frames,
    /// Under encryption.
    pub keys: Option<FrameKeys>,
}

impl Agreed {
    /// Of both hellos; `None` unless both take frames, and long enough ones.
    pub fn of(ours: &Hello, theirs: &Hello, keys: Option<FrameKeys>) -> Option<Agreed> {
        let (ours, theirs) = (ours.frames?, theirs.frames?);
        let long = usize::from(ours.bytes.min(theirs.bytes)) >= FRAME_BYTES_MIN;
        long.then_some(Agreed { ours, theirs, keys })
    }

    fn config(self, peer: NodeId, session: u64) -> Config {
        let Agreed { ours, theirs, keys } = self;
        let checked = || Box::new(Checked(wire::mix(session))) as Box<dyn Seal>;
        Config {
            peer,
            from: ours.address,
            to: theirs.address,
            number: ours.connection,
            peer_number: theirs.connection,
            frame_bytes: ours.bytes.min(theirs.bytes).into(),
            seal: keys.map_or_else(checked, |keys| Box::new(keys)),
        }
    }
}

/// What is known of a node's Ethernet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EthernetStatus {
    /// The port: which interface, and how frames move.
    pub port: String,
    /// Frames of the connections that there are.
    pub frames: nic::ether::Counters,
    /// Frames that came for no connection.
    pub strays: u64,
    /// Frames that came and found no room.
    pub drops: u64,
}

impl Links {
    /// From now on frames of peers that have an Ethernet too go through this port.
    pub fn set_ethernet(&mut self, port: Box<dyn Port>) -> io::Result<()> {
        if let Some(fd) = port.fd() {
            self.channels.poller().add(fd, true, false)?;
        }
        self.directory.update_ethernet(|status| status.port = port.name());
        self.ethernet = Some(Ethernet::new(port, self.config.incarnation as u16));
        Ok(())
    }

    /// For a hello: where this node takes frames, if it does.
    pub(super) fn offer_frames(&mut self) -> Option<Frames> {
        self.ethernet.as_mut().map(Ethernet::offer)
    }

    /// Begins to probe the way to a peer that has just been connected.
    pub(super) fn open_frames(&mut self, id: NodeId, agreed: Agreed, session: u64, now: Time) {
        let Some(ethernet) = &mut self.ethernet else { return };
        let config = agreed.config(id, session);
        self.peers.get(id).frames = Some(config.number);
        ethernet.open(config, now);
    }

    /// Ends the connection over Ethernet of a peer; its traffic.
    pub(super) fn close_frames(&mut self, id: NodeId, endpoint: &mut Endpoint) {
        let peer = self.peers.get(id);
        let Some(number) = peer.frames.take() else { return };
        let Some(ethernet) = &mut self.ethernet else { return };
        if let Some(closed) = ethernet.close(number, endpoint) {
            peer.tally.add(&tally(closed.messages()));
        }
    }

    /// Moves frames in both directions; whether any moved.
    pub(super) fn step_frames(&mut self, endpoint: &mut Endpoint, now: Time) -> bool {
        let Some(ethernet) = &mut self.ethernet else { return false };
        let mut broken = None;
        let moved = ethernet.receive(endpoint, now, &mut |peer, why| broken = Some((peer, why)));
        if let Some((id, why)) = broken
            && let Some(at) = self.peers.get(id).main
        {
            self.close(at, &closed(why), endpoint);
        }
        self.send_frames(endpoint, now) | moved
    }

    /// Sends the frames that are due; whether there were any.
    pub(super) fn send_frames(&mut self, endpoint: &mut Endpoint, now: Time) -> bool {
        self.ethernet.as_mut().is_some_and(|ethernet| ethernet.send(endpoint, now))
    }

    /// Queues a message for a peer that frames reach. Gives it back where they do not.
    pub(super) fn push_frames(
        ethernet: &mut Option<Ethernet>,
        number: Option<u16>,
        message: SendMessage,
        endpoint: &mut Endpoint,
    ) -> Option<SendMessage> {
        let connection = number.and_then(|number| ethernet.as_mut()?.get(number));
        match connection.filter(|connection| connection.is_up()) {
            Some(connection) => {
                connection.push(message, endpoint);
                None
            }
            None => Some(message),
        }
    }

    /// Tells of peers that frames have just reached.
    pub(super) fn look_at_frames(&mut self) {
        let Some(ethernet) = &mut self.ethernet else { return };
        let mut up = Vec::new();
        for (id, peer) in self.peers.iter_mut() {
            let connection = peer.frames.and_then(|number| ethernet.get(number));
            if !peer.frames_pass && connection.is_some_and(|connection| connection.is_up()) {
                peer.frames_pass = true;
                up.push(*id);
            }
        }
        for id in up {
            let secure = matches!(self.config.security, Security::Encrypted(_));
            let transport = if secure { "xdp+noise" } else { "xdp" };
            self.directory.update(id, |status| status.transport = transport);
            let port = ethernet.port().name();
            (self.log)(&format!("frames reach {id}: messages go by {transport} ({port})"));
        }
    }

    /// Brings the counters that others see up to date.
    pub(super) fn publish_tallies(&mut self) {
        for (id, peer) in self.peers.iter_mut() {
            let mut sum = peer.tally;
            for at in peer.main.iter().chain(&peer.bulk) {
                if let Some(channel) = self.channels.get(*at) {
                    sum.add(&channel.tally());
                }
            }
            let connection = peer.frames.and_then(|number| self.ethernet.as_mut()?.get(number));
            sum.add(&connection.map_or(Tally::default(), |it| tally(it.messages())));
            self.directory.update(*id, |status| status.tally = sum);
        }
        if let Some(ethernet) = &self.ethernet {
            let (strays, drops) = ethernet.unwanted();
            let frames = ethernet.counters();
            self.directory.update_ethernet(|status| {
                (status.frames, status.strays, status.drops) = (frames, strays, drops);
            });
        }
    }
}

fn tally(messages: Messages) -> Tally {
    let Messages { sent, sent_bytes, received, received_bytes, drops } = messages;
    Tally { sent, sent_bytes, received, received_bytes, drops, ..Tally::default() }
}

fn closed(why: Broken) -> Closed {
    match why {
        Broken::Silent => Closed::Unreached,
        Broken::Fault(Fault::Malformed(malformed)) => Closed::Malformed(malformed),
        Broken::Fault(Fault::Forged(id)) => Closed::Forged(id),
        Broken::Fault(Fault::Fragment) => Closed::Fragment,
    }
}
