//! `trapeze filter` before three managers: one tree, also when the filter or a manager is killed in the middle of it.

use crate::common::{Cluster, free_ports, pattern, text, trapeze};
use crate::managers::until_spread;
use crate::nfs::{Client, OPEN, Server};
use nfs::nlm::Status as Locked;
use nfs::v3::{
    Args, CreateArgs, CreateHow, DirOpArgs, Handle, MkdirArgs, Outcome, Path as Name, ReadArgs,
    ReaddirplusArgs, ReaddirplusOk, RenameArgs, Results, Sattr, SetattrArgs, Status,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trapeze::local::Shape;

fn three_managers() -> (Cluster, PathBuf) {
    managers(3)
}

/// A cluster of so many managers with an equal part of the sites each, and its directory.
pub fn managers(count: u16) -> (Cluster, PathBuf) {
    let cluster = Cluster::shaped(&Shape { managers: count, ..Shape::prefaulted(2) });
    let dir = cluster.processes.mount_point().with_file_name("cluster");
    until_spread(text(&dir), count.into());
    (cluster, dir)
}

fn server(kind: &str, dir: &Path, listen: &str) -> Server {
    let log = dir.with_file_name(format!("{kind}.log"));
    Server::of(kind, dir, listen, &[OPEN], &log)
}

fn place<'a>(dir: &'a [u8], name: &'a str) -> DirOpArgs<'a> {
    DirOpArgs { dir: Handle(dir), name: Name(name.as_bytes()) }
}

/// A figure of the filter in `status`.
fn counted(dir: &Path, what: &str) -> u64 {
    let told = trapeze(&["status", "--json", "--cluster", text(dir)]);
    summed(&String::from_utf8_lossy(&told.stdout), what)
}

/// A figure of NFS, of all nodes, in what `status --json` printed.
pub fn summed(told: &str, what: &str) -> u64 {
    let rows = told.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.filter_map(|row| row["report"]["nfs"][what].as_u64()).sum()
}

fn make_directory(client: &mut Client, parent: &[u8], name: &str) -> Vec<u8> {
    let attributes = Sattr::default();
    let args = Args::Mkdir(MkdirArgs { place: place(parent, name), attributes });
    client.call(args, |reply| match reply.nfs().unwrap() {
        Results::Mkdir(Outcome::Ok(ok)) => ok.object.unwrap().0.to_vec(),
        other => panic!("{other:?}"),
    })
}

fn status(client: &mut Client, args: Args<'_>) -> Status {
    client.call(args, |reply| reply.nfs().unwrap().status())
}

fn size(client: &mut Client, file: &[u8]) -> u64 {
    client.call(Args::Getattr(Handle(file)), |reply| match reply.nfs().unwrap() {
        Results::Getattr(Outcome::Ok(attributes)) => attributes.size,
        other => panic!("{other:?}"),
    })
}

fn content(client: &mut Client, file: &[u8]) -> Vec<u8> {
    let args = Args::Read(ReadArgs { file: Handle(file), offset: 0, count: 1 << 20 });
    client.call(args, |reply| match reply.nfs().unwrap() {
        Results::Read(Outcome::Ok(read)) => read.data.to_vec(),
        other => panic!("{other:?}"),
    })
}

fn looked_up_size(client: &mut Client, dir: &[u8], name: &str) -> u64 {
    client.call(Args::Lookup(place(dir, name)), |reply| match reply.nfs().unwrap() {
        Results::Lookup(Outcome::Ok(found)) => found.attributes.unwrap().size,
        other => panic!("{other:?}"),
    })
}

fn listed_size(client: &mut Client, dir: &[u8], name: &str) -> u64 {
    list(client, dir, (0, [0; 8]), |listed| {
        let entry = listed.entries.iter().find(|entry| entry.name.0 == name.as_bytes());
        entry.unwrap().attributes.unwrap().size
    })
}

/// A part of a listing by READDIRPLUS, behind a cookie.
fn list<T>(
    client: &mut Client,
    dir: &[u8],
    (cookie, verifier): (u64, [u8; 8]),
    with: impl FnOnce(&ReaddirplusOk<'_>) -> T,
) -> T {
    let (dircount, maxcount) = (32 << 10, 64 << 10);
    let args = ReaddirplusArgs { dir: Handle(dir), cookie, verifier, dircount, maxcount };
    client.call(Args::Readdirplus(args), |reply| match reply.nfs().unwrap() {
        Results::Readdirplus(Outcome::Ok(listed)) => with(&listed),
        other => panic!("{other:?}"),
    })
}

/// Names in a directory, but for `.` and `..`.
fn names(client: &mut Client, dir: &[u8]) -> Vec<String> {
    let (mut names, mut position, mut eof) = (Vec::new(), (0, [0; 8]), false);
    while !eof {
        (position, eof) = list(client, dir, position, |listed| {
            let all = listed.entries.iter();
            names.extend(all.map(|entry| String::from_utf8_lossy(entry.name.0).into_owned()));
            assert!(listed.eof || !listed.entries.is_empty(), "no way on");
            let last = listed.entries.last().map_or(position.0, |entry| entry.cookie);
            ((last, listed.verifier), listed.eof)
        });
    }
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

#[test]
fn a_tree_made_through_a_filter_is_the_same_through_another_server() {
    let (mut cluster, dir) = three_managers();
    let filter = server("filter", &dir, "127.0.0.1:0");
    let mut client = Client::connect(filter.address);
    let root = client.mount("/").unwrap();
    let directory = |number: u8| format!("d{number}");
    for number in 0..24 {
        let made = make_directory(&mut client, &root, &directory(number));
        let file = client.create(&made, "file");
        let data = pattern(number.into(), 10_000 + usize::from(number));
        client.write(&file, &data);
        assert_eq!(size(&mut client, &file), data.len() as u64, "of what is not committed, too");
        client.commit(&file);
    }
    for number in 0..12 {
        let (from, to) = (directory(number), directory(number + 12));
        let (from, to) = (client.lookup(&root, &from), client.lookup(&root, &to));
        let args = RenameArgs { from: place(&from, "file"), to: place(&to, "moved") };
        assert_eq!(status(&mut client, Args::Rename(args)), Status::Ok);
        let name = directory(number);
        assert_eq!(status(&mut client, Args::Rmdir(place(&root, &name))), Status::Ok);
    }
    assert!(counted(&dir, "moved") > 0, "it learnt the owners of sites by asking the wrong ones");
    assert!(counted(&dir, "forwarded") >= 72);
    assert!(counted(&dir, "executed_here") >= 72, "writes, attributes of what is written, commits");
    let other = server("nfs", &dir, "127.0.0.1:0");
    for server in [filter, other] {
        let mut client = Client::connect(server.address);
        assert_eq!(client.mount("/"), Ok(root.clone()), "handles are the same");
        assert_eq!(names(&mut client, &root).len(), 12);
        for number in 0..12 {
            let made = client.lookup(&root, &directory(number + 12));
            assert_eq!(names(&mut client, &made), ["file", "moved"]);
            for (name, seed) in [("file", number + 12), ("moved", number)] {
                let file = client.lookup(&made, name);
                let wanted = pattern(seed.into(), 10_000 + usize::from(seed));
                assert!(content(&mut client, &file) == wanted, "{name} of {number}");
            }
        }
        server.process.stop().unwrap();
    }
    cluster.stop();
}

/// A client that reconnects and retransmits calls without a reply, as a kernel's does.
struct Stubborn {
    address: SocketAddr,
    client: Client,
}

impl Stubborn {
    fn connect(address: SocketAddr) -> Stubborn {
        Stubborn { address, client: Client::connect(address) }
    }

    fn again(&mut self) {
        let start = Instant::now();
        self.client.stream = loop {
            match TcpStream::connect(self.address) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        self.client.stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        self.client.calls.reconnected();
        let mut records = Vec::new();
        self.client.calls.retransmit_all(&mut records);
        let _ = self.client.stream.write_all(&records);
    }

    fn status(&mut self, args: Args<'_>) -> Status {
        let mut record = Vec::new();
        self.client.calls.call(&args.into(), &mut record);
        let _ = self.client.stream.write_all(&record);
        let start = Instant::now();
        loop {
            if let Some(reply) = self.client.calls.poll_reply().unwrap() {
                return reply.nfs().unwrap().status();
            }
            assert!(start.elapsed() < Duration::from_secs(120), "no reply");
            match self.client.stream.read(self.client.calls.space()) {
                Ok(bytes) if bytes > 0 => self.client.calls.filled(bytes),
                _ => self.again(),
            }
        }
    }
}

fn create<'a>(dir: &'a [u8], name: &'a str) -> Args<'a> {
    let how = CreateHow::Guarded(Sattr::default());
    Args::Create(CreateArgs { place: place(dir, name), how })
}

/// Creates, renames and removes, in two directories, until `is_over`; the names that must be left.
fn work(client: &mut Stubborn, [one, two]: [&[u8]; 2], is_over: impl Fn() -> bool) -> Vec<String> {
    let mut left = Vec::new();
    let done = |client: &mut Stubborn, args: Args<'_>| {
        assert_eq!(client.status(args), Status::Ok, "{args:?}");
    };
    for number in 0.. {
        if is_over() && number >= 20 {
            break;
        }
        let (made, moved) = (format!("made{number:05}"), format!("moved{number:05}"));
        done(client, create(one, &made));
        let args = RenameArgs { from: place(one, &made), to: place(two, &moved) };
        done(client, Args::Rename(args));
        match number % 2 {
            0 => done(client, Args::Remove(place(two, &moved))),
            _ => left.push(moved),
        }
    }
    left
}

/// An idle filter closes its files, and their attributes are the managers' again.
#[test]
fn a_size_is_right_when_nothing_was_committed_and_the_filter_has_closed_the_file() {
    let (mut cluster, dir) = three_managers();
    let filter = server("filter", &dir, "127.0.0.1:0");
    let mut client = Client::connect(filter.address);
    let root = client.mount("/").unwrap();
    let files: Vec<_> = (0..8)
        .map(|number| {
            let made = make_directory(&mut client, &root, &format!("d{number}"));
            client.create(&made, "file")
        })
        .collect();
    for file in &files {
        client.write(file, &pattern(1, 100_000));
    }
    let before = counted(&dir, "executed_here");
    std::thread::sleep(nfs::limits::OPEN_SPAN * 2);
    for file in &files {
        assert_eq!(size(&mut client, file), 100_000);
    }
    assert_eq!(counted(&dir, "executed_here"), before, "managers said so");
    let truncated = Sattr { size: Some(10), ..Sattr::default() };
    for file in &files {
        let args = SetattrArgs { object: Handle(file), attributes: truncated, guard: None };
        assert_eq!(status(&mut client, Args::Setattr(args)), Status::Ok);
        assert!(content(&mut client, file) == pattern(1, 100_000)[..10]);
        client.commit(file);
        assert_eq!(size(&mut client, file), 10);
    }
    filter.process.stop().unwrap();
    cluster.stop();
}

/// A client for [`work`], and its two directories.
fn begin(address: SocketAddr) -> (Stubborn, [Vec<u8>; 2]) {
    let mut client = Stubborn::connect(address);
    let root = client.client.mount("/").unwrap();
    let made = ["one", "two"].map(|name| make_directory(&mut client.client, &root, name));
    (client, made)
}

/// All is in the second directory that [`work`] left there, and nothing in the first.
fn assert_ended(address: SocketAddr, [one, two]: [&[u8]; 2], left: &[String]) {
    let mut client = Client::connect(address);
    assert_eq!(names(&mut client, two), left);
    assert!(names(&mut client, one).is_empty());
}

#[test]
fn a_killed_filter_repeats_nothing() {
    let (mut cluster, dir) = three_managers();
    let mut filter = server("filter", &dir, "127.0.0.1:0");
    let (address, listen) = (filter.address, filter.address.to_string());
    let (mut client, [one, two]) = begin(address);
    let killing = {
        let dir = dir.clone();
        std::thread::spawn(move || {
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(400));
                filter.process.kill().unwrap();
                filter = server("filter", &dir, &listen);
            }
            filter
        })
    };
    let left = work(&mut client, [&one, &two], || killing.is_finished());
    let filter = killing.join().unwrap();
    assert_ended(filter.address, [&one, &two], &left);
    filter.process.stop().unwrap();
    cluster.stop();
}

#[test]
fn clients_of_a_filter_wait_for_a_killed_manager() {
    let (mut cluster, dir) = three_managers();
    let filter = server("filter", &dir, "127.0.0.1:0");
    let (mut client, [one, two]) = begin(filter.address);
    let over = std::sync::atomic::AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            work(&mut client, [&one, &two], || over.load(std::sync::atomic::Ordering::Relaxed))
        });
        for number in [3, 4, 0] {
            std::thread::sleep(Duration::from_millis(300));
            cluster.crash(number, Duration::from_millis(300));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        working.join().unwrap()
    });
    assert_ended(filter.address, [&one, &two], &left);
    filter.process.stop().unwrap();
    cluster.stop();
}

/// Managers do not know what the filter has written: it asks again itself where they name such a file.
#[test]
fn names_of_files_that_are_being_written_are_told_with_their_sizes() {
    let (mut cluster, dir) = three_managers();
    let filter = server("filter", &dir, "127.0.0.1:0");
    let mut client = Client::connect(filter.address);
    let root = client.mount("/").unwrap();
    let made = make_directory(&mut client, &root, "made");
    let [written, other] = ["written", "other"].map(|name| client.create(&made, name));
    let mut bytes = 0;
    for _ in 0..5 {
        // each time longer, so that the size is not an older one
        bytes += 10_000;
        client.write(&written, &pattern(1, bytes));
        let before = ["forwarded", "executed_here"].map(|what| counted(&dir, what));
        assert_eq!(client.lookup(&made, "other"), other);
        let forwarded = counted(&dir, "forwarded");
        assert_eq!(listed_size(&mut client, &made, "written"), bytes as u64);
        assert_eq!(looked_up_size(&mut client, &made, "written"), bytes as u64);
        let after = ["forwarded", "executed_here"].map(|what| counted(&dir, what));
        assert_eq!(forwarded - before[0], 1);
        assert_eq!([after[0] - before[0], after[1] - before[1]], [3, 2]);
    }
    filter.process.stop().unwrap();
    cluster.stop();
}

#[test]
fn two_filters_exclude_each_others_locks() {
    let (mut cluster, dir) = three_managers();
    let filters = [free_ports(1), free_ports(1)].map(|port| {
        let log = dir.with_file_name(format!("filter{port}.log"));
        Server::of("filter", &dir, &format!("127.0.0.1:{port}"), &[OPEN], &log)
    });
    let [mut one, mut two] = filters.each_ref().map(|filter| Client::connect(filter.address));
    let root = one.mount("/").unwrap();
    let made = make_directory(&mut one, &root, "made");
    let file = one.create(&made, "file");
    let at_once = (false, false);
    assert_eq!(one.lock_as("1@one", &file, at_once), Locked::Granted);
    assert_eq!(two.lock_as("2@two", &file, at_once), Locked::Denied);
    assert_eq!(one.unlock_as("1@one", &file), Locked::Granted);
    assert_eq!(two.lock_as("2@two", &file, at_once), Locked::Granted);
    assert_eq!(one.lock_as("1@one", &file, at_once), Locked::Denied);
    // the lock is its client's, who is there still, and takes it from the next filter at that address
    let [first, killed] = filters;
    let listen = killed.address.to_string();
    killed.process.kill().unwrap();
    assert_eq!(one.lock_as("1@one", &file, at_once), Locked::Denied);
    let second = server("filter", &dir, &listen);
    two = Client::connect(second.address);
    assert_eq!(two.lock_as("2@two", &file, (false, true)), Locked::Granted);
    assert_eq!(one.lock_as("1@one", &file, at_once), Locked::Denied);
    [first, second].into_iter().for_each(|filter| filter.process.stop().unwrap());
    cluster.stop();
}

#[test]
fn names_of_a_hashed_directory_are_asked_of_the_managers_of_their_hashes() {
    let (mut cluster, dir) = three_managers();
    let filter = server("filter", &dir, "127.0.0.1:0");
    let mut client = Client::connect(filter.address);
    let root = client.mount("/").unwrap();
    let hot = make_directory(&mut client, &root, "hot");
    let hashed = trapeze(&["layout", "--hash", "--cluster", text(&dir), "/hot"]);
    assert!(hashed.status.success(), "{hashed:?}");
    let name = |number: usize| format!("name{number:03}");
    // of so many names each manager has some
    for number in 0..40 {
        assert_eq!(status(&mut client, create(&hot, &name(number))), Status::Ok);
    }
    let moved = counted(&dir, "moved");
    let mut left = Vec::new();
    for number in 40..80 {
        let (made, renamed) = (name(number), format!("renamed{number:03}"));
        assert_eq!(status(&mut client, create(&hot, &made)), Status::Ok);
        client.lookup(&hot, &made);
        let args = RenameArgs { from: place(&hot, &made), to: place(&hot, &renamed) };
        assert_eq!(status(&mut client, Args::Rename(args)), Status::Ok);
        match number % 2 {
            0 => left.push(renamed),
            _ => {
                let args = Args::Remove(place(&hot, &renamed));
                assert_eq!(status(&mut client, args), Status::Ok);
            }
        }
    }
    assert_eq!(counted(&dir, "moved"), moved, "it knows that the directory is hashed, and where");
    left.splice(0..0, (0..40).map(name));
    assert_eq!(names(&mut client, &hot), left);
    let other = server("nfs", &dir, "127.0.0.1:0");
    assert_eq!(names(&mut Client::connect(other.address), &hot), left);
    [filter, other].into_iter().for_each(|server| server.process.stop().unwrap());
    cluster.stop();
}

#[test]
fn garbage_at_a_filter_disturbs_no_other_client() {
    let (mut cluster, dir) = three_managers();
    let filter = server("filter", &dir, "127.0.0.1:0");
    let mut client = Client::connect(filter.address);
    let root = client.mount("/").unwrap();
    let mut half = TcpStream::connect(filter.address).unwrap();
    half.write_all(&[0x80, 0, 16, 0, 1, 2, 3]).unwrap();
    for seed in 0..64 {
        let mut stream = TcpStream::connect(filter.address).unwrap();
        // a server that has had enough closes the connection
        let _ = stream.write_all(&pattern(seed, 3000));
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut forged = root.clone();
    forged[12] ^= 1;
    assert_eq!(status(&mut client, Args::Getattr(Handle(&forged))), Status::BadHandle);
    assert_eq!(status(&mut client, Args::Getattr(Handle(&root[..9]))), Status::BadHandle);
    make_directory(&mut client, &root, "made");
    assert_eq!(names(&mut client, &root), ["made"]);
    drop(half);
    filter.process.stop().unwrap();
    cluster.stop();
}
