//! The baseline of `fetch` and `rate`: the bare ring or the bare socket, its server in a process of its own.

use super::veth::{self, Veth};
use crate::arguments::{BenchPeer, LinkKind};
use live::baseline::{self, Ring, Series};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use trapeze::children::{Process, READY};

/// The server's process: serves one client until that ends.
pub fn serve(arguments: &BenchPeer) -> io::Result<()> {
    trapeze::serve::pin(Some(arguments.cpu))?;
    match arguments.link {
        LinkKind::Shm | LinkKind::Adapter => {
            let ring = Ring::open(&arguments.path)?;
            println!("{READY}");
            baseline::serve_ring(&ring, arguments.spin);
            Ok(())
        }
        LinkKind::Tcp => {
            let listener = TcpListener::bind(&*arguments.path.to_string_lossy())?;
            println!("{READY} {}", listener.local_addr()?);
            baseline::serve_socket(&listener, arguments.spin)
        }
    }
}

/// Nanoseconds that a cache line takes to the processor `cpu` and back: on a virtual machine it says how far the two
/// processors are from each other just now.
pub fn line_exchange_ns(cpu: usize) -> io::Result<f64> {
    let (there, back) = (Line::default(), Line::default());
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            trapeze::serve::pin(Some(cpu))?;
            back.store(1);
            (1..=EXCHANGES).for_each(|n| {
                there.wait_for(n);
                back.store(n + 1);
            });
            io::Result::Ok(())
        });
        while !echo.is_finished() && !back.is(1) {
            std::hint::spin_loop();
        }
        let start = live::clock::now();
        if back.is(1) {
            (1..=EXCHANGES).for_each(|n| {
                there.store(n);
                back.wait_for(n + 1);
            });
        }
        let span = live::clock::now().since(start);
        echo.join().expect("it does not panic")?;
        Ok(span.as_nanos() as f64 / EXCHANGES as f64)
    })
}

/// Exchanges of a cache line: 2 ms.
const EXCHANGES: u64 = 20_000;

/// A counter on a cache line of its own; a processor may fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn is(&self, value: u64) -> bool {
        self.0.load(Ordering::Acquire) == value
    }

    fn wait_for(&self, value: u64) {
        while !self.is(value) {
            std::hint::spin_loop();
        }
    }
}

enum Means {
    Ring(Ring),
    Socket(TcpStream),
}

/// The client's side, with the server's process, which runs only during a series.
pub struct Peer {
    means: Means,
    process: Process,
}

impl Peer {
    /// Starts the server on `cpu`. Its messages are kept in `dir`.
    pub fn start(
        (link, veth): (LinkKind, Option<&Veth>),
        spin: bool,
        cpu: usize,
        dir: &Path,
    ) -> io::Result<Peer> {
        let ring = match link {
            LinkKind::Shm | LinkKind::Adapter => Some(Ring::create()?),
            LinkKind::Tcp => None,
        };
        let (kind, path) = match &ring {
            Some(ring) => ("shm", ring.path().display().to_string()),
            None => ("tcp", format!("{}:0", veth.map_or("127.0.0.1", |_| veth::THERE))),
        };
        let mut arguments: Vec<String> =
            ["bench-peer", kind, &path, "--cpu"].map(String::from).to_vec();
        arguments.push(cpu.to_string());
        arguments.extend(spin.then(|| "--spin".to_string()));
        let log = dir.join("peer.log");
        let process = match veth {
            Some(veth) => Process::start_command("bench-peer", veth.command(&arguments)?, &log)?,
            None => Process::start("bench-peer", &arguments, &log)?,
        };
        let means = match ring {
            Some(ring) => Means::Ring(ring),
            None => Means::Socket(TcpStream::connect(&process.said)?),
        };
        process.pause();
        Ok(Peer { means, process })
    }

    /// Makes the exchanges.
    pub fn run(&mut self, series: &mut Series<'_>) -> io::Result<()> {
        self.process.resume();
        match &mut self.means {
            Means::Ring(ring) => baseline::use_ring(ring, series),
            Means::Socket(socket) => baseline::use_socket(socket, series)?,
        }
        self.process.pause();
        Ok(())
    }

    /// Of the server's process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}
