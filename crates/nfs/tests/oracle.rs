//! Every encoding beside that of `nfs3_types`, which was written by others from the same RFCs: what we write is what it
//! reads, and it writes the same bytes.

use crate::material::{Material, material};
use nfs::mount::{DirPath, Exported, MntResult, MountHandle, Mounted, Name};
use nfs::rpc::{Acceptance, Call, Credential, Denial, Groups, Reply, System};
use nfs::v3::*;
use nfs::xdr::{Xdr, encoded};
use nfs3_types::xdr_codec::{Pack, Unpack};
use nfs3_types::{mount as their_mount, nfs3, portmap, rpc};
use proptest::prelude::*;

fn agrees<T: Pack + Unpack>(bytes: &[u8], what: &str) {
    let mut rest = bytes;
    let (value, read) = T::unpack(&mut rest).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((read, rest.len()), (bytes.len(), 0), "{what}: all of it is read");
    assert_eq!(value.packed_size(), bytes.len(), "{what}");
    let mut again = Vec::new();
    value.pack(&mut again).expect("a vector takes all");
    assert_eq!(again, bytes, "{what}");
}

fn result_agrees<'a, T: Pack + Unpack>(value: &impl Xdr<'a>, what: &str) {
    agrees::<T>(&encoded(value), what);
}

fn args_agree(material: &Material, procedure: Procedure) {
    let mut bytes = Vec::new();
    material.args(procedure).put(&mut bytes);
    let what = format!("{procedure:?}");
    let check = match procedure {
        Procedure::Null => return,
        Procedure::Getattr => agrees::<nfs3::GETATTR3args>,
        Procedure::Setattr => agrees::<nfs3::SETATTR3args>,
        Procedure::Lookup => agrees::<nfs3::LOOKUP3args<'static>>,
        Procedure::Access => agrees::<nfs3::ACCESS3args>,
        Procedure::Readlink => agrees::<nfs3::READLINK3args>,
        Procedure::Read => agrees::<nfs3::READ3args>,
        Procedure::Write => agrees::<nfs3::WRITE3args<'static>>,
        Procedure::Create => agrees::<nfs3::CREATE3args<'static>>,
        Procedure::Mkdir => agrees::<nfs3::MKDIR3args<'static>>,
        Procedure::Symlink => agrees::<nfs3::SYMLINK3args<'static>>,
        Procedure::Mknod => agrees::<nfs3::MKNOD3args<'static>>,
        Procedure::Remove => agrees::<nfs3::REMOVE3args<'static>>,
        Procedure::Rmdir => agrees::<nfs3::RMDIR3args<'static>>,
        Procedure::Rename => agrees::<nfs3::RENAME3args<'static, 'static>>,
        Procedure::Link => agrees::<nfs3::LINK3args<'static>>,
        Procedure::Readdir => agrees::<nfs3::READDIR3args>,
        Procedure::Readdirplus => agrees::<nfs3::READDIRPLUS3args>,
        Procedure::Fsstat => agrees::<nfs3::FSSTAT3args>,
        Procedure::Fsinfo => agrees::<nfs3::FSINFO3args>,
        Procedure::Pathconf => agrees::<nfs3::PATHCONF3args>,
        Procedure::Commit => agrees::<nfs3::COMMIT3args>,
    };
    check(&bytes, &what);
}

#[test]
fn every_status_is_theirs() {
    for status in Status::ALL {
        agrees::<nfs3::nfsstat3>(&encoded(status), &format!("{status:?}"));
    }
    for status in nfs::mount::Status::ALL {
        agrees::<their_mount::mountstat3>(&encoded(status), &format!("{status:?}"));
    }
}

#[test]
fn every_refusal_is_theirs() {
    let replies = [
        Reply::Accepted(Acceptance::Success),
        Reply::Accepted(Acceptance::NoProgram),
        Reply::Accepted(Acceptance::Versions { low: 3, high: 3 }),
        Reply::Accepted(Acceptance::NoProcedure),
        Reply::Accepted(Acceptance::GarbageArguments),
        Reply::Accepted(Acceptance::SystemError),
        Reply::Denied(Denial::RpcMismatch),
        Reply::Denied(Denial::BadCredential),
        Reply::Denied(Denial::BadVerifier),
        Reply::Denied(Denial::TooWeak),
    ];
    for reply in replies {
        let mut bytes = Vec::new();
        reply.put(7, &mut bytes);
        agrees::<rpc::rpc_msg<'static, 'static>>(&bytes, &format!("{reply:?}"));
    }
}

proptest! {
    #[test]
    fn arguments_are_theirs(m in material()) {
        Procedure::ALL.iter().for_each(|procedure| args_agree(&m, *procedure));
    }

    #[test]
    fn calls_are_theirs(m in material(), groups in prop::collection::vec(any::<u32>(), 0..=16)) {
        let [xid, program, version, procedure, uid, gid, ..] = m.words;
        let machine = &m.names[0][..m.names[0].len().min(255)];
        let system = System { stamp: 1, machine, uid, gid, groups: Groups::of(groups) };
        agrees::<rpc::auth_unix>(&encoded(&system), "credential");
        for credential in [Credential::None, Credential::System(system)] {
            let mut bytes = Vec::new();
            Call { xid, program, version, procedure, credential, arguments: &[] }.put(&mut bytes);
            agrees::<rpc::rpc_msg<'static, 'static>>(&bytes, "call");
        }
    }

    #[test]
    fn results_are_theirs(m in material()) {
        type Dir = WccData;
        let (attributes, wcc, status, verifier) = (m.after(0), m.wcc(1), m.status(), m.verifier);
        let [count, access, ..] = m.words;
        let handle = m.flags[3].then(|| m.handle(0));
        let (name, [fileid, cookie, ..]) = (Path(&m.names[0]), m.longs);
        let ok = Outcome::<_, AttrFailure>::Ok;
        result_agrees::<nfs3::GETATTR3res>(&Outcome::<Fattr, ()>::Ok(m.fattr()), "GETATTR");
        result_agrees::<nfs3::GETATTR3res>(&Outcome::<Fattr, ()>::Err(status, ()), "GETATTR");
        result_agrees::<nfs3::SETATTR3res>(&Outcome::<Dir, Dir>::Err(status, wcc), "SETATTR");
        result_agrees::<nfs3::ACCESS3res>(&Outcome::<_, AttrFailure>::Ok(AccessOk { attributes, access }), "ACCESS");
        let looked_up = LookupOk { object: m.handle(0), attributes, directory: m.after(1) };
        result_agrees::<nfs3::LOOKUP3res>(&Outcome::<_, AttrFailure>::Ok(looked_up), "LOOKUP");
        let read_link = ReadlinkOk { attributes, target: name };
        result_agrees::<nfs3::READLINK3res<'static>>(&Outcome::<_, AttrFailure>::Ok(read_link), "READLINK");
        let read = ReadOk { attributes, count, eof: m.flags[4], data_bytes: 0 };
        result_agrees::<nfs3::READ3res<'static>>(&ok(read), "READ");
        let written = WriteOk { wcc, count, committed: m.stable(), verifier };
        result_agrees::<nfs3::WRITE3res>(&Outcome::<_, Dir>::Ok(written), "WRITE");
        let created = CreateOk { object: handle, attributes, wcc };
        result_agrees::<nfs3::CREATE3res>(&Outcome::<_, Dir>::Ok(created.clone()), "CREATE");
        result_agrees::<nfs3::MKDIR3res>(&Outcome::<_, Dir>::Ok(created.clone()), "MKDIR");
        result_agrees::<nfs3::SYMLINK3res>(&Outcome::<_, Dir>::Ok(created.clone()), "SYMLINK");
        result_agrees::<nfs3::MKNOD3res>(&Outcome::<_, Dir>::Ok(created), "MKNOD");
        result_agrees::<nfs3::CREATE3res>(&Outcome::<CreateOk<'_>, Dir>::Err(status, wcc), "CREATE");
        result_agrees::<nfs3::REMOVE3res>(&Outcome::<Dir, Dir>::Ok(wcc), "REMOVE");
        result_agrees::<nfs3::RMDIR3res>(&Outcome::<Dir, Dir>::Err(status, wcc), "RMDIR");
        let renamed = RenameWcc { from: wcc, to: m.wcc(5) };
        result_agrees::<nfs3::RENAME3res>(&Outcome::<_, RenameWcc>::Ok(renamed), "RENAME");
        result_agrees::<nfs3::RENAME3res>(&Outcome::<RenameWcc, _>::Err(status, renamed), "RENAME");
        let linked = LinkResult { attributes, wcc };
        result_agrees::<nfs3::LINK3res>(&Outcome::<_, LinkResult>::Ok(linked), "LINK");
        let entries = vec![Entry { fileid, name, cookie }; 2];
        let listed = ReaddirOk { attributes, verifier, entries, eof: true };
        result_agrees::<nfs3::READDIR3res<'static>>(&Outcome::<_, AttrFailure>::Ok(listed), "READDIR");
        let entries = vec![EntryPlus { fileid, name, cookie, attributes, handle }; 2];
        let listed = ReaddirplusOk { attributes, verifier, entries, eof: true };
        result_agrees::<nfs3::READDIRPLUS3res<'static>>(&Outcome::<_, AttrFailure>::Ok(listed), "READDIRPLUS");
        result_agrees::<nfs3::COMMIT3res>(&Outcome::<_, Dir>::Ok(CommitOk { wcc, verifier }), "COMMIT");
    }

    #[test]
    fn what_file_systems_say_of_themselves_is_theirs(m in material()) {
        let attributes = m.after(0);
        let [a, b, c, d] = m.longs;
        let [e, f, g, h, i, j, k, l, ..] = m.words;
        let [no_truncation, chown_restricted, case_insensitive, case_preserving, ..] = m.flags;
        let space = FsstatOk {
            attributes, total_bytes: a, free_bytes: b, available_bytes: c, total_files: d, free_files: a,
            available_files: b, invariant_seconds: e,
        };
        result_agrees::<nfs3::FSSTAT3res>(&Outcome::<_, AttrFailure>::Ok(space), "FSSTAT");
        let time_delta = NfsTime { seconds: k, nseconds: l };
        let limits = FsinfoOk {
            attributes, read_max: e, read_preferred: f, read_multiple: g, write_max: h, write_preferred: i,
            write_multiple: j, readdir_preferred: k, file_bytes_max: a, time_delta, properties: l,
        };
        result_agrees::<nfs3::FSINFO3res>(&Outcome::<_, AttrFailure>::Ok(limits), "FSINFO");
        let names = PathconfOk {
            attributes, links_max: e, name_bytes_max: f, no_truncation, chown_restricted, case_insensitive,
            case_preserving,
        };
        result_agrees::<nfs3::PATHCONF3res>(&Outcome::<_, AttrFailure>::Ok(names), "PATHCONF");
    }

    #[test]
    fn mount_and_portmap_are_theirs(m in material(), flavors in prop::collection::vec(any::<u32>(), 0..5)) {
        let name = &m.names[0][..m.names[0].len().min(255)];
        let (client, directory) = (Name(name), DirPath(&m.names[1]));
        let mounted = MntResult::Ok(MountHandle(&m.handles[0]), flavors);
        result_agrees::<their_mount::mountres3<'static>>(&mounted, "MNT");
        let list = vec![Mounted { client, directory }; 2];
        result_agrees::<their_mount::mountlist<'static, 'static>>(&list, "DUMP");
        let exports = vec![Exported { directory, groups: vec![client; 2] }; 2];
        result_agrees::<their_mount::exports<'static, 'static>>(&exports, "EXPORT");
        let [program, version, protocol, port, ..] = m.words;
        let mapping = nfs::portmap::Mapping { program, version, protocol, port };
        result_agrees::<portmap::pmaplist>(&vec![mapping; 2], "DUMP of portmap");
    }
}
