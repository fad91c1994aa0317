//! The cluster and the load of `lending.rs` while everything else goes wrong: one process is killed while another is
//! stopped, a process runs half of the time only, all ports get garbage and idle connections, everything is started
//! twice, or asked to end, and a server's or the manager's disk is full. Too long for every day: `cargo xtask soak`
//! runs it.

mod common;
mod load;

use common::{free_ports, garbage, pause, refusal, shell, text};
use load::lending::{ALL, Front, LENDERS, Lending, Machine, Mount};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A cluster, and the right to it: seven processes and their load are enough for a machine.
fn start(listen: Option<u16>) -> Option<(MutexGuard<'static, ()>, Lending)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Some((alone, Lending::start_at(listen)?))
}

type Connect = Box<dyn Fn() -> Box<dyn Write>>;

/// All sockets of a cluster that listens at `port` and the ports after it.
fn doors(lending: &Lending, port: u16) -> Vec<Connect> {
    let of_tcp = |port: u16| -> Connect {
        Box::new(move || Box::new(TcpStream::connect(("127.0.0.1", port)).unwrap()))
    };
    let sockets = fs::read_dir(lending.cluster.beside("cluster/run")).unwrap();
    let of_unix = sockets
        .map(|entry| entry.unwrap().path())
        .map(|path| -> Connect { Box::new(move || Box::new(UnixStream::connect(&path).unwrap())) });
    let ports = (port..=port + LENDERS as u16).chain(lending.ports);
    ports.map(of_tcp).chain(of_unix).collect()
}

#[test]
#[ignore = "a soak's"]
fn one_is_killed_while_another_is_stopped() {
    let Some((_alone, mut lending)) = start(None) else { return };
    let pairs = [
        (Machine(1), Mount),
        (Front(0), Machine(2)),
        (Mount, Machine(3)),
        (Machine(0), Front(1)),
        (Machine(2), Machine(0)),
    ];
    lending.under_load(|lending| {
        for (killed, stopped) in pairs {
            println!("{killed:?} is killed while {stopped:?} is stopped");
            let process = lending.process(stopped);
            process.pause();
            lending.process(killed).kill().unwrap();
            std::thread::sleep(Duration::from_secs(5));
            process.resume();
            lending.put(stopped, process);
            lending.begin(killed);
            lending.settle();
        }
    });
    lending.end();
}

#[test]
#[ignore = "a soak's"]
fn somebody_runs_half_of_the_time() {
    let Some((_alone, mut lending)) = start(None) else { return };
    lending.under_load(|lending| {
        for who in ALL {
            println!("{who:?} is slow");
            let process = lending.process(who);
            for _ in 0..25 {
                pause(&process, Duration::from_millis(200));
                std::thread::sleep(Duration::from_millis(200));
            }
            lending.put(who, process);
        }
        lending.settle();
    });
    lending.end();
}

#[test]
#[ignore = "a soak's"]
fn every_door_gets_garbage() {
    let port = free_ports(LENDERS as u16 + 1);
    let Some((_alone, mut lending)) = start(Some(port)) else { return };
    lending.under_load_unnoticed(|lending| {
        let doors = doors(lending, port);
        println!("{} doors", doors.len());
        for _ in 0..50 {
            doors.iter().for_each(garbage);
        }
        lending.settle();
    });
    lending.end();
}

#[test]
#[ignore = "a soak's"]
fn thousands_are_connected_and_say_nothing() {
    let Some((_alone, mut lending)) = start(None) else { return };
    lending.under_load_unnoticed(|lending| {
        let connect = |at: usize| TcpStream::connect(("127.0.0.1", lending.ports[at % 2])).unwrap();
        let mut idle: Vec<TcpStream> = (0..8000).map(connect).collect();
        std::thread::sleep(Duration::from_secs(10));
        idle.iter_mut().step_by(2).for_each(|half| half.write_all(b"set half 0 0 99\r\n").unwrap());
        std::thread::sleep(Duration::from_secs(10));
        lending.settle();
    });
    lending.end();
}

/// A second start is refused with a reason, and hurts no process that ran before.
#[test]
#[ignore = "a soak's"]
fn everything_is_started_twice() {
    let Some((_alone, mut lending)) = start(None) else { return };
    lending.under_load_unnoticed(|lending| {
        let (target, point) = (lending.cluster.processes.target(), lending.point.clone());
        for _ in 0..10 {
            for name in ["manager", "io1", "io2", "io3"] {
                let config = lending.cluster.beside(&format!("cluster/{name}.toml"));
                println!("{name}: {}", refusal(&["serve", "--config", text(&config)]));
            }
            let at = format!("127.0.0.1:{}", lending.ports[0]);
            println!("{}", refusal(&["memory", "--cluster", &target, "--memcached", &at]));
            println!("{}", refusal(&["mount", &target, text(&point)]));
        }
        lending.settle();
    });
    lending.end();
}

#[test]
#[ignore = "a soak's"]
fn everybody_is_asked_to_end_in_the_middle() {
    let Some((_alone, mut lending)) = start(None) else { return };
    lending.under_load(|lending| {
        for who in ALL {
            println!("{who:?} is asked to end");
            lending.process(who).stop().unwrap();
            std::thread::sleep(Duration::from_secs(1));
            lending.begin(who);
            lending.settle();
        }
    });
    lending.end();
}

/// A write meanwhile is refused, or its bytes are there; and `status` tells why.
#[test]
#[ignore = "a soak's"]
fn a_servers_disk_is_full() {
    let Some((_alone, mut lending)) = start(None) else { return };
    let who = Machine(2);
    let store = lending.limit_disk(who, "96M");
    let told = lending.under_load(|lending| {
        shell(&store, 20, "dd if=/dev/zero of=fill bs=4k 2>/dev/null || true");
        std::thread::sleep(Duration::from_secs(10));
        let said = lending.status();
        assert!(said.contains("io2 serving 96M 0 "), "{said}");
        lending.process(who).kill().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        fs::remove_file(store.join("fill")).unwrap();
        lending.begin(who);
        lending.settle();
    });
    let unnoticed = |line: &String| line.starts_with("files") && line.contains(" 0 errors");
    assert!(!told.iter().any(unnoticed), "{told:?}");
    lending.end();
}
