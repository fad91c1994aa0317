//! Several managers of one volume: it is one tree, whoever has which part of it, whatever dies in the middle.

use crate::common::array::{Array, FIRST, Seat};
use crate::common::cluster::WHO;
use crate::common::{Output, ROOT};
use crate::model::{Model, Names, Space, Step, compare, step, take};
use names::limits::SLOTS;
use names::{Client, How, READ, WRITE};
use node::rings::{Lock, LockKind};
use proptest::prelude::*;
use wire::{Errno, FileId, NodeId};

/// Fate of a manager while an operation is under way.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// It is killed so many milliseconds after the operation began, and starts again as many later.
    Kill(usize, usize, usize),
    /// The same with a power cut.
    Cut(usize, usize, usize),
    /// A site goes to another manager.
    Give(u8, usize),
    /// A manager is taken out for good.
    TakeOut(usize),
}

fn fault(managers: usize) -> impl Strategy<Value = Fault> {
    let (at, after, pause) = (0..managers, 0usize..30, 1usize..400);
    let goes = 1..managers;
    prop_oneof![
        6 => Just(Fault::None),
        2 => (at.clone(), after.clone(), pause.clone()).prop_map(|(a, b, c)| Fault::Kill(a, b, c)),
        2 => (at.clone(), after, pause).prop_map(|(a, b, c)| Fault::Cut(a, b, c)),
        2 => (1u8..=255, at).prop_map(|(site, to)| Fault::Give(site, to)),
        1 => goes.prop_map(Fault::TakeOut),
    ]
}

/// The array as its first client sees it.
struct Seen {
    array: Array,
    client: Client,
    fault: Fault,
    /// A power cut took what was answered last.
    lost: bool,
    /// Some new directories are hashed.
    hashes: bool,
}

impl Seen {
    fn new(array: Array) -> Seen {
        let client = array.client(0);
        Seen { array, client, fault: Fault::None, lost: false, hashes: false }
    }

    /// Runs one operation, and what is to happen beside it.
    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        operation: impl FnOnce(Client) -> F,
    ) -> T {
        let at = self.array.seats.len();
        let output = self.array.begin(at, operation(self.client.clone()));
        let is_gone = |at: usize| self.array.seats[at].is_gone;
        match std::mem::replace(&mut self.fault, Fault::None) {
            Fault::Kill(at, ..) | Fault::Cut(at, ..) | Fault::Give(_, at) | Fault::TakeOut(at)
                if is_gone(at) =>
            {
                return self.array.finish(output);
            }
            Fault::TakeOut(at) => self.array.take_out(at),
            Fault::None => return self.array.finish(output),
            Fault::Give(site, to) => self.give(site, to),
            Fault::Kill(at, after, pause) => {
                self.array.turns(after);
                self.array.kill(at);
                self.array.turns(pause);
                self.array.start_again(at);
            }
            Fault::Cut(at, after, pause) => {
                self.array.turns(after);
                self.array.cut(at);
                self.array.turns(pause);
                self.array.start_again(at);
            }
        }
        let value = self.array.finish(output);
        self.sync();
        value
    }

    fn hash(&mut self, directory: FileId) {
        let hashed =
            self.run(move |client| async move { client.hash_directory(&WHO, directory).await });
        // The power cut that took it had taken the directory, or it is still under way.
        assert!(hashed.is_ok() || self.lost && hashed == Err(Errno::ESTALE), "{hashed:?}");
    }

    fn sync(&mut self) {
        let client = self.client.clone();
        match self.array.run_client(0, async move { client.sync().await }) {
            Ok(()) => {}
            Err(errno) => {
                assert_eq!(errno, Errno::ESTALE, "what a power cut takes is told");
                self.lost = true;
            }
        }
    }

    fn give(&mut self, site: u8, to: usize) {
        let owners = self.array.seats.iter().filter_map(|seat| Some(seat.handle.as_ref()?.sites()));
        let latest = owners.max_by_key(|sites| sites.get(site).epoch).unwrap();
        let from = usize::from(latest.get(site).manager.0) - 1;
        if from != to {
            let given = self.array.give(from, site, NodeId(to as u16 + 1));
            // In use, somewhere else by now, or the other manager has just started anew.
            let busy = [
                Errno::EAGAIN,
                Errno::EREMCHG,
                Errno::EEXIST,
                Errno::ECANCELED,
                Errno::ETIMEDOUT,
                Errno::EHOSTDOWN,
            ];
            assert!(given.is_ok() || busy.contains(&given.unwrap_err()), "{given:?}");
        }
    }
}

impl Space for Seen {
    fn create(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno> {
        let name = name.to_vec();
        self.run(move |client| async move {
            let made = client.create(&WHO, parent, &name, 0o644, How::Guarded, None).await;
            made.map(|(entry, _)| entry.attr.file)
        })
    }
    fn make_directory(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno> {
        let name = name.to_vec();
        let hashed = self.hashes && name.len() % 2 == 1;
        // What is to happen happens while it is hashed.
        let fault =
            if hashed { std::mem::replace(&mut self.fault, Fault::None) } else { self.fault };
        let made = self.run(move |client| async move {
            let made = client.make_directory(&WHO, parent, &name, 0o755).await;
            made.map(|entry| entry.attr.file)
        });
        if let (Ok(file), true) = (made, hashed) {
            self.fault = fault;
            self.hash(file);
        }
        made
    }
    fn link(&mut self, file: FileId, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.run(
            move |client| async move { client.link(&WHO, file, parent, &name).await.map(drop) },
        )
    }
    fn unlink(&mut self, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.run(move |client| async move { client.unlink(&WHO, parent, &name).await.map(drop) })
    }
    fn remove_directory(&mut self, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.run(move |client| async move {
            client.remove_directory(&WHO, parent, &name).await.map(drop)
        })
    }
    fn rename(
        &mut self,
        (parent, name): (FileId, &[u8]),
        (new_parent, new_name): (FileId, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let (name, new_name) = (name.to_vec(), new_name.to_vec());
        self.run(move |client| async move {
            client.rename(&WHO, parent, &name, new_parent, &new_name, flags).await.map(drop)
        })
    }
    fn links(&mut self, file: FileId) -> Result<u32, Errno> {
        self.run(
            move |client| async move { client.get_attr(file).await.map(|entry| entry.attr.links) },
        )
    }
    fn lookup(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno> {
        let name = name.to_vec();
        self.run(move |client| async move {
            client.lookup(&WHO, parent, &name).await.map(|entry| entry.attr.file)
        })
    }
    fn list(&mut self, directory: FileId) -> Result<Names, Errno> {
        self.run(move |client| async move {
            let (mut span, mut names) = (names::Span::default(), Names::new());
            loop {
                let part = client.read_directory(&WHO, directory, span, 60_000, true).await?;
                let cookie = part.entries.last().map_or(span.cookie, |entry| entry.cookie);
                span = names::Span { cookie, until: part.until };
                let named = part.entries.into_iter();
                names.extend(named.map(|entry| (entry.name.to_vec(), entry.file)));
                if part.end {
                    return Ok(names.split_off(2));
                }
            }
        })
    }
}

#[test]
fn directories_are_spread_and_found_from_everywhere() {
    let mut array = Array::spread(3, 2);
    let (one, two) = (array.client(0), array.client(1));
    let made = array.run_client(0, async move {
        let mut made = Vec::new();
        for i in 0..24 {
            let name = format!("d{i}");
            let d = one.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            let d = d.attr.file;
            let f = one.create(&WHO, d, b"f", 0o644, How::Guarded, None).await.unwrap().0;
            made.push((name, d, f.attr.file));
        }
        made
    });
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let managers: std::collections::BTreeSet<_> =
        made.iter().map(|(_, d, _)| sites.manager_of(*d)).collect();
    assert_eq!(managers.len(), 3, "mkdir switching uses all managers");
    array.run_client(1, async move {
        for (name, d, f) in made {
            let found = two.lookup(&WHO, ROOT, name.as_bytes()).await.unwrap().attr;
            assert_eq!((found.file, found.links), (d, 2));
            assert_eq!(two.lookup(&WHO, d, b"f").await.unwrap().attr.file, f);
            assert_eq!(two.lookup(&WHO, d, b"..").await.unwrap().attr.file, ROOT);
            let refused = two.remove_directory(&WHO, ROOT, name.as_bytes()).await;
            assert_eq!(refused.map(drop), Err(Errno::ENOTEMPTY));
            two.unlink(&WHO, d, b"f").await.unwrap();
            two.remove_directory(&WHO, ROOT, name.as_bytes()).await.unwrap();
            assert_eq!(two.get_attr(d).await, Err(Errno::ESTALE));
        }
        assert_eq!(two.get_attr(ROOT).await.unwrap().attr.links, 2);
        assert_eq!(two.space().await.unwrap().files, 1);
    });
}

/// A directory that all managers have names of.
fn hashed(array: &mut Array, names: usize) -> FileId {
    let one = array.client(0);
    array.run_client(0, async move {
        let d = one.make_directory(&WHO, ROOT, b"hot", 0o755).await.unwrap().attr.file;
        one.hash_directory(&WHO, d).await.unwrap();
        for i in 0..names {
            let name = format!("f{i}");
            one.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
        }
        one.sync().await.unwrap();
        d
    })
}

#[test]
fn a_hashed_directory_is_at_all_managers_and_one_directory() {
    let mut array = Array::spread(3, 2);
    let d = hashed(&mut array, 0);
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let (one, two) = (array.client(0), array.client(1));
    let made = array.run_client(0, async move {
        let mut made = Vec::new();
        let begun = one.get_attr(d).await.unwrap().attr;
        for i in 0..60 {
            let name = format!("f{i}");
            let f = one.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
            made.push((name, f.0.attr.file));
        }
        let after = one.get_attr(d).await.unwrap().attr;
        assert!(after.mtime > begun.mtime && after.change >= begun.change + 60);
        made
    });
    for (name, file) in &made {
        assert_eq!(file.site(), names::site_of_name(d, name.as_bytes()), "{name}");
    }
    let managers: std::collections::BTreeSet<_> =
        made.iter().map(|(_, file)| sites.manager_of(*file)).collect();
    assert_eq!(managers.len(), 3);
    array.run_client(1, async move {
        let other = names::Who::new(7, 7, &[]);
        let chmod = |mode| wire::SetAttr { mode: Some(mode), ..wire::SetAttr::default() };
        let closed = two.set_attr(&WHO, d, chmod(0o700), false).await.unwrap().attr;
        assert_eq!(closed.mode & 0o777, 0o700);
        for (name, file) in &made {
            let refused = two.lookup(&other, d, name.as_bytes()).await;
            assert_eq!(refused.map(drop), Err(Errno::EACCES), "at every site");
            assert_eq!(two.lookup(&WHO, d, name.as_bytes()).await.unwrap().attr.file, *file);
        }
        two.set_attr(&WHO, d, chmod(0o755), false).await.unwrap();
        for i in 0..5 {
            let name = format!("d{i}");
            two.make_directory(&WHO, d, name.as_bytes(), 0o755).await.unwrap();
        }
        assert_eq!(two.lookup(&WHO, ROOT, b"hot").await.unwrap().attr.links, 2 + 5);
        two.rename(&WHO, d, b"f0", d, b"g0", 0).await.unwrap();
        two.rename(&WHO, d, b"f1", d, b"f2", 2).await.unwrap();
        two.rename(&WHO, d, b"d0", ROOT, b"d0", 0).await.unwrap();
        let there = two.rename(&WHO, d, b"d1", d, b"g0", 1).await;
        assert_eq!(there.map(drop), Err(Errno::EEXIST));
        assert_eq!(two.lookup(&WHO, ROOT, b"hot").await.unwrap().attr.links, 2 + 4);
        assert_eq!(two.lookup(&WHO, d, b"f2").await.unwrap().attr.file, made[1].1);
        let full = two.remove_directory(&WHO, ROOT, b"hot").await;
        assert_eq!(full.map(drop), Err(Errno::ENOTEMPTY));
        let again = two.hash_directory(&WHO, ROOT).await;
        assert_eq!(again, Err(Errno::ENOTEMPTY), "only what is empty");
        two.rename(&WHO, d, b"g0", d, b"f0", 0).await.unwrap();
        for (name, _) in &made {
            two.unlink(&WHO, d, name.as_bytes()).await.unwrap();
        }
        for i in 1..5 {
            let name = format!("d{i}");
            two.remove_directory(&WHO, d, name.as_bytes()).await.unwrap();
        }
        two.remove_directory(&WHO, ROOT, b"hot").await.unwrap();
        assert_eq!(two.space().await.unwrap().files, 2);
    });
    let one = array.client(0);
    array.run_client(0, async move {
        assert_eq!(one.lookup(&WHO, d, b"f0").await, Err(Errno::ESTALE));
        assert_eq!(one.get_attr(d).await, Err(Errno::ESTALE));
    });
}

/// Making, finding and removing names of files needs no other manager: no part, and so no sync.
#[test]
fn a_name_in_a_hashed_directory_needs_one_manager() {
    let mut array = Array::spread(3, 2);
    let d = hashed(&mut array, 9);
    array.turns(12_000);
    let before: u64 = array.seats.iter().map(|seat| seat.syncs).sum();
    let one = array.client(0);
    array.run_client(0, async move {
        for i in 0..40 {
            let name = format!("n{i}");
            one.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
            one.lookup(&WHO, d, name.as_bytes()).await.unwrap();
            one.unlink(&WHO, d, name.as_bytes()).await.unwrap();
        }
    });
    let after: u64 = array.seats.iter().map(|seat| seat.syncs).sum();
    assert!(after - before <= 6, "{} syncs: one a second at each manager", after - before);
}

/// Names come and go and the directory is removed as soon as that is possible: never with a name in it.
#[test]
fn no_name_comes_into_a_hashed_directory_that_goes() {
    for pause in [0, 3, 9, 20, 40, 80, 160] {
        let mut array = Array::spread(3, 3);
        let d = hashed(&mut array, 0);
        let (one, two, three) = (array.client(0), array.client(1), array.client(2));
        let making = array.begin(4, async move {
            let mut made = 0;
            for i in 0..400 {
                let name = format!("n{i}");
                match two.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await {
                    Ok(_) => made += 1,
                    Err(errno) => {
                        assert_eq!(errno, Errno::ESTALE);
                        break;
                    }
                }
                match two.unlink(&WHO, d, name.as_bytes()).await {
                    Ok(_) => made -= 1,
                    Err(errno) => panic!("{errno}: the directory went with a name in it"),
                }
            }
            made
        });
        array.turns(pause);
        let removing = array.begin(5, async move {
            loop {
                match three.remove_directory(&WHO, ROOT, b"hot").await {
                    Ok(_) => return,
                    Err(errno) => assert_eq!(errno, Errno::ENOTEMPTY),
                }
            }
        });
        assert_eq!(array.finish(making), 0);
        array.finish(removing);
        let files = array.run_client(0, async move { one.space().await.unwrap().files });
        assert_eq!(files, 1, "after {pause}");
    }
}

/// Power fails at each moment while a directory becomes hashed, at the manager of it or another one.
#[test]
fn a_directory_is_hashed_everywhere_or_nowhere_whenever_power_fails() {
    let (mut hashed, mut not_hashed) = (0, 0);
    for (at, after) in (0..2).flat_map(|at| (0..36).step_by(3).map(move |after| (at, after))) {
        let mut array = Array::spread(2, 1);
        let one = array.client(0);
        let setting = one.clone();
        let d = array.run_client(0, async move {
            let d = setting.make_directory(&WHO, ROOT, b"d", 0o755).await.unwrap().attr.file;
            setting.sync().await.unwrap();
            d
        });
        let task = array.begin(2, async move { one.hash_directory(&WHO, d).await });
        array.turns(after);
        array.cut(at);
        array.turns(20);
        let answered = task.borrow().is_some();
        if !answered {
            array.net.nodes[2] = rig::node(3, 2);
        }
        array.start_again(at);
        array.turns(8_000);
        let client = array.client(0);
        let sites = array.run_client(0, async move {
            let mut sites = std::collections::BTreeSet::new();
            for i in 0..12 {
                let name = format!("f{i}");
                let f = client.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await;
                sites.insert(f.unwrap().0.attr.file.site());
                assert!(client.lookup(&WHO, d, name.as_bytes()).await.is_ok());
            }
            client.get_attr(d).await.unwrap();
            sites
        });
        let is = sites.len() > 1;
        assert!(is || !answered, "answered, and lost at {at} after {after}");
        (hashed, not_hashed) = (hashed + u32::from(is), not_hashed + u32::from(!is));
    }
    assert!(hashed > 0 && not_hashed > 0, "{hashed} hashed, {not_hashed} not");
}

/// The client holds what is open and locked at every manager, over restarts and over a handover.
#[test]
fn a_site_moves_with_what_is_open_and_locked_in_it() {
    let mut array = Array::new(2, 2);
    let (one, two) = (array.client(0), array.client(1));
    let lock = Lock { start: 5, end: 9, kind: LockKind::Write, pid: 1 };
    let holder = one.clone();
    let (d, f) = array.run_client(0, async move {
        holder.keep_alive().await.unwrap();
        let mut i = 0;
        let d = loop {
            i += 1;
            let name = format!("d{i}");
            let d = holder.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            if d.attr.file.site() != 0 {
                break d.attr.file;
            }
        };
        let f = holder.create(&WHO, d, b"f", 0o644, How::Guarded, Some(WRITE)).await.unwrap();
        let f = f.0.attr.file;
        holder.open(&WHO, f, READ).await.unwrap();
        holder.lock(f, 3, false, lock).await.unwrap();
        (d, f)
    });
    let keeper = one.clone();
    let cx = array.net.nodes[2].cx().clone();
    let keeping = array.begin(2, async move {
        loop {
            let _ = keeper.keep_alive().await;
            cx.sleep(names::limits::KEEP_ALIVE_INTERVAL).await;
        }
    });
    array.give(0, d.site(), NodeId(2)).unwrap();
    array.run_client(1, async move {
        two.unlink(&WHO, d, b"f").await.unwrap();
        assert_eq!(two.lock(f, 4, false, lock).await, Err(Errno::EAGAIN));
        assert_eq!(two.get_attr(f).await.unwrap().attr.links, 0);
    });
    array.kill(1);
    array.start_again(1);
    array.turns(70_000);
    let holder = one.clone();
    array.run_client(0, async move {
        assert_eq!(holder.get_attr(f).await.unwrap().attr.links, 0, "it is open");
        holder.unlock(f, 3, false).await.unwrap();
        holder.close(f, None).await.unwrap();
        holder.close(f, Some(names::Final::default())).await.unwrap();
        assert_eq!(holder.get_attr(f).await, Err(Errno::ESTALE));
    });
    drop(keeping);
}

/// Files without a name, opens and locks of a manager that is taken out are at the others when its machine is no more.
#[test]
fn a_manager_is_taken_out_with_what_is_open_and_locked_there() {
    let mut array = Array::spread(3, 2);
    let (one, two) = (array.client(0), array.client(1));
    let lock = Lock { start: 5, end: 9, kind: LockKind::Write, pid: 1 };
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let holder = one.clone();
    let (d, f, orphan) = array.run_client(0, async move {
        holder.keep_alive().await.unwrap();
        let mut i = 0;
        let d = loop {
            i += 1;
            let name = format!("d{i}");
            let d = holder.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            if sites.manager_of(d.attr.file) == NodeId(3) {
                break d.attr.file;
            }
        };
        let open = async |name| {
            let made = holder.create(&WHO, d, name, 0o644, How::Guarded, Some(WRITE)).await;
            made.unwrap().0.attr.file
        };
        let (f, orphan) = (open(b"f").await, open(b"orphan").await);
        holder.unlink(&WHO, d, b"orphan").await.unwrap();
        holder.lock(f, 3, false, lock).await.unwrap();
        (d, f, orphan)
    });
    // No sync comes before: what was acknowledged is at the others all the same.
    let keeper = one.clone();
    let cx = array.net.nodes[3].cx().clone();
    let keeping = array.begin(3, async move {
        loop {
            let _ = keeper.keep_alive().await;
            cx.sleep(names::limits::KEEP_ALIVE_INTERVAL).await;
        }
    });
    array.take_out(2);
    let holder = one.clone();
    array.run_client(0, async move { holder.sync().await }).unwrap();
    for at in 0..2 {
        array.cut(at);
        array.start_again(at);
    }
    // Each knows what it owns itself, and hears the rest.
    array.turns(12_000);
    for seat in &array.seats[..2] {
        assert_eq!(seat.handle.as_ref().unwrap().sites().of(NodeId(3)).count(), 0);
    }
    array.run_client(1, async move {
        assert_eq!(two.lookup(&WHO, d, b"f").await.unwrap().attr.file, f);
        assert_eq!(two.lock(f, 4, false, lock).await, Err(Errno::EAGAIN));
    });
    let holder = one.clone();
    array.run_client(0, async move {
        assert_eq!(holder.get_attr(orphan).await.unwrap().attr.links, 0, "it is open");
        holder.unlock(f, 3, false).await.unwrap();
        for file in [f, orphan] {
            holder.close(file, Some(names::Final::default())).await.unwrap();
        }
        holder.sync().await.unwrap();
    });
    array.turns(70_000);
    let holder = one.clone();
    array.run_client(0, async move {
        assert_eq!(holder.get_attr(orphan).await, Err(Errno::ESTALE));
        holder.unlink(&WHO, d, b"f").await.unwrap();
    });
    drop(keeping);
}

/// The first manager has the root, and one to which a peer may still give something has not drained.
#[test]
fn a_manager_drains_when_it_owns_nothing_and_all_others_know() {
    let mut array = Array::spread(3, 1);
    for site in (0..=u8::MAX).filter(|site| site % 3 == 2) {
        array.give(2, site, FIRST).unwrap();
    }
    array.kill(1);
    array.turns(6_000);
    let silent = [Errno::EHOSTDOWN, Errno::ETIMEDOUT, Errno::ENODEV];
    let drained = array.drain(2);
    assert!(drained.is_err_and(|errno| silent.contains(&errno)), "{drained:?}");
    assert_eq!(array.give(0, 3, NodeId(3)), Err(Errno::EPERM), "it is taken out");
    array.start_again(1);
    array.take_out(2);
    assert_eq!(array.give(1, 4, NodeId(3)), Err(Errno::EPERM));
    assert_eq!(array.give(1, 4, FIRST), Ok(()));
    assert_eq!(array.drain(0), Err(Errno::EBUSY), "the root stays");
}

/// A manager that is away stops its own sites, and nothing else.
#[test]
fn a_manager_that_is_away_stops_its_own_sites_only() {
    let mut array = Array::spread(3, 2);
    let (client, other) = (array.client(0), array.client(1));
    let one = client.clone();
    let made = array.run_client(0, async move {
        let mut made = Vec::new();
        for i in 0..24 {
            let name = format!("d{i}");
            let d = one.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            made.push((name, d.attr.file));
        }
        made
    });
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let at = |manager: u16| {
        made.iter().find(|(_, d)| sites.manager_of(*d) == NodeId(manager)).cloned().unwrap()
    };
    let (here, there, away) = (at(1), at(2), at(3));
    array.kill(2);
    // More than there are tasks that serve.
    let stuck: Vec<_> = (0..100)
        .map(|_| {
            let (one, name) = (client.clone(), away.0.clone());
            array.begin(3, async move {
                one.remove_directory(&WHO, ROOT, name.as_bytes()).await.map(drop)
            })
        })
        .collect();
    array.turns(500);
    array.run_client(1, async move {
        other.create(&WHO, here.1, b"f", 0o644, How::Guarded, None).await.unwrap();
        other.rename(&WHO, here.1, b"f", there.1, b"g", 0).await.unwrap();
        let dots = other.rename(&WHO, here.1, b".", there.1, b"g", 0).await;
        assert_eq!(dots.map(drop), Err(Errno::EBUSY), "at once");
        other.unlink(&WHO, there.1, b"g").await.unwrap();
    });
    array.start_again(2);
    let results: Vec<_> = stuck.into_iter().map(|stuck| array.finish(stuck)).collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let fits = |result: &Result<(), Errno>| matches!(result, Ok(()) | Err(Errno::ENOENT));
    assert!(results.iter().all(fits), "{results:?}");
    assert_eq!(FIRST, NodeId(1));
}

/// Calls of a client that wait for a manager that is away, more than a site has slots, delay none of its other calls.
#[test]
fn a_client_goes_on_while_many_of_its_calls_wait_for_one_manager() {
    let mut array = Array::spread(3, 1);
    let client = array.client(0);
    let one = client.clone();
    let made = array.run_client(0, async move {
        let mut made = Vec::new();
        for i in 0..24 {
            let name = format!("d{i}");
            let d = one.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            made.push(d.attr.file);
        }
        made
    });
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let at = |manager| made.iter().copied().find(|d| sites.manager_of(*d) == NodeId(manager));
    let (here, there, away) = (at(1).unwrap(), at(2).unwrap(), at(3).unwrap());
    array.kill(2);
    let create = |parent, i: usize| {
        let (one, name) = (client.clone(), format!("f{i}"));
        array.begin(3, async move {
            one.create(&WHO, parent, name.as_bytes(), 0o644, How::Guarded, None).await.map(drop)
        })
    };
    let stuck: Vec<_> = (0..2 * SLOTS).map(|i| create(away, i)).collect();
    let others: Vec<_> = [ROOT, here, there].map(|d| create(d, 0)).into();
    array.turns(500);
    let ended = |task: &Output<Result<(), Errno>>| task.borrow().is_some();
    assert!(others.iter().all(ended), "these wait for nothing");
    assert!(!stuck.iter().any(ended), "their manager is away");
    array.start_again(2);
    for task in others.into_iter().chain(stuck) {
        assert_eq!(array.finish(task), Ok(()));
    }
}

/// Opposite renames meet, and each waits for what the other one holds.
#[test]
fn operations_that_cross_each_other_all_end() {
    let mut array = Array::spread(3, 3);
    let clients: Vec<_> = (0..3).map(|number| array.client(number)).collect();
    let one = clients[0].clone();
    let made = array.run_client(0, async move {
        let mut made = Vec::new();
        for i in 0..9 {
            let name = format!("d{i}");
            let d = one.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            let d = d.attr.file;
            one.create(&WHO, d, b"f", 0o644, How::Guarded, None).await.unwrap();
            made.push(d);
        }
        made
    });
    let count = made.len();
    let tasks: Vec<_> = (0..30)
        .map(|i| {
            let (client, made) = (clients[i % 3].clone(), made.clone());
            array.begin(3 + i % 3, async move {
                let (from, to) = (made[i % count], made[(i * 7 + 3) % count]);
                // It may be where it is to go, or have gone.
                client.rename(&WHO, from, b"f", to, b"f", 0).await.map(drop)
            })
        })
        .collect();
    for task in tasks {
        let ended = array.finish(task);
        assert!(matches!(ended, Ok(()) | Err(Errno::ENOENT)), "{ended:?}");
    }
    let one = clients[0].clone();
    let left = array.run_client(0, async move {
        let mut left = 0;
        for d in made {
            left += u64::from(one.lookup(&WHO, d, b"f").await.is_ok());
        }
        (left, one.space().await.unwrap().files - 10)
    });
    assert_eq!(left.0, left.1, "each file that is left has its name");
}

/// Power fails at each moment of a rename between two managers, at either of them.
#[test]
fn a_rename_between_managers_is_made_or_not_whenever_power_fails() {
    let (mut made, mut not_made) = (0, 0);
    for (at, after) in (0..2).flat_map(|at| (0..40).map(move |after| (at, after))) {
        let mut array = Array::spread(2, 1);
        let one = array.client(0);
        let setting = one.clone();
        let (from, to, file) = array.run_client(0, async move {
            let mut all = Vec::new();
            for i in 0..16 {
                let name = format!("d{i}");
                let d = setting.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
                all.push(d.attr.file);
            }
            let at = |odd: u8| *all.iter().find(|d| d.site() % 2 == odd).unwrap();
            let (from, to) = (at(0), at(1));
            let f = setting.create(&WHO, from, b"f", 0o644, How::Guarded, None).await.unwrap().0;
            setting.sync().await.unwrap();
            (from, to, f.attr.file)
        });
        let renaming = one.clone();
        let task = array.begin(2, async move {
            renaming.rename(&WHO, from, b"f", to, b"g", 0).await.map(drop)
        });
        array.turns(after);
        array.cut(at);
        array.turns(20);
        let answered = task.borrow().is_some();
        // If the client is away too, the call is not retried.
        if !answered {
            array.net.nodes[2] = rig::node(3, 2);
        }
        array.start_again(at);
        // The operation at the other manager comes to its end.
        array.turns(8_000);
        let client = array.client(0);
        let (old, new) = array.run_client(0, async move {
            let found = async |d, name| {
                let found = client.lookup(&WHO, d, name).await.map(|entry| entry.attr.file);
                assert!(matches!(found, Ok(f) if f == file) || found == Err(Errno::ENOENT));
                found.is_ok()
            };
            (found(from, b"f").await, found(to, b"g").await)
        });
        assert!(old != new, "half at {at} after {after}: old {old}, new {new}");
        assert!(new || !answered, "answered, and lost at {at} after {after}");
        (made, not_made) = (made + u32::from(new), not_made + u32::from(old));
    }
    assert!(made > 0 && not_made > 0, "{made} made, {not_made} not");
}

/// Power fails at each moment of a handover, at the giver or the taker: the site is whole, at one of them.
#[test]
fn a_site_is_handed_over_whole_whenever_power_fails() {
    const FILES: usize = 240; // some parts
    let name = |i: usize| format!("{i:0>200}");
    let (mut given, mut kept) = (0, 0);
    for (at, after) in (0..2).flat_map(|at| (0..36).step_by(2).map(move |after| (at, after))) {
        let mut array = Array::new(2, 1);
        let one = array.client(0);
        let d = array.run_client(0, async move {
            let mut i = 0;
            let d = loop {
                i += 1;
                let name = format!("d{i}");
                let d = one.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
                if d.attr.file.site() != 0 {
                    break d.attr.file;
                }
            };
            for i in 0..FILES {
                one.create(&WHO, d, name(i).as_bytes(), 0o644, How::Guarded, None).await.unwrap();
            }
            one.sync().await.unwrap();
            d
        });
        let handle = array.seats[0].handle.clone().unwrap();
        let giving = array.begin(0, async move { handle.give(d.site(), NodeId(2)).await });
        array.turns(after);
        let owner = |seat: &Seat| seat.handle.as_ref().unwrap().sites().manager_of(d);
        let told = array.seats.iter().any(|seat| owner(seat) != FIRST);
        array.cut(at);
        array.turns(20);
        array.start_again(at);
        array.turns(12_000);
        drop(giving);
        assert!(!told || owner(&array.seats[0]) != FIRST, "told, and taken back after {after}");
        let owners: Vec<NodeId> = array
            .seats
            .iter()
            .map(|seat| seat.handle.as_ref().unwrap().sites().manager_of(d))
            .collect();
        assert_eq!(owners[0], owners[1], "at {at} after {after}");
        let client = array.client(0);
        let listed = array.run_client(0, async move {
            let (mut cookie, mut names) = (0, 0);
            loop {
                let part = client.read_directory(&WHO, d, cookie, 60_000, true).await.unwrap();
                names += part.entries.iter().filter(|entry| entry.entry.is_some()).count();
                cookie = part.entries.last().map_or(cookie, |entry| entry.cookie);
                if part.end {
                    return names;
                }
            }
        });
        // With `.`, and `..` where that is here.
        let dots = if owners[0] == FIRST { 2 } else { 1 };
        assert_eq!(listed, FILES + dots, "at {at} after {after}, now at {}", owners[0]);
        given += u32::from(owners[0] != FIRST);
        kept += u32::from(owners[0] == FIRST);
    }
    assert!(given > 0 && kept > 0, "{given} given, {kept} kept");
}

/// The next owner hands a site back while its last one, which was killed, still removes what was left of it.
#[test]
fn a_site_that_comes_back_at_once_is_whole() {
    const FILES: usize = 1_400; // more records than one batch removes
    let mut array = Array::new(2, 1);
    let one = array.client(0);
    let d = array.run_client(0, async move {
        let mut i = 0;
        let d = loop {
            i += 1;
            let name = format!("d{i}");
            let d = one.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            if d.attr.file.site() != 0 {
                break d.attr.file;
            }
        };
        for i in 0..FILES {
            let name = format!("f{i}");
            one.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
        }
        d
    });
    let owner =
        |array: &Array, at: usize| array.seats[at].handle.as_ref().unwrap().sites().manager_of(d);
    for round in 0..12 {
        // Packets overtake each other, in every round by other spans.
        array.net.fate = Box::new(move |n| (1, (n * (round + 3) % 61) as usize));
        while array.give(0, d.site(), NodeId(2)).is_err() {
            array.turns(100);
        }
        while owner(&array, 1) != NodeId(2) {
            array.turn();
        }
        array.kill(0);
        array.start_again(0);
        while array.give(1, d.site(), FIRST).is_err() {
            array.turns(100);
        }
        while owner(&array, 0) != FIRST {
            array.turn();
        }
        let client = array.client(0);
        let found = array.run_client(0, async move {
            let mut found = 0;
            for i in 0..FILES {
                let name = format!("f{i}");
                found += usize::from(client.lookup(&WHO, d, name.as_bytes()).await.is_ok());
            }
            found
        });
        assert_eq!(found, FILES);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// A listing of a hashed directory goes on right while its sites move and names come and go.
    #[test]
    fn cookies_stay_while_sites_move(
        bytes in 1024usize..3000,
        moves in prop::collection::vec((1u8..=255, 0usize..3), 40),
    ) {
        const STAY: usize = 160;
        let mut seen = Seen::new(Array::spread(3, 2));
        let d = hashed(&mut seen.array, STAY);
        let (mut span, mut listed, mut moves) = (names::Span::default(), Vec::new(), moves.iter());
        for round in 0.. {
            let mut part = seen.run(move |client| async move {
                client.read_directory(&WHO, d, span, bytes, false).await.unwrap()
            });
            // A kernel has room for some of them only.
            let room = part.entries.len() * 2 / 3 + 1;
            part.end &= room >= part.entries.len();
            part.entries.truncate(room);
            let cookie = part.entries.last().map_or(span.cookie, |entry| entry.cookie);
            span = names::Span { cookie, until: part.until };
            listed.extend(part.entries.into_iter().map(|entry| entry.name));
            if part.end {
                break;
            }
            for (site, to) in moves.by_ref().take(5) {
                seen.give(*site, *to);
            }
            let (name, gone) = (format!("new{round}"), format!("new{}", round / 2));
            seen.create(d, name.as_bytes()).unwrap();
            let _ = seen.unlink(d, gone.as_bytes());
        }
        prop_assert_eq!(&listed[..2], &[Box::from(&b"."[..]), Box::from(&b".."[..])]);
        let mut stayed: Vec<_> = listed.iter().filter(|name| name[0] == b'f').cloned().collect();
        stayed.sort();
        let mut expected: Vec<Box<[u8]>> =
            (0..STAY).map(|i| format!("f{i}").into_bytes().into()).collect();
        expected.sort();
        prop_assert_eq!(stayed, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_name_space_is_a_tree_whoever_dies(
        lossy in any::<bool>(),
        hashes in any::<bool>(),
        steps in prop::collection::vec((step(), fault(4)), 1..60),
    ) {
        let mut seen = Seen::new(Array::spread_over(3, 4, 1));
        if lossy {
            // Of 143 packets 13 are lost, 11 come twice; all come late, in another order.
            let copies = |n: u64| usize::from(n % 11 != 3) + usize::from(n % 13 == 5);
            seen.array.net.fate = Box::new(move |n| (copies(n), (n % 7) as usize));
        }
        seen.hashes = hashes;
        if hashes {
            seen.hash(ROOT);
        }
        let mut model = Model::new();
        for (step, fault) in &steps {
            let before = model.clone();
            let faulty = !matches!(step, Step::Checkpoint | Step::Restart);
            seen.sync();
            seen.lost = false;
            seen.fault = if faulty { *fault } else { Fault::None };
            take(&mut seen, &mut model, step);
            if seen.lost && compare(&mut seen, &model).is_err() {
                compare(&mut seen, &before).unwrap();
                model = before;
            }
        }
        compare(&mut seen, &model).unwrap();
        for at in (0..4).filter(|at| !seen.array.seats[*at].is_gone).collect::<Vec<_>>() {
            seen.array.kill(at);
            seen.array.start_again(at);
        }
        compare(&mut seen, &model).unwrap();
        // Files without a name go when every manager has heard that no client has them open.
        let client = seen.client.clone();
        seen.array.run_client(0, async move { client.keep_alive().await }).unwrap();
        seen.array.turns(12_000);
        let files = seen.run(|client| async move { client.space().await.unwrap().files });
        prop_assert_eq!(files, model.files());
    }
}
