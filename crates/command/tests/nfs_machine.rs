//! Machines of a cluster whose configuration says `[nfs]`: NFS on the node of the manager or of the I/O server.

use crate::common::{ended_by_signals, free_ports, pattern, program, refusal, text, trapeze};
use crate::nfs::Client;
use nfs::v3::{Args, Handle};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use trapeze::children::Process;

const EXPORT: &str = "[[export]]\npath = \"/\"\nclients = [\"127.0.0.1(rw,no_root_squash)\"]\n";

/// A machine in a directory.
struct Machine {
    config: PathBuf,
    log: PathBuf,
    nfs: SocketAddr,
}

impl Machine {
    /// Made by `trapeze ARGUMENTS`, with NFS at this port.
    fn make(dir: &Path, arguments: &[&str], port: u16) -> (Machine, String) {
        let made = trapeze(&[arguments, &["--dir", text(dir)]].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let machine = Machine {
            config: dir.join("machine.toml"),
            log: dir.join("log"),
            nfs: SocketAddr::from(([127, 0, 0, 1], port)),
        };
        (machine, String::from_utf8(made.stdout).unwrap())
    }

    fn add(&self, table: &str) {
        let before = fs::read_to_string(&self.config).unwrap();
        fs::write(&self.config, format!("{before}\n{table}")).unwrap();
    }

    fn add_nfs(&self) {
        self.add(&format!("[nfs]\nlisten = \"{}\"\n{EXPORT}", self.nfs));
    }

    fn start(&self) -> Process {
        let mut command = ended_by_signals(program());
        command.args(["serve", "--config", text(&self.config)]);
        Process::start_command("serve", command, &self.log).unwrap()
    }

    fn cat(&self, path: &str) -> Vec<u8> {
        let told = trapeze(&["cat", "-c", text(self.config.parent().unwrap()), path]);
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        told.stdout
    }
}

/// A machine that is a whole cluster.
fn alone(dir: &Path) -> Machine {
    let ports = free_ports(2);
    let (listen, disk) = (format!("127.0.0.1:{ports}"), dir.join("disk"));
    let init = ["init", "--listen", &listen, "--disk", text(&disk)];
    Machine::make(&dir.join("machine"), &init, ports + 1).0
}

#[test]
fn exports_without_nfs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let machine = alone(folder.path());
    machine.add(EXPORT);
    assert!(refusal(&["serve", "--config", text(&machine.config)]).contains("add [nfs]"));
}

#[test]
fn a_machine_that_stops_writes_back_what_its_clients_of_nfs_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let machine = alone(folder.path());
    machine.add_nfs();
    let running = machine.start();
    let mut client = Client::connect(machine.nfs);
    let root = client.mount("/").unwrap();
    let file = client.create(&root, "file");
    let data = pattern(1, 300_000);
    let written = client.write(&file, &data);
    let status = trapeze(&["status", "--all", "-c", text(machine.config.parent().unwrap())]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("NFS clients of") && status.contains("MOUNT MNT"), "{status}");
    running.stop().unwrap();

    let running = machine.start();
    assert!(machine.cat("/file") == data, "it was not committed, but the machine had time");
    let mut client = Client::with_xid(machine.nfs, 1 << 20);
    assert_ne!(client.commit(&file).verifier, written.verifier);
    running.stop().unwrap();
}

#[test]
fn a_machine_that_is_killed_keeps_what_was_committed_and_answers_retransmissions() {
    let folder = tempfile::tempdir().unwrap();
    let machine = alone(folder.path());
    machine.add_nfs();
    let mut running = machine.start();
    let mut client = Client::connect(machine.nfs);
    let root = client.mount("/").unwrap();
    for round in 0..5 {
        let (name, data) = (format!("file{round}"), pattern(round, 100_000));
        let file = client.create(&root, &name);
        let written = client.write(&file, &data);
        assert_eq!(client.commit(&file).verifier, written.verifier);
        let lost = client.write(&file, b"unstable");
        running.kill().unwrap();
        running = machine.start();
        client = Client::with_xid(machine.nfs, (round as u32 + 1) << 20);
        assert_ne!(client.commit(&file).verifier, lost.verifier, "the client writes it again");
        client.write(&file, &data);
        client.commit(&file);
        assert!(machine.cat(&format!("/{name}")) == data, "round {round}");
    }
    running.stop().unwrap();
}

#[test]
fn an_io_server_serves_nfs_as_soon_as_its_manager_answers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let ports = free_ports(4);
    let listen = |number: u16| format!("127.0.0.1:{}", ports + number);
    let (manager, printed) =
        Machine::make(&at("manager"), &["init", "--listen", &listen(0)], ports + 1);
    let token = printed.split_whitespace().find(|word| word.starts_with("trapeze1:")).unwrap();
    fs::write(at("token"), token).unwrap();
    let managing = manager.start();
    let (token, disk) = (at("token"), at("disk"));
    let join = ["join", "--token-file", text(&token), "--disk", text(&disk), "--listen"];
    let (server, _) = Machine::make(&at("server"), &[&join[..], &[&listen(2)]].concat(), ports + 3);
    server.add_nfs();
    server.start().stop().unwrap();
    managing.stop().unwrap();

    let serving = server.start();
    let mut client = Client::connect(server.nfs);
    let managing = manager.start();
    let root = client.mount("/").unwrap();
    let file = client.create(&root, "file");
    client.write(&file, b"through the I/O server");
    client.commit(&file);
    assert_eq!(manager.cat("/file"), b"through the I/O server");
    // with its manager away again it waits, and goes on
    managing.kill().unwrap();
    client.send(Args::Getattr(Handle(&file)));
    let managing = manager.start();
    assert_eq!(client.reply(|reply| reply.nfs().unwrap().status()), nfs::v3::Status::Ok);
    serving.stop().unwrap();
    managing.stop().unwrap();
}
