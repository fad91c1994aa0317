//! Values decode to what was encoded, and all other bytes are refused without a panic.

use crate::material::{Material, material};
use nfs::limits::IO_BYTES_MAX;
use nfs::mount::{self, DirPath, Exported, MntResult, MountHandle, Mounted, Name};
use nfs::record::Plan;
use nfs::rpc::{Acceptance, Call, Credential, Groups, Reply, System};
use nfs::v3::*;
use nfs::xdr::{Garbage, Xdr, decoded, encoded};
use nfs::{nlm, nsm};
use proptest::prelude::*;
use std::fmt::Debug;

fn returns<'a, T: Xdr<'a> + PartialEq + Debug>(value: &T, bytes: &'a mut Vec<u8>) {
    value.put(bytes);
    assert_eq!(decoded::<T>(bytes).as_ref(), Ok(value));
}

macro_rules! all_return {
    ($($value:expr),* $(,)?) => {$( returns(&$value, &mut Vec::new()); )*};
}

fn write_call(head: &mut Vec<u8>, material: &Material, groups: usize, data_bytes: u32) -> usize {
    let file = material.handle(0);
    let args =
        WriteArgs { file, offset: 5, count: data_bytes, stable: StableHow::Unstable, data_bytes };
    let arguments = encoded(&args);
    let groups = Groups::of(0..groups as u32);
    let machine = &material.names[0][..material.names[0].len().min(255)];
    let system = System { stamp: 1, machine, uid: 2, gid: 3, groups };
    let (program, version, procedure) = (PROGRAM, VERSION, Procedure::Write as u32);
    let credential = Credential::System(system);
    Call { xid: 9, program, version, procedure, credential, arguments: &arguments }.put(head);
    head.len()
}

#[test]
fn procedures_have_their_numbers() {
    assert_eq!(Procedure::ALL.len(), 22);
    assert_eq!(Procedure::of(21), Some(Procedure::Commit));
    assert_eq!(Procedure::of(22), None);
}

#[test]
fn a_handle_or_path_that_is_too_long_is_garbage() {
    let long = [&65u32.to_be_bytes()[..], &[0; 68]].concat();
    assert_eq!(Args::decode(Procedure::Getattr, &long), Err(Garbage));
    let path = encoded(&Path(&[b'a'; 1025]));
    assert_eq!(mount::Args::decode(mount::Procedure::Mnt, &path), Err(Garbage));
    assert!(mount::Args::decode(mount::Procedure::Export, &[0; 4]).is_err());
}

#[test]
fn arguments_with_more_behind_them_are_garbage() {
    let bytes = [encoded(&Handle(&[1; 32])), vec![0; 4]].concat();
    assert_eq!(Args::decode(Procedure::Getattr, &bytes), Err(Garbage));
}

/// nfs3_types refuses such a call as undecodable; the RFC has BADTYPE for it.
#[test]
fn a_node_of_another_kind_is_decoded() {
    let place = DirOpArgs { dir: Handle(&[1; 32]), name: Path(b"a") };
    let what = NodeKind::Other(FileType::Directory);
    let bytes = encoded(&MknodArgs { place, what });
    assert!(
        matches!(Args::decode(Procedure::Mknod, &bytes), Ok(Args::Mknod(args)) if args.what == what)
    );
}

#[test]
fn the_plan_of_garbage_is_made_soon() {
    let mut head = Vec::new();
    let material = Material {
        handles: [vec![1; 32], vec![]],
        names: [vec![], vec![]],
        words: [0; 12],
        longs: [0; 4],
        flags: [false; 8],
        verifier: [0; 8],
    };
    let bytes = write_call(&mut head, &material, 0, 10);
    let mut bad_handle = head.clone();
    bad_handle[bytes - 56..bytes - 52].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(call_plan(&bad_handle), Plan::Head);
    let mut bad_credential = head.clone();
    bad_credential[28..32].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(call_plan(&bad_credential), Plan::Head);
    assert_eq!(call_plan(&[0xff; 24]), Plan::Head);
    assert_eq!(write_data_bytes(&head), Some(10));
}

proptest! {
    #[test]
    fn arguments_come_back(material in material()) {
        for procedure in Procedure::ALL {
            let args = material.args(*procedure);
            let mut bytes = Vec::new();
            args.put(&mut bytes);
            prop_assert_eq!(Args::decode(*procedure, &bytes), Ok(args));
            prop_assert_eq!(args.procedure(), *procedure);
            for short in 0..bytes.len() {
                prop_assert_eq!(Args::decode(*procedure, &bytes[..short]), Err(Garbage));
            }
        }
    }

    #[test]
    fn results_come_back(m in material()) {
        let (attributes, wcc, status) = (m.after(0), m.wcc(1), m.status());
        let [count, access, ..] = m.words;
        let verifier = m.verifier;
        let name = Path(&m.names[0]);
        let entry = Entry { fileid: m.longs[0], name, cookie: m.longs[1] };
        let handle = m.flags[3].then(|| m.handle(0));
        let plus = EntryPlus { fileid: m.longs[0], name, cookie: m.longs[1], attributes, handle };
        let eof = m.flags[4];
        all_return![
            Outcome::<Fattr, ()>::Ok(m.fattr()),
            Outcome::<Fattr, ()>::Err(status, ()),
            Outcome::<_, AttrFailure>::Ok(AccessOk { attributes, access }),
            Outcome::<AccessOk, _>::Err(status, attributes),
            Outcome::<_, WccData>::Ok(WriteOk { wcc, count, committed: m.stable(), verifier }),
            Outcome::<RenameWcc, _>::Err(status, RenameWcc { from: wcc, to: m.wcc(5) }),
            LinkResult { attributes, wcc },
            CommitOk { wcc, verifier },
            ReadOk { attributes, count, eof, data_bytes: 0 },
            LookupOk { object: m.handle(0), attributes, directory: m.after(1) },
            ReadlinkOk { attributes, target: name },
            CreateOk { object: handle, attributes, wcc },
            ReaddirOk { attributes, verifier, entries: vec![entry.clone(); 3], eof },
            ReaddirplusOk { attributes, verifier, entries: vec![plus.clone(); 3], eof },
        ];
    }

    #[test]
    fn mount_and_monitor_come_back(m in material(), flavors in prop::collection::vec(any::<u32>(), 0..9)) {
        let name = &m.names[0][..m.names[0].len().min(255)];
        let (client, directory) = (Name(name), DirPath(&m.names[1]));
        let host = nsm::Host(&m.names[0]);
        let [program, version, procedure, ..] = m.words;
        let call_back = nsm::CallBack { host, program, version, procedure };
        let id = nsm::MonitorId { host, call_back };
        let private = [m.verifier[0]; 16];
        let state = m.words[3] as i32;
        all_return![
            MntResult::Ok(MountHandle(&m.handles[0]), flavors.clone()),
            MntResult::Err(mount::Status::Acces),
            vec![Mounted { client, directory }; 3],
            vec![Exported { directory, groups: vec![client; 2] }; 2],
            nsm::Monitor { id, private },
            nsm::StatResult { outcome: nsm::Outcome::Failed, state },
            nsm::Notice { host, state },
            nsm::Called { host, state, private },
        ];
    }

    #[test]
    fn locks_come_back(m in material()) {
        let cookie = nlm::NetObject(&m.names[1]);
        let host = nlm::Host(&m.names[0]);
        let (handle, owner) = (nlm::NetObject(&m.handles[0]), nlm::NetObject(&m.handles[1]));
        let (process, [offset, bytes, ..]) = (m.words[0] as i32, m.longs);
        let lock = nlm::NlmLock { host, handle, owner, process, offset, bytes };
        let [exclusive, block, reclaim, ..] = m.flags;
        let state = m.words[1] as i32;
        let [mode, access, ..] = m.words;
        let status = nlm::Status::Granted;
        let holder = nlm::Holder { exclusive, process, owner, offset, bytes };
        let test = nlm::TestArgs { cookie, exclusive, lock };
        let share = nlm::ShareArgs { cookie, host, handle, owner, mode, access, reclaim };
        use nlm::{Args, Procedure::*};
        for (procedure, args) in [
            (Null, Args::Null),
            (Test, Args::Test(test)),
            (GrantedMsg, Args::Granted(test)),
            (NmLock, Args::Lock(nlm::LockArgs { cookie, block, exclusive, lock, reclaim, state })),
            (CancelMsg, Args::Cancel(nlm::CancelArgs { cookie, block, exclusive, lock })),
            (Unlock, Args::Unlock(nlm::UnlockArgs { cookie, lock })),
            (TestRes, Args::TestRes(nlm::TestAnswer { cookie, outcome: Err(holder) })),
            (TestRes, Args::TestRes(nlm::TestAnswer { cookie, outcome: Ok(status) })),
            (GrantedRes, Args::Res(nlm::Answer { cookie, status })),
            (Share, Args::Share(share)),
            (Unshare, Args::Unshare(share)),
            (FreeAll, Args::FreeAll(nlm::FreeAllArgs { host, state })),
        ] {
            let mut out = Vec::new();
            args.put(&mut out);
            prop_assert_eq!(Args::decode(procedure, &out), Ok(args));
        }
        all_return![nlm::ShareAnswer { cookie, status, sequence: state }];
    }

    #[test]
    fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for procedure in Procedure::ALL {
            let _ = Args::decode(*procedure, &bytes);
        }
        for procedure in nlm::Procedure::ALL {
            let _ = nlm::Args::decode(*procedure, &bytes);
        }
        for procedure in mount::Procedure::ALL {
            let _ = mount::Args::decode(*procedure, &bytes);
        }
        let _ = decoded::<Outcome<ReaddirplusOk<'_>, AttrFailure>>(&bytes);
        let _ = decoded::<Vec<Exported<'_>>>(&bytes);
        let _ = decoded::<MntResult<'_>>(&bytes);
        let _ = decoded::<nsm::Monitor<'_>>(&bytes);
        let _ = (call_plan(&bytes), read_reply_plan(&bytes, |_| true));
    }

    /// The data of a WRITE is found with the last byte of its head, and no sooner or elsewhere.
    #[test]
    fn a_write_is_planned(m in material(), groups in 0usize..=16, data in 0u32..=IO_BYTES_MAX as u32) {
        let mut head = Vec::new();
        let bytes = write_call(&mut head, &m, groups, data);
        let planned = Plan::Data { head_bytes: bytes, data_bytes: data as usize };
        for short in 0..bytes {
            prop_assert_eq!(call_plan(&head[..short]), Plan::More);
        }
        prop_assert_eq!(call_plan(&head), planned);
        head.extend([7; 50]);
        prop_assert_eq!(call_plan(&head), planned);
        head[23] = Procedure::Read as u8;
        prop_assert_eq!(call_plan(&head), Plan::Head);
    }

    #[test]
    fn the_reply_of_a_read_is_planned(m in material(), data_bytes in 0u32..9999) {
        let mut head = Vec::new();
        Reply::Accepted(Acceptance::Success).put(5, &mut head);
        let (attributes, count, eof) = (m.after(0), data_bytes, m.flags[1]);
        Outcome::<_, AttrFailure>::Ok(ReadOk { attributes, count, eof, data_bytes }).put(&mut head);
        let planned = Plan::Data { head_bytes: head.len(), data_bytes: data_bytes as usize };
        for short in 0..head.len() {
            prop_assert_eq!(read_reply_plan(&head[..short], |_| true), Plan::More);
        }
        prop_assert_eq!(read_reply_plan(&head, |xid| xid == 5), planned);
        prop_assert_eq!(read_reply_plan(&head, |xid| xid == 6), Plan::Head);
        let mut failed = Vec::new();
        Reply::Accepted(Acceptance::Success).put(5, &mut failed);
        Outcome::<ReadOk, _>::Err(m.status(), attributes).put(&mut failed);
        prop_assert_eq!(read_reply_plan(&failed, |_| true), Plan::Head);
    }
}
