//! Commands about the connection and the server.

use super::commands::{REDIS_VERSION, shown, wrong_count};
use super::strings::{NO_INTEGER, SYNTAX, upper};
use super::{Args, Client, glob, multi};
use crate::number::integer;
use crate::session::Turn;

/// Longest name that a client may give itself.
const CLIENT_NAME_BYTES_MAX: usize = 256;

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

pub fn ping(mut args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    match args.len() {
        1 => turn.simple("PONG"),
        _ => turn.content(args.take(1)),
    }
}

pub fn echo(mut args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    turn.content(args.take(1));
}

pub fn select(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    match integer(args.text(1)) {
        Some(0) => turn.ok(),
        // A tenant is an address here, not a number.
        Some(_) => turn.error("ERR DB index is out of range"),
        None => turn.error(NO_INTEGER),
    }
}

/// Whether somebody may come in by this name: the usual one has no password, so any is right.
fn is_user(name: &[u8], turn: &mut Turn<'_>) -> bool {
    let known = name == b"default";
    if !known {
        turn.error("WRONGPASS invalid username-password pair or user is disabled.");
    }
    known
}

pub fn auth(args: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    match args.len() {
        2 => turn.error(NO_PASSWORD),
        3 if is_user(args.text(1), turn) => turn.ok(),
        3 => {}
        _ => turn.error(SYNTAX),
    }
}

pub fn hello(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let version = match args.get(1).map(integer) {
        None => client.version,
        Some(Some(version @ 2..=3)) => version as u8,
        Some(Some(_)) => return turn.error("NOPROTO unsupported protocol version"),
        Some(None) => {
            return turn.error("ERR Protocol version is not an integer or out of range");
        }
    };
    let (mut at, mut name) = (2, None);
    while at < args.len() {
        let option = args.text(at);
        match (upper(option).as_slice(), args.len() - at - 1) {
            (b"AUTH", 2..) if is_user(args.text(at + 1), turn) => at += 3,
            (b"AUTH", 2..) => return,
            (b"SETNAME", 1..) if is_name(args.text(at + 1)) => {
                name = Some(args.text(at + 1));
                at += 2;
            }
            (b"SETNAME", 1..) => return turn.error(BAD_NAME),
            _ => {
                let option = String::from_utf8_lossy(option);
                return turn.error(&format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
    }
    client.version = version;
    name.into_iter().for_each(|name| client.name = name.to_vec());
    greet(client, turn);
}

fn greet(client: &Client, turn: &mut Turn<'_>) {
    turn.map(7, client);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        turn.bulk(key.as_bytes());
        turn.bulk(value.as_bytes());
    }
    turn.bulk(b"proto");
    turn.integer(client.version.into());
    turn.bulk(b"id");
    turn.integer(client.number as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        turn.bulk(key.as_bytes());
        turn.bulk(value.as_bytes());
    }
    turn.bulk(b"modules");
    turn.array(0);
}

pub fn reset(_: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    client.version = 2;
    client.name.clear();
    multi::forget(client);
    turn.simple("RESET");
}

fn is_name(name: &[u8]) -> bool {
    name.len() <= CLIENT_NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic)
}

pub fn client(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    match (upper(args.text(1)).as_slice(), args.len()) {
        (b"SETNAME", 3) if is_name(args.text(2)) => {
            client.name = args.text(2).to_vec();
            turn.ok();
        }
        (b"SETNAME", 3) => turn.error(BAD_NAME),
        (b"GETNAME", 2) if client.name.is_empty() => turn.null(client),
        (b"GETNAME", 2) => turn.bulk(&client.name),
        (b"ID", 2) => turn.integer(client.number as i64),
        (b"SETINFO", 4) | (b"NO-EVICT" | b"NO-TOUCH", 3) => turn.ok(),
        (b"INFO" | b"LIST", _) => {
            let (number, name) = (client.number, String::from_utf8_lossy(&client.name));
            turn.verbatim(
                &format!("id={number} name={name} db=0 resp={}\n", client.version),
                client,
            );
        }
        _ => unknown(&args, &["SETNAME", "GETNAME", "ID", "SETINFO", "NO-EVICT"], turn),
    }
}

/// No such subcommand, or not with so many arguments.
fn unknown(args: &Args<'_>, known: &[&str], turn: &mut Turn<'_>) {
    let (name, sub) = (upper(args.text(0)), upper(args.text(1)));
    let (name, sub) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&sub));
    if known.contains(&&*sub) {
        return wrong_count(format!("{name}|{sub}").as_bytes(), turn);
    }
    let given = shown(args.text(1));
    turn.error(&format!("ERR unknown subcommand '{given}'. Try {name} HELP."));
}

pub fn command(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    match upper(args.text(1)).as_slice() {
        // Clients ask for these to complete what a person types; they do without.
        b"" | b"INFO" | b"LIST" => turn.array(0),
        b"DOCS" => turn.map(0, client),
        b"COUNT" => turn.integer(0),
        _ => unknown(&args, &[], turn),
    }
}

pub fn config(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    match (upper(args.text(1)).as_slice(), args.len()) {
        (b"GET", 3..) => settings(&args, client, turn),
        (b"GET", _) => wrong_count(b"config|get", turn),
        (b"RESETSTAT", 2) => {
            turn.items.reset_counters(turn.tenant);
            turn.ok();
        }
        (b"SET", _) => {
            turn.error("ERR CONFIG SET is not supported: settings are flags of trapeze memory")
        }
        _ => unknown(&args, &["RESETSTAT"], turn),
    }
}

fn settings(args: &Args<'_>, client: &Client, turn: &mut Turn<'_>) {
    let most = turn.items.tenant(turn.tenant).max_bytes.min(turn.items.memory_bytes());
    let all = [
        ("appendonly", "no".to_string()),
        ("databases", "1".to_string()),
        ("maxmemory", most.to_string()),
        ("maxmemory-policy", "allkeys-lfu".to_string()),
        ("proto-max-bulk-len", turn.items.value_bytes_max().to_string()),
        ("save", String::new()),
    ];
    let wanted = |name: &str| {
        (2..args.len()).any(|n| glob::fits(&args.text(n).to_ascii_lowercase(), name.as_bytes()))
    };
    let told: Vec<_> = all.iter().filter(|(name, _)| wanted(name)).collect();
    turn.map(told.len(), client);
    for (name, value) in told {
        turn.bulk(name.as_bytes());
        turn.bulk(value.as_bytes());
    }
}

pub fn role(_: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    turn.array(3);
    turn.bulk(b"master");
    turn.integer(0);
    turn.array(0);
}

pub fn time(_: Args<'_>, _: &mut Client, turn: &mut Turn<'_>) {
    let ms = turn.moment.wall_ms;
    turn.array(2);
    turn.bulk((ms / 1000).to_string().as_bytes());
    turn.bulk((ms % 1000 * 1000).to_string().as_bytes());
}

pub fn info(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let wanted = |section: &str| {
        let every = |name: &[u8]| matches!(name, b"ALL" | b"DEFAULT" | b"EVERYTHING");
        let named = |name: &[u8]| name.eq_ignore_ascii_case(section.as_bytes());
        args.len() == 1
            || (1..args.len()).any(|n| every(&upper(args.text(n))) || named(args.text(n)))
    };
    let mut text = String::new();
    for (section, lines) in sections(turn) {
        if wanted(section) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            text += &format!("{gap}# {section}\r\n{lines}");
        }
    }
    turn.verbatim(&text, client);
}

fn sections(turn: &Turn<'_>) -> [(&'static str, String); 6] {
    let (items, bytes) = turn.items.holds(turn.tenant);
    let (facts, counters) = (turn.items.facts(), turn.items.counters(turn.tenant));
    let tenant = turn.items.tenant(turn.tenant);
    let most = tenant.max_bytes.min(turn.items.memory_bytes());
    let uptime = turn.moment.now_ms.saturating_sub(facts.started_ms) / 1000;
    let (process, port) = (facts.process, facts.port);
    let server = format!(
        "redis_version:{REDIS_VERSION}\r\ntrapeze_version:{}\r\nredis_mode:standalone\r\nprocess_id:{process}\r\ntcp_port:{port}\r\nuptime_in_seconds:{uptime}\r\n",
        env!("CARGO_PKG_VERSION"),
    );
    let memory = format!(
        "used_memory:{bytes}\r\nheld_bytes:{}\r\nmaxmemory:{most}\r\nmaxmemory_policy:allkeys-lfu\r\ntenant:{}\r\n",
        turn.items.held_bytes(turn.tenant),
        tenant.name
    );
    let away = turn.items.away_counters(turn.tenant);
    let mut stats = format!(
        "total_connections_received:{}\r\nrejected_connections:{}\r\nkeyspace_hits:{}\r\nkeyspace_misses:{}\r\nevicted_keys:{}\r\nexpired_keys:{}\r\n",
        facts.accepted,
        facts.refused,
        counters.hits,
        counters.misses,
        counters.evicted,
        counters.expired
    );
    if turn.items.can_be_away() {
        let bytes = turn.items.away_bytes(turn.tenant);
        stats += &format!(
            "away_bytes:{bytes}\r\naway_sent:{}\r\naway_asked:{}\r\naway_lost:{}\r\naway_returned:{}\r\naway_dropped:{}\r\n",
            away.sent, away.asked, away.lost, away.returned, away.dropped
        );
    }
    let keyspace = match items {
        0 => String::new(),
        _ => format!("db0:keys={items},expires=0,avg_ttl=0\r\n"),
    };
    let clients = format!("connected_clients:{}\r\n", facts.connections);
    [
        ("Server", server),
        ("Clients", clients),
        ("Memory", memory),
        ("Stats", stats),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".into()),
        ("Keyspace", keyspace),
    ]
}
