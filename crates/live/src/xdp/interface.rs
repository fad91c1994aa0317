//! What the kernel says about an interface.

use super::XdpError;
use nic::ether::Address;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// An Ethernet interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The kernel's number.
    pub index: u32,
    /// Its address.
    pub address: Address,
    /// Longest packet, without Ethernet's header.
    pub mtu: usize,
    /// The name of its driver; empty where it tells none.
    pub driver: String,
}

/// ethtool(8)'s question for a driver, `ETHTOOL_GDRVINFO`, and the size of `struct ethtool_drvinfo`.
const DRIVER_QUESTION: u32 = 3;
const DRIVER_ANSWER_BYTES: usize = 196;
/// Where the driver's name is in it, and how long.
const DRIVER_NAME: std::ops::Range<usize> = 4..36;

impl Interface {
    /// The one of this name, in this process's network namespace.
    pub fn find(name: &str) -> Result<Interface, XdpError> {
        let none = || XdpError::NoInterface(name.to_string());
        let text = CString::new(name).map_err(|_| none())?;
        // SAFETY: the call reads the string up to its zero.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        if index == 0 {
            return Err(none());
        }
        let family = rustix::net::AddressFamily::INET;
        let socket = rustix::net::socket(family, rustix::net::SocketType::DGRAM, None)
            .map_err(|error| XdpError::System("a socket", error.into()))?;
        let failed = |error| XdpError::System("asking for the interface", error);
        let hardware = ask(&socket, name, libc::SIOCGIFHWADDR).map_err(failed)?;
        // SAFETY: this question is answered in this field; every bit pattern is a value of it.
        let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr };
        if hardware.sa_family != libc::ARPHRD_ETHER {
            return Err(XdpError::NotEthernet(name.to_string()));
        }
        let mut address = Address::default();
        let digits = address.iter_mut().zip(hardware.sa_data);
        digits.for_each(|(byte, digit)| *byte = digit as u8);
        let mtu = ask(&socket, name, libc::SIOCGIFMTU).map_err(failed)?;
        // SAFETY: as above.
        let mtu = unsafe { mtu.ifr_ifru.ifru_mtu }.max(0) as usize;
        let driver = driver(&socket, name).unwrap_or_default();
        Ok(Interface { index, address, mtu, driver })
    }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: a struct of numbers and pointers, for all of which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let into = request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1);
    into.zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    request
}

fn ask(socket: &OwnedFd, name: &str, what: libc::c_ulong) -> io::Result<libc::ifreq> {
    let mut request = request(name);
    // SAFETY: these questions read the name in the request and write their answer into it.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), what as libc::Ioctl, &raw mut request) };
    if asked < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
}

fn driver(socket: &OwnedFd, name: &str) -> Option<String> {
    let mut answer = [0u8; DRIVER_ANSWER_BYTES];
    answer[..4].copy_from_slice(&DRIVER_QUESTION.to_ne_bytes());
    let mut request = request(name);
    request.ifr_ifru.ifru_data = answer.as_mut_ptr().cast();
    // SAFETY: the question reads the name and writes as many bytes as its struct has to where the request points, which
    // is that long.
    let asked = unsafe {
        let question = libc::SIOCETHTOOL as libc::Ioctl;
        libc::ioctl(socket.as_raw_fd(), question, &raw mut request)
    };
    let driver = answer[DRIVER_NAME].split(|byte| *byte == 0).next()?;
    (asked >= 0).then(|| String::from_utf8_lossy(driver).into_owned())
}
