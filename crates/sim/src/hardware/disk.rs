//! Disks: arms over rotating zones behind a shared channel, and flash behind its own.
//!
//! A rotating disk has a place for its head and an angle that is a function of the time, so that a run needs no
//! random number for it. A request that begins where the last one ended is read ahead: it costs no seek and no
//! turn. Disks of one channel (IDE, SCSI) share its rate; each disk's buffer decouples it.

use super::flow::Rate;
use super::preset::Section;
use crate::queue::Picos;
use crate::source::Fault;

/// A disk's constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Platters and an arm.
    Rotating(Rotating),
    /// Flash.
    Flash(Flash),
}

/// Zones on a rotating disk: equal shares of its capacity, from the outermost inwards.
pub const ZONES: usize = 4;

/// A disk with an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotating {
    /// Bytes.
    pub capacity: u64,
    /// One turn.
    pub turn: Picos,
    /// A seek to the next track.
    pub seek_track: Picos,
    /// A seek over a third of the disk, which is the average of random ones.
    pub seek_average: Picos,
    /// A seek over all of it.
    pub seek_full: Picos,
    /// The drive's own time for a command.
    pub command: Picos,
    /// Media rate of each zone.
    pub zones: [Rate; ZONES],
    /// The channel that it shares with other disks.
    pub channel: Rate,
    /// The rate at which its controller moves data over an idle I/O bus.
    pub bus: Rate,
}

/// A flash disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Bytes.
    pub capacity: u64,
    /// From a read command to its data, idle.
    pub read_latency: Picos,
    /// From a write command to its completion, into its power-safe buffer.
    pub write_latency: Picos,
    /// Most bytes a second, reading.
    pub read: Rate,
    /// Most bytes a second, writing.
    pub write: Rate,
    /// Commands that proceed at once.
    pub parallel: u64,
    /// Its own link to the host.
    pub channel: Rate,
}

/// A request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// First byte.
    pub offset: u64,
    /// Bytes, at least one.
    pub bytes: u64,
    /// Whether it writes.
    pub is_write: bool,
}

/// The wires that several disks share: one transfer at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Channel {
    free: Picos,
    /// Time it was in use.
    pub busy: Picos,
}

impl Channel {
    /// A transfer that could end at `ready` at the earliest; when it ends on this channel.
    fn carry(&mut self, ready: Picos, span: Picos) -> Picos {
        let end = ready.max(self.free + span);
        self.free = end;
        self.busy = self.busy + span;
        end
    }
}

/// A disk at work. Requests are served in the order they come.
#[derive(Clone, Debug)]
pub struct Drive {
    disk: Disk,
    /// Position of the arm, as a byte; start of a sequential request.
    place: u64,
    free: Picos,
    /// When each of a flash disk's units is free.
    units: Vec<Picos>,
    /// Time the media was in use.
    pub busy: Picos,
}

impl Drive {
    /// A drive at rest, its arm at the first byte.
    pub fn new(disk: Disk) -> Drive {
        let units = match disk {
            Disk::Rotating(_) => 0,
            Disk::Flash(flash) => flash.parallel as usize,
        };
        Drive {
            disk,
            place: 0,
            free: Picos::ZERO,
            units: vec![Picos::ZERO; units],
            busy: Picos::ZERO,
        }
    }

    /// When all that was asked for so far is done.
    pub fn settled(&self) -> Picos {
        self.free
    }

    /// When `request`, which comes at `now`, is done, over `channel`.
    ///
    /// Panics if it does not lie on the disk.
    pub fn serve(&mut self, now: Picos, request: Request, channel: &mut Channel) -> Picos {
        let Request { offset, bytes, .. } = request;
        let capacity = self.disk.capacity();
        assert!(bytes > 0 && offset + bytes <= capacity, "{bytes} bytes at {offset} of {capacity}");
        let span = self.disk.channel().time(bytes);
        let media = match self.disk {
            Disk::Rotating(disk) => self.turn(now, request, &disk),
            Disk::Flash(disk) => self.flash(now, request, &disk),
        };
        channel.carry(media, span)
    }

    /// When the media is through with `request`.
    fn turn(&mut self, now: Picos, request: Request, disk: &Rotating) -> Picos {
        let start = now.max(self.free);
        let ready = if request.offset == self.place && now <= self.free + disk.turn {
            // read ahead into the buffer, or written behind out of it
            start
        } else {
            let arrived = now.max(self.free) + disk.command + disk.seek(self.place, request.offset);
            arrived + disk.wait(arrived, request.offset)
        };
        let end = ready + disk.media_time(request.offset, request.bytes);
        self.place = request.offset + request.bytes;
        self.busy = self.busy + end.since(start);
        self.free = end;
        end
    }

    fn flash(&mut self, now: Picos, request: Request, disk: &Flash) -> Picos {
        let (latency, rate) = match request.is_write {
            true => (disk.write_latency, disk.write),
            false => (disk.read_latency, disk.read),
        };
        let unit = self.units.iter_mut().min().expect("a flash disk has units");
        let ready = now.max(*unit) + latency;
        // all units together move no more than `rate`
        let end = ready.max(self.free + rate.time(request.bytes));
        *unit = ready;
        self.busy = self.busy + rate.time(request.bytes);
        self.free = end;
        end
    }
}

impl Disk {
    /// Bytes.
    pub fn capacity(&self) -> u64 {
        match self {
            Disk::Rotating(disk) => disk.capacity,
            Disk::Flash(disk) => disk.capacity,
        }
    }

    /// The rate at which its controller moves data over an idle I/O bus; flash has lanes of its own.
    pub fn bus(&self) -> Rate {
        match self {
            Disk::Rotating(disk) => disk.bus,
            Disk::Flash(disk) => disk.channel,
        }
    }

    fn channel(&self) -> Rate {
        match self {
            Disk::Rotating(disk) => disk.channel,
            Disk::Flash(disk) => disk.channel,
        }
    }

    /// Reads the table [disk].
    pub fn read(table: &Section<'_>) -> Result<Disk, Fault> {
        match table.word("type", &["rotating", "flash"])? {
            0 => Rotating::read(table).map(Disk::Rotating),
            _ => Flash::read(table).map(Disk::Flash),
        }
    }
}

const RATE: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
const CAPACITY: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000_000;

impl Rotating {
    /// The zone of a byte.
    fn zone(&self, offset: u64) -> usize {
        (u128::from(offset) * ZONES as u128 / u128::from(self.capacity)).min(ZONES as u128 - 1)
            as usize
    }

    /// Moving the arm: a + b times the square root of the distance up to a third of the disk, linear beyond.
    pub fn seek(&self, from: u64, to: u64) -> Picos {
        let distance = from.abs_diff(to);
        let third = self.capacity / 3;
        if distance == 0 {
            return Picos::ZERO;
        }
        if distance <= third {
            let root = (u128::from(distance) * (1 << 40) / u128::from(third)).isqrt() as u64;
            let more =
                u128::from(self.seek_average.since(self.seek_track).0) * u128::from(root) >> 20;
            return self.seek_track + Picos(more as u64);
        }
        let beyond =
            u128::from(distance - third) * u128::from(self.seek_full.since(self.seek_average).0);
        self.seek_average + Picos((beyond / u128::from(self.capacity - third)) as u64)
    }

    /// How long the byte at `offset` takes to come under the head at `now`.
    fn wait(&self, now: Picos, offset: u64) -> Picos {
        let track = self.zones[self.zone(offset)].units(self.turn).max(1);
        let angle =
            (u128::from(offset % track) * u128::from(self.turn.0) / u128::from(track)) as u64;
        let head = now.0 % self.turn.0;
        Picos((angle + self.turn.0 - head) % self.turn.0)
    }

    /// How long the media needs for a range, zone by zone.
    fn media_time(&self, offset: u64, bytes: u64) -> Picos {
        let (mut at, end, mut span) = (offset, offset + bytes, Picos::ZERO);
        while at < end {
            let zone = self.zone(at);
            let border =
                (self.capacity as u128 * (zone as u128 + 1)).div_ceil(ZONES as u128) as u64;
            let next = if zone + 1 == ZONES { end } else { border.min(end) };
            span = span + self.zones[zone].time(next - at);
            at = next;
        }
        span
    }

    fn read(table: &Section<'_>) -> Result<Rotating, Fault> {
        let turns = table.count("turns_per_minute", 1_000..=30_000)?;
        let most = Picos::millis(100);
        let disk = Rotating {
            capacity: table.size("capacity", CAPACITY)?,
            turn: Picos(60_000_000_000_000 / turns),
            seek_track: table.time("seek_track", most)?,
            seek_average: table.time("seek_average", most)?,
            seek_full: table.time("seek_full", most)?,
            command: table.time("command", most)?,
            zones: [
                table.rate("zone_1", RATE)?,
                table.rate("zone_2", RATE)?,
                table.rate("zone_3", RATE)?,
                table.rate("zone_4", RATE)?,
            ],
            channel: table.rate("channel", RATE)?,
            bus: table.rate("bus", RATE)?,
        };
        if disk.seek_track > disk.seek_average || disk.seek_average > disk.seek_full {
            let what = "seeks must not get shorter with the distance: `seek_track` to `seek_average` to `seek_full`";
            return Err(table.impossible("seek_average", what.into()));
        }
        Ok(disk)
    }
}

impl Flash {
    fn read(table: &Section<'_>) -> Result<Flash, Fault> {
        let most = Picos::millis(100);
        Ok(Flash {
            capacity: table.size("capacity", CAPACITY)?,
            read_latency: table.time("read_latency", most)?,
            write_latency: table.time("write_latency", most)?,
            read: table.rate("read", RATE)?,
            write: table.rate("write", RATE)?,
            parallel: table.count("parallel", 1..=4_096)?,
            channel: table.rate("channel", RATE)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Rotating = Rotating {
        capacity: 9_000_000_000,
        turn: Picos::micros(8_333),
        seek_track: Picos::millis(1),
        seek_average: Picos::millis(8),
        seek_full: Picos::millis(18),
        command: Picos::micros(300),
        zones: [Rate::mega(14), Rate::mega(13), Rate::mega(11), Rate::mega(9)],
        channel: Rate::mega(40),
        bus: Rate::mega(100),
    };
    const READ: Request = Request { offset: 0, bytes: 65_536, is_write: false };

    #[test]
    fn a_sequential_reader_gets_the_media_rate_and_a_random_one_does_not() {
        let mut drive = Drive::new(Disk::Rotating(DISK));
        let (mut channel, mut now) = (Channel::default(), Picos::ZERO);
        for n in 0..100 {
            now = drive.serve(now, Request { offset: n * 65_536, ..READ }, &mut channel);
        }
        let rate = 100 * 65_536 * 1_000_000_000_000 / now.0 / 1_000;
        assert!((13_900..=14_001).contains(&rate), "{rate} KB/s");
        let random = drive.serve(now, Request { offset: 5_000_000_000, ..READ }, &mut channel);
        assert!(random.since(now) > Picos::millis(8), "{random}");
    }

    #[test]
    fn seeks_grow_with_the_distance_from_a_track_to_all_of_it() {
        let seek = |share: u64| DISK.seek(0, DISK.capacity / 1_000 * share);
        let all: Vec<Picos> = (0..=1_000).step_by(50).map(seek).collect();
        assert!(all.is_sorted(), "{all:?}");
        assert_eq!(DISK.seek(0, DISK.capacity / 3), DISK.seek_average);
        assert_eq!(DISK.seek(0, DISK.capacity), DISK.seek_full);
        assert!(DISK.seek(0, 1) < Picos::micros(1_100));
    }

    #[test]
    fn disks_on_one_channel_share_it() {
        let mut drives = [0; 4].map(|_| Drive::new(Disk::Rotating(DISK)));
        let mut channel = Channel::default();
        let mut ends = [Picos::ZERO; 4];
        for n in 0..200 {
            for (drive, end) in drives.iter_mut().zip(&mut ends) {
                *end = drive.serve(*end, Request { offset: n * 65_536, ..READ }, &mut channel);
            }
        }
        let all = 4 * 200 * 65_536 * 1_000_000 / (ends[3].0 / 1_000_000) / 1_000;
        // four media of 14 MB/s want 56 MB/s, and 40 are there
        assert!((39_000..=40_010).contains(&all), "{all} KB/s");
    }

    #[test]
    fn flash_is_as_parallel_as_it_says() {
        let flash = Flash {
            capacity: 1 << 40,
            read_latency: Picos::micros(80),
            write_latency: Picos::micros(15),
            read: Rate::mega(7_000),
            write: Rate::mega(5_000),
            parallel: 64,
            channel: Rate::mega(7_800),
        };
        let page = |offset| Request { offset, bytes: 4_096, is_write: false };
        let mut drive = Drive::new(Disk::Flash(flash));
        let mut channel = Channel::default();
        let one = drive.serve(Picos::ZERO, page(0), &mut channel);
        assert_eq!(one, Picos::micros(80));
        let ends: Vec<Picos> =
            (1..128).map(|n| drive.serve(Picos::ZERO, page(n * 4_096), &mut channel)).collect();
        let last = *ends.last().unwrap();
        assert!(last > Picos::micros(150) && last < Picos::micros(240), "{last}");
    }

    #[test]
    #[should_panic(expected = "bytes at")]
    fn nothing_lies_behind_the_end() {
        let request = Request { offset: DISK.capacity - 1, ..READ };
        Drive::new(Disk::Rotating(DISK)).serve(Picos::ZERO, request, &mut Channel::default());
    }
}
