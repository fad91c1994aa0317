//! NFS as people use it: programs of libnfs-utils and nfs-common against `trapeze up` and `trapeze nfs`.

use crate::common::{
    Up, cannot_mount, ended_by_signals, lacks, pattern, program, refusal, shell, skip, text,
};
use nfs::client::{Caller, Reply, Request};
use nfs::mount::{self, DirPath, MntResult};
use nfs::v3::{
    Args, CommitArgs, CommitOk, CreateArgs, CreateHow, DirOpArgs, Handle, Outcome, Path as Name,
    Results, Sattr, StableHow, Status, WriteOk,
};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use trapeze::children::Process;

const PATIENCE: Duration = Duration::from_secs(60);
/// For a test that is this machine's root.
pub const OPEN: &str = "/:127.0.0.1(rw,no_root_squash)";

/// A server beside a cluster.
pub struct Server {
    pub process: Process,
    pub address: SocketAddr,
}

impl Server {
    pub fn start(up: &Up, listen: &str, exports: &[&str]) -> Server {
        Server::of("nfs", &up.at("data"), listen, exports, &up.at("nfs.log"))
    }

    /// Of a command that serves a cluster over NFS.
    pub fn of(name: &str, dir: &Path, listen: &str, exports: &[&str], log: &Path) -> Server {
        let mut command = ended_by_signals(program());
        command.arg(name).arg(dir).args(["--listen", listen]);
        for export in exports {
            command.args(["--export", export]);
        }
        let process = Process::start_command(name, command, log).unwrap();
        let told = process.said.strip_prefix("NFS at ").expect("where it listens");
        let address = told.split([':', ' ']).take(2).collect::<Vec<_>>().join(":");
        Server { address: address.parse().unwrap(), process }
    }

    /// Of a path of the export of all. (libnfs takes no `server/file`: the directory must have a name.)
    fn url(&self, path: &str) -> String {
        url(self.address, path)
    }

    fn cat(&self, path: &str) -> Vec<u8> {
        let output = Command::new("nfs-cat").arg(self.url(path)).output().unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn list(&self, path: &str) -> String {
        let output = Command::new("nfs-ls").arg(self.url(path)).output().unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn copy(&self, from: &Path, path: &str) -> bool {
        let output = Command::new("nfs-cp").arg(from).arg(self.url(path)).output().unwrap();
        output.status.success()
    }
}

fn url(at: SocketAddr, path: &str) -> String {
    let (host, port) = (at.ip(), at.port());
    format!("nfs://{host}/{path}?version=3&nfsport={port}&mountport={port}")
}

fn lacks_clients() -> bool {
    ["nfs-ls", "nfs-cp", "nfs-cat"].into_iter().any(lacks)
}

#[test]
fn files_go_both_ways_between_clients_of_nfs_and_the_cluster() {
    if lacks_clients() {
        return;
    }
    let mut up = Up::new("2");
    let server = Server::start(&up, "127.0.0.1:0", &[OPEN]);
    let content = pattern(1, 5_000_003);
    fs::write(up.at("local"), &content).unwrap();
    assert!(server.copy(&up.at("local"), "/from-nfs"));
    assert!(up.get("/from-nfs") == content, "of the cluster's own command");
    for seed in 2..5 {
        let content = pattern(seed, 700_001);
        up.put("other", &content);
        assert!(server.cat("/other") == content, "what the last close left, at once");
    }
    up.done(&["mkdir", "/deep"]);
    up.put("deep/inner", b"inner");
    assert_eq!(server.cat("/deep/inner"), b"inner");
    let status = up.told(&["status", "--all"]);
    for part in ["NFS clients of", "127.0.0.1", "READ ", "COMMIT", "MOUNT MNT"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let listed = server.list("");
    for name in ["from-nfs", "other", "deep"] {
        assert!(listed.contains(name), "{listed}");
    }
    assert!(listed.contains("5000003"), "{listed}");
    server.process.stop().unwrap();
    up.stop();
    up.start();
    assert!(up.get("/from-nfs") == content, "it was committed");
    up.stop();
}

#[test]
fn root_of_a_client_is_nobody_unless_the_export_says_else() {
    if lacks_clients() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip("only root counts as nobody");
    }
    let mut up = Up::new("1");
    up.put("file", b"data");
    up.done(&["mkdir", "/pub"]);
    let exports = ["/:127.0.0.1(rw)", "/pub:127.0.0.1(ro,no_root_squash)"];
    let server = Server::start(&up, "127.0.0.1:0", &exports);
    fs::write(up.at("local"), b"new").unwrap();
    assert!(!server.copy(&up.at("local"), "/new"), "root is squashed");
    assert!(!server.copy(&up.at("local"), "/pub/new"), "it is read-only");
    assert!(server.list("").contains("file"));
    server.process.stop().unwrap();
    up.stop();
}

fn connected(to: SocketAddr) -> TcpStream {
    let start = Instant::now();
    let stream = loop {
        match TcpStream::connect(to) {
            Ok(stream) => break stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// One connection, one call at a time.
pub struct Client {
    pub stream: TcpStream,
    pub calls: nfs::client::Client,
}

impl Client {
    /// Waits for the server.
    pub fn connect(to: SocketAddr) -> Client {
        Client::with_xid(to, 0)
    }

    /// The same; the first call has the number after `last_xid`.
    pub fn with_xid(to: SocketAddr, last_xid: u32) -> Client {
        let calls = nfs::client::Client::new(Caller::default(), last_xid);
        Client { stream: connected(to), calls }
    }

    /// Sends a call and waits for no reply.
    pub fn send<'a>(&mut self, request: impl Into<Request<'a>>) {
        let mut record = Vec::new();
        self.calls.call(&request.into(), &mut record);
        self.stream.write_all(&record).unwrap();
    }

    /// Another connection, over which the calls without a reply are retransmitted.
    fn reconnect(&mut self, to: SocketAddr) {
        self.stream = connected(to);
        self.calls.reconnected();
        let mut records = Vec::new();
        self.calls.retransmit_all(&mut records);
        self.stream.write_all(&records).unwrap();
    }

    /// Makes a call; what `with` makes of its reply.
    pub fn call<'a, T>(
        &mut self,
        request: impl Into<Request<'a>>,
        with: impl FnOnce(&Reply<'_>) -> T,
    ) -> T {
        self.send(request);
        self.reply(with)
    }

    /// What `with` makes of the next reply.
    pub fn reply<T>(&mut self, with: impl FnOnce(&Reply<'_>) -> T) -> T {
        loop {
            if let Some(reply) = self.calls.poll_reply().unwrap() {
                return with(&reply);
            }
            let bytes = self.stream.read(self.calls.space()).unwrap();
            assert!(bytes > 0, "the server has closed the connection");
            self.calls.filled(bytes);
        }
    }

    pub fn mount(&mut self, path: &str) -> Result<Vec<u8>, mount::Status> {
        let args = mount::Args::Mnt(DirPath(path.as_bytes()));
        self.call(args, |reply| match reply.decoded().unwrap() {
            MntResult::Ok(handle, _) => Ok(handle.0.to_vec()),
            MntResult::Err(status) => Err(status),
        })
    }

    pub fn lookup(&mut self, root: &[u8], name: &str) -> Vec<u8> {
        let place = DirOpArgs { dir: Handle(root), name: Name(name.as_bytes()) };
        self.call(Args::Lookup(place), |reply| match reply.nfs().unwrap() {
            Results::Lookup(Outcome::Ok(ok)) => ok.object.0.to_vec(),
            other => panic!("{other:?}"),
        })
    }

    pub fn create(&mut self, root: &[u8], name: &str) -> Vec<u8> {
        self.create_as(root, name, CreateHow::Guarded(Sattr::default())).unwrap()
    }

    fn create_as(&mut self, root: &[u8], name: &str, how: CreateHow) -> Result<Vec<u8>, Status> {
        let place = DirOpArgs { dir: Handle(root), name: Name(name.as_bytes()) };
        let args = Args::Create(CreateArgs { place, how });
        self.call(args, |reply| match reply.nfs().unwrap() {
            Results::Create(Outcome::Ok(ok)) => {
                assert!(ok.wcc.before.is_some(), "nothing else changes the directory");
                Ok(ok.object.unwrap().0.to_vec())
            }
            results => Err(results.status()),
        })
    }

    pub fn write(&mut self, file: &[u8], data: &[u8]) -> WriteOk {
        let request = Request::write(Handle(file), 0, StableHow::Unstable, data);
        self.call(request, |reply| match reply.nfs().unwrap() {
            Results::Write(Outcome::Ok(ok)) => ok,
            other => panic!("{other:?}"),
        })
    }

    pub fn commit(&mut self, file: &[u8]) -> CommitOk {
        let args = Args::Commit(CommitArgs { file: Handle(file), offset: 0, count: 0 });
        self.call(args, |reply| match reply.nfs().unwrap() {
            Results::Commit(Outcome::Ok(ok)) => ok,
            other => panic!("{other:?}"),
        })
    }
}

/// hf-mount#177, chimera#800: what a client holds goes on after a server was killed, and it learns what it has to
/// retransmit.
#[test]
fn handles_outlive_a_killed_server_and_the_write_verifier_does_not() {
    let mut up = Up::new("1");
    let server = Server::start(&up, "127.0.0.1:0", &[OPEN]);
    let (address, listen) = (server.address, server.address.to_string());
    let mut client = Client::connect(address);
    let root = client.mount("/").unwrap();
    assert_eq!(client.mount("/missing"), Err(mount::Status::NoEnt));
    let file = client.create(&root, "file");
    let data = pattern(1, 100_000);
    let written = client.write(&file, &data);
    assert_eq!(written.wcc.after.unwrap().size, 100_000);
    assert_eq!(client.commit(&file).verifier, written.verifier);
    assert_eq!(client.write(&file, b"lost").verifier, written.verifier);
    let exclusive = |verifier: &[u8; 8]| CreateHow::Exclusive(*verifier);
    let made = client.create_as(&root, "exclusive", exclusive(b"12345678"));
    server.process.kill().unwrap();
    let again = Server::start(&up, &listen, &[OPEN]);
    let mut client = Client::connect(address);
    let committed = client.commit(&file);
    assert_ne!(committed.verifier, written.verifier, "what was not committed may be lost");
    assert_eq!(client.mount("/"), Ok(root.clone()));
    assert_eq!(client.create_as(&root, "exclusive", exclusive(b"12345678")), made);
    let other = client.create_as(&root, "exclusive", exclusive(b"12345679"));
    assert_eq!(other, Err(Status::Exist));
    client.write(&file, b"again");
    client.commit(&file);
    let content = [b"again", &data[5..]].concat();
    assert!(up.get("/file") == content);
    again.process.stop().unwrap();
    up.stop();
}

/// The duplicate-request cache of RFC 1813 section 4.5, over a restart: the client never saw the reply, and the change
/// was made.
#[test]
fn a_change_that_a_killed_server_made_is_answered_by_the_next_and_not_made_again() {
    let mut up = Up::new("1");
    let mut server = Server::start(&up, "127.0.0.1:0", &[OPEN]);
    let (address, listen) = (server.address, server.address.to_string());
    let mut watcher = Client::with_xid(address, 1 << 20);
    let root = watcher.mount("/").unwrap();
    watcher.create(&root, "a");
    let at = |name: &'static str| DirOpArgs { dir: Handle(&root), name: Name(name.as_bytes()) };
    let exists = |watcher: &mut Client, name| {
        watcher.call(Args::Lookup(at(name)), |reply| reply.nfs().unwrap().status()) == Status::Ok
    };
    let guarded = CreateHow::Guarded(Sattr::default());
    let (from, to) = (at("a"), at("b"));
    let changes: [(Args<'_>, &str, bool); 3] = [
        (Args::Rename(nfs::v3::RenameArgs { from, to }), "b", true),
        (Args::Create(CreateArgs { place: at("c"), how: guarded }), "c", true),
        (Args::Remove(at("b")), "b", false),
    ];
    for (number, (args, name, is_there)) in (0..).zip(changes) {
        let mut client = Client::with_xid(address, number << 10);
        client.send(args);
        let start = Instant::now();
        while exists(&mut watcher, name) != is_there {
            assert!(start.elapsed() < PATIENCE, "{args:?} is not made");
        }
        server.process.kill().unwrap();
        server = Server::start(&up, &listen, &[OPEN]);
        watcher.reconnect(address);
        client.reconnect(address);
        let status = client.reply(|reply| reply.nfs().unwrap().status());
        assert_eq!(status, Status::Ok, "{args:?}");
        assert_eq!(exists(&mut watcher, name), is_there);
        let status = client.call(args, |reply| reply.nfs().unwrap().status());
        assert_ne!(status, Status::Ok, "{args:?}: another call is executed");
    }
    server.process.stop().unwrap();
    up.stop();
}

#[test]
fn what_cannot_be_served_is_refused_before_anything_is_made() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let up = |arguments: &[&str]| {
        let said = refusal(&[&["up", "--dir", text(&dir)], arguments].concat());
        assert!(!dir.exists(), "{said}");
        said
    };
    let port = taken.local_addr().unwrap().to_string();
    assert!(up(&["--nfs", &port]).contains("-o port="));
    assert!(up(&["--nfs", "127.0.0.1:0", "--export", "home"]).contains("begin with a slash"));
    let unknown = up(&["--nfs", "127.0.0.1:0", "--export", "/home:127.0.0.1(rwx)"]);
    assert!(unknown.contains("\"rwx\" is no option"), "{unknown}");
    assert!(up(&["--nfs", "127.0.0.1:0", "--exports", "/nowhere"]).contains("/nowhere"));
    assert!(up(&["--export", "/"]).contains("--nfs HOST"));
}

/// Whether this machine allows no network of one's own, which the test then says.
fn lacks_own_network() -> bool {
    let made = Command::new("unshare").args(["-m", "-n", "ip", "link", "set", "lo", "up"]).output();
    let refused = !made.is_ok_and(|made| made.status.success());
    if refused {
        rig::skip("no network name space may be made here");
    }
    refused
}

/// In a network and a /run of their own, where port 111 is free.
fn with_own_network(dir: &Path, script: &str) -> String {
    let helper = format!(
        "unshare -m -n --propagation private bash -euc '\n\
         trap \"kill \\$(jobs -p) 2> /dev/null || true\" EXIT\n\
         ip link set lo up; mount -t tmpfs none /run; mkdir -p /run/rpcbind\n\
         until_said() {{ for n in $(seq 300); do grep -q \"$1\" $2 && return; sleep 0.1; done; cat $2; exit 1; }}\n\
         start() {{ {program} up --dir data --servers 1 --nfs 127.0.0.1 \"$@\" > up.out 2>&1 & up=$!; \
         until_said ready up.out; }}\n\
         stop() {{ kill -TERM $up; wait $up; }}\n\
         {script}'",
        program = text(program()),
    );
    shell(dir, 120, &helper)
}

#[test]
fn clients_that_ask_port_111_find_the_server() {
    let lacking = ["unshare", "ip", "showmount", "rpcinfo"].into_iter().any(lacks);
    if cannot_mount() || lacking || lacks_own_network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = with_own_network(
        folder.path(),
        "start --portmap --mount-udp --export \"/:127.0.0.0/8(rw)\" --export /docs:ro\n\
         showmount -e 127.0.0.1; rpcinfo -p 127.0.0.1; rpcinfo -T udp 127.0.0.1 mountd 3\n\
         rpcinfo -T udp 127.0.0.1 100021 4; rpcinfo -T tcp 127.0.0.1 100021; rpcinfo -T udp 127.0.0.1 100024 1; stop",
    );
    let ready = ["program 100021 version 4 ready", "program 100024 version 1 ready"];
    let parts = ["Export list", "127.0.0.0/8", "/docs", "100003", "100005", "ready and waiting"];
    for part in parts.into_iter().chain(ready) {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_running_rpcbind_is_told_and_untold() {
    let lacking = ["unshare", "ip", "showmount", "rpcinfo", "rpcbind"].into_iter().any(lacks);
    if cannot_mount() || lacking || lacks_own_network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = with_own_network(
        folder.path(),
        "rpcbind -f -w & rpc=$!; for n in $(seq 100); do [ -S /run/rpcbind.sock ] && break; sleep 0.1; done\n\
         start; showmount -e 127.0.0.1; rpcinfo -p 127.0.0.1; stop\n\
         echo then; rpcinfo -p 127.0.0.1; kill $rpc; wait $rpc || true",
    );
    let (during, then) = said.split_once("then").unwrap();
    for part in ["Export list", "100003", "2049", "100005", "100021", "100024"] {
        assert!(during.contains(part), "{part}: {said}");
    }
    for gone in ["100003", "100021", "100024"] {
        assert!(!then.contains(gone), "{said}");
    }
    assert!(then.contains("100000"), "{said}");
}

/// Clients with locks would tell that one of their restarts, and this server would keep their locks.
#[test]
fn another_server_of_locks_at_rpcbind_is_told() {
    let programs = ["unshare", "ip", "rpcinfo", "rpcbind", "rpc.statd"];
    if cannot_mount() || programs.into_iter().any(lacks) || lacks_own_network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = with_own_network(
        folder.path(),
        "rpcbind -f & for n in $(seq 100); do [ -S /run/rpcbind.sock ] && break; sleep 0.1; done\n\
         mkdir -p statd/sm statd/sm.bak; rpc.statd -F -L -P $PWD/statd & \
         for n in $(seq 100); do rpcinfo -p 127.0.0.1 | grep -q 100024 && break; sleep 0.1; done\n\
         start; cat up.out; rpcinfo -p 127.0.0.1; stop",
    );
    assert!(said.contains("another server of locks") && said.contains("nolock"), "{said}");
    assert!(said.contains("100003"), "{said}");
}
