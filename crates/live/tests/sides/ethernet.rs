//! Ethernets between two sides: one in memory, and a veth of a network of this thread's own.

pub use super::memory_port::MemoryPort;
use super::{Side, until};
use live::xdp::XdpSocket;
use rig::Ethernet;
use rustix::thread::UnshareFlags;
use std::cell::RefCell;
use std::process::Command;
use std::rc::Rc;
use std::sync::LazyLock;

/// Both on one Ethernet in memory.
pub fn in_memory(a: &mut Side, b: &mut Side) -> Rc<RefCell<Ethernet>> {
    let wire = Rc::new(RefCell::new(Ethernet::new(1)));
    a.links.set_ethernet(Box::new(MemoryPort::new(&wire, 1))).unwrap();
    b.links.set_ethernet(Box::new(MemoryPort::new(&wire, 2))).unwrap();
    wire
}

pub fn ip(line: &str) {
    let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {line}: {error}");
}

/// Whether this process may make interfaces and AF_XDP sockets; said once where it may not.
pub fn has_xdp() -> bool {
    static HAS: LazyLock<Result<(), String>> = LazyLock::new(|| {
        if !rustix::process::geteuid().is_root() {
            return Err("AF_XDP needs root".into());
        }
        if rig::lacks("ip") {
            return Err("ip is not installed".into());
        }
        let tried = std::thread::spawn(|| {
            veth();
            XdpSocket::open(&"tza".parse().unwrap()).map(drop).map_err(|error| error.to_string())
        });
        tried.join().map_err(|_| "no network namespace or veth".to_string())?
    });
    if let Err(why) = &*HAS {
        rig::skip(why);
    }
    HAS.is_ok()
}

/// Gives this thread a network of its own with a veth, `tza` to `tzb`. It goes with the thread and its sockets.
pub fn veth() {
    // SAFETY: only the network namespace of this thread changes, no memory and no descriptor.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
    ip("link set lo up");
    ip("link add tza mtu 9000 type veth peer name tzb mtu 9000");
    ip("link set tza up");
    ip("link set tzb up");
}

/// Both at the ends of a new veth.
pub fn over_veth(a: &mut Side, b: &mut Side) {
    veth();
    for (side, name) in [(a, "tza"), (b, "tzb")] {
        let socket = XdpSocket::open(&name.parse().unwrap()).unwrap();
        side.links.set_ethernet(Box::new(socket)).unwrap();
    }
}

/// Connects them and waits until frames pass both ways.
pub fn connect(a: &mut Side, b: &mut Side) {
    a.post_request(2, b"begin");
    until(a, b, |_, b| b.take().is_some());
    until(a, b, |a, b| a.logged("frames reach") && b.logged("frames reach"));
    until(a, b, |a, _| a.frames.free_pages() == super::POOL_PAGES);
}
