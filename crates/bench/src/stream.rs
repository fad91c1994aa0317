//! Sequential bytes through a directory, wherever it leads: 64 KiB calls, fsync at the end.

use super::compare::{Compare, Op, Unit};
use super::pass::{Meter, Pass};
use super::place::Target;
use crate::arguments::{self, CALL_BYTES};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const FILE: &str = "stream";

/// Writes a new file of `bytes` bytes and makes it durable.
pub fn write(path: &Path, bytes: u64) -> io::Result<Pass> {
    let call: Vec<u8> = (0..CALL_BYTES).map(|i| (i * 31 % 251) as u8).collect();
    let _ = std::fs::remove_file(path);
    let mut meter = Meter::start();
    let mut file = File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(CALL_BYTES as u64) as usize;
        left -= meter.time(|| file.write_all(&call[..part]).map(|()| part as u64))?;
    }
    file.sync_all()?;
    drop(file);
    Ok(meter.end())
}

/// Reads the file once.
pub fn read(path: &Path) -> io::Result<Pass> {
    let mut call = vec![0; CALL_BYTES];
    let mut meter = Meter::start();
    let mut file = File::open(path)?;
    while meter.time(|| file.read(&mut call).map(|bytes| bytes as u64))? > 0 {}
    Ok(meter.end())
}

/// `trapeze bench stream`.
pub fn measure(arguments: &arguments::Stream) -> Result<(), Box<dyn std::error::Error>> {
    let compare = Compare {
        name: "stream",
        servers: arguments.servers,
        passes: arguments.passes,
        separate: !arguments.embedded,
        embedded: arguments.embedded || !(arguments.separate || arguments.two_copies),
        two_copies: arguments.two_copies,
        cpus: arguments.cpu.iter().map(|cpu| cpu.0).collect(),
        json: arguments.json,
        warm_up: Some(warm_up(arguments.size.0)),
    };
    compare.run(&ops(arguments.size.0))
}

fn file(place: &Target<'_>) -> PathBuf {
    place.path().join(FILE)
}

/// The servers' memory is touched where the file will be, and mapped by who serves the mount.
fn warm_up(bytes: u64) -> Op {
    Op::new("warm up", Unit::Bytes, move |place| {
        let file = file(place);
        write(&file, bytes)?;
        place.forget_file(&file)?;
        let pass = read(&file)?;
        std::fs::remove_file(file)?;
        Ok(pass)
    })
}

fn ops(bytes: u64) -> Vec<Op> {
    // The kernel's copy of what passes, and the servers' or what is below the pass-through.
    let touch = bytes as usize * 2;
    vec![
        Op::new("write + fsync", Unit::Bytes, move |place| write(&file(place), bytes))
            .after(|_| Ok(()), touch),
        // The thread that serves the mount stays, and with it what it has mapped of its servers' memory.
        Op::new("read, servers warm", Unit::Bytes, move |place| read(&file(place)))
            .after(move |place| place.forget_file(&file(place)), touch),
        Op::new("read, all cold", Unit::Bytes, move |place| read(&file(place)))
            .after(|place| place.forget_all().map(drop), touch),
        Op::new("read again", Unit::Bytes, move |place| {
            let pass = read(&file(place))?;
            std::fs::remove_file(file(place))?;
            Ok(pass)
        }),
    ]
}
