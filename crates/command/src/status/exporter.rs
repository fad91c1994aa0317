//! Numbers for Prometheus over HTTP, at `/metrics`.
//!
//! HTTP is on threads of its own, a few at a time and each for a few seconds; they pass a scrape to the thread that
//! runs the node and wait for its text.

use live::device::Poller;
use live::host::Device;
use live::wakeup::Wakeup;
use node::{Cx, Node, Notify};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;
use wire::Time;

/// How long a process waits that has no descriptor left.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a client may take to ask and to read, and how long it waits for the numbers.
const CLIENT_SPAN: Duration = Duration::from_secs(5);
/// Clients at a time; more are refused.
const CLIENTS_MAX: usize = 16;
/// Bytes of a request.
const REQUEST_BYTES_MAX: u64 = 8 << 10;

/// A request waits for the text.
pub type Scrape = SyncSender<String>;

/// Where the numbers are asked for.
pub struct Exporter(TcpListener);

impl Exporter {
    /// Listens; the error names the flag that said where.
    pub fn bind(flag: &str, at: &str) -> io::Result<Exporter> {
        let listener = TcpListener::bind(at)
            .map_err(|error| io::Error::new(error.kind(), format!("{flag} {at}: {error}")))?;
        Ok(Exporter(listener))
    }

    /// Where it is, for people and Prometheus.
    pub fn address(&self) -> io::Result<String> {
        Ok(format!("http://{}/metrics", self.0.local_addr()?))
    }

    /// Starts the threads; what they ask for comes here, and the bell is rung when there is one.
    pub fn start(self, ringer: Option<Wakeup>) -> io::Result<Receiver<Scrape>> {
        let (sender, asked) = channel();
        let scrapes = Scrapes { sender, ringer };
        let accept = move || accept(&self.0, &scrapes);
        thread::Builder::new().name("metrics".into()).spawn(accept)?;
        Ok(asked)
    }
}

/// The way from the threads to who answers.
#[derive(Clone)]
struct Scrapes {
    sender: Sender<Scrape>,
    ringer: Option<Wakeup>,
}

impl Scrapes {
    fn pass_on(&self, scrape: Scrape) -> Option<()> {
        self.sender.send(scrape).ok()?;
        self.ringer.iter().for_each(|ringer| ringer.ring());
        Some(())
    }
}

/// Wakes a host whose node answers scrapes. As long as none comes a look at it is one of a flag.
pub struct Bell {
    wakeup: Wakeup,
    notify: Rc<Notify>,
}

impl Bell {
    /// For tasks of this node.
    pub fn new(cx: &Cx) -> io::Result<Bell> {
        Ok(Bell { wakeup: Wakeup::new()?, notify: Rc::new(Notify::new(cx)) })
    }

    /// The handle by which other threads ring it.
    pub fn ringer(&self) -> Wakeup {
        self.wakeup.clone()
    }

    /// The notification that its ringing ends.
    pub fn rung(&self) -> Rc<Notify> {
        self.notify.clone()
    }
}

impl Device for Bell {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        self.wakeup.attach(poller)
    }

    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool> {
        let rung = self.wakeup.poll(node, now)?;
        if rung {
            self.notify.notify_all();
        }
        Ok(rung)
    }

    fn is_quiet(&self) -> bool {
        self.wakeup.is_quiet()
    }

    fn before_sleep(&mut self) -> bool {
        self.wakeup.before_sleep()
    }
}

fn accept(listener: &TcpListener, scrapes: &Scrapes) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(PAUSE); // out of descriptors, say
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (scrapes, clients) = (scrapes.clone(), clients.clone());
        let serve = move || {
            let _ = serve(stream, &scrapes);
            clients.fetch_sub(1, Ordering::Relaxed);
        };
        let _ = thread::Builder::new().name("scrape".into()).spawn(serve);
    }
}

fn serve(stream: TcpStream, scrapes: &Scrapes) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_SPAN))?;
    stream.set_write_timeout(Some(CLIENT_SPAN))?;
    let asked = request(&stream)?;
    let (status, kind, text) = match asked.as_deref() {
        Some("/metrics") => scrape(scrapes),
        Some("/") => ("200 OK", "text/plain", "counters are at /metrics\n".to_string()),
        Some(_) => ("404 Not Found", "text/plain", "counters are at /metrics\n".to_string()),
        None => {
            ("400 Bad Request", "text/plain", "GET /metrics HTTP/1.1 is understood\n".to_string())
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    (&stream).write_all(head.as_bytes())?;
    (&stream).write_all(text.as_bytes())
}

fn scrape(scrapes: &Scrapes) -> (&'static str, &'static str, String) {
    let (sender, receiver) = sync_channel(1);
    let text = scrapes.pass_on(sender).and_then(|()| receiver.recv_timeout(CLIENT_SPAN).ok());
    match text {
        Some(text) => ("200 OK", "text/plain; version=0.0.4", text),
        None => ("503 Service Unavailable", "text/plain", "nobody answers\n".to_string()),
    }
}

/// Reads a request to its end; the path of a GET.
fn request(stream: &TcpStream) -> io::Result<Option<String>> {
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES_MAX)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let words: Vec<&str> = first.split(' ').collect();
    let path = match words[..] {
        ["GET", path, "HTTP/1.0" | "HTTP/1.1"] => Some(path),
        _ => None,
    };
    Ok(path.map(|path| path.split('?').next().unwrap_or(path).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reply to a client that sends this.
    fn asked(sent: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        client.write_all(sent).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let (sender, receiver) = channel::<Scrape>();
        let scrapes = Scrapes { sender, ringer: None };
        let cluster = thread::spawn(move || {
            receiver.iter().for_each(|scrape| scrape.send("numbers 1\n".into()).unwrap());
        });
        let _ = serve(stream, &scrapes);
        drop(scrapes);
        cluster.join().unwrap();
        let mut text = String::new();
        let _ = client.read_to_string(&mut text);
        text
    }

    #[test]
    fn http_is_answered() {
        let good = asked(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            good.starts_with("HTTP/1.1 200") && good.ends_with("\r\n\r\nnumbers 1\n"),
            "{good}"
        );
        assert!(asked(b"GET /secret HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        for bad in [&b"POST /metrics HTTP/1.1\r\n\r\n"[..], b"", b"GET", b"GET /metrics\r\n\r\n"] {
            assert!(asked(bad).starts_with("HTTP/1.1 400"), "{bad:?}");
        }
        assert!(!asked(&[0xff; 9000]).contains("200 OK"));
    }
}
