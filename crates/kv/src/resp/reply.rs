//! Replies, as versions 2 and 3 of the protocol write them.

use super::Client;
use crate::items::ItemNo;
use crate::number::Decimal;
use crate::session::Turn;

impl Turn<'_> {
    fn header(&mut self, kind: u8, value: u64) {
        self.out.with(|text| {
            text.push(kind);
            text.extend_from_slice(Decimal::new(value).text());
            text.extend_from_slice(b"\r\n");
        });
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

    /// An item's value.
    pub fn value(&mut self, at: ItemNo) {
        self.header(b'$', self.items.value_len(at) as u64);
        self.items.send_value(at, self.out);
        self.say(b"\r\n");
    }

    /// Nothing.
    pub fn null(&mut self, client: &Client) {
        self.say(if client.version < 3 { b"$-1\r\n" } else { b"_\r\n" });
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
