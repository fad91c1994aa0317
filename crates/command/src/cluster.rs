//! Clusters of several machines: `init` makes the first, `join` adds one, `status` shows them all.

use crate::cli::{self, JoinRole};
use crate::serve::copies_text;
use crate::undo::Undo;
use live::link::{Keys, Security};
use live::wait::WaitPolicy;
use members::{Identity, Lends, Roles};
use std::fs;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use trapeze::beginning;
use trapeze::config::{
    ClusterKey, ConfigError, Disk, MANAGER_NODE, Machine, ManagerAddress, Memory, Role,
    check_socket, own_address,
};
use trapeze::incarnation;
use trapeze::lending::Lending;
use trapeze::machine::{self, MachineError, Setup};
use trapeze::new_disk;
use trapeze::pulses::PulsePolicy;
use trapeze::random;
use wire::{NodeId, VolumeId};

/// Why a machine was not made.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The token is none.
    #[error(
        "this is no token: give the line that `trapeze init` printed, from trapeze1: to its end"
    )]
    Token,
    /// The token is not as it was printed.
    #[error(
        "the token is damaged: copy the whole line that `trapeze init` printed once more, from trapeze1: to its end"
    )]
    Damaged,
    /// The directory has a machine already.
    #[error(
        "{0} holds a machine already: choose another --dir, or start it with trapeze serve --config {0}/machine.toml"
    )]
    Exists(PathBuf),
    /// Its key is another one.
    #[error(
        "{0} is another cluster's key: choose another --dir, or move that key away, and keep it"
    )]
    OtherKey(PathBuf),
    /// The address for the others.
    #[error(
        "--listen {0:?}: {1}write the address that the other machines reach this one by, as HOST:PORT"
    )]
    Listen(String, String),
    /// The users of its socket.
    #[error("{0}")]
    Access(String),
    /// Where the token was to be.
    #[error("no token in {0}: {1}")]
    NoToken(String, io::Error),
    /// Disks of a machine that keeps none.
    #[error("--disk: only an I/O server keeps objects: add --role io")]
    NoDisks,
    /// A file of the machine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The manager.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The system.
    #[error("{0}: {1}")]
    System(PathBuf, io::Error),
}

type Result<T> = std::result::Result<T, ClusterError>;

/// The facts that a machine needs to join: the cluster, its key, its manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    cluster: String,
    key: Option<ClusterKey>,
    manager: String,
}

const TOKEN_START: &str = "trapeze1:";

impl Token {
    fn parse(text: &str) -> Result<Token> {
        let rest = text.trim().strip_prefix(TOKEN_START).ok_or(ClusterError::Token)?;
        let (sum, body) = rest.split_once(':').ok_or(ClusterError::Token)?;
        if sum != checksum(body) {
            return Err(ClusterError::Damaged);
        }
        Token::parse_body(body).ok_or(ClusterError::Token)
    }

    fn parse_body(body: &str) -> Option<Token> {
        let mut parts = body.splitn(3, ':');
        let (cluster, key, manager) = (parts.next()?, parts.next()?, parts.next()?);
        let key = if key == "insecure" { None } else { Some(ClusterKey::parse(key)?) };
        u64::from_str_radix(cluster, 16).ok().filter(|_| cluster.len() == 16)?;
        manager.rsplit_once(':')?.1.parse::<u16>().ok()?;
        Some(Token { cluster: cluster.to_string(), key, manager: manager.to_string() })
    }

    fn text(&self) -> String {
        let key = self.key.as_ref().map_or("insecure".to_string(), ClusterKey::digits);
        let body = format!("{}:{key}:{}", self.cluster, self.manager);
        format!("{TOKEN_START}{}:{body}", checksum(&body))
    }
}

/// Tells a token that was cut or mistyped from one of another cluster.
fn checksum(body: &str) -> String {
    format!("{:08x}", wire::checksum::block_crc(body.as_bytes()))
}

fn make_dir(dir: &Path, undo: &mut Undo) -> Result<PathBuf> {
    let system = |error| ClusterError::System(dir.to_path_buf(), error);
    undo.create_dir_all(dir).map_err(system)?;
    let dir = dir.canonicalize().map_err(system)?;
    if dir.join("machine.toml").exists() {
        return Err(ClusterError::Exists(dir));
    }
    Ok(dir)
}

/// The usual memory, and what is lent beside it.
fn memory_with(lending: Lending) -> Result<Memory> {
    let memory = Memory::default().lend(lending);
    let problem = lending.problem(memory.pool, 1);
    problem.map_or(Ok(memory), |text| Err(MachineError::Lending(text).into()))
}

fn check_listen(listen: &str) -> Result<String> {
    let wrong = |why| ClusterError::Listen(listen.to_string(), why);
    own_address(listen).map(|address| address.to_string()).map_err(wrong)
}

/// The token from where the command line says it is. On the command line itself every user of this machine reads it for
/// as long as the command runs.
fn token_text(arguments: &cli::Join) -> Result<String> {
    let mut text = String::new();
    match (&arguments.token, &arguments.token_file) {
        (Some(dash), _) if dash == "-" => io::stdin()
            .read_line(&mut text)
            .map_err(|error| ClusterError::NoToken("the standard input".into(), error))?,
        (Some(token), _) => {
            eprintln!(
                "the token is on the command line, where every user of this machine can read it: use `trapeze join -` or --token-file"
            );
            return Ok(token.clone());
        }
        (None, Some(path)) => fs::File::open(path)
            .and_then(|file| io::BufReader::new(file).read_line(&mut text))
            .map_err(|error| ClusterError::NoToken(path.display().to_string(), error))?,
        (None, None) => 0,
    };
    Ok(text)
}

/// The directories of the disks, made and absolute, where new disks may begin.
fn make_disks(paths: &[PathBuf], undo: &mut Undo) -> Result<Vec<Disk>> {
    let make = |path: &PathBuf| {
        let system = |error| ClusterError::System(path.clone(), error);
        undo.create_dir_all(path).map_err(system)?;
        let path = path.canonicalize().map_err(system)?;
        undo.file(new_disk::mark(&path));
        new_disk::allow(&path).map_err(system)?;
        Ok(Disk { path, limit: None })
    };
    paths.iter().map(make).collect()
}

/// The directory of a manager's store, where a new one may begin.
fn make_store(dir: &Path, undo: &mut Undo) -> Result<PathBuf> {
    let store = dir.join("store");
    undo.create_dir_all(&store).map_err(|error| ClusterError::System(store.clone(), error))?;
    undo.file(beginning::mark(&store));
    beginning::allow(&store).map_err(|error| ClusterError::System(store.clone(), error))?;
    Ok(store)
}

impl JoinRole {
    fn of_member(self) -> Roles {
        match self {
            JoinRole::Io => Roles::IO,
            JoinRole::Manager => Roles::MANAGER,
        }
    }

    fn of_machine(self) -> Role {
        match self {
            JoinRole::Io => Role::Io,
            JoinRole::Manager => Role::Manager,
        }
    }
}

/// Keeps the key in the machine's directory. One that is there is left from an attempt that failed, or was put there to
/// be used; it is not replaced.
fn save_key(dir: &Path, key: Option<&ClusterKey>, undo: &mut Undo) -> Result<Option<PathBuf>> {
    let Some(key) = key else { return Ok(None) };
    let path = dir.join("key");
    undo.file(path.clone());
    match path.exists() {
        false => key.save(&path)?,
        true if ClusterKey::load(&path)? == *key => {}
        true => return Err(ClusterError::OtherKey(path)),
    }
    Ok(Some(path))
}

/// The key of a new cluster: the one that is in the directory, or a fresh one.
fn own_key(dir: &Path) -> Result<ClusterKey> {
    let path = dir.join("key");
    Ok(if path.exists() { ClusterKey::load(&path)? } else { ClusterKey(random::bytes()) })
}

/// `trapeze init`.
pub fn init(arguments: &cli::Init) -> Result<()> {
    let address = check_listen(&arguments.listen)?;
    arguments.access.resolve().map_err(ClusterError::Access)?;
    let mut undo = Undo::default();
    let dir = make_dir(&arguments.dir, &mut undo)?;
    let socket = dir.join("manager.sock");
    check_socket(&socket)?;
    let memory = memory_with(arguments.lending)?;
    let disks = make_disks(&arguments.disks, &mut undo)?;
    let key = (!arguments.insecure).then(|| own_key(&dir)).transpose()?;
    let cluster = format!("{:016x}", u64::from_le_bytes(random::bytes()));
    let socket = format!("unix:{}", socket.display());
    let mut roles = vec![Role::Manager];
    roles.extend((!arguments.disks.is_empty()).then_some(Role::Io));
    let machine = Machine {
        cluster: cluster.clone(),
        volume: 1,
        name: arguments.name.clone(),
        node: MANAGER_NODE,
        roles,
        listen: vec![socket.clone(), address.clone()],
        listen_mode: arguments.access.listen_mode.clone(),
        listen_group: arguments.access.listen_group.clone(),
        manager: ManagerAddress { node: MANAGER_NODE, addresses: vec![socket, address] },
        key: save_key(&dir, key.as_ref(), &mut undo)?,
        insecure: arguments.insecure,
        store: Some(dir.join("store")),
        scrub: arguments.scrubbing.scrub,
        pulses: PulsePolicy::default(),
        xdp: arguments.xdp.xdp.clone(),
        copies: (arguments.copies > 1).then_some(arguments.copies),
        nfs: None,
        exports: Vec::new(),
        disks,
        memory,
    };
    make_store(&dir, &mut undo)?;
    let path = dir.join("machine.toml");
    machine.save(&path)?;
    undo.keep();
    let token = Token { cluster, key, manager: arguments.listen.clone() };
    println!("1. start this machine:\n\n   trapeze serve --config {}\n", path.display());
    println!("2. on every other machine (the token holds the cluster key: keep it secret):\n");
    println!("   trapeze join - --listen HOST:PORT\n");
    println!("   and as its input this line:\n\n   {}\n", token.text());
    println!("{}", copies_text(arguments.copies));
    Ok(())
}

/// `trapeze join`.
pub fn join(arguments: &cli::Join) -> Result<()> {
    let token = Token::parse(&token_text(arguments)?)?;
    let address = check_listen(&arguments.listen)?;
    let mut undo = Undo::default();
    let dir = make_dir(&arguments.dir, &mut undo)?;
    let memory = memory_with(arguments.lending)?;
    // Steps that can fail on this machine come before the manager gives the name away.
    let is_manager = arguments.roles.contains(&JoinRole::Manager);
    let is_io = arguments.roles.contains(&JoinRole::Io);
    let disks = match &arguments.disks[..] {
        [] if is_io => make_disks(&[dir.join("disk0")], &mut undo)?,
        [] => Vec::new(),
        _ if !is_io => return Err(ClusterError::NoDisks),
        disks => make_disks(disks, &mut undo)?,
    };
    let store = is_manager.then(|| make_store(&dir, &mut undo)).transpose()?;
    let key = save_key(&dir, token.key.as_ref(), &mut undo)?;
    let name = arguments.name.clone().unwrap_or_else(host_name);
    let manager = format!("tcp:{}", token.manager);
    let identity = Identity {
        name: name.clone(),
        roles: arguments
            .roles
            .iter()
            .map(|role| role.of_member())
            .reduce(|a, b| a | b)
            .expect("there is a default"),
        disks: 0, // it tells them when it starts
        addresses: vec![address.clone()],
        wish: None,
        lends: Lends::default(), // that too
    };
    // Its first start must count as later than this.
    let directories = store.iter().chain(disks.iter().map(|disk| &disk.path));
    let directories: Vec<PathBuf> = directories.cloned().collect();
    directories.iter().for_each(|dir| undo.file(dir.join(incarnation::FILE)));
    let incarnation = machine::begin(&directories)?;
    let id = machine::join(&joining_setup(&token, &manager), &identity, incarnation)?;
    let machine = Machine {
        cluster: token.cluster.clone(),
        volume: 1,
        name,
        node: id.0,
        roles: arguments.roles.iter().map(|role| role.of_machine()).collect(),
        listen: vec![address],
        listen_mode: None,
        listen_group: None,
        manager: ManagerAddress { node: MANAGER_NODE, addresses: vec![manager] },
        key,
        insecure: token.key.is_none(),
        store,
        scrub: arguments.scrubbing.scrub,
        pulses: PulsePolicy::default(),
        xdp: arguments.xdp.xdp.clone(),
        copies: None,
        nfs: None,
        exports: Vec::new(),
        disks,
        memory,
    };
    let path = dir.join("machine.toml");
    machine.save(&path)?;
    undo.keep();
    println!("{} is node {} of the cluster; start it:\n", machine.name, machine.node);
    println!("   trapeze serve --config {}", path.display());
    Ok(())
}

fn joining_setup(token: &Token, manager: &str) -> Setup {
    let security = match &token.key {
        Some(key) => Security::Encrypted(Keys::generate(key.0)),
        None => Security::Insecure,
    };
    Setup {
        cluster: u64::from_str_radix(&token.cluster, 16).expect("checked when it was read"),
        volume: VolumeId(1),
        security,
        manager: (NodeId(MANAGER_NODE), manager.parse().into_iter().collect()),
        pool_bytes: 0,
        prefault: false,
        pulses: PulsePolicy::default().0,
        xdp: None,
        lending: Lending::default(),
        wait: WaitPolicy::Block,
        quiet: true,
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_is_used_by_init_and_refused_when_it_is_not_the_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, ours) = (folder.path(), ClusterKey([7; 32]));
        let fresh = own_key(dir).unwrap();
        assert!(fresh != own_key(dir).unwrap(), "none is kept yet");
        let undo = &mut Undo::default();
        let path = save_key(dir, Some(&ours), undo).unwrap().unwrap();
        assert_eq!(own_key(dir).unwrap(), ours, "a second attempt");
        assert_eq!(save_key(dir, Some(&ours), undo).unwrap(), Some(path));
        assert!(matches!(save_key(dir, Some(&fresh), undo), Err(ClusterError::OtherKey(_))));
        assert_eq!(save_key(dir, None, undo).unwrap(), None);
    }

    #[test]
    fn tokens_survive_printing_and_nonsense_is_refused() {
        let token = Token {
            cluster: "0123456789abcdef".into(),
            key: Some(ClusterKey([7; 32])),
            manager: "10.0.0.1:7400".into(),
        };
        assert_eq!(Token::parse(&token.text()).ok(), Some(token.clone()));
        let open = Token { key: None, manager: "[::1]:7400".into(), ..token.clone() };
        assert_eq!(Token::parse(&open.text()).ok(), Some(open));
        for text in ["", "trapeze1", "trapeze2:00000000:0123456789abcdef:insecure:a:1"] {
            assert!(matches!(Token::parse(text), Err(ClusterError::Token)), "{text}");
        }
        let text = token.text();
        let damages = (TOKEN_START.len()..text.len()).map(|at| {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            String::from_utf8(bytes).unwrap()
        });
        for damaged in damages.chain([text[..text.len() - 1].to_string()]) {
            assert!(Token::parse(&damaged).is_err(), "{damaged}");
        }
    }
}
