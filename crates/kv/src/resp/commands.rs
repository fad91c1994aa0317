//! Commands by name, with the numbers of their arguments.

use super::{Args, Client, connection, keys, multi, owner, strings};
use crate::turn::Turn;

/// Longest name of a command.
const NAME_BYTES_MAX: usize = 16;
/// The version of Redis whose commands these are, as far as they are there.
pub const REDIS_VERSION: &str = "7.0.15";
const ANY: usize = usize::MAX;

pub type Run = fn(Args<'_>, &mut Client, &mut Turn<'_>);

/// Least and most arguments of a command, its name among them, and what it does.
fn command(name: &[u8]) -> Option<(usize, usize, Run)> {
    Some(match name {
        b"GET" => (2, 2, strings::get),
        b"SET" => (3, ANY, strings::set),
        b"SETEX" => (4, 4, strings::set_with_seconds),
        b"PSETEX" => (4, 4, strings::set_with_milliseconds),
        b"SETNX" => (3, 3, strings::set_new),
        b"GETSET" => (3, 3, strings::get_set),
        b"GETDEL" => (2, 2, strings::get_and_delete),
        b"GETEX" => (2, ANY, strings::get_and_expire),
        b"MGET" => (2, ANY, owner::get_several),
        b"MSET" => (3, ANY, strings::set_several),
        b"MSETNX" => (3, ANY, strings::set_several_new),
        b"APPEND" => (3, 3, strings::append),
        b"STRLEN" => (2, 2, strings::len),
        b"GETRANGE" | b"SUBSTR" => (4, 4, strings::range),
        b"INCR" => (2, 2, strings::increment),
        b"DECR" => (2, 2, strings::decrement),
        b"INCRBY" => (3, 3, strings::increment_by),
        b"DECRBY" => (3, 3, strings::decrement_by),
        b"DEL" | b"UNLINK" => (2, ANY, keys::delete),
        b"EXISTS" | b"TOUCH" => (2, ANY, keys::exists),
        b"TYPE" => (2, 2, keys::kind),
        b"TTL" => (2, 2, keys::seconds_left),
        b"PTTL" => (2, 2, keys::milliseconds_left),
        b"EXPIRETIME" => (2, 2, keys::end_second),
        b"PEXPIRETIME" => (2, 2, keys::end_millisecond),
        b"EXPIRE" => (3, ANY, keys::expire),
        b"PEXPIRE" => (3, ANY, keys::expire_milliseconds),
        b"EXPIREAT" => (3, ANY, keys::expire_at),
        b"PEXPIREAT" => (3, ANY, keys::expire_at_millisecond),
        b"PERSIST" => (2, 2, keys::persist),
        b"SCAN" => (2, ANY, keys::scan),
        b"KEYS" => (2, 2, keys::keys),
        b"DBSIZE" => (1, 1, keys::count),
        b"FLUSHALL" | b"FLUSHDB" => (1, ANY, keys::flush),
        b"PING" => (1, 2, connection::ping),
        b"ECHO" => (2, 2, connection::echo),
        b"SELECT" => (2, 2, connection::select),
        b"AUTH" => (2, ANY, connection::auth),
        b"HELLO" => (1, ANY, connection::hello),
        b"RESET" => (1, 1, connection::reset),
        b"CLIENT" => (2, ANY, connection::client),
        b"COMMAND" => (1, ANY, connection::command),
        b"CONFIG" => (2, ANY, connection::config),
        b"INFO" => (1, ANY, connection::info),
        b"ROLE" => (1, 1, connection::role),
        b"MULTI" => (1, 1, multi::begin),
        b"DISCARD" => (1, 1, multi::discard),
        b"EXEC" => (1, 1, multi::without),
        b"WATCH" => (2, ANY, multi::watch_inside),
        b"UNWATCH" => (1, 1, multi::unwatch),
        b"TIME" => (1, 1, connection::time),
        _ => return None,
    })
}

/// Whether an argument is long that commands know short only. Values may be long; a key that is has its own error, or
/// is one of several and not there.
fn has_too_long(name: &[u8], args: &Args<'_>) -> bool {
    let first = || (1..args.len()).find(|number| args.is_long(*number));
    match name {
        // these may have a million arguments, and be looked at again and again
        b"MSET" | b"MSETNX" | b"MGET" | b"DEL" | b"UNLINK" | b"EXISTS" | b"TOUCH" => false,
        b"ECHO" | b"PING" => false,
        b"SET" | b"SETNX" | b"GETSET" | b"APPEND" => first().is_some_and(|number| number > 2),
        b"SETEX" | b"PSETEX" => first().is_some_and(|number| number == 2),
        _ => first().is_some_and(|number| number > 1 || !owner::has_one_key(name)),
    }
}

/// The function of a command; `None` when there is none, or its arguments are too few or too many, which is answered.
pub fn find(args: &Args<'_>, turn: &mut Turn<'_>) -> Option<Run> {
    let mut space = [0; NAME_BYTES_MAX];
    let given = args.text(0);
    let fits = given.len() <= NAME_BYTES_MAX;
    let len = if fits { given.len() } else { 0 };
    space[..len].copy_from_slice(&given[..len]);
    space.make_ascii_uppercase();
    match command(&space[..len]) {
        Some((least, most, run)) if (least..=most).contains(&args.len()) => {
            if !has_too_long(&space[..len], args) {
                return Some(run);
            }
            turn.error("ERR an argument is too long");
        }
        Some(_) => wrong_count(given, turn),
        None => unknown(args, turn),
    }
    None
}

/// Executes one command. False when the connection is to be closed.
pub fn execute(args: Args<'_>, client: &mut Client, turn: &mut Turn<'_>) -> bool {
    if args.text(0).eq_ignore_ascii_case(b"QUIT") {
        turn.ok();
        return false;
    }
    if let Some(run) = find(&args, turn) {
        run(args, client, turn);
    }
    true
}

/// The key whose value, as it is here, a command works on.
pub fn joined<'a>(args: &Args<'a>) -> Option<&'a [u8]> {
    args.text(0).eq_ignore_ascii_case(b"APPEND").then(|| args.text(1))
}

/// Whether what the command works on is here; if not, it has been asked for.
pub fn is_ready(args: &Args<'_>, turn: &mut Turn<'_>) -> bool {
    let key = joined(args).filter(|key| turn.elsewhere(key).is_none());
    key.is_none_or(|key| turn.has_value(key))
}

/// The number of arguments is wrong.
pub fn wrong_count(name: &[u8], turn: &mut Turn<'_>) {
    let name = String::from_utf8_lossy(name).to_lowercase();
    turn.error(&format!("ERR wrong number of arguments for '{name}' command"));
}

/// Text of a client's for an error: its beginning.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned()
}

fn unknown(args: &Args<'_>, turn: &mut Turn<'_>) {
    let rest = (1..args.len().min(9)).map(|n| format!("'{}' ", shown(args.text(n))));
    let (name, rest) = (shown(args.text(0)), rest.collect::<String>());
    turn.error(&format!("ERR unknown command '{name}', with args beginning with: {rest}"));
}
