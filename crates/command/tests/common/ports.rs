//! Ports for clusters that listen.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The first of `count` free ports of loopback in a row: outside of those that the system gives to programs that ask
/// for any, and no test of this process gets them again.
pub fn free_ports(count: u16) -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Tests run side by side in processes whose numbers follow each other.
    let from = 20_000 + (std::process::id() % 625) as u16 * 16;
    let mut firsts = std::iter::repeat_with(|| from + TRIED.fetch_add(count, Ordering::Relaxed));
    firsts.find(|first| (*first..first + count).all(free)).unwrap()
}
