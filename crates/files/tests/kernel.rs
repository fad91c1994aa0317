//! Random operations asked for as a kernel does: a release is not waited for, pages are read ahead while the program
//! goes on, and a process that was forked off closes its copy of the descriptor at any time.

use crate::common::{CLIENT_PAGES, World};
use files::Config;
use files::conformance::client::{Opened, READ_WRITE, pattern};
use files::conformance::random::{self, Step};
use files::conformance::{Ask, Asks, Client};
use node::rings::FileOp;
use std::pin::Pin;
use std::task::{Context, Waker};
use wire::{Errno, FileId};

/// Tasks that no caller waits for.
#[derive(Default)]
struct Behind(Vec<Pin<Box<dyn Future<Output = ()>>>>);

impl Behind {
    fn begin(&mut self, ask: &Asks, client: &Client<Asks>, op: FileOp) {
        let (ask, caller) = (ask.clone(), client.caller.clone());
        let mut work = Box::pin(async move { drop(ask.ask(caller, op).await) });
        let mut context = Context::from_waker(Waker::noop());
        let _ = work.as_mut().poll(&mut context);
        self.0.push(work);
    }

    fn take_answers(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        self.0.retain_mut(|work| work.as_mut().poll(&mut context).is_pending());
    }
}

async fn run(client: &Client<Asks>, steps: &[Step]) -> Result<(), String> {
    let mut behind = Behind::default();
    let text = |errno| format!("{errno}");
    let mut open = client.create(FileId::ROOT, b"f", READ_WRITE).await.map_err(text)?;
    let mut model: Vec<u8> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let wrong = do_step(client, &mut behind, &mut open, &mut model, number, *step).await;
        wrong.map_err(|text| format!("step {number} {step:?}: {text}"))?;
        behind.take_answers();
    }
    Ok(())
}

async fn do_step(
    client: &Client<Asks>,
    behind: &mut Behind,
    open: &mut Opened,
    model: &mut Vec<u8>,
    number: usize,
    step: Step,
) -> Result<(), String> {
    let text = |errno| format!("{errno}");
    let (file, handle) = (open.file, open.handle);
    match step {
        Step::Write(offset, bytes) => {
            let data = pattern(1 + number as u64, offset, bytes);
            let end = offset as usize + bytes;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&data);
            client.write(*open, offset, &data).await.map_err(text)
        }
        Step::Read(offset, bytes) => {
            let op = FileOp::Read { file, handle, offset: offset / 2, bytes: 131_072 };
            behind.begin(&client.ask, client, op);
            let seen = client.read(*open, offset, bytes).await.map_err(text)?;
            let (from, to) = (offset as usize, offset as usize + bytes);
            let right = seen[..] == model[model.len().min(from)..model.len().min(to)];
            if right { Ok(()) } else { Err("other bytes".into()) }
        }
        Step::Truncate(size) => {
            model.resize(size as usize, 0);
            let size_now = client.set_size(*open, size).await.map_err(text)?.size;
            if size_now == size { Ok(()) } else { Err(format!("size {size_now}")) }
        }
        Step::Punch(offset, bytes) => {
            let end = model.len().min((offset + bytes) as usize);
            model[..end].iter_mut().skip(offset as usize).for_each(|byte| *byte = 0);
            client.allocate(*open, offset, bytes, 3).await.map_err(text)
        }
        Step::Sync => client.fsync(*open).await.map_err(text),
        Step::Flush => {
            // A process that was forked off begins another program: its descriptor is closed some time.
            behind.begin(&client.ask, client, FileOp::Flush { file, handle, owner: 0 });
            Ok(())
        }
        Step::Reopen => {
            client.flush(*open).await.map_err(text)?;
            behind.begin(&client.ask, client, FileOp::Release { file, handle, owner: None });
            *open = client.open(file, READ_WRITE).await.map_err(text)?;
            Ok(())
        }
        Step::Stat => {
            let size = client.stat(file).await.map_err(text)?.size;
            let expected = model.len() as u64;
            if size == expected { Ok(()) } else { Err(format!("size {size}, not {expected}")) }
        }
    }
}

fn one_run(seed: u64, steps: &[Step]) -> Result<(), String> {
    let mut world = World::new(3, 1);
    world.load(seed);
    let client = world.client(0);
    world.block_on(run(&client, steps))
}

#[test]
fn random_operations_as_a_kernel_asks_for_them() {
    for seed in 1..=12 {
        let steps = random::steps(seed, 300, 1 << 20);
        if let Err(text) = one_run(seed, &steps) {
            let short = random::shrink(&steps, |steps| one_run(seed, steps).is_err());
            panic!("seed {seed}: {text}\nshort: {short:#?}\n{:?}", one_run(seed, &short));
        }
    }
}

/// A node that opens files by handle believes in no names: it opens a file whose name another client has changed.
#[test]
fn a_node_of_nfs_opens_files_that_others_have_renamed() {
    for is_nfs in [false, true] {
        let usual = Config::for_pool(CLIENT_PAGES * 4096);
        let config = if is_nfs { usual.for_nfs() } else { usual };
        let mut world = World::with(1, 2, config);
        let (client, other) = (world.client(0), world.client(1));
        let opened = world.block_on(async {
            let file = client.create(FileId::ROOT, b"old", READ_WRITE).await.unwrap();
            client.close(file).await.unwrap();
            other.rename((FileId::ROOT, b"old"), (FileId::ROOT, b"new"), 0).await.unwrap();
            client.open(file.file, READ_WRITE).await.map(drop)
        });
        assert_eq!(opened, if is_nfs { Ok(()) } else { Err(Errno::ESTALE) });
    }
}
