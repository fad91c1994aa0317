//! An origin whose directory changes in the middle of listings, lists in another order, or answers what makes no sense.

use super::scripted::{ROOT, Script, Scripted, arguments, attributes, fsinfo};
use super::*;
use nfs::rpc::Call;
use nfs::v3::{
    Args, DirOpArgs, EntryPlus, Fattr, Handle, LookupOk, NfsTime, Outcome, Path as Name,
    ReaddirplusArgs, ReaddirplusOk, Results, Status,
};
use std::collections::BTreeMap;

/// A file of the directory: its number is its handle.
#[derive(Clone)]
struct File {
    name: String,
    number: u64,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Manner {
    #[default]
    Plain,
    /// Cookies are valid until the next change.
    Strict,
    /// No cookie is.
    NoCookies,
    TooSmall,
    /// Each part ends with the cookie that it began with.
    NoEnd,
    /// There are more names, and no part has any.
    NoNames,
    /// The last part is followed by the first.
    Circle,
}

type Change = Box<dyn FnOnce(&mut State) + Send>;

/// A directory, whose files are by cookie.
#[derive(Default)]
struct State {
    files: BTreeMap<u64, File>,
    sizes: BTreeMap<u64, u64>,
    changes: u32,
    part: usize,
    manner: Manner,
    /// Happens before the second part of the next listing.
    between: Option<Change>,
    /// Replies of READDIRPLUS are held.
    holds: bool,
    parts: usize,
    attributes: usize,
}

impl State {
    fn add(&mut self, name: &str, number: u64) {
        let cookie = self.files.last_key_value().map_or(2, |(last, _)| *last) + 1;
        self.files.insert(cookie, File { name: name.to_string(), number });
        self.sizes.insert(number, number);
        self.changes += 1;
    }

    fn remove(&mut self, name: &str) {
        self.files.retain(|_, file| file.name != name);
        self.changes += 1;
    }

    fn fattr(&self, number: u64) -> Fattr {
        let size = self.sizes[&number];
        attributes(number, Some(size), NfsTime { seconds: size as u32, nseconds: 0 })
    }

    fn root(&self) -> Fattr {
        attributes(1, None, NfsTime { seconds: self.changes, nseconds: 0 })
    }

    fn of(&self, handle: &[u8]) -> Result<Fattr, Status> {
        if handle == ROOT {
            return Ok(self.root());
        }
        let number = u64::from_be_bytes(handle.try_into().unwrap());
        let is_there = self.files.values().any(|file| file.number == number);
        is_there.then(|| self.fattr(number)).ok_or(Status::Stale)
    }

    fn list(&mut self, args: &ReaddirplusArgs<'_>, out: &mut Vec<u8>) {
        self.parts += 1;
        if args.cookie != 0
            && let Some(between) = self.between.take()
        {
            between(self);
        }
        let changes = (self.changes as u64).to_be_bytes();
        let is_old = args.cookie != 0 && args.verifier != changes;
        let refused = match self.manner {
            Manner::Strict if is_old => Some(Status::BadCookie),
            Manner::NoCookies if args.cookie != 0 => Some(Status::BadCookie),
            Manner::TooSmall => Some(Status::TooSmall),
            _ => None,
        };
        if let Some(status) = refused {
            return Results::Readdirplus(Outcome::Err(status, None)).put(out);
        }
        let circle =
            |cookie: u64| if self.manner == Manner::Circle { cookie % 1_000_000 } else { cookie };
        let behind = self.files.range(circle(args.cookie) + 1..);
        let part: Vec<(u64, File)> =
            behind.take(self.part).map(|(cookie, file)| (*cookie, file.clone())).collect();
        let last = part.last().map_or(args.cookie, |(cookie, _)| *cookie);
        let eof = self.files.range(last + 1..).next().is_none();
        let handles: Vec<_> = part.iter().map(|(_, file)| file.number.to_be_bytes()).collect();
        let mut entries: Vec<_> = part
            .iter()
            .zip(&handles)
            .map(|((cookie, file), handle)| EntryPlus {
                fileid: file.number,
                name: Name(file.name.as_bytes()),
                cookie: *cookie,
                attributes: Some(self.fattr(file.number)),
                handle: Some(Handle(handle)),
            })
            .collect();
        let is_endless = matches!(self.manner, Manner::NoEnd | Manner::NoNames | Manner::Circle);
        match (self.manner, entries.last_mut()) {
            (Manner::NoNames, _) => entries.clear(),
            (Manner::NoEnd, Some(last)) => last.cookie = args.cookie,
            // 1,000,000 behind the last one is where the first begins
            (Manner::Circle, Some(last)) if eof => {
                last.cookie = args.cookie / 1_000_000 * 1_000_000 + 1_000_000
            }
            _ => {}
        }
        let eof = eof && !is_endless;
        let ok = ReaddirplusOk { attributes: Some(self.root()), verifier: changes, entries, eof };
        Results::Readdirplus(Outcome::Ok(ok)).put(out);
    }

    fn look_up(&self, args: &DirOpArgs<'_>, out: &mut Vec<u8>) {
        let found = self.files.values().find(|file| file.name.as_bytes() == args.name.0);
        let Some(file) = found else {
            return Results::Lookup(Outcome::Err(Status::NoEnt, None)).put(out);
        };
        let handle = file.number.to_be_bytes();
        let attributes = Some(self.fattr(file.number));
        let ok = LookupOk { object: Handle(&handle), attributes, directory: None };
        Results::Lookup(Outcome::Ok(ok)).put(out);
    }
}

impl Script for State {
    fn results(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> bool {
        match arguments(call).0 {
            Args::Null(()) => {}
            Args::Fsinfo(_) => fsinfo().put(out),
            Args::Getattr(handle) => {
                self.attributes += usize::from(handle.0 != ROOT);
                let outcome = match self.of(handle.0) {
                    Ok(fattr) => Outcome::Ok(fattr),
                    Err(status) => Outcome::Err(status, ()),
                };
                Results::Getattr(outcome).put(out);
            }
            Args::Lookup(args) => self.look_up(&args, out),
            Args::Readdirplus(args) => {
                self.list(&args, out);
                return self.holds;
            }
            other => panic!("{other:?}"),
        }
        false
    }
}

/// With so many files, of which so many are a part.
fn start(files: u64, part: usize) -> Scripted<State> {
    let mut state = State { part, ..State::default() };
    (0..files).for_each(|file| state.add(&format!("{file:05}"), 100 + file));
    Scripted::start(state)
}

fn sizes(ours: &mut Volume) -> BTreeMap<String, u64> {
    let listed = ours.list_attributes(Path::new(DIRECTORY)).unwrap();
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    listed.into_iter().map(|(named, attr)| (name(&named), attr.size)).collect()
}

fn theirs(origin: &Scripted<State>) -> BTreeMap<String, u64> {
    let state = origin.state();
    let files = state.files.values();
    files.map(|file| (file.name.clone(), state.sizes[&file.number])).collect()
}

#[test]
fn a_directory_that_changes_in_the_middle_of_a_listing_is_shown_as_it_is_then() {
    for manner in [Manner::Strict, Manner::Plain] {
        let origin = start(40, 10);
        origin.state().manner = manner;
        origin.state().between = Some(Box::new(|state| {
            // listed already, and again with the last part; gone; new
            state.remove("00003");
            state.add("00003", 1_003);
            state.remove("00004");
            state.remove("00035");
            state.add("new", 1_000);
        }));
        let cache = Cache::start(plan(origin.source()));
        let mut ours = cache.volume();
        let first = sizes(&mut ours);
        assert_eq!((first["00003"], first["new"]), (1_003, 1_000));
        assert!(!first.contains_key("00035"));
        until("all is as it is there", || sizes(&mut ours) == theirs(&origin));
    }
}

#[test]
fn a_directory_that_changes_during_each_listing_is_an_error_until_it_rests() {
    let origin = start(40, 10);
    let cache = Cache::start(plan(origin.source()));
    let mut ours = cache.volume();
    for (manner, expected) in [
        (Manner::NoCookies, Errno::EAGAIN),
        (Manner::TooSmall, Errno::EIO),
        (Manner::NoEnd, Errno::EIO),
        (Manner::NoNames, Errno::EIO),
    ] {
        let before = origin.state().parts;
        origin.state().manner = manner;
        assert_eq!(errno(ours.list(Path::new(DIRECTORY))), expected);
        assert!(origin.state().parts - before <= 20, "{} parts", origin.state().parts - before);
    }
    origin.state().manner = Manner::Plain;
    assert_eq!(sizes(&mut ours), theirs(&origin));
    // once it was listed it is shown on, but for what was added
    origin.state().manner = Manner::TooSmall;
    origin.state().add("late", 7);
    until("the change is noticed", || ours.list(Path::new(DIRECTORY)).is_err());
    origin.state().manner = Manner::Plain;
    assert_eq!(sizes(&mut ours), theirs(&origin));
}

#[test]
fn a_listing_that_goes_round_in_circles_ends() {
    let origin = start(500, 500);
    origin.state().manner = Manner::Circle;
    let cache = Cache::start(plan(origin.source()));
    assert_eq!(errno(cache.volume().list(Path::new(DIRECTORY))), Errno::EIO);
    origin.state().manner = Manner::Plain;
    assert_eq!(sizes(&mut cache.volume()), theirs(&origin));
}

/// What comes first here comes last there, as with an origin that lists by hash.
#[test]
fn a_listing_in_another_order_than_the_origins_costs_few_calls_more_than_its_files() {
    const FILES: u64 = 900;
    let origin = start(FILES, 3);
    let believing = Plan { attributes: Duration::from_secs(5), ..plan(origin.source()) };
    let cache = Cache::start(believing);
    let mut ours = cache.volume();
    assert_eq!(sizes(&mut ours), theirs(&origin));
    {
        let mut state = origin.state();
        let files: Vec<File> = state.files.values().rev().cloned().collect();
        state.files = (3..).zip(files).collect();
    }
    let (mut parts, mut attributes) = (0, 0);
    until("the files are doubted", || {
        let calls = || {
            let state = origin.state();
            (state.parts, state.attributes)
        };
        let before = calls();
        assert_eq!(sizes(&mut ours), theirs(&origin));
        let after = calls();
        (parts, attributes) = (after.0 - before.0, after.1 - before.1);
        attributes > 0
    });
    let (in_parts, requests) = ((FILES as usize).saturating_sub(attributes), FILES as usize / 100);
    assert!(parts <= in_parts / 3 + 4 * requests, "{parts} parts, {attributes} single files");
}

#[test]
fn attributes_of_a_listing_never_replace_those_that_the_origin_told_later() {
    let origin = start(5, 10);
    let cache = Cache::start(plan(origin.source()));
    let mut ours = cache.volume();
    assert_eq!(sizes(&mut ours)["00003"], 103);
    let size = || cache.volume().stat(Path::new(&at("00003"))).unwrap().size;
    thread::scope(|scope| {
        // until the files are doubted
        thread::sleep(Duration::from_millis(2_200));
        origin.state().holds = true;
        let listing = scope.spawn(|| sizes(&mut cache.volume()));
        until("the listing waits", || origin.held() == 1);
        origin.state().holds = false;
        origin.state().sizes.insert(103, 1_000);
        assert_eq!(size(), 1_000);
        origin.release();
        assert_eq!(listing.join().unwrap()["00003"], 1_000);
        assert_eq!(size(), 1_000);
    });
}
