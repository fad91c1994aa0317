//! MOUNT: a path becomes the handle that everything begins with, or a refusal that a client shows at once.

use super::execution::{Answered, Asker};
use super::{Origin, Server, names, walk};
use crate::handle::Named;
use crate::limits::MOUNTS_MAX;
use crate::mount::{
    AUTH_SYS, Args, DirPath, Exported, MntResult, Mounted, Name, PROGRAM, Procedure, Status,
    VERSION, VERSION_LOWEST,
};
use crate::rpc::{Acceptance, Call};
use crate::v3::Handle;
use crate::xdr::encoded;
use core::net::IpAddr;
use std::collections::VecDeque;
use wire::FileKind;

/// Mounts that clients have reported, latest last. Nothing depends on it.
#[derive(Debug, Default)]
pub(super) struct Mounts(VecDeque<(IpAddr, Box<[u8]>)>);

impl Mounts {
    fn add(&mut self, client: IpAddr, path: &[u8]) {
        self.remove(client, Some(path));
        if self.0.len() == MOUNTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((client, path.into()));
    }

    fn remove(&mut self, client: IpAddr, path: Option<&[u8]>) {
        let is_named = |of: &[u8]| path.is_none_or(|path| path == of);
        self.0.retain(|(its, of)| *its != client || !is_named(of));
    }

    fn encoded(&self) -> Vec<u8> {
        let clients: Vec<String> = self.0.iter().map(|(client, _)| client.to_string()).collect();
        let mounted = clients.iter().zip(&self.0).map(|(client, (_, path))| Mounted {
            client: Name(client.as_bytes()),
            directory: DirPath(path),
        });
        encoded(&mounted.collect::<Vec<_>>())
    }
}

/// Answers a call of any version: but for MNT, whose handle has no place in older ones, all are the same.
pub(super) async fn answer(
    server: &Server,
    origin: Origin,
    asker: &Asker,
    call: &Call<'_>,
) -> Answered {
    debug_assert_eq!(call.program, PROGRAM);
    let procedure = Procedure::of(call.procedure).ok_or(Acceptance::NoProcedure)?;
    let lowest = if procedure == Procedure::Mnt { VERSION } else { VERSION_LOWEST };
    if !(lowest..=VERSION).contains(&call.version) {
        return Err(Acceptance::Versions { low: lowest, high: VERSION });
    }
    let args = Args::decode(procedure, call.arguments);
    let args = args.map_err(|_| Acceptance::GarbageArguments)?;
    let client = origin.client();
    let done = |results| Ok(Some((results, false)));
    match args {
        Args::Null => done(Vec::new()),
        Args::Mnt(path) => {
            let found = find(server, client, asker, path.0).await;
            Ok(Some(mount(server, client, path.0, found)))
        }
        Args::Dump => done(server.mounts.borrow().encoded()),
        Args::Umnt(path) => {
            server.mounts.borrow_mut().remove(client, Some(path.0));
            done(Vec::new())
        }
        Args::UmntAll => {
            server.mounts.borrow_mut().remove(client, None);
            done(Vec::new())
        }
        Args::Export => done(exports(server)),
    }
}

fn exports(server: &Server) -> Vec<u8> {
    let networks: Vec<Vec<String>> = server
        .exports
        .iter()
        .map(|export| export.rules.iter().map(|rule| rule.network.to_string()).collect())
        .collect();
    let exported = server.exports.iter().zip(&networks).map(|(export, networks)| Exported {
        directory: DirPath(export.path.as_bytes()),
        groups: networks.iter().map(|network| Name(network.as_bytes())).collect(),
    });
    encoded(&exported.collect::<Vec<_>>())
}

fn mount(
    server: &Server,
    client: IpAddr,
    path: &[u8],
    found: Result<Named, Status>,
) -> (Vec<u8>, bool) {
    match found {
        Ok(named) => {
            server.mounts.borrow_mut().add(client, path);
            let handle = named.encode(&server.key);
            (encoded(&MntResult::Ok(Handle(&handle).into(), vec![AUTH_SYS])), false)
        }
        Err(status) => (encoded(&MntResult::Err(status)), true),
    }
}

async fn find(
    server: &Server,
    client: IpAddr,
    asker: &Asker,
    path: &[u8],
) -> Result<Named, Status> {
    let found = server.exports.find(path, client)?;
    let (export, rest) = (found.export, found.rest);
    // above the export nothing is the client's, and what stands where depends on who asks
    if names(rest).any(|name| matches!(name, b"." | b"..")) {
        return Err(Status::Inval);
    }
    let attr = walk(asker, names(export.path.as_bytes()).chain(names(rest))).await?;
    if attr.kind != FileKind::Directory {
        return Err(Status::NotDir);
    }
    let (volume, file) = (server.volume, attr.file);
    Ok(Named { volume, file, generation: 0, export: export.number() })
}
