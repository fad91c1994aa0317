//! Keys and values over real sockets: bad input and bad luck. The server is a host on a thread of its own.

use endpoint::Frames;
use kv::{Items, ItemsConfig, Protocol, TenantConfig, TenantNo};
use live::host::Host;
use live::memory::MemfdRegion;
use live::wait::WaitPolicy;
use node::{Node, NodeConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sockets::{Address, Sockets};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::NodeId;

const MEMORY_BYTES: usize = 64 << 20;
/// Text that all clients may leave unread.
const UNREAD_BYTES: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    memcached: SocketAddr,
    resp: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How a server is started.
struct Plan {
    /// Connections.
    most: usize,
    /// Least memory for memcached's clients, the tenant `a`.
    least_of_a: usize,
    /// Most memory for Redis' clients, the tenant `b`.
    most_of_b: usize,
    prepare: fn(&mut Sockets),
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { most: 100, least_of_a: 0, most_of_b: usize::MAX, prepare: |_| {} }
    }
}

fn tenant(name: &str, min_bytes: usize, max_bytes: usize) -> TenantConfig {
    TenantConfig { name: name.into(), min_bytes, max_bytes, away_max_bytes: usize::MAX }
}

fn host(plan: Plan) -> (Host, Vec<SocketAddr>) {
    let frames = Frames::new(MemfdRegion::create("test", MEMORY_BYTES / 4096).unwrap());
    let tenants = [tenant("a", plan.least_of_a, usize::MAX), tenant("b", 0, plan.most_of_b)];
    let config = ItemsConfig {
        memory_bytes: MEMORY_BYTES,
        value_bytes_max: MEMORY_BYTES / 4,
        seed: 1,
        tenants: tenants.to_vec(),
    };
    let items = Items::new(config, frames.clone()).unwrap();
    let at = "127.0.0.1:0".parse().unwrap();
    let memcached = Address { at, protocol: Protocol::Memcached, tenant: TenantNo(0) };
    let resp = Address { at, protocol: Protocol::Resp, tenant: TenantNo(1) };
    let mut sockets = Sockets::listen(&[memcached, resp], items, plan.most).unwrap();
    sockets.set_unread_max(UNREAD_BYTES);
    (plan.prepare)(&mut sockets);
    let addresses = sockets.addresses().collect();
    let node = Node::new(NodeConfig::new(NodeId(1), 1, 1), frames);
    let mut host = Host::new(node, WaitPolicy::Adaptive).unwrap();
    host.add(sockets).unwrap();
    (host, addresses)
}

impl Server {
    fn start(most: usize) -> Server {
        Server::of(Plan { most, ..Plan::default() })
    }

    fn of(plan: Plan) -> Server {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = std::sync::mpsc::channel();
        let asked = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut host, addresses) = host(plan);
            tell.send(addresses).unwrap();
            host.run(|| asked.load(Ordering::SeqCst)).unwrap();
        });
        let addresses = told.recv().unwrap();
        Server { memcached: addresses[0], resp: addresses[1], stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.memcached); // wakes it
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends, and reads as many bytes as `answer` has.
fn expect(stream: &mut TcpStream, text: &[u8], answer: &[u8]) {
    stream.write_all(text).unwrap();
    let mut told = vec![0; answer.len()];
    stream.read_exact(&mut told).unwrap();
    assert!(told == answer, "{}", String::from_utf8_lossy(&told[..told.len().min(200)]));
}

fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset says the same as an end.
    let _ = stream.read_to_end(&mut all);
    all
}

fn value_line(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

#[test]
fn both_protocols_are_served_at_their_addresses() {
    let server = Server::start(100);
    let (mut memcached, mut resp) = (connect(server.memcached), connect(server.resp));
    for _ in 0..100 {
        expect(
            &mut memcached,
            b"set a 0 0 1\r\n1\r\nget a\r\n",
            b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
        );
        expect(&mut resp, b"SET a 2\r\nGET a\r\n", b"+OK\r\n$1\r\n2\r\n");
    }
    expect(&mut memcached, b"get a\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n");
    memcached.write_all(b"quit\r\n").unwrap();
    assert_eq!(read_to_end(&mut memcached), b"");
}

#[test]
fn long_values_go_both_ways() {
    let server = Server::start(100);
    let mut stream = connect(server.memcached);
    let value: Vec<u8> = (0..16usize << 20).map(|at| (at / 7) as u8).collect();
    expect(&mut stream, &value_line("big", &value), b"STORED\r\n");
    let told = [b"VALUE big 0 16777216\r\n".as_slice(), &value, b"\r\nEND\r\n"].concat();
    expect(&mut stream, b"get big\r\n", &told);
}

#[test]
fn half_commands_wait_and_go_with_their_connections() {
    let server = Server::start(1000);
    let mut halves: Vec<TcpStream> = (0..200).map(|_| connect(server.memcached)).collect();
    for half in &mut halves {
        half.write_all(b"set half 0 0 1000000\r\nno more than this").unwrap();
    }
    let mut stream = connect(server.memcached);
    for byte in b"set a 0 0 3\r\nabc\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    expect(&mut stream, b"get a\r\n", b"STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n");
    drop(halves);
    let value = vec![7; 8 << 20];
    for key in ["x", "y", "z"] {
        expect(&mut stream, &value_line(key, &value), b"STORED\r\n");
    }
    expect(&mut stream, b"get half\r\n", b"END\r\n");
}

#[test]
fn garbage_is_answered_or_ends_its_connection_and_no_other() {
    let server = Server::start(1000);
    let mut good = connect(server.memcached);
    let mut state = 1u64;
    for round in 0..60 {
        let mut stream = connect(if round % 2 == 0 { server.memcached } else { server.resp });
        let garbage: Vec<u8> = (0..50_000)
            .map(|_| {
                state = wire::mix(state);
                b"get set *$\r\n12345 \0\xff"[(state >> 40) as usize % 20]
            })
            .collect();
        // It may end in the middle.
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        read_to_end(&mut stream);
        expect(&mut good, b"mn\r\n", b"MN\r\n");
    }
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let server = Server::start(100);
    let mut stream = connect(server.resp);
    let (mut text, mut answer) = (Vec::new(), Vec::new());
    for number in 0..20_000 {
        text.extend(format!("SET key-{number} {number}\r\nGET key-{number}\r\n").bytes());
        let digits = number.to_string();
        answer.extend(format!("+OK\r\n${}\r\n{digits}\r\n", digits.len()).bytes());
    }
    let mut writer = stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(&text).unwrap());
    expect(&mut stream, b"", &answer);
    thread.join().unwrap();
}

/// A client that asks for 4 GiB and reads nothing neither fills memory nor keeps others waiting, and gets its answers
/// when it reads at last.
#[test]
fn a_slow_reader_waits_alone() {
    let server = Server::start(100);
    let (mut slow, mut quick) = (connect(server.memcached), connect(server.memcached));
    let value = vec![b'v'; 1 << 20];
    expect(&mut slow, &value_line("v", &value), b"STORED\r\n");
    let gets = 4096;
    let asked = slow.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let mut asked = asked;
        // Longer than what the server reads ahead: the writer waits, too.
        (0..gets).all(|_| asked.write_all(b"get v\r\n").is_ok())
    });
    for number in 0..2_000 {
        let value = vec![number as u8; 8192];
        expect(&mut quick, &value_line(&format!("k{number}"), &value), b"STORED\r\n");
    }
    let memory = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_string();
    let kib: usize = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 600 << 10, "{peak}");
    let answer = [b"VALUE v 0 1048576\r\n".as_slice(), &value, b"\r\nEND\r\n"].concat();
    for _ in 0..100 {
        expect(&mut slow, b"", &answer);
    }
    slow.shutdown(std::net::Shutdown::Both).unwrap();
    let _ = writer.join();
    expect(&mut quick, b"mn\r\n", b"MN\r\n");
}

/// Connects with hardly any room for what comes.
fn connect_narrow(at: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, sockopt};
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    rustix::net::connect(&socket, &at).unwrap();
    TcpStream::from(socket)
}

const OPEN: &str = "curr_connections";

/// A number of `stats` as soon as it is one of these, or after the timeout.
fn stat_when(client: &mut TcpStream, name: &str, enough: impl Fn(usize) -> bool) -> usize {
    let late = std::time::Instant::now() + PATIENCE;
    loop {
        client.write_all(b"stats\r\n").unwrap();
        let mut told = String::new();
        while !told.ends_with("END\r\n") {
            let mut some = [0; 4096];
            let count = client.read(&mut some).unwrap();
            told += std::str::from_utf8(&some[..count]).unwrap();
        }
        let value = told.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        let value: usize = value.unwrap().parse().unwrap();
        if enough(value) || std::time::Instant::now() >= late {
            return value;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A command waits for another node for ever here: no view is ever settled.
#[test]
fn a_client_that_goes_while_it_waits_for_another_node_is_forgotten() {
    let prepare =
        |sockets: &mut Sockets| sockets.items().borrow_mut().share(kv::Owners::new(NodeId(1)));
    let server = Server::of(Plan { prepare, ..Plan::default() });
    let mut other = connect(server.memcached);
    let mut gone = connect(server.memcached);
    gone.write_all(b"get k\r\n").unwrap();
    assert_eq!(stat_when(&mut other, OPEN, |open| open == 2), 2);
    let span = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&gone, span).unwrap();
    drop(gone);
    assert_eq!(stat_when(&mut other, OPEN, |open| open == 1), 1);
}

/// Short values are copied into answers: many clients that read nothing do not fill memory with them.
#[test]
fn of_many_that_read_nothing_some_are_closed() {
    let server = Server::start(100);
    let mut other = connect(server.memcached);
    let value = vec![b'v'; 2000];
    expect(&mut other, &value_line("v", &value), b"STORED\r\n");
    let deaf: Vec<TcpStream> = (0..40).map(|_| connect_narrow(server.memcached)).collect();
    let gets = "get v\r\n".repeat(4000);
    deaf.iter().for_each(|mut one| one.write_all(gets.as_bytes()).unwrap());
    assert_eq!(stat_when(&mut other, "total_connections", |all| all == 41), 41);
    let open = stat_when(&mut other, OPEN, |open| open < 30);
    assert!((8..30).contains(&open), "{open} of 41");
    expect(&mut other, b"mn\r\n", b"MN\r\n");
}

/// Half of the memory is promised to one tenant; the other may have so much.
fn server_with_a_promise(most_of_b: usize) -> Server {
    Server::of(Plan { least_of_a: MEMORY_BYTES / 2, most_of_b, ..Plan::default() })
}

fn redis_set(key: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

/// Sends a command of Redis'; the first line of the answer.
fn ask_redis(stream: &mut TcpStream, command: &[u8]) -> String {
    stream.write_all(command).unwrap();
    let mut line = vec![0];
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line.split_off(1)).unwrap()
}

/// Memcached's clients store nearly all that they are promised, and none of it leaves again.
fn stores_its_least(server: &Server) {
    let mut stream = connect(server.memcached);
    for number in 0..3_800 {
        expect(&mut stream, &value_line(&format!("least-{number}"), &[b'v'; 8000]), b"STORED\r\n");
    }
    assert_eq!(stat_when(&mut stream, "evictions", |count| count == 0), 0);
    assert_eq!(stat_when(&mut stream, "curr_items", |count| count == 3_800), 3_800);
}

/// The other tenant is not locked out for long by those who stand still: it tries until it has room.
fn stores_at_last(server: &Server, command: &[u8]) {
    let mut stream = connect(server.resp);
    let late = std::time::Instant::now() + PATIENCE;
    while ask_redis(&mut stream, command) != "+OK\r\n" {
        assert!(std::time::Instant::now() < late, "nobody is closed");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn half_commands_of_a_tenant_leave_another_its_least() {
    for most in [8 << 20, usize::MAX] {
        let server = server_with_a_promise(most);
        let command = redis_set("half", &vec![b'h'; 7_800_000]);
        let begin = |_| {
            let mut stream = connect(server.resp);
            stream.write_all(&command[..7_000_000]).unwrap();
            stream
        };
        let halves: Vec<TcpStream> = (0..16).map(begin).collect();
        stores_its_least(&server);
        stores_at_last(&server, &command);
        drop(halves);
    }
}

#[test]
fn unread_answers_of_a_tenant_leave_another_its_least() {
    for most in [8 << 20, usize::MAX] {
        let server = server_with_a_promise(most);
        let mut stream = connect(server.resp);
        let command = redis_set("big", &vec![b'b'; 7_500_000]);
        let read = |_| {
            ask_redis(&mut stream, &command); // its own version of it, if there is room for one more
            let mut reader = connect_narrow(server.resp);
            reader.set_read_timeout(Some(PATIENCE)).unwrap();
            let answer = ask_redis(&mut reader, b"GET big\r\n");
            assert!(answer == "$7500000\r\n" || answer == "$-1\r\n", "{answer}");
            reader
        };
        let readers: Vec<TcpStream> = (0..13).map(read).collect();
        stores_its_least(&server);
        stores_at_last(&server, &command);
        drop(readers);
    }
}

/// Values that were there before anybody read them take what was promised to others as soon as clients wait for them.
#[test]
fn who_leaves_most_unread_of_what_is_promised_to_others_is_closed() {
    let server = server_with_a_promise(usize::MAX);
    let mut stream = connect(server.resp);
    let key = |number: usize| format!("big-{number}");
    for number in 0..7 {
        let command = redis_set(&key(number), &vec![b'b'; 7_500_000]);
        assert_eq!(ask_redis(&mut stream, &command), "+OK\r\n");
    }
    let read = |number| {
        let mut reader = connect_narrow(server.resp);
        reader.write_all(format!("GET {}\r\n", key(number)).as_bytes()).unwrap();
        reader
    };
    let readers: Vec<TcpStream> = (0..7).map(read).collect();
    let mut other = connect(server.memcached);
    assert_eq!(stat_when(&mut other, "total_connections", |all| all == 9), 9);
    assert_eq!(stat_when(&mut other, OPEN, |open| open == 6), 6, "four of seven are left");
    stores_its_least(&server);
    drop(readers);
}

#[test]
fn who_has_sent_most_of_half_commands_is_closed() {
    let prepare = |sockets: &mut Sockets| sockets.set_half_max(2 << 20);
    let server = Server::of(Plan { prepare, ..Plan::default() });
    let pair = format!("$1\r\nk\r\n$2000\r\n{}\r\n", "v".repeat(2000));
    let half = |pairs: usize| {
        let mut stream = connect(server.resp);
        let head = format!("*{}\r\n$4\r\nMSET\r\n", 2 * (pairs + 1) + 1);
        stream.write_all((head + &pair.repeat(pairs)).as_bytes()).unwrap();
        stream
    };
    let mut large = half(500);
    let mut other = connect(server.memcached);
    (0..100).for_each(|_| expect(&mut other, b"mn\r\n", b"MN\r\n")); // by now it has come
    let mut small: Vec<TcpStream> = (0..50).map(|_| half(9)).collect();
    assert_eq!(read_to_end(&mut large), b"", "the large one is closed");
    for stream in &mut small {
        expect(stream, pair.as_bytes(), b"+OK\r\n");
    }
}

#[test]
fn who_reads_nothing_for_long_is_closed() {
    let prepare = |sockets: &mut Sockets| sockets.set_stall_span(Duration::from_millis(20));
    let server = Server::of(Plan { prepare, ..Plan::default() });
    let mut other = connect(server.memcached);
    expect(&mut other, &value_line("v", &vec![b'v'; 8 << 20]), b"STORED\r\n");
    let mut half = connect(server.memcached);
    half.write_all(b"set half 0 0 10000\r\nno more").unwrap();
    let mut deaf = connect_narrow(server.memcached);
    deaf.write_all(b"get v\r\n").unwrap();
    assert_eq!(stat_when(&mut other, "total_connections", |all| all == 3), 3);
    assert_eq!(stat_when(&mut other, OPEN, |open| open == 2), 2, "it is closed");
    assert_eq!(stat_when(&mut other, "held_bytes", |bytes| bytes < 8 << 20), 12288, "of the half");
    let rest = [vec![b'.'; 10_000 - 7], b"\r\n".to_vec()].concat();
    expect(&mut half, &rest, b"STORED\r\n");
}

/// Opens as many connections as this process may, at most 10,000: each takes two descriptors, one at either end.
#[test]
fn ten_thousand_idle_connections_do_not_disturb() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize;
    let count = (may.saturating_sub(2_000) / 2).min(10_000);
    if count < 10_000 {
        println!("only {count} connections: this process may open {may} files (ulimit -Hn)");
    }
    let server = Server::start(count + 10);
    let idle: Vec<TcpStream> = (0..count).map(|_| connect(server.resp)).collect();
    let mut stream = connect(server.memcached);
    for _ in 0..1_000 {
        expect(
            &mut stream,
            b"set a 0 0 1\r\n1\r\nget a\r\n",
            b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
        );
    }
    for mut one in idle.iter().step_by(97) {
        one.write_all(b"PING\r\n").unwrap();
        let mut told = [0; 7];
        one.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"+PONG\r\n");
    }
}

#[test]
fn who_is_one_too_many_is_told_so() {
    let server = Server::start(2);
    let mut first = connect(server.resp);
    expect(&mut first, b"PING\r\n", b"+PONG\r\n");
    let mut second = connect(server.memcached);
    expect(&mut second, b"mn\r\n", b"MN\r\n");
    assert_eq!(read_to_end(&mut connect(server.resp)), b"-ERR max number of clients reached\r\n");
    assert_eq!(read_to_end(&mut connect(server.memcached)), b"ERROR Too many open connections\r\n");
    second.write_all(b"quit\r\n").unwrap();
    read_to_end(&mut second);
    expect(&mut connect(server.resp), b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let frames = Frames::new(MemfdRegion::create("test", 1024).unwrap());
    let config = ItemsConfig {
        memory_bytes: 4 << 20,
        value_bytes_max: 1 << 20,
        seed: 1,
        tenants: vec![tenant("a", 0, usize::MAX)],
    };
    let items = Items::new(config, frames).unwrap();
    let address = Address { at, protocol: Protocol::Resp, tenant: TenantNo(0) };
    let refused = Sockets::listen(&[address], items, 10).unwrap_err().to_string();
    assert!(refused.contains(&at.to_string()), "{refused}");
}
