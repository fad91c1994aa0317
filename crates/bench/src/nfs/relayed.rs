//! `trapeze filter` beside a bare relay of sockets in front of `trapeze nfs`, over one cluster: what passing a call on
//! costs beyond the passing of its bytes.

use super::sides::{Side, start_node};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use trapeze::children::Process;
use trapeze::local::Shape;
use trapeze::scratch::Processes;

/// Bytes that the relay reads at a time.
const PIECE_BYTES: usize = 64 << 10;

/// The two, with what is behind them.
pub struct Relayed {
    _cluster: Processes,
    _nodes: [Process; 2],
    /// The filter, then the relay.
    pub sides: [Side; 2],
}

impl Relayed {
    /// Starts it in a directory. The relay, a thread of this process, stays on the processors of the calling one.
    pub fn start(dir: &Path) -> io::Result<Relayed> {
        let cluster =
            Processes::start(dir, &Shape::prefaulted(1), None).map_err(io::Error::other)?;
        let (filter, filter_port) = start_node("filter", &cluster, dir)?;
        let (server, server_port) = start_node("nfs", &cluster, dir)?;
        let relay_port = start_relay(server_port)?;
        let ids = |node: &Process| cluster.ids().into_iter().chain([node.id()]).collect();
        let sides = [
            Side::new("filter", (filter_port, filter_port), "/", ids(&filter))?,
            Side::new("relay", (relay_port, relay_port), "/", ids(&server))?,
        ];
        Ok(Relayed { _cluster: cluster, _nodes: [filter, server], sides })
    }
}

/// Relays connections, one at a time, to a port of this machine; where it listens.
fn start_relay(to: u16) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let passed =
                client.and_then(|client| relay(client, TcpStream::connect(("127.0.0.1", to))?));
            if let Err(error) = passed {
                eprintln!("the relay: {error}");
            }
        }
    });
    Ok(port)
}

/// Until either end closes.
fn relay(mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let mut ends = [PollFd::new(&client, PollFlags::IN), PollFd::new(&server, PollFlags::IN)];
        poll(&mut ends, None)?;
        let [from_client, from_server] = ends.map(|end| !end.revents().is_empty());
        if from_client && !pass(&mut client, &mut server, &mut piece)? {
            return Ok(());
        }
        if from_server && !pass(&mut server, &mut client, &mut piece)? {
            return Ok(());
        }
    }
}

/// Passes on what there is; whether the end is not reached.
fn pass(from: &mut TcpStream, to: &mut TcpStream, piece: &mut [u8]) -> io::Result<bool> {
    let bytes = from.read(piece)?;
    to.write_all(&piece[..bytes])?;
    Ok(bytes > 0)
}
