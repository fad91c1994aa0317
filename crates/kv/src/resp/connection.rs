//! Commands about the connection and the server.

use super::commands::{REDIS_VERSION, shown, wrong_count};
use super::strings::{NO_INTEGER, SYNTAX, upper};
use super::{Args, Client, glob, info, multi};
use crate::number::integer;
use crate::turn::Turn;

/// Longest name that a client may give itself.
const CLIENT_NAME_BYTES_MAX: usize = 256;

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
const HELLO_UNPROVED: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";
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

/// Whether a command may be given before the password.
pub fn is_open(args: &Args<'_>) -> bool {
    matches!(upper(args.text(0)).as_slice(), b"AUTH" | b"HELLO" | b"QUIT" | b"RESET")
}

/// Whether the client comes in by this name and password; without a password here any is right.
fn prove(name: &[u8], given: &[u8], client: &mut Client, turn: &mut Turn<'_>) -> bool {
    let password = turn.items.facts().password.clone();
    let fits = password.is_none_or(|password| is_same(password.as_bytes(), given));
    let right = name == b"default" && fits;
    match right {
        true => client.proved = true,
        false => turn.error("WRONGPASS invalid username-password pair or user is disabled."),
    }
    right
}

/// Compares all of it, so that the time tells nothing of where they differ.
fn is_same(password: &[u8], given: &[u8]) -> bool {
    let pairs = given.iter().enumerate().map(|(at, byte)| byte ^ password[at % password.len()]);
    pairs.fold(u8::from(password.len() != given.len()), |all, different| all | different) == 0
}

pub fn auth(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) {
    let has_password = turn.items.facts().password.is_some();
    let right = match args.len() {
        2 if !has_password => return turn.error(NO_PASSWORD),
        2 => prove(b"default", args.text(1), client, turn),
        3 => prove(args.text(1), args.text(2), client, turn),
        _ => return turn.error(SYNTAX),
    };
    if right {
        turn.ok();
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
    let (mut at, mut name, mut proof) = (2, None, None);
    while at < args.len() {
        let option = args.text(at);
        match (upper(option).as_slice(), args.len() - at - 1) {
            (b"AUTH", 2..) => {
                proof = Some((args.text(at + 1), args.text(at + 2)));
                at += 3;
            }
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
    if let Some((user, password)) = proof
        && !prove(user, password, client, turn)
    {
        return;
    }
    if client.is_stranger(turn) {
        return turn.error(HELLO_UNPROVED);
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
    client.proved = false;
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
    for (section, lines) in info::sections(turn) {
        if wanted(section) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            text += &format!("{gap}# {section}\r\n{lines}");
        }
    }
    turn.verbatim(&text, client);
}
