//! `docs/src/cluster.md`, followed literally on machines of our own, and what the page promises besides.
//!
//! A block of the page begins with `# on MACHINE`; its other lines that begin with `# ` are what the line before
//! prints; a line that ends with ` &` goes on; TOKEN stands for what `init` printed.

use crate::network::{MISSING, Network, until};
use rig::{lacks, skip};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

const PAGE: &str = include_str!("../../../docs/src/cluster.md");
const MACHINES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// A lease and its end, with room for a machine that is busy.
const LEASE_SPAN: Duration = Duration::from_secs(25);

/// The network, or a word why there is none.
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

/// A cluster that follows the page.
struct Reader {
    network: Network,
    token: String,
    insecure: bool,
}

/// The blocks of the sections with these numbers: machine and lines.
fn blocks(sections: &[u32]) -> Vec<(&'static str, Vec<&'static str>)> {
    let wanted = |text: &&str| sections.iter().any(|n| text.starts_with(&format!("{n}. ")));
    let texts = PAGE.split("\n## ").filter(wanted);
    let blocks = texts.flat_map(|text| text.split("```sh\n").skip(1));
    let block = blocks.map(|rest| rest.split("```").next().expect("a block ends"));
    block
        .map(|text| {
            let mut lines = text.lines();
            let first = lines.next().and_then(|line| line.strip_prefix("# on "));
            (first.expect("a block begins with its machine"), lines.collect())
        })
        .collect()
}

impl Reader {
    fn new(network: Network, insecure: bool) -> Reader {
        Reader { network, token: String::new(), insecure }
    }

    fn follow(&mut self, sections: &[u32]) {
        let blocks = blocks(sections);
        assert!(!blocks.is_empty(), "the page has sections {sections:?}");
        for (machine, lines) in blocks {
            let mut printed = String::new();
            for line in lines {
                match line.strip_prefix("# ") {
                    Some(expected) => assert_eq!(printed.trim(), expected, "{machine}: {line}"),
                    None => printed = self.type_in(machine, line),
                }
            }
        }
    }

    fn type_in(&mut self, machine: &str, line: &str) -> String {
        let mut line = line.replace("TOKEN", &self.token);
        if self.insecure && line.starts_with("trapeze init") {
            line.push_str(" --insecure");
        }
        if let Some(command) = line.strip_suffix(" &") {
            self.network.start(machine, command);
            return String::new();
        }
        let printed = self.network.print(machine, &line);
        let token = printed.split_whitespace().find(|word| word.starts_with("trapeze1:"));
        self.token = token.map_or(std::mem::take(&mut self.token), str::to_string);
        printed
    }

    /// The output of `status` on alpha, also when not all is well.
    fn status_lines(&self) -> String {
        let command = "trapeze status --json --cluster trapeze-machine || true";
        self.network.print("alpha", command)
    }

    /// One machine as `status` on alpha shows it.
    fn status(&self, name: &str) -> Option<serde_json::Value> {
        let text = self.status_lines();
        let rows = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        rows.into_iter().find(|row: &serde_json::Value| row["name"] == name)
    }

    fn clients(&self) -> usize {
        self.status_lines().lines().filter(|line| line.contains("\"name\":\"mount-")).count()
    }
}

/// Close-to-open between two mounts.
fn litmus(here: &Path, there: &Path) {
    for round in 0..20 {
        let text = format!("{round} ").repeat(round * 997 + 1);
        fs::write(here.join("litmus"), &text).unwrap();
        assert!(fs::read_to_string(there.join("litmus")).unwrap() == text, "round {round}");
        assert_eq!(fs::metadata(there.join("litmus")).unwrap().len(), text.len() as u64);
        fs::write(there.join("litmus"), "back").unwrap();
        assert_eq!(fs::read_to_string(here.join("litmus")).unwrap(), "back");
        fs::remove_file(here.join("litmus")).unwrap();
        // An open asks; the attributes that a stat shows may be a second old.
        assert!(File::open(there.join("litmus")).is_err(), "round {round}: it was removed");
    }
}

/// Two that append in turns lose nothing.
fn append_in_turns(here: &Path, there: &Path) {
    for round in 0..50 {
        for (name, folder) in [("here", here), ("there", there)] {
            let file = OpenOptions::new().append(true).create(true).open(folder.join("turns"));
            writeln!(file.unwrap(), "{name} {round}").unwrap();
        }
    }
    let text = fs::read_to_string(here.join("turns")).unwrap();
    let expected: String = (0..50).map(|round| format!("here {round}\nthere {round}\n")).collect();
    assert!(text == expected, "{text}");
}

/// A reader of an open file goes on reading it when another machine renames a new one over it.
fn rename_over_open(here: &Path, there: &Path) {
    fs::write(here.join("name"), "old ".repeat(100_000)).unwrap();
    let mut open = File::open(there.join("name")).unwrap();
    let mut first = [0; 4];
    open.read_exact(&mut first).unwrap();
    fs::write(here.join("fresh"), "new").unwrap();
    fs::rename(here.join("fresh"), here.join("name")).unwrap();
    let mut rest = String::new();
    open.read_to_string(&mut rest).unwrap();
    assert!(rest == "old ".repeat(99_999), "{} bytes", rest.len());
    // A mount that has the old file open may look a name up as of a second ago.
    let new = || fs::read(there.join("name")).unwrap() == b"new";
    assert!(until(Duration::from_secs(5), new), "the name still leads to the old file");
}

fn objects_of(network: &Network, machine: &str) -> usize {
    let count = "find trapeze-machine/disk0/objects -type f | wc -l";
    network.print(machine, count).trim().parse().unwrap()
}

#[test]
fn the_page_is_true() {
    let Some(network) = network() else { return };
    let mut reader = Reader::new(network, false);
    reader.follow(&[1, 2, 3]);
    let folders = ["beta", "gamma"].map(|name| reader.network.path(name, "shared"));
    let [beta, gamma] = &folders;
    litmus(beta, gamma);
    append_in_turns(beta, gamma);
    rename_over_open(beta, gamma);
    let links = reader.status("beta").unwrap()["report"]["links"].clone();
    let encrypted = |link: &serde_json::Value| link["transport"] == "tcp+noise";
    assert!(links.as_array().unwrap().iter().all(encrypted), "{links}");

    reader.follow(&[4]);
    let stat = "trapeze stat --json --cluster trapeze-machine /wide";
    let stat: serde_json::Value =
        serde_json::from_str(&reader.network.print("beta", stat)).unwrap();
    let columns = stat["layout"]["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 4, "{stat}");
    assert_eq!(
        columns.iter().map(|column| column["length"].as_u64().unwrap()).sum::<u64>(),
        4 << 20
    );
    let fsynced = File::open(beta.join("wide")).unwrap().sync_all();
    fsynced.unwrap();
    assert!(
        until(LEASE_SPAN, || objects_of(&reader.network, "delta") > 0),
        "delta's disk directory stays empty"
    );

    assert_eq!(reader.clients(), 2);
    let mut open = File::create(gamma.join("unfinished")).unwrap();
    open.write_all(b"what arrived").unwrap();
    open.sync_all().unwrap();
    reader.network.crash("gamma", "mount");
    drop(open);
    assert!(until(LEASE_SPAN, || reader.clients() == 1), "the lease of a dead mount does not end");
    assert_eq!(fs::read_to_string(beta.join("unfinished")).unwrap(), "what arrived");
    fs::remove_file(beta.join("unfinished")).unwrap();
}

#[test]
fn without_encryption_it_is_the_same() {
    let Some(network) = network() else { return };
    let mut reader = Reader::new(network, true);
    reader.follow(&[1, 2, 3]);
    let links = reader.status("beta").unwrap()["report"]["links"].clone();
    assert!(links.as_array().unwrap().iter().all(|link| link["transport"] == "tcp"), "{links}");
    let text = reader.network.complaint("alpha", "trapeze df --cluster tcp:10.0.0.1:7400");
    assert!(text.contains("--key FILE") && text.contains("--insecure"), "{text}");
    reader.network.print("gamma", "trapeze df --cluster tcp:10.0.0.1:7400 --insecure");
}

#[test]
fn machines_come_and_go_in_any_order() {
    let Some(network) = network() else { return };
    let mut reader = Reader::new(network, false);
    reader.follow(&[1, 2, 3]);
    let shared = reader.network.path("beta", "shared");
    let mut pen = reader.network.pen("beta", "shared/open");
    pen.begin('a');
    pen.end();
    let serve = "trapeze serve --config trapeze-machine/machine.toml";
    // alpha dies twice here. Bytes that a close left in memory, and a mount could not retransmit in between, would be
    // refused then when the other mount's bytes of the same file were committed meanwhile (`stripe::order`).
    for machine in ["beta", "gamma"] {
        reader.network.print(machine, "sync shared/log");
    }

    // the manager alone
    reader.network.crash("alpha", "serve");
    pen.begin('b');
    reader.network.start("alpha", serve);
    pen.end();
    assert_eq!(fs::read_to_string(shared.join("letter")).unwrap(), "hello from beta\n");

    // an I/O server alone: what does not need it goes on
    reader.network.crash("gamma", "serve");
    let df = reader.network.print("beta", "trapeze df --cluster trapeze-machine");
    assert!(df.contains("without gamma"), "{df}");
    let down = || reader.status("gamma").is_some_and(|row| row["alive"] == false);
    assert!(until(LEASE_SPAN, down), "gamma is not DOWN");
    assert!(reader.status("gamma").unwrap()["down_ms"].as_u64().is_some());
    let table = reader.network.print("alpha", "trapeze status --cluster trapeze-machine || true");
    assert!(
        table.contains("NOT WELL: gamma is DOWN")
            && table.contains("ago")
            && table.contains("one copy"),
        "{table}"
    );

    // all, in another order, without a good-bye
    reader.network.crash("alpha", "serve");
    reader.network.crash("beta", "serve");
    pen.begin('c');
    for machine in ["gamma", "beta", "alpha"] {
        reader.network.start(machine, serve);
    }
    pen.end();
    drop(pen);
    let letters = b"abc".iter();
    let expected: Vec<u8> = letters.flat_map(|byte| std::iter::repeat_n(*byte, 300_000)).collect();
    let there = reader.network.path("gamma", "shared/open");
    assert!(fs::read(there).unwrap() == expected, "the other mount reads something else");

    // and with one
    for (machine, word) in [("gamma", "mount"), ("beta", "mount")] {
        reader.network.stop(machine, word);
    }
    for machine in ["alpha", "gamma", "beta"] {
        reader.network.stop(machine, "serve");
    }
    for machine in ["beta", "gamma", "alpha"] {
        reader.network.start(machine, serve);
    }
    let sum = "trapeze cat --cluster trapeze-machine /open | cksum";
    let expected_sum = format!("{} | cksum", "cat expected");
    fs::write(reader.network.path("beta", "expected"), &expected).unwrap();
    assert_eq!(reader.network.print("beta", sum), reader.network.print("beta", &expected_sum));
}

#[test]
fn what_goes_wrong_is_said() {
    let Some(network) = network() else { return };
    let mut reader = Reader::new(network, false);
    reader.follow(&[1]);
    let key = fs::read_to_string(reader.network.path("alpha", "trapeze-machine/key")).unwrap();
    let Reader { network, token, .. } = &reader;
    let join =
        |token: &str, rest: &str| format!("trapeze join {token} --listen 10.0.0.2:7400 {rest}");
    let check = |script: &str, parts: &[&str]| {
        let text = network.complaint("beta", script);
        for part in parts {
            assert!(text.contains(part), "{script}\nsays {text}\nwithout {part:?}");
        }
    };
    let client = |rest: &str| format!("trapeze df --cluster {rest}");

    check(&join(&token[..token.len() - 3], ""), &["damaged", "trapeze init"]);
    check(&join("nonsense", ""), &["no token", "trapeze init"]);
    check("echo nonsense | trapeze join - --listen 10.0.0.2:7400", &["no token", "trapeze init"]);
    check("trapeze join --token-file nowhere --listen 10.0.0.2:7400", &["nowhere", "No such file"]);
    for (address, why) in [
        ("0.0.0.0:7400", "every address"),
        ("[::]:7400", "every address"),
        ("10.0.0.2:0", "port 0"),
    ] {
        let asks = [
            format!("echo {token} | trapeze join - --listen {address}"),
            format!("trapeze init --dir refused --listen {address}"),
            format!("trapeze up --dir refused --listen {address}"),
        ];
        for ask in asks {
            check(&ask, &[address, why, "HOST:PORT"]);
        }
        assert!(!network.path("beta", "refused/machine.toml").exists());
    }
    let other = key.trim().chars().rev().collect::<String>();
    fs::write(network.path("beta", "other-key"), other + "\n").unwrap();
    fs::write(network.path("beta", "key"), &key).unwrap();
    let place = "tcp:10.0.0.1:7400";
    check(&client(&format!("{place} --key other-key")), &["10.0.0.1:7400", "key does not fit"]);
    check(&client(&format!("{place} --insecure")), &["10.0.0.1:7400", "--insecure"]);
    check(&client(place), &["--key FILE"]);
    check(&client("tcp:10.0.0.1:7999 --key key"), &["10.0.0.1:7999", "refused", "trapeze serve"]);
    check(&client("tcp:10.0.0.99:7400 --key key"), &["10.0.0.99:7400", "firewall"]);
    check(&client("nowhere"), &["nowhere", "neither"]);
    check("trapeze mount tcp:10.0.0.1:7400 missing --key key", &["missing"]);
    check("mkdir -p m; trapeze mount tcp:10.0.0.1:7400 m --key other-key", &["key does not fit"]);

    // another cluster at the address that the token names
    network.print("beta", "trapeze init --listen 10.0.0.2:7400 --dir foreign --name foreign");
    let machine = network.path("beta", "foreign/machine.toml");
    let text = fs::read_to_string(&machine).unwrap();
    let mut table: toml::Table = toml::from_str(&text).unwrap();
    table["manager"]["addresses"] = toml::Value::Array(vec![place.into()]);
    fs::write(&machine, toml::to_string(&table).unwrap()).unwrap();
    fs::write(network.path("beta", "foreign/key"), &key).unwrap();
    check(&client("foreign"), &["another cluster"]);

    fs::write(network.path("beta", "token"), format!("{token}\n")).unwrap();
    network.print(
        "beta",
        "trapeze join --token-file token --listen 10.0.0.2:7400 --name twin --dir one",
    );
    check(&join(token, "--name twin --dir two"), &["twin", "--name", "machine.toml"]);
    assert!(!network.path("beta", "two").exists(), "a refusal leaves nothing behind");
    check(&join(token, "--name third --dir one"), &["holds a machine already", "--dir"]);
    let row = reader.status("twin").unwrap();
    assert_eq!(row["alive"], false, "a machine that was never started is not up: {row}");
}
