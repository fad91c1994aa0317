//! A machine's Ethernet, as it tells of it.

use super::figures::{Figure, Number, figures};
use live::link::EthernetStatus;
use serde::{Deserialize, Serialize};

figures! {
    /// Frames. Counters are of the connections that there are.
    #[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
    pub struct Ethernet of (status: &EthernetStatus) {
        /// Which interface, and how frames move.
        port: String = status.port.clone();
        sent = status.frames.sent => gauge "frames_sent", "Ethernet frames sent.";
        received = status.frames.received => gauge "frames_received", "Ethernet frames received and taken.";
        lost = status.frames.lost => gauge "frames_lost", "Ethernet frames found lost, and sent again.";
        timeouts = status.frames.timeouts => gauge "frames_timeouts", "Times that no frame was acknowledged in time.";
        replayed = status.frames.replayed => gauge "frames_replayed", "Ethernet frames dropped because they had come before.";
        forged = status.frames.forged => gauge "frames_forged", "Ethernet frames dropped because their proof did not fit.";
        early = status.frames.early => gauge "frames_early", "Ethernet frames dropped before the first of their message.";
        full = status.frames.full => gauge "frames_full", "Ethernet frames dropped because no entry was free.";
        duplicates = status.frames.duplicates => gauge "frames_duplicates", "Fragments that came twice.";
        strays = status.strays => counter "frames_strays_total", "Ethernet frames for no connection.";
        drops = status.drops => counter "frames_drops_total", "Ethernet frames that came and found no room.";
    }
}
