//! A cluster whose machines have an Ethernet beside TCP: which way messages go, that files are the same, and that work
//! goes on when the Ethernet is taken away and comes back (`docs/src/links.md`).

use crate::network::{MISSING, Network, until};
use rig::{lacks, skip};
use std::fs;
use std::path::Path;
use std::time::Duration;

const MACHINES: [&str; 3] = ["alpha", "beta", "gamma"];
/// Frames that are not acknowledged for 2 s, and a busy machine.
const SWITCH_SPAN: Duration = Duration::from_secs(30);

fn network() -> Option<Network> {
    if lacks("ip") {
        return None;
    }
    if let Some(why) = &*MISSING {
        skip(why);
        return None;
    }
    Some(Network::new(&MACHINES))
}

/// A manager with a disk on alpha, an I/O server on beta, a mount on gamma; each with these flags.
fn cluster(network: &mut Network, flags: [&str; 3]) -> Vec<String> {
    let init = format!("trapeze init --listen 10.0.0.1:7400 --disk disk {}", flags[0]);
    let printed = network.print("alpha", &init);
    let token = printed.split_whitespace().find(|word| word.starts_with("trapeze1:")).unwrap();
    let serve = "trapeze serve --config trapeze-machine/machine.toml";
    let mut said = vec![network.start("alpha", serve)];
    let join = format!("trapeze join {token} --listen 10.0.0.2:7400 --name beta {}", flags[1]);
    network.print("beta", &join);
    said.push(network.start("beta", serve));
    let (key, to) = ("trapeze-machine/key", network.path("gamma", "key"));
    fs::copy(network.path("alpha", key), to).unwrap();
    network.print("gamma", "mkdir mnt");
    let mount = format!("trapeze mount tcp:10.0.0.1:7400 mnt --key key {}", flags[2]);
    said.push(network.start("gamma", &mount));
    said
}

/// The links of beta, which the others reach by network only: the machines of a test share their files, so that one
/// could also call alpha at its socket.
fn transports(network: &Network) -> Vec<String> {
    let status = network.print("alpha", "trapeze status --json --cluster trapeze-machine || true");
    let rows = status.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let row = rows.into_iter().find(|row: &serde_json::Value| row["name"] == "beta");
    let links = row.as_ref().and_then(|row| row["report"]["links"].as_array());
    let links = links.into_iter().flatten();
    let by = links.filter_map(|link| link["transport"].as_str());
    by.filter(|by| !by.is_empty()).map(str::to_string).collect()
}

fn wait_for(network: &Network, transport: &str, count: usize) {
    let enough = || {
        // A link that broke is made again when there is a message for it.
        let write = "dd if=/dev/zero of=mnt/more bs=1M count=3 conv=fsync status=none";
        network.print("gamma", write);
        transports(network).iter().filter(|by| *by == transport).count() >= count
    };
    let reached = until(SWITCH_SPAN, enough);
    let all = || network.print("alpha", "trapeze status --all --cluster trapeze-machine || true");
    assert!(reached, "{transport}: {:?}\n{}", transports(network), all());
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * 13 + n / 509 + seed * 101) as u8).collect()
}

/// Writes a file of this number and reads all of those before it, from the servers.
fn write_and_compare(network: &Network, mount: &Path, number: usize) {
    fs::write(mount.join(number.to_string()), pattern(3_000_000 + number * 4099, number)).unwrap();
    network.print(
        "gamma",
        &format!("dd of=mnt/{number} oflag=nocache conv=notrunc,fdatasync count=0 status=none"),
    );
    for n in 0..=number {
        let read = fs::read(mount.join(n.to_string())).unwrap();
        assert!(read == pattern(3_000_000 + n * 4099, n), "file {n}");
    }
}

#[test]
fn files_go_by_ethernet_by_tcp_when_it_is_down_and_by_ethernet_again() {
    let Some(mut network) = network() else { return };
    network.add_ethernet(9000);
    cluster(&mut network, ["--xdp eth1"; 3]);
    let mount = network.path("gamma", "mnt");
    write_and_compare(&network, &mount, 0);
    wait_for(&network, "xdp+noise", 2);
    write_and_compare(&network, &mount, 1);
    // In the middle of a write, as seen from it: what is under way is sent again over TCP.
    let file = mount.join("2");
    let writer = std::thread::spawn(move || fs::write(file, pattern(64 << 20, 9)).unwrap());
    network.set_link("gamma", "eth1", "down");
    writer.join().unwrap();
    wait_for(&network, "tcp+noise", 1);
    assert!(fs::read(mount.join("2")).unwrap() == pattern(64 << 20, 9));
    write_and_compare(&network, &mount, 2);
    network.set_link("gamma", "eth1", "up");
    wait_for(&network, "xdp+noise", 2);
    write_and_compare(&network, &mount, 3);
    network.stop("gamma", "mount");
    network.stop("beta", "serve");
    network.stop("alpha", "serve");
}

#[test]
fn an_interface_that_carries_tcp_too_goes_down_and_comes_back() {
    let Some(mut network) = network() else { return };
    cluster(&mut network, ["--xdp eth0"; 3]);
    let mount = network.path("gamma", "mnt");
    write_and_compare(&network, &mount, 0);
    wait_for(&network, "xdp+noise", 2);
    network.set_link("beta", "eth0", "down");
    let file = mount.join("1");
    let writer = std::thread::spawn(move || fs::write(file, pattern(3_004_099, 1)).unwrap());
    std::thread::sleep(Duration::from_secs(3));
    network.set_link("beta", "eth0", "up");
    writer.join().unwrap();
    wait_for(&network, "xdp+noise", 2);
    write_and_compare(&network, &mount, 2);
}

#[test]
fn a_machine_without_an_interface_that_fits_says_why_and_uses_tcp() {
    let Some(mut network) = network() else { return };
    let said = cluster(&mut network, ["--xdp eth0", "--xdp eth7", "--xdp lo"]);
    let [alpha, beta, gamma] = &said[..] else { panic!() };
    assert!(!alpha.contains("TCP is used"), "{alpha}");
    let told = "--xdp eth7:0: there is no interface eth7";
    assert!(beta.contains(told) && beta.contains("TCP is used instead"), "{beta}");
    assert!(gamma.contains("--xdp lo:0: lo is no Ethernet"), "{gamma}");
    write_and_compare(&network, &network.path("gamma", "mnt"), 0);
    assert!(transports(&network).iter().all(|by| by.starts_with("tcp")));
}
