//! Many commands, and commands about many keys, of one connection to front ends that are one key space: all are
//! answered, in order, and what waits is bounded.

use crate::front::*;
use kv::Protocol;
use kv::limits::{ANSWER_BYTES, OUTPUT_BYTES_MAX};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn world() -> World {
    World::new(Plan { nodes: 4, fronts: 3, shared: true, ..Plan::default() })
}

#[test]
fn a_connection_has_a_bounded_number_of_commands_at_other_nodes() {
    let mut world = world();
    let client = world.client(1, Protocol::Memcached);
    world.send(client, "get some-key other-key\r\n".repeat(2000).as_bytes());
    assert!(world.fronts[0].items.borrow().carries() <= 130);
    assert_eq!(world.ask(client, b""), "END\r\n".repeat(2000).as_bytes());
}

/// However many keys it names, and though a view changes in the middle of it.
#[test]
fn a_command_has_a_bounded_number_of_keys_at_other_nodes() {
    let mut world = world();
    let client = world.client(1, Protocol::Resp);
    for key in 0..100 {
        let value = key.to_string().repeat(500);
        assert_eq!(world.ask(client, format!("SET k{key} {value}\r\n").as_bytes()), b"+OK\r\n");
    }
    let value = |key: u64| (key % 100).to_string().repeat(500);
    let line: String = (0..4000).map(|key| format!(" k{}", key % 100)).collect();
    let line = format!("MGET{line}\r\nPING\r\n");
    let there = |key| format!("${}\r\n{}\r\n", value(key).len(), value(key));
    let expected: String = (0..4000).map(there).collect();
    let answer = String::from_utf8(world.ask(client, line.as_bytes())).unwrap();
    assert!(answer == format!("*4000\r\n{expected}+PONG\r\n"), "{}", &answer[..999]);
    let most = world.clients[client].most;
    assert!(most < OUTPUT_BYTES_MAX + ANSWER_BYTES, "{most} bytes waited");
    world.send(client, line.as_bytes());
    (0..3).for_each(|_| world.turn());
    assert!(!world.clients[client].is_idle());
    world.kill(3);
    world.next_view();
    let answer = String::from_utf8(world.ask(client, b"")).unwrap();
    let mut rest = answer.strip_prefix("*4000\r\n").unwrap();
    for key in 0..4000 {
        let next = rest.strip_prefix(&there(key)).or_else(|| rest.strip_prefix("$-1\r\n"));
        rest = next.unwrap_or_else(|| panic!("at key {key}: {}", &rest[..rest.len().min(99)]));
    }
    assert_eq!(rest, "+PONG\r\n");
}

/// A client's request: keys, and for a value its length.
#[derive(Clone, Debug)]
enum Say {
    Set(u8, usize),
    Del(u8),
    Get(u8),
    /// So many keys from this one on.
    GetSeveral(u8, usize),
}

fn say() -> impl Strategy<Value = Say> {
    let key = || 0..40u8;
    let len = prop_oneof![0..100usize, 1000..3000usize, 9000..20_000usize];
    let count = prop_oneof![1..20usize, 200..600usize];
    prop_oneof![
        4 => (key(), len).prop_map(|(key, len)| Say::Set(key, len)),
        1 => key().prop_map(Say::Del),
        3 => key().prop_map(Say::Get),
        2 => (key(), count).prop_map(|(key, count)| Say::GetSeveral(key, count)),
    ]
}

fn bulk(value: Option<&Vec<u8>>) -> Vec<u8> {
    match value {
        Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
        None => b"$-1\r\n".to_vec(),
    }
}

/// A command, and its answer by what was said before.
fn said(say: &Say, number: usize, kept: &mut BTreeMap<u8, Vec<u8>>) -> (Vec<u8>, Vec<u8>) {
    let word = |word: &[u8]| bulk(Some(&word.to_vec()));
    let command =
        |words: &[Vec<u8>]| [format!("*{}\r\n", words.len()).into_bytes(), words.concat()].concat();
    let name = |key: u8| word(format!("key-{key}").as_bytes());
    match *say {
        Say::Set(key, len) => {
            let value: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(len).collect();
            let words = [word(b"SET"), name(key), word(&value)];
            kept.insert(key, value);
            (command(&words), b"+OK\r\n".to_vec())
        }
        Say::Del(key) => {
            let was = usize::from(kept.remove(&key).is_some());
            (command(&[word(b"DEL"), name(key)]), format!(":{was}\r\n").into_bytes())
        }
        Say::Get(key) => (command(&[word(b"GET"), name(key)]), bulk(kept.get(&key))),
        Say::GetSeveral(first, count) => {
            let keys: Vec<u8> = (0..count).map(|n| (first as usize + n) as u8 % 50).collect();
            let words: Vec<Vec<u8>> =
                std::iter::once(word(b"MGET")).chain(keys.iter().map(|key| name(*key))).collect();
            let answers = keys.iter().map(|key| bulk(kept.get(key)));
            let head = format!("*{count}\r\n").into_bytes();
            (command(&words), std::iter::once(head).chain(answers).flatten().collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// In whatever pieces commands come, and though the client does not read for a while.
    #[test]
    fn a_pipeline_is_answered_in_order(
        says in proptest::collection::vec(say(), 1..40),
        pieces in proptest::collection::vec((1..9000usize, 0..4u8, any::<bool>()), 1..30),
    ) {
        let (mut world, mut kept) = (world(), BTreeMap::new());
        let client = world.client(2, Protocol::Resp);
        let all = says.iter().enumerate().map(|(number, say)| said(say, number, &mut kept));
        let (commands, answers): (Vec<_>, Vec<_>) = all.unzip();
        let mut left = &commands.concat()[..];
        for (bytes, turns, deaf) in pieces.into_iter().cycle() {
            let (piece, rest) = left.split_at(bytes.min(left.len()));
            world.clients[client].deaf = deaf;
            world.send(client, piece);
            (0..turns).for_each(|_| world.turn());
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        world.clients[client].deaf = false;
        let answer = world.ask(client, b"");
        prop_assert!(answer == answers.concat(), "{} bytes of {}", answer.len(), answers.concat().len());
    }
}
