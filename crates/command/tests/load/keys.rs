use super::{Dice, Done, Versions, contents};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const KEYS: u64 = 3000;
/// Longer than a lease.
const PATIENCE: Duration = Duration::from_secs(40);

/// A client that sets and gets keys by memcached's protocol, at any of several front ends.
pub struct Keys {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<String>,
}

impl Keys {
    pub fn start(ports: &[u16]) -> Keys {
        let (stop, ports) = (Arc::new(AtomicBool::new(false)), ports.to_vec());
        let told = stop.clone();
        let thread = std::thread::spawn(move || set_and_get(&ports, &told));
        Keys { stop, thread }
    }

    /// Ends it, and how much it has done; a panic when a value was wrong.
    pub fn end(self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Of 50 bytes to 20 KB.
fn bytes_of(key: u64) -> usize {
    [50, 900, 4000, 9000, 20_000][key as usize % 5]
}

fn set_and_get(ports: &[u16], stop: &AtomicBool) -> String {
    let (mut dice, mut versions) = (Dice(3), Versions::default());
    let mut done = Done::default();
    let mut fronts: Vec<Option<Front>> = ports.iter().map(|_| None).collect();
    while !stop.load(Ordering::Relaxed) {
        let (at, key) = (dice.below(ports.len() as u64) as usize, dice.below(KEYS));
        let sets = dice.below(3) == 0;
        let outcome = done.count(|| {
            let front = Front::open(&mut fronts[at], ports[at])?;
            match sets {
                true => front.set(key, &mut versions).map(|()| None),
                false => front.get(key),
            }
        });
        match outcome {
            Ok(value) => {
                done.wrong.extend(value.and_then(|value| versions.check(key, &value)));
            }
            Err(_) => {
                fronts[at] = None;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    done.report("keys")
}

struct Front(BufReader<TcpStream>);

impl Front {
    fn open(place: &mut Option<Front>, port: u16) -> io::Result<&mut Front> {
        if place.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            *place = Some(Front(BufReader::new(stream)));
        }
        Ok(place.as_mut().expect("it was just made"))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    fn set(&mut self, key: u64, versions: &mut Versions) -> io::Result<()> {
        let version = versions.try_next(key);
        let value = contents(key, version, bytes_of(key));
        let head = format!("set under-load-{key} 0 0 {}\r\n", value.len());
        self.0.get_mut().write_all(&[head.as_bytes(), &value, b"\r\n"].concat())?;
        match self.line()?.as_str() {
            "STORED\r\n" => versions.acknowledge(key, version),
            told => return Err(io::Error::other(told.to_string())),
        }
        Ok(())
    }

    /// A miss is always right: keys go with their nodes.
    fn get(&mut self, key: u64) -> io::Result<Option<Vec<u8>>> {
        self.0.get_mut().write_all(format!("get under-load-{key}\r\n").as_bytes())?;
        let line = self.line()?;
        if line == "END\r\n" {
            return Ok(None);
        }
        let bytes = line.strip_prefix("VALUE ").and_then(|line| line.trim_end().rsplit(' ').next());
        let bytes: usize =
            bytes.and_then(|bytes| bytes.parse().ok()).ok_or(io::ErrorKind::Other)?;
        let mut value = vec![0; bytes];
        self.0.read_exact(&mut value)?;
        let ends = (self.line()?, self.line()?);
        assert_eq!((ends.0.as_str(), ends.1.as_str()), ("\r\n", "END\r\n"));
        Ok(Some(value))
    }
}
