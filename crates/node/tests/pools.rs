//! Pools and batches: work does not wait while a task is idle, and each request of a batch ends once, with its own
//! outcome.

use node::{Batches, Cx, Idle, Node, Notify, WorkQueue, race};
use proptest::prelude::*;
use rig::node;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use wire::Time;

fn step(node: &mut Node, now: &mut u64) {
    *now += 1_000_000;
    node.step(Time(*now));
}

#[test]
fn work_wakes_one_idle_task_and_the_last_that_became_idle() {
    let mut node = node(1, 1);
    let cx = node.cx().clone();
    let (idle, woken) = (Rc::new(Idle::new(&cx)), Rc::new(RefCell::new(Vec::new())));
    for task in 0..3 {
        let (idle, woken) = (idle.clone(), woken.clone());
        cx.spawn("worker", async move {
            idle.wait().await;
            woken.borrow_mut().push(task);
        });
    }
    node.step(Time(1));
    for expected in [vec![2], vec![2, 1], vec![2, 1, 0], vec![2, 1, 0]] {
        idle.wake_one();
        node.step(Time(2));
        assert_eq!(*woken.borrow(), expected);
    }
}

#[test]
fn an_idle_task_that_gives_up_when_it_was_woken_wakes_another() {
    let mut node = node(1, 1);
    let cx = node.cx().clone();
    let (queue, stop) = (Rc::new(WorkQueue::new(&cx)), Rc::new(Notify::new(&cx)));
    let got = Rc::new(Cell::new(0));
    let (from, slot) = (queue.clone(), got.clone());
    cx.spawn("stays", async move { slot.set(from.next().await) });
    node.step(Time(1));
    let (from, stopped) = (queue.clone(), stop.clone());
    cx.spawn("gives up", async move {
        race(stopped.wait(), from.next()).await;
    });
    node.step(Time(2));
    queue.push(7); // for the task that became idle last, which finds that it has to stop
    stop.notify_all();
    node.step(Time(3));
    assert_eq!((got.get(), queue.len()), (7, 0));
}

/// A worker of a pool: each item takes it as many milliseconds as the item says.
async fn work(cx: Cx, queue: Rc<WorkQueue<u64>>, done: Rc<RefCell<Vec<u64>>>) {
    loop {
        let item = queue.next().await;
        cx.sleep(Duration::from_millis(item)).await;
        done.borrow_mut().push(item);
    }
}

proptest! {
    #[test]
    fn every_item_is_worked_on_once_and_as_soon_as_a_task_is_free(
        items in prop::collection::vec((0u64..4, 0u64..4), 1..60),
        tasks in 1usize..5,
    ) {
        let (mut node, mut now) = (node(1, 1), 0);
        let cx = node.cx().clone();
        let (queue, done) = (Rc::new(WorkQueue::new(&cx)), Rc::default());
        for _ in 0..tasks {
            cx.spawn("worker", work(cx.clone(), queue.clone(), Rc::clone(&done)));
        }
        for (item, pause) in &items {
            queue.push(*item);
            (0..*pause).for_each(|_| step(&mut node, &mut now));
        }
        // the longest that one task alone takes, and a step for each item that takes no time
        let bound = items.iter().map(|(item, _)| item + 1).sum::<u64>() + 1;
        for _ in 0..bound {
            step(&mut node, &mut now);
        }
        let mut expected: Vec<u64> = items.iter().map(|(item, _)| *item).collect();
        let mut done = done.borrow().clone();
        expected.sort_unstable();
        done.sort_unstable();
        prop_assert_eq!(done, expected);
        prop_assert!(queue.is_empty());
    }

    /// Requests of some weight, submitted in turns; a few give up. Batches keep the order and the bound.
    #[test]
    fn each_request_ends_once_with_its_own_outcome(
        requests in prop::collection::vec((1usize..8, any::<bool>(), 0u64..3), 1..60),
        most in 1usize..12,
    ) {
        let (mut node, mut now) = (node(1, 1), 0);
        let cx = node.cx().clone();
        let batches: Rc<Batches<(usize, usize), usize>> = Rc::new(Batches::new(&cx));
        let taken = Rc::new(RefCell::new(Vec::new()));
        let (from, log, clock) = (batches.clone(), taken.clone(), cx.clone());
        cx.spawn("writer", async move {
            loop {
                from.ready().await;
                let batch = from.take(most, |(_, weight)| *weight);
                log.borrow_mut().push(batch.items().copied().collect::<Vec<_>>());
                clock.sleep(Duration::from_millis(2)).await;
                batch.end(|(number, _)| number * 10);
            }
        });
        let ended = Rc::new(RefCell::new(Vec::new()));
        for (number, (weight, patient, pause)) in requests.iter().copied().enumerate() {
            let (batches, ended, cx) = (batches.clone(), ended.clone(), cx.clone());
            cx.clone().spawn("submitter", async move {
                let submitted = batches.submit((number, weight));
                let span = Duration::from_millis(if patient { 100_000 } else { 1 });
                if let Ok(outcome) = cx.with_deadline(span, submitted).await {
                    ended.borrow_mut().push((number, outcome));
                }
            });
            (0..=pause).for_each(|_| step(&mut node, &mut now));
        }
        (0..4 * requests.len()).for_each(|_| step(&mut node, &mut now));
        let taken = taken.borrow();
        let order: Vec<usize> = taken.iter().flatten().map(|(number, _)| *number).collect();
        prop_assert_eq!(order, (0..requests.len()).collect::<Vec<_>>());
        for batch in taken.iter() {
            let weight: usize = batch.iter().map(|(_, weight)| weight).sum();
            prop_assert!(weight <= most || batch.len() == 1);
        }
        let ended = ended.borrow();
        prop_assert!(ended.iter().all(|(number, outcome)| *outcome == number * 10));
        let patient = requests.iter().enumerate().filter(|(_, (_, patient, _))| *patient);
        for (number, _) in patient {
            prop_assert_eq!(ended.iter().filter(|(other, _)| *other == number).count(), 1);
        }
    }
}
