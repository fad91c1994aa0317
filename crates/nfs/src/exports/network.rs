//! Networks of addresses: an address and a prefix (RFC 4632, RFC 4291 section 2.3).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// Some addresses. IPv4 addresses that come mapped into IPv6 are IPv4's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// All.
    Any,
    /// Clients of an IPv4 network.
    V4(Ipv4Addr, u8),
    /// Clients of an IPv6 network.
    V6(Ipv6Addr, u8),
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// No address.
    #[error(
        "{0:?} is no address: write 192.168.1.0/24, fd00::/8, or * for everybody (names are not looked up)"
    )]
    Address(String),
    /// No prefix.
    #[error("{0:?} is no length of a prefix: write a number up to {1}")]
    Prefix(String, u8),
    /// The address has bits behind the prefix.
    #[error("{0} has bits behind its prefix: write {1}")]
    Bits(String, Network),
}

impl Network {
    /// Bits that decide; of all addresses, none.
    pub fn prefix(self) -> u8 {
        match self {
            Network::Any => 0,
            // an IPv4 prefix and an IPv6 one never fit the same address
            Network::V4(_, bits) | Network::V6(_, bits) => bits,
        }
    }

    /// Whether the address is in it.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self, address.to_canonical()) {
            (Network::Any, _) => true,
            (Network::V4(network, bits), IpAddr::V4(address)) => {
                let mask = mask(bits, 32) as u32;
                network.to_bits() == address.to_bits() & mask
            }
            (Network::V6(network, bits), IpAddr::V6(address)) => {
                network.to_bits() == address.to_bits() & mask(bits, 128)
            }
            _ => false,
        }
    }

    /// The network of an address.
    fn around(address: IpAddr, bits: u8) -> Network {
        match address {
            IpAddr::V4(address) => {
                let mask = mask(bits, 32) as u32;
                Network::V4(Ipv4Addr::from_bits(address.to_bits() & mask), bits)
            }
            IpAddr::V6(address) => {
                Network::V6(Ipv6Addr::from_bits(address.to_bits() & mask(bits, 128)), bits)
            }
        }
    }
}

/// The highest `bits` of the lowest `all` bits.
fn mask(bits: u8, all: u32) -> u128 {
    let ones = u128::MAX >> (128 - all);
    let behind = all - u32::from(bits);
    if behind == 128 { 0 } else { ones >> behind << behind }
}

impl FromStr for Network {
    type Err = BadNetwork;
    fn from_str(text: &str) -> Result<Network, BadNetwork> {
        if text == "*" {
            return Ok(Network::Any);
        }
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let parsed: Result<IpAddr, _> = address.parse();
        let address = parsed.map_err(|_| BadNetwork::Address(address.to_string()))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match prefix {
            None => most,
            Some(prefix) => {
                let bits = prefix.parse().ok().filter(|bits| *bits <= most);
                bits.ok_or(BadNetwork::Prefix(prefix.to_string(), most))?
            }
        };
        let network = Network::around(address, bits);
        match Network::around(address, most) == Network::around(network.first(), most) {
            true => Ok(network),
            false => Err(BadNetwork::Bits(text.to_string(), network)),
        }
    }
}

impl Network {
    fn first(self) -> IpAddr {
        match self {
            Network::Any => Ipv6Addr::UNSPECIFIED.into(),
            Network::V4(address, _) => address.into(),
            Network::V6(address, _) => address.into(),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::Any => f.write_str("*"),
            Network::V4(address, 32) => write!(f, "{address}"),
            Network::V6(address, 128) => write!(f, "{address}"),
            Network::V4(address, bits) => write!(f, "{address}/{bits}"),
            Network::V6(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}
