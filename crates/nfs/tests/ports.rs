//! Ports as a client learns them when no rpcbind runs.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nfs::portmap::*;
use nfs::rpc::Acceptance;
use nfs::xdr::{Xdr, decoded, encoded};
use proptest::prelude::*;

const NFS: u32 = nfs::v3::PROGRAM;
const SERVICES: &[Service] = &[
    Service { program: NFS, version: 3, protocol: TCP, port: 2049 },
    Service { program: nfs::mount::PROGRAM, version: 3, protocol: TCP, port: 20048 },
    Service { program: nfs::mount::PROGRAM, version: 3, protocol: UDP, port: 20048 },
];

fn asked() -> Query {
    Query { to: Ipv4Addr::new(192, 168, 7, 1).into(), over: TCP, unix_seconds: 99 }
}

fn results<'a>(call: (u32, u32), arguments: &impl Xdr<'a>) -> Vec<u8> {
    match answer(SERVICES, asked(), call, &encoded(arguments)) {
        Answer::Results(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

fn binding(program: u32, version: u32) -> Binding<'static> {
    Binding { program, version, network: Text(b"tcp"), address: Text(b""), owner: Text(b"") }
}

#[test]
fn portmap_says_where_a_program_is() {
    let port = |program, version, protocol| {
        let wanted = Mapping { program, version, protocol, port: 0 };
        decoded::<u32>(&results((PORTMAP, version2::GETPORT), &wanted)).unwrap()
    };
    assert_eq!(port(NFS, 3, TCP), 2049);
    assert_eq!(port(NFS, 3, UDP), 0);
    assert_eq!(port(NFS, 4, TCP), 2049);
    assert_eq!(port(nfs::mount::PROGRAM, 3, UDP), 20048);
    assert_eq!(port(100_021, 4, TCP), 0);
    let dump = results((PORTMAP, version2::DUMP), &());
    assert_eq!(decoded::<Vec<Mapping>>(&dump).unwrap().len(), 3);
}

#[test]
fn rpcbind_says_the_address_that_was_asked() {
    let address = |call, wanted: Binding<'static>| {
        let bytes = results(call, &wanted);
        String::from_utf8(decoded::<Text<'_>>(&bytes).unwrap().0.to_vec()).unwrap()
    };
    for version in RPCBIND {
        assert_eq!(address((version, rpcbind::GETADDR), binding(NFS, 3)), "192.168.7.1.8.1");
        assert_eq!(address((version, rpcbind::GETADDR), binding(7, 3)), "");
    }
    assert_eq!(address((4, rpcbind::GETADDR), binding(NFS, 4)), "192.168.7.1.8.1");
    assert_eq!(address((4, rpcbind::GETVERSADDR), binding(NFS, 4)), "");
    assert_eq!(decoded::<u32>(&results((3, rpcbind::GETTIME), &())), Ok(99));
    let dump = results((4, rpcbind::DUMP), &());
    let dump = decoded::<Vec<Binding<'_>>>(&dump).unwrap();
    assert_eq!(
        dump.iter().map(|found| found.network.0).collect::<Vec<_>>(),
        [&b"tcp"[..], b"tcp", b"udp"]
    );
    let list = results((4, rpcbind::GETADDRLIST), &binding(nfs::mount::PROGRAM, 3));
    assert_eq!(decoded::<Vec<AddressEntry<'_>>>(&list).unwrap().len(), 2);
}

#[test]
fn strangers_neither_register_nor_forward() {
    let mapping = Mapping { program: NFS, version: 3, protocol: TCP, port: 1 };
    assert_eq!(decoded::<bool>(&results((2, version2::SET), &mapping)), Ok(false));
    assert_eq!(decoded::<bool>(&results((4, rpcbind::UNSET), &binding(NFS, 3))), Ok(false));
    for call in [(2, version2::CALLIT), (3, rpcbind::BCAST), (4, rpcbind::INDIRECT)] {
        assert_eq!(answer(SERVICES, asked(), call, &[0; 40]), Answer::Silence);
    }
}

#[test]
fn what_is_not_there_is_refused() {
    let refused = |call, bytes: &[u8]| match answer(SERVICES, asked(), call, bytes) {
        Answer::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused((5, 0), &[]), Acceptance::Versions { low: 2, high: 4 });
    assert_eq!(refused((2, 6), &[]), Acceptance::NoProcedure);
    assert_eq!(refused((3, rpcbind::GETVERSADDR), &[]), Acceptance::NoProcedure);
    assert_eq!(refused((2, version2::GETPORT), &[0; 15]), Acceptance::GarbageArguments);
    let long = [&[0; 8][..], &129u32.to_be_bytes(), &[0; 140]].concat();
    assert_eq!(refused((4, rpcbind::GETADDR), &long), Acceptance::GarbageArguments);
}

proptest! {
    #[test]
    fn universal_addresses_come_back(v4: u32, v6: u128, port: u16) {
        for address in [IpAddr::from(Ipv4Addr::from_bits(v4)), Ipv6Addr::from_bits(v6).into()] {
            prop_assert_eq!(of_universal(universal(address, port).as_bytes()), Some((address, port)));
        }
    }

    #[test]
    fn any_call_is_answered(
        version in 0u32..6, procedure in 0u32..15, bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        answer(SERVICES, asked(), (version, procedure), &bytes);
        of_universal(&bytes);
    }
}
