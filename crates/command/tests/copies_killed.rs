//! I/O servers of a cluster with two copies are killed one after the other, under load of two mounts and a client of
//! NFS: nothing that was acknowledged is lost, and nothing is refused meanwhile.

use crate::common::{Cluster, cannot_mount, soaks, trapeze};
use crate::copies::wait_until_whole;
use crate::load::files::Files;
use crate::load::{Dice, Done, Versions, contents};
use crate::nfs::{Client, OPEN, Server};
use nfs::client::Request;
use nfs::v3::{Args, Handle, Outcome, ReadArgs, Results, StableHow, Status};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trapeze::local::Shape;

const SERVERS: u16 = 3;
const FILES: u64 = 8;
const PAGES: u64 = 64;
const PAGE: usize = 4096;
/// Between two pages, so that each is in a chunk of its own.
const STEP: u64 = 32 << 10;

fn rounds() -> u64 {
    if soaks() { 60 } else { 2 }
}

#[test]
fn nothing_is_lost_or_refused_when_io_servers_are_killed_in_turn() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::shaped(&Shape { copies: 2, ..Shape::of(SERVERS) });
    wait_until_whole(&cluster);
    cluster.processes.mount().unwrap();
    let dirs = [cluster.at("one"), cluster.mount_again().join("other")];
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let log = cluster.beside("nfs.log");
    let server =
        Server::of("nfs", Path::new(&cluster.processes.target()), "127.0.0.1:0", &[OPEN], &log);
    let mounts = dirs.map(|dir| Files::start(&dir));
    let remote = Remote::start(server.address);
    let mut dice = Dice(7);
    for round in 1..=rounds() {
        kill_one(&mut cluster, &mut dice, round);
    }
    let told = [remote.end()].into_iter().chain(mounts.map(Files::end));
    for line in told {
        assert!(line.contains(" 0 errors"), "{line}");
    }
    server.process.stop().unwrap();
    is_intact(&cluster);
    cluster.stop();
}

/// Kills one of the I/O servers, before the others have gone on without it or after, and waits until it has all again.
fn kill_one(cluster: &mut Cluster, dice: &mut Dice, round: u64) {
    let victim = 1 + dice.below(SERVERS.into()) as usize;
    let down = Duration::from_millis(dice.below(6_000));
    cluster.crash(victim, down);
    let start = Instant::now();
    wait_until_whole(cluster);
    println!(
        "round {round}: io{victim} was down for {down:.1?}, all whole after {:.1?} more",
        start.elapsed()
    );
}

fn is_intact(cluster: &Cluster) {
    let done = trapeze(&["check", "--deep", "-c", &cluster.processes.target()]);
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
}

/// A client of NFS that writes and reads pages of files.
struct Remote {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<String>,
}

impl Remote {
    fn start(server: SocketAddr) -> Remote {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        Remote { stop, thread: std::thread::spawn(move || change_files(server, &told)) }
    }

    /// Ends it, and how much it has done; a panic when something was wrong.
    fn end(self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn change_files(server: SocketAddr, stop: &AtomicBool) -> String {
    let (mut dice, mut versions, mut done) = (Dice(5), Versions::default(), Done::default());
    let mut client = Client::connect(server);
    let root = client.mount("/").unwrap();
    let mut file = |number| client.create(&root, &format!("by-nfs-{number}"));
    let files: Vec<Vec<u8>> = (0..FILES).map(&mut file).collect();
    while !stop.load(Ordering::Relaxed) {
        let page = Page::of(&files, dice.below(FILES * PAGES));
        let outcome = done.count(|| match dice.below(3) {
            0 => page.write(&mut client, &mut versions, dice.below(2) == 0).map(|()| None),
            _ => page.read(&mut client, &mut versions),
        });
        done.wrong.extend(outcome.unwrap_or_default());
    }
    for place in versions.acknowledged() {
        let read = Page::of(&files, place).read(&mut client, &mut versions);
        done.wrong.extend(read.expect("a page that was acknowledged"));
    }
    done.report("NFS")
}

/// A page of a file, by its place among those of all files.
#[derive(Clone, Copy)]
struct Page<'a> {
    file: Handle<'a>,
    place: u64,
}

impl Page<'_> {
    fn of(files: &[Vec<u8>], place: u64) -> Page<'_> {
        Page { file: Handle(&files[(place / PAGES) as usize]), place }
    }

    fn offset(&self) -> u64 {
        self.place % PAGES * STEP
    }

    /// Writes the next version, and commits it unless it is to be stable at once. It is acknowledged where the server
    /// kept it from the one to the other.
    fn write(
        &self,
        client: &mut Client,
        versions: &mut Versions,
        is_stable: bool,
    ) -> Result<(), Status> {
        let version = versions.try_next(self.place);
        let data = contents(self.place, version, PAGE);
        let stable = if is_stable { StableHow::FileSync } else { StableHow::Unstable };
        let request = Request::write(self.file, self.offset(), stable, &data);
        let written = client.call(request, |reply| match reply.nfs().unwrap() {
            Results::Write(Outcome::Ok(ok)) => Ok(ok),
            results => Err(results.status()),
        })?;
        if is_stable || client.commit(self.file.0).verifier == written.verifier {
            versions.acknowledge(self.place, version);
        }
        Ok(())
    }

    /// Reads it; what is wrong with it, if anything.
    fn read(&self, client: &mut Client, versions: &mut Versions) -> Result<Option<String>, Status> {
        let args = ReadArgs { file: self.file, offset: self.offset(), count: PAGE as u32 };
        client.call(Args::Read(args), |reply| match reply.nfs().unwrap() {
            Results::Read(Outcome::Ok(read)) => Ok(versions.check(self.place, read.data)),
            results => Err(results.status()),
        })
    }
}
