//! Several managers of one volume: it is one tree, whichever manager has which part, whatever dies in the middle.

mod away;
mod backup;
mod handover;
mod hashed;
mod losses;
mod restored;
mod steps;
mod switching;
mod taking_out;

use crate::common::ROOT;
use crate::common::array::{Array, directories};
use crate::common::cluster::WHO;
use crate::model::{Model, Names, Space, Step, compare, step, take};
use names::limits::KEEP_ALIVE_INTERVAL;
use names::{Client, How, Plus};
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
        let at = array.seats.len();
        // one that is silent for a lease is dead
        let (keeper, cx) = (client.clone(), array.net.nodes[at].cx().clone());
        array.begin(at, async move {
            loop {
                let _ = keeper.keep_alive().await;
                cx.sleep(KEEP_ALIVE_INTERVAL).await;
            }
        });
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
        // The fault comes while it is hashed.
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
                let part =
                    client.read_directory(&WHO, directory, span, 60_000, Plus::Entries).await?;
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
        for (name, d) in directories(&one).await {
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

/// A rename between two managers is on stable storage after one sync at each, and no more come later.
#[test]
fn a_rename_between_managers_costs_two_syncs() {
    const RENAMES: u64 = 40;
    let mut array = Array::spread(2, 1);
    let one = array.client(0);
    let (from, to) = array.run_client(0, async move {
        let made = directories(&one).await;
        let at = |odd: u8| made.iter().find(|(_, d)| d.site() % 2 == odd).unwrap().1;
        let (from, to) = (at(0), at(1));
        for i in 0..RENAMES {
            let name = format!("f{i}");
            one.create(&WHO, from, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
        }
        one.sync().await.unwrap();
        (from, to)
    });
    array.turns(5_000);
    let syncs = |array: &Array| -> u64 { array.seats.iter().map(|seat| seat.syncs).sum() };
    let before = syncs(&array);
    let one = array.client(0);
    array.run_client(0, async move {
        for i in 0..RENAMES {
            let name = format!("f{i}");
            one.rename(&WHO, from, name.as_bytes(), to, name.as_bytes(), 0).await.unwrap();
        }
    });
    let during = syncs(&array) - before;
    assert!((RENAMES * 2..RENAMES * 2 + 4).contains(&during), "{during} syncs");
    array.turns(5_000);
    let after = syncs(&array) - before - during;
    assert!(after <= 6, "{after} syncs for what is done since");
    for at in 0..2 {
        array.cut(at);
        array.start_again(at);
    }
    array.turns(5_000);
    let one = array.client(0);
    array.run_client(0, async move {
        for i in 0..RENAMES {
            let name = format!("f{i}");
            one.lookup(&WHO, to, name.as_bytes()).await.unwrap();
            assert_eq!(one.lookup(&WHO, from, name.as_bytes()).await.map(drop), Err(Errno::ENOENT));
        }
    });
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
