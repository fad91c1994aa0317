//! `trapeze memory` as its users meet it: the clients of memcached and Redis that are installed here.

use crate::common::{Cluster, lacks, program, python};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use trapeze::children::Process;

struct Server {
    process: Process,
    memcached: SocketAddr,
    resp: SocketAddr,
    _dir: TempDir,
}

fn address(said: &str, protocol: &str) -> SocketAddr {
    let rest = said.split_once(&format!("{protocol} at ")).expect("it says where").1;
    rest.split(' ').next().unwrap().parse().unwrap()
}

impl Server {
    fn start(flags: &[&str]) -> Server {
        let dir = TempDir::new().unwrap();
        let usual = ["memory", "--memcached", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
        let all: Vec<String> = usual.iter().chain(flags).map(|flag| flag.to_string()).collect();
        let log = dir.path().join("log");
        let process = Process::start_program(program(), "memory", &all, &log).unwrap();
        let (memcached, resp) =
            (address(&process.said, "memcached"), address(&process.said, "resp"));
        Server { process, memcached, resp, _dir: dir }
    }
}

fn ask(to: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    told
}

/// Runs a client; its output, which must not tell of a failure.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text + &errors
}

#[test]
fn memccapable_finds_nothing_wrong() {
    if lacks("memccapable") {
        return;
    }
    let server = Server::start(&[]);
    let port = server.memcached.port().to_string();
    // -a: the text protocol.
    let told = run(Command::new("memccapable").args(["-a", "-h", "127.0.0.1", "-p", &port]));
    assert!(told.contains("All tests passed"), "{told}");
}

#[test]
fn memcslap_runs() {
    if lacks("memcslap") {
        return;
    }
    let server = Server::start(&[]);
    let to = format!("--servers={}", server.memcached);
    for test in ["--test=set", "--test=get", "--test=mget"] {
        let work = ["--concurrency=4", "--execute-number=500", "--initial-load=500"];
        run(Command::new("memcslap").arg(&to).arg(test).args(work));
    }
}

#[test]
fn redis_benchmark_runs() {
    if lacks("redis-benchmark") {
        return;
    }
    let server = Server::start(&[]);
    let port = server.resp.port().to_string();
    let tests = ["-q", "-n", "2000", "-d", "8192", "-t", "ping,set,get,incr,mset"];
    for more in [&["-c", "1"][..], &["-c", "50", "-P", "16"], &["-3"]] {
        let told = run(Command::new("redis-benchmark").args(["-p", &port]).args(tests).args(more));
        assert!(told.contains("GET: ") && !told.contains("rror"), "{told}");
    }
}

/// Runs a Python program if its module is installed.
fn with_module(module: &str, program: &str) {
    if let Some(python) = python(module) {
        run(Command::new(python).args(["-c", program]));
    }
}

#[test]
fn redis_py_gets_what_it_sets() {
    let server = Server::start(&[]);
    let program = r#"
import redis
# Releases before 5 speak RESP2 only, and do not know the word.
newer = int(redis.__version__.split('.')[0]) >= 5
for more in [{'protocol': 2}, {'protocol': 3}] if newer else [{}]:
    r = redis.Redis(port=PORT, client_name='test', **more)
    r.flushall()
    big = bytes(range(256)) * 12345
    assert r.set('a', big, ex=10) and r.get('a') == big and 9 <= r.ttl('a') <= 10
    assert r.set('a', 1, nx=True) is None and r.set('none', 1, xx=True) is None
    assert r.mset({'b': 1, 'c': 2}) and r.mget('b', 'c', 'd') == [b'1', b'2', None]
    assert r.exists('b', 'c', 'd') == 2 and r.incr('b') == 2 and r.append('b', '3') == 2
    assert r.strlen('b') == 2 and r.dbsize() == 3 and r.get('d') is None
    assert r.info()['redis_version'] and r.config_get('maxmemory') and r.client_getname()
    assert r.set('c', 9, get=True) == b'2' and r.getdel('c') == b'9' and r.delete('a', 'b') == 2
    p = r.pipeline(transaction=False)
    for i in range(1000):
        p.set(f'k{i}', i)
    assert all(p.execute()) and len(list(r.scan_iter('k*'))) == 1000
    p = r.pipeline()
    assert p.set('x', 1).incr('x').get('x').execute() == [True, 2, b'2']
    assert r.transaction(lambda p: (p.multi(), p.incr('x')), 'x') == [3]
    with r.pipeline() as p:
        p.watch('x')
        r.set('x', 9)
        p.multi()
        p.incr('x')
        try:
            p.execute()
            assert False
        except redis.WatchError:
            assert r.get('x') == b'9'
    assert r.pexpire('k1', 60000) and r.persist('k1') and r.ttl('k1') == -1
    assert redis.Redis(port=PORT, username='default', password='any', **more).ping()
    try:
        r.execute_command('LPUSH', 'l', 1)
        assert False
    except redis.ResponseError as error:
        assert 'unknown command' in str(error)
"#;
    with_module("redis", &program.replace("PORT", &server.resp.port().to_string()));
}

#[test]
fn pymemcache_gets_what_it_sets() {
    let server = Server::start(&[]);
    let program = r#"
from pymemcache.client.base import Client
c = Client(('127.0.0.1', PORT))
big = bytes(range(256)) * 12345
assert c.set('a', big, expire=10, noreply=False) and c.get('a') == big
many = {f'k{i}': str(i).encode() for i in range(3000)}
assert c.set_many(many) == [] and c.get_many(list(many)) == many
value, cas = c.gets('k1')
assert c.cas('k1', b'new', cas) and c.cas('k1', b'newer', cas) is False
assert c.add('k1', b'x', noreply=False) is False and c.replace('none', b'x', noreply=False) is False
assert c.append('k1', b'er', noreply=False) and c.get('k1') == b'newer'
assert c.incr('k2', 5) == 7 and c.decr('k2', 9) == 0
assert c.touch('k3', 50, noreply=False) and c.delete('k3', noreply=False) and c.get('k3') is None
assert c.stats()[b'curr_items'] == 3000 and c.version()
assert c.flush_all(noreply=False) and c.get('a') is None
c.quit()
"#;
    with_module("pymemcache", &program.replace("PORT", &server.memcached.port().to_string()));
}

#[test]
fn tenants_have_key_spaces_of_their_own() {
    let flags = ["--memcached", "127.0.0.1:0/web", "--tenant", "web:min=8M,max=32M"];
    let server = Server::start(&flags);
    let web = server.process.said.split("memcached at ").nth(2).unwrap();
    let web = web.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(ask(server.memcached, "set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    assert_eq!(ask(server.resp, "GET a\r\n"), "$1\r\n1\r\n");
    assert_eq!(ask(web, "get a\r\n"), "END\r\n");
    assert!(ask(web, "stats\r\n").contains("limit_maxbytes 33554432\r\n"));
    server.process.stop().unwrap();
}

/// The numbers of a server outside of clusters over HTTP, at once while it serves and while it sleeps.
#[test]
fn a_server_by_itself_tells_prometheus_its_numbers() {
    let flags = ["--metrics", "127.0.0.1:0", "--resp", "127.0.0.1:0/jobs"];
    let server = Server::start(&flags);
    let metrics = server.process.said.split_once("metrics at http://").unwrap().1;
    let metrics: SocketAddr = metrics.split('/').next().unwrap().parse().unwrap();
    let scrape = || ask(metrics, "GET /metrics HTTP/1.1\r\n\r\n");
    let idle = TcpStream::connect(server.memcached).unwrap();
    ask(server.memcached, "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nget a\r\nget none\r\n");
    let told = scrape();
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    for (metric, number) in [("items", 2), ("hits_total", 1), ("misses_total", 1)] {
        let line = format!("trapeze_keys_{metric}{{node=\"1\",name=\"memory\",tenant=");
        assert!(told.contains(&format!("{line}\"default\"}} {number}\n")), "{metric}: {told}");
        assert!(told.contains(&format!("{line}\"jobs\"}} 0\n")), "{metric}: {told}");
    }
    assert!(told.contains("trapeze_keys_connections{node=\"1\",name=\"memory\"} 1\n"), "{told}");
    drop(idle);
    (0..20).for_each(|_| assert!(scrape().contains("trapeze_wait_sleeps_total")));
    let sleeps = |told: &str| {
        let line = told.lines().find(|line| line.starts_with("trapeze_wait_sleeps_total{"));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before = sleeps(&scrape());
    std::thread::sleep(Duration::from_millis(500));
    let slept = sleeps(&scrape()) - before;
    assert!(slept < 50, "a scrape that was answered wakes nobody any more: {slept}");
    server.process.stop().unwrap();
    let flags = ["memory", "--metrics", "127.0.0.1:0", "--cluster", "/nowhere"];
    let refused = Command::new(program()).args(flags).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("cannot be used with"), "{said}");
}

/// A member of a cluster with 2 MiB of its own for items.
fn member(cluster: &Cluster, flags: &[&str]) -> Server {
    let target = cluster.processes.target();
    let usual = ["--cluster", &target, "--memory", "2M", "--lend", "16M", "--away", "32M"];
    Server::start(&[&usual[..], flags].concat())
}

fn value_of(key: usize) -> String {
    format!("{key:06}").repeat(1500)
}

/// How many of the keys a server has; what it has is right.
fn found(server: &Server, keys: usize) -> usize {
    let there = (0..keys).filter(|key| {
        let told = ask(server.memcached, &format!("get key-{key}\r\n"));
        let value = format!("VALUE key-{key} 0 9000\r\n{}\r\nEND\r\n", value_of(*key));
        assert!(told == value || told == "END\r\n", "key-{key}: {}", &told[..told.len().min(99)]);
        told == value
    });
    there.count()
}

#[test]
fn members_are_one_key_space_with_each_others_memory() {
    let cluster = Cluster::bare(1);
    let mut members: Vec<Server> = (0..3).map(|_| member(&cluster, &["--copies", "2"])).collect();
    let keys = 1200; // 10 MiB of values in 6 MiB for items
    for key in 0..keys {
        let text = format!("set key-{key} 0 0 9000\r\n{}\r\n", value_of(key));
        assert_eq!(ask(members[key % 3].memcached, &text), "STORED\r\n", "key-{key}");
    }
    assert!(members.iter().all(|member| found(member, keys) == keys), "everything from everywhere");
    assert_eq!(
        ask(members[0].resp, "DBSIZE\r\nMGET key-1 nothing\r\n")[..16],
        *":1200\r\n*2\r\n$9000"
    );
    let sent = |member: &Server| {
        let stats = ask(member.memcached, "stats\r\n");
        let line = stats.lines().find_map(|line| line.strip_prefix("STAT away_sent ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    assert!(members.iter().map(sent).sum::<u64>() > 200);
    // a node that says good-bye takes its keys along, and the others go on with theirs
    members.pop().unwrap().process.stop().unwrap();
    let left = found(&members[0], keys);
    assert!((keys / 3..keys).contains(&left), "{left}");
    // as does one that is killed, as soon as its lease is over
    members.pop().unwrap().process.kill().unwrap();
    let set = |key: usize| {
        let text = format!("set key-{key} 0 0 9000\r\n{}\r\n", value_of(key));
        let told = ask(members[0].memcached, &text);
        let away = told.starts_with("SERVER_ERROR the node that keeps the key is away");
        assert!(told == "STORED\r\n" || away, "{told}");
        !away
    };
    let mut tries = 0;
    while !(0..keys).step_by(97).all(set) {
        tries += 1;
        assert!(tries < 1000, "nobody takes its keys over");
    }
    assert!((0..keys).all(set));
    assert!(found(&members[0], keys) > keys / 2);
}

#[test]
fn ten_thousand_clients_stay_connected() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize;
    let count = may.saturating_sub(1_000).min(10_000);
    if count < 10_000 {
        println!("only {count} connections: this process may open {may} files (ulimit -Hn)");
    }
    let server = Server::start(&["--connections", &(count + 10).to_string()]);
    let before = trapeze::machine_stat::process_memory(server.process.id()).unwrap();
    let idle: Vec<TcpStream> =
        (0..count).map(|_| TcpStream::connect(server.resp).unwrap()).collect();
    assert_eq!(ask(server.memcached, "set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    for mut one in idle.iter().step_by(7) {
        one.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        one.write_all(b"GET a\r\n").unwrap();
        let mut told = [0; 7];
        one.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"$1\r\n1\r\n");
    }
    let after = trapeze::machine_stat::process_memory(server.process.id()).unwrap();
    let each = after.saturating_sub(before) / count as u64;
    assert!(each < 2048, "{each} bytes for each connection");
    server.process.stop().unwrap();
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    for (flags, reason) in [
        (&["--memory", "4K"][..], "at least 1048576"),
        (&["--memory", "8M", "--value-max", "4M"], "a quarter of --memory 8M"),
        (&["--tenant", "web:min=1M"], "no address is its own"),
        (&["--memory", "8M", "--tenant", "default:min=9M"], "promised 9437184 bytes"),
        (&["--memory", "8M", "--tenant", "default:min=2M,max=1M"], "is more than its most"),
        (&["--resp", "10.255.255.1:1"], "cannot listen at 10.255.255.1:1"),
        (&["--connections", "4000000000"], "use --connections"),
        (&["--metrics", "10.255.255.1:1"], "--metrics 10.255.255.1:1: "),
        (&["--lend", "64M"], "name the cluster with --cluster"),
        (&["--cluster", "/nowhere"], "neither a cluster's directory nor an address"),
        (&["--cluster", "unix:/nowhere/manager.sock", "--lend", "1M"], "lend 16M or more"),
        (&["--cluster", "tcp:127.0.0.1:1"], "name the cluster key"),
        (&["--cluster", "tcp:127.0.0.1:1", "--insecure"], "--listen"),
        (&["--cluster", "unix:/nowhere/manager.sock"], "does the cluster run?"),
    ] {
        let usual = ["memory", "--memcached", "127.0.0.1:0"];
        let output = Command::new(program()).args(usual).args(flags).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {errors}");
        assert!(errors.contains(reason), "{flags:?}: {errors}");
    }
}
