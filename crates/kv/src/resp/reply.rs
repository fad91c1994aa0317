//! Replies, as versions 2 and 3 of the protocol write them.

use super::Client;
use crate::items::{Content, ItemNo, Items};
use crate::number::Decimal;
use crate::turn::Turn;
use std::ops::Range;

fn header(kind: u8, value: u64, text: &mut Vec<u8>) {
    text.push(kind);
    text.extend_from_slice(Decimal::new(value).text());
    text.extend_from_slice(b"\r\n");
}

/// How nothing is written.
pub fn null(client: &Client) -> &'static [u8] {
    if client.version < 3 { b"$-1\r\n" } else { b"_\r\n" }
}

impl Turn<'_> {
    fn header(&mut self, kind: u8, value: u64) {
        self.out.with(|text| header(kind, value, text));
    }

    /// `OK`.
    pub fn ok(&mut self) {
        self.say(b"+OK\r\n");
    }

    /// A number.
    pub fn integer(&mut self, value: i64) {
        self.say(b":");
        self.out.signed(value);
        self.say(b"\r\n");
    }

    /// A text without line ends.
    pub fn simple(&mut self, text: &str) {
        self.out.text(format!("+{text}\r\n").as_bytes());
    }

    /// An error; the first word is its kind.
    pub fn error(&mut self, text: &str) {
        let text = text.replace(['\r', '\n'], " ");
        self.out.text(format!("-{text}\r\n").as_bytes());
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as u64);
        self.say(bytes);
        self.say(b"\r\n");
    }

    /// Bytes of an argument, which may be long.
    pub fn content(&mut self, content: Content<'_>) {
        self.header(b'$', content.len() as u64);
        match content {
            Content::Bytes(bytes) => self.say(bytes),
            Content::Draft(draft) => {
                draft.finish().pieces().for_each(|piece| self.out.piece(piece));
            }
        }
        self.say(b"\r\n");
    }

    /// A text for people, which version 3 tells from bytes.
    pub fn verbatim(&mut self, text: &str, client: &Client) {
        if client.version < 3 {
            return self.bulk(text.as_bytes());
        }
        self.header(b'=', text.len() as u64 + 4);
        self.say(b"txt:");
        self.say(text.as_bytes());
        self.say(b"\r\n");
    }

    /// Some bytes of an item's value, or all of them; `miss` when they turn out to be lost.
    pub fn value(&mut self, at: ItemNo, range: Range<usize>, miss: &[u8]) {
        let len = range.len() as u64;
        self.give(
            at,
            range,
            (|_: &Items, text: &mut Vec<u8>| header(b'$', len, text), b"\r\n", miss),
        );
    }

    /// Nothing.
    pub fn null(&mut self, client: &Client) {
        self.say(null(client));
    }

    /// So many replies follow.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as u64);
    }

    /// So many pairs follow.
    pub fn map(&mut self, pairs: usize, client: &Client) {
        match client.version {
            3.. => self.header(b'%', pairs as u64),
            _ => self.header(b'*', 2 * pairs as u64),
        }
    }
}
