//! The console blocks of the pages on network memory, typed on machines of their own: what they print is what the pages
//! show.
//!
//! A line that begins with `$ ` is typed, with the lines that its backslashes take in; the others are what it prints.
//! `trapeze memory` and `trapeze up` go on until the test stops them.

use crate::network::{MISSING, Network};
use rig::{lacks, skip};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

const PAGES: &str = concat!(
    include_str!("../../../docs/src/keys.md"),
    include_str!("../../../docs/src/memory.md"),
    include_str!("../../../docs/src/regions.md")
);
const MACHINES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// The network, or a word why there is none.
fn network() -> Option<Network> {
    if lacks("ip") || lacks("nc") || lacks("redis-cli") {
        return None;
    }
    if let Some(why) = &*MISSING {
        skip(why);
        return None;
    }
    Some(Network::new(&MACHINES))
}

/// A command of the page, and what it prints there.
struct Typed {
    command: String,
    prints: String,
}

/// The commands of the block that has these words.
fn block(words: &str) -> Vec<Typed> {
    let blocks = PAGES.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut found = blocks.filter(|block| block.contains(words));
    let text = found.next().unwrap_or_else(|| panic!("no block with {words:?}"));
    assert!(found.next().is_none(), "two blocks with {words:?}");
    let text = text.replace("\\\n", "");
    let commands = text.split("$ ").skip(1).map(|part| part.split_once('\n').unwrap());
    commands
        .map(|(command, prints)| Typed { command: command.into(), prints: prints.into() })
        .collect()
}

/// Types a block on a machine.
fn follow(network: &mut Network, machine: &str, block: Vec<Typed>) {
    for Typed { command, prints } in block {
        let home = network.path(machine, "");
        let home = home.to_str().unwrap().trim_end_matches('/');
        let expected = prints.replace("/home/you", home);
        let goes_on = ["trapeze memory", "trapeze up"].iter().any(|it| command.starts_with(it));
        let printed = match goes_on {
            true => network.start(machine, &command),
            // redis-cli prints as to a terminal
            false => network.print(machine, &format!("export FAKETTY=1 LC_ALL=C; {command}")),
        };
        assert_eq!(printed.replace('\r', ""), expected, "{machine}: {command}");
    }
}

/// A block that is new on the page is to be typed too.
#[test]
fn every_block_is_typed() {
    let here = include_str!("memory_page.rs");
    let blocks = PAGES.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut count = 0;
    for text in blocks {
        let words = here.split("block(\"").skip(1).filter_map(|rest| rest.split_once('"'));
        let typed = words.filter(|(words, _)| text.contains(words)).count();
        assert!(typed > 0, "no test types\n{text}");
        count += 1;
    }
    assert!(count > 5, "{count} blocks");
}

#[test]
fn keys_and_values_on_one_machine() {
    let Some(mut network) = network() else { return };
    follow(&mut network, "alpha", block("256M of memory"));
    follow(&mut network, "alpha", block("set greeting"));
    network.stop("alpha", "trapeze memory");
    follow(&mut network, "alpha", block("--tenant web:min=256M"));
    let set = |port, key| {
        format!("printf 'set {key} 0 0 1\\r\\n1\\r\\nquit\\r\\n' | nc 127.0.0.1 {port}")
    };
    let get = |port, key| format!("printf 'get {key}\\r\\nquit\\r\\n' | nc 127.0.0.1 {port}");
    assert_eq!(network.print("alpha", &set(11211, "key")), "STORED\r\n");
    assert_eq!(network.print("alpha", &get(11211, "key")), "VALUE key 0 1\r\n1\r\nEND\r\n");
    assert_eq!(network.print("alpha", &get(11212, "key")), "END\r\n", "a tenant of its own");
    network.stop("alpha", "trapeze memory");
}

/// The sizes are those of small machines.
#[test]
fn keys_and_values_on_three_machines() {
    let Some(mut network) = network() else { return };
    network.print("alpha", "trapeze init --listen 10.0.0.1:7400");
    network.start("alpha", "trapeze serve --config trapeze-machine/machine.toml");
    let key = fs::read(network.path("alpha", "trapeze-machine/key")).unwrap();
    for (number, machine) in (11..).zip(&MACHINES[1..]) {
        network.print(machine, &format!("ip addr add 10.0.0.{number}/24 dev eth0"));
        let copy = network.path(machine, "cluster.key");
        fs::write(&copy, &key).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o600)).unwrap();
        let address = format!("10.0.0.{number}");
        let here = [("10.0.0.11", address.as_str()), ("4G", "32M"), ("2G", "32M"), ("16G", "64M")];
        let mut block = block("--lend 2G");
        for Typed { command, prints } in &mut block {
            for (on_the_page, here) in here {
                assert!(command.contains(on_the_page), "{command}");
                *command = command.replace(on_the_page, here);
                *prints = prints.replace(on_the_page, here);
            }
        }
        follow(&mut network, machine, block);
    }
    let values = 30;
    for number in 0..values {
        let machine = MACHINES[1 + number % 3];
        let set = format!("set key{number} value{number}");
        assert_eq!(network.print(machine, &format!("redis-cli {set}")), "OK\n");
    }
    for machine in &MACHINES[1..] {
        let gets: String = (0..values).map(|number| format!("get key{number}\\n")).collect();
        let got = network.print(machine, &format!("printf '{gets}' | redis-cli"));
        let expected: String = (0..values).map(|number| format!("value{number}\n")).collect();
        assert_eq!(got, expected, "{machine}: one key space");
    }
}

#[test]
fn lending_and_programs_that_know_nothing_of_it() {
    let Some(mut network) = network() else { return };
    follow(&mut network, "alpha", block("trapeze up"));
    let status = network.print("alpha", "trapeze status --all --cluster data");
    let lent = status.split("\n\n").find(|table| table.starts_with("lent by")).unwrap();
    let lent = lent.lines().skip(2).map(|row| row.split_whitespace().nth(1).unwrap());
    assert_eq!(lent.collect::<Vec<_>>(), ["64M"; 4], "three servers and the mount: {status}");
    let columns = |text: &str| {
        let head = text.lines().find(|line| line.starts_with("lent by")).map(str::split_whitespace);
        head.unwrap_or_else(|| panic!("no such table: {text}"))
            .map(String::from)
            .collect::<Vec<_>>()
    };
    let top = network.print("alpha", "trapeze top --cluster data --count 1");
    assert_eq!(columns(&top), columns(PAGES));
    let lines: String = (0..60_000u64).map(|n| format!("{:016x}\n", wire::mix(n))).collect();
    fs::write(network.path("alpha", "big.txt"), &lines).unwrap();
    let mut sorted: Vec<&str> = lines.lines().collect();
    sorted.sort_unstable();
    let sorted = sorted.join("\n") + "\n";
    for run in [block("4G -- sort"), block("--cluster data -- sort")] {
        let [typed] = &run[..] else { panic!("one command") };
        let said = network.run("alpha", &format!("export LC_ALL=C; {}", typed.command));
        let error = String::from_utf8_lossy(&said.stderr);
        if error.contains("userfaultfd is not allowed") {
            return skip(error);
        }
        assert!(said.status.success(), "{}: {error}", typed.command);
        let file = network.path("alpha", "sorted.txt");
        assert!(fs::read_to_string(&file).unwrap() == sorted, "{}", typed.command);
        fs::remove_file(file).unwrap();
    }
    network.stop("alpha", "trapeze up");
}
