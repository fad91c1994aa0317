//! Rights of clients to mount, and mapping of users.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nfs::exports::*;
use nfs::mount;
use nfs::rpc::{Credential, Groups, System};
use node::rings::{Caller, Rights};
use proptest::prelude::*;

const TEXT: &str = "\
# the office
/home   192.168.1.0/24(rw) 10.0.0.0/8(ro,all_squash,anonuid=1000,anongid=1001)
/       192.168.1.7(rw,no_root_squash) *   # the rest reads
\"/with space/\"  fd00::/8(rw)
";

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn system(uid: u32, gid: u32, groups: &[u32]) -> Credential<'static> {
    let groups = Groups::of(groups.iter().copied());
    Credential::System(System { uid, gid, groups, ..System::default() })
}

fn wrong(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_path_is_in_the_longest_export_that_is_for_the_client() {
    let exports = parse(TEXT).unwrap();
    let found = |path: &str, client: &str| {
        let found = exports.find(path.as_bytes(), address(client));
        found.map(|found| {
            let rest = String::from_utf8(found.rest.to_vec()).unwrap();
            (found.export.path.clone(), rest, found.options.access)
        })
    };
    let is = |path: &str, rest: &str, access| Ok((path.to_string(), rest.to_string(), access));
    assert_eq!(found("/home", "192.168.1.9"), is("/home", "", Access::ReadWrite));
    assert_eq!(found("/home/ann", "10.9.9.9"), is("/home", "ann", Access::ReadOnly));
    assert_eq!(found("/home", "172.16.0.1"), is("/", "home", Access::ReadOnly));
    assert_eq!(found("/homes", "192.168.1.9"), is("/", "homes", Access::ReadOnly));
    assert_eq!(found("/", "192.168.1.7"), is("/", "", Access::ReadWrite));
    assert_eq!(found("/with space", "fd00::1"), is("/with space", "", Access::ReadWrite));
    assert_eq!(found("home", "10.0.0.1"), Err(NotExported::Path));
}

/// ganesha#618: Windows believes a mount that succeeded, so who may not is refused at MOUNT.
#[test]
fn a_client_that_may_not_is_refused_at_mount() {
    let exports = parse("/data 10.0.0.0/8(rw)").unwrap();
    let refused = |path: &[u8], client| exports.find(path, address(client)).unwrap_err();
    let status = |path, client| mount::Status::from(refused(path, client));
    assert_eq!(status(b"/data", "192.168.0.1"), mount::Status::Acces);
    assert_eq!(status(b"/other", "10.0.0.1"), mount::Status::NoEnt);
}

/// chimera#1480: root is squashed unless the text says otherwise.
#[test]
fn root_is_nobody_by_default() {
    let exports = parse(TEXT).unwrap();
    let caller = |client, credential| {
        exports.find(b"/home", address(client)).unwrap().options.caller(&credential)
    };
    let squashed = caller("192.168.1.9", system(0, 0, &[0, 4]));
    assert_eq!((squashed.uid, squashed.gid), (NOBODY, NOBODY));
    assert_eq!(squashed.rights, Rights::default());
    let user = caller("192.168.1.9", system(500, 0, &[7, 0, 7]));
    assert_eq!((user.uid, user.gid), (500, NOBODY));
    assert_eq!(user.rights, Rights::of_groups([7, NOBODY]));
    let all = caller("10.0.0.1", system(500, 500, &[7]));
    assert_eq!((all.uid, all.gid, all.rights), (1000, 1001, Rights::default()));
    let none = caller("192.168.1.9", Credential::None);
    assert_eq!((none.uid, none.gid), (NOBODY, NOBODY));
    let options = exports.find(b"/", address("192.168.1.7")).unwrap().options;
    let root = Caller { uid: 0, gid: 0, pid: 0, rights: Rights::of_groups([0]) };
    assert_eq!(options.caller(&system(0, 0, &[0])), root);
}

#[test]
fn the_longest_prefix_decides_and_mapped_addresses_are_those_that_they_map() {
    let exports = parse("/ 10.0.0.0/8(ro) 10.1.0.0/16(rw) *(ro,all_squash)").unwrap();
    let options = |client| exports.find(b"/", address(client)).unwrap().options;
    assert_eq!(options("10.1.2.3").access, Access::ReadWrite);
    assert_eq!(options("10.2.2.3").access, Access::ReadOnly);
    assert_eq!(options("::ffff:10.1.2.3").access, Access::ReadWrite);
    assert_eq!(options("fd00::1").squash, Squash::All);
}

#[test]
fn a_number_stays_when_others_come_and_go() {
    let (one, two) = (parse("/a *").unwrap(), parse("/b *\n/a 10.0.0.1(rw)").unwrap());
    let number = one.iter().next().unwrap().number();
    assert_eq!(two.numbered(number).unwrap().path, "/a");
    assert_eq!(one.numbered(number + 1), None);
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_to_do() {
    for (text, words) in [
        ("\nhome *", ["line 2", "\"home\"", "begin with a slash"]),
        ("/a/../b *", ["line 1", "/a/../b", "write it without"]),
        ("/a", ["line 1", "nobody", "*(ro)"]),
        ("/a example.org", ["line 1", "example.org", "not looked up"]),
        ("/a 10.0.0.0/33", ["line 1", "\"33\"", "up to 32"]),
        ("/a 10.0.0.1/8", ["line 1", "10.0.0.1/8", "write 10.0.0.0/8"]),
        ("/a *(rw,", ["line 1", "parenthesis", "no blanks"]),
        ("/a (rw)", ["line 1", "without a network", "*(rw)"]),
        ("/a *(rx)", ["line 1", "\"rx\"", "no_root_squash"]),
        ("/a *(anonuid=x)", ["line 1", "anonuid=x", "4294967295"]),
        ("/a *\n/a/ *", ["line 2", "\"/a\"", "twice"]),
        ("/a * *(rw)", ["line 1", "network *", "twice"]),
        ("\"/a *", ["line 1", "no end", "close it"]),
    ] {
        let message = wrong(text);
        words.iter().for_each(|word| assert!(message.contains(word), "{message}"));
    }
}

proptest! {
    #[test]
    fn networks_come_back(v4: u32, v6: u128, bits in 0u8..=128, other: u128) {
        let v4 = Ipv4Addr::from_bits(v4 & u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0));
        let v6 = Ipv6Addr::from_bits(v6 & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0));
        for network in [Network::V4(v4, bits.min(32)), Network::V6(v6, bits), Network::Any] {
            prop_assert_eq!(network.to_string().parse(), Ok(network));
        }
        prop_assume!(v6.to_ipv4_mapped().is_none());
        prop_assert!(Network::V4(v4, bits.min(32)).contains(v4.into()));
        prop_assert!(Network::V6(v6, bits).contains(v6.into()));
        let other = Ipv6Addr::from_bits(other);
        prop_assume!(other.to_ipv4_mapped().is_none());
        let differ = (other.to_bits() ^ v6.to_bits()).leading_zeros();
        prop_assert_eq!(Network::V6(v6, bits).contains(other.into()), differ >= u32::from(bits));
    }

    #[test]
    fn any_text_is_exports_or_has_a_line_that_is_wrong(text in "[ -~\n]{0,80}") {
        if let Err(error) = parse(&text) {
            prop_assert!(error.line >= 1);
            prop_assert!(error.line <= text.lines().count());
        }
    }
}
