//! Calls between nodes over a network with every fault: each call ends, answers are right, nothing is executed twice,
//! and the same seed is the same run.

use nic::ether::limits::FRAME_BYTES_MIN;
use node::{Answer, Call, CallError, Cx};
use sim::ethernet::EthernetModel;
use sim::faults::{Fault, Nodes, Rule};
use sim::machine::{MachineConfig, Role};
use sim::network::LinkModel;
use sim::queue::Picos;
use sim::random::Random;
use sim::storage::Crash;
use sim::trace::Trace;
use sim::world::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::{Channel, NodeId};

const SERVER: NodeId = NodeId(1);
const CLIENTS: [NodeId; 2] = [NodeId(2), NodeId(3)];
const TASKS: u64 = 8;
const CALLS: u64 = 40;
const ECHO: u16 = 1;
const ONCE: u16 = 2;

/// The test's view of its services and tasks.
#[derive(Default)]
struct Log {
    /// By call: how often it was executed.
    executed: BTreeMap<u64, u32>,
    answered: BTreeMap<u64, Result<u16, CallError>>,
    wrong: Vec<String>,
    tasks_ended: u64,
}

type Shared = Rc<RefCell<Log>>;

fn server(log: &Shared) -> Role {
    let log = log.clone();
    Rc::new(move |boot| {
        for _ in 0..4 {
            let (cx, log) = (boot.cx.clone(), log.clone());
            boot.cx.spawn("server", async move {
                loop {
                    let mut request = cx.accept(Channel::USER).await;
                    let number = u64::from_le_bytes(request.body[..8].try_into().unwrap());
                    if request.op == ONCE {
                        *log.borrow_mut().executed.entry(number).or_default() += 1;
                        cx.sleep(Duration::from_micros(number % 300)).await;
                        cx.reply(request, Answer::body(&number.to_le_bytes()));
                    } else {
                        request
                            .data
                            .iter_mut()
                            .for_each(|frame| frame.iter_mut().for_each(|b| *b ^= 0xff));
                        let bytes = request.bytes;
                        let data: Vec<_> =
                            request.data.drain(..).map(|f| f.freeze().slice(0..bytes)).collect();
                        let body = request.body;
                        cx.reply(
                            request,
                            Answer { body: &body, data: &data, trailer: &[], status: 0 },
                        );
                    }
                }
            });
        }
        Ok(Box::new(()))
    })
}

fn client(log: &Shared) -> Role {
    let log = log.clone();
    Rc::new(move |boot| {
        for task in 0..TASKS {
            let (cx, log) = (boot.cx.clone(), log.clone());
            boot.cx.spawn("client", async move {
                for call in 0..CALLS {
                    let number = u64::from(cx.id().0) << 32 | task << 16 | call;
                    let result = if call % 2 == 0 {
                        once(&cx, number).await
                    } else {
                        echo(&cx, number, &log).await
                    };
                    log.borrow_mut().answered.insert(number, result);
                }
                log.borrow_mut().tasks_ended += 1;
            });
        }
        Ok(Box::new(()))
    })
}

async fn once(cx: &Cx, number: u64) -> Result<u16, CallError> {
    let call = Call {
        to: SERVER,
        channel: Channel::USER,
        op: ONCE,
        once: true,
        deadline: Some(Duration::from_secs(20)),
        body: &number.to_le_bytes(),
        data: cx.pieces(),
        trailer: &[],
        into: cx.pieces(),
    };
    cx.call(call).await.map(|reply| reply.status)
}

async fn echo(cx: &Cx, number: u64, log: &Shared) -> Result<u16, CallError> {
    let bytes = 1 + (cx.random() % 60_000) as usize;
    let mut frame = cx.frames().alloc_exact(bytes).expect("memory for the test's calls");
    let byte = |at: usize| (number as usize * 31 + at * 7) as u8;
    frame.iter_mut().enumerate().for_each(|(at, b)| *b = byte(at));
    let into = cx.frames().alloc_exact(bytes).expect("memory for the test's calls");
    let call = Call {
        to: SERVER,
        channel: Channel::USER,
        op: ECHO,
        once: false,
        deadline: Some(Duration::from_secs(20)),
        body: &number.to_le_bytes(),
        data: cx.piece(frame.freeze()),
        trailer: &[],
        into: cx.piece(into),
    };
    let reply = cx.call(call).await?;
    let intact = reply.bytes == bytes
        && reply.data[0].iter().enumerate().all(|(at, b)| *b == byte(at) ^ 0xff);
    if reply.status == 0 && !intact {
        log.borrow_mut()
            .wrong
            .push(format!("call {number:x}: {} of {bytes} bytes, not the echo", reply.bytes));
    }
    Ok(reply.status)
}

struct Outcome {
    log: Shared,
    world: World,
}

/// Runs two clients against a server; `disturb` is asked 100 times, every 10 ms, to do harm.
fn run(seed: u64, rules: Vec<Rule>, disturb: impl FnMut(&mut World, u64)) -> Outcome {
    let mut world = World::new(seed, LinkModel::default(), Trace::default());
    *world.network_mut().rules_mut() = rules;
    run_in(world, disturb)
}

/// The same over an Ethernet.
fn run_over(seed: u64, model: EthernetModel, disturb: impl FnMut(&mut World, u64)) -> Outcome {
    run_in(World::on_ethernet(seed, model, Trace::default()), disturb)
}

fn run_in(mut world: World, mut disturb: impl FnMut(&mut World, u64)) -> Outcome {
    let log = Shared::default();
    world.add(MachineConfig::new(SERVER), server(&log));
    CLIENTS.iter().for_each(|id| world.add(MachineConfig::new(*id), client(&log)));
    world.nodes().into_iter().for_each(|node| world.start(node));
    for tick in 1..=100 {
        world.advance(Picos::millis(10 * tick));
        disturb(&mut world, tick);
    }
    world.advance(Picos::seconds(200));
    Outcome { log, world }
}

fn check(outcome: &mut Outcome) {
    let log = outcome.log.borrow();
    assert_eq!(log.tasks_ended, TASKS * CLIENTS.len() as u64, "every call ends");
    assert!(log.wrong.is_empty(), "{:?}", log.wrong);
    let twice: Vec<_> = log.executed.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "executed twice: {twice:?}");
    for (number, result) in &log.answered {
        if *result == Ok(0) && number % 2 == 0 {
            assert_eq!(
                log.executed.get(number),
                Some(&1),
                "call {number:x} was answered, so it was executed"
            );
        }
    }
    assert_eq!(outcome.world.take_violations(), Vec::<String>::new());
    assert_eq!(outcome.world.network_mut().in_flight(), 0, "no packet is left behind");
}

fn answered(outcome: &Outcome) -> usize {
    outcome.log.borrow().answered.values().filter(|result| **result == Ok(0)).count()
}

const ALL: usize = (TASKS * CALLS) as usize * CLIENTS.len();

fn faults() -> Vec<(&'static str, Vec<Rule>)> {
    let span = Picos::millis(3);
    let rule = |fault, percent: u32| Rule::new(fault, percent * 10_000);
    let of = |nodes: &[NodeId]| Nodes::These(nodes.to_vec());
    let silence = |from: &[NodeId], to: &[NodeId]| {
        Rule::silence(of(from), of(to), Picos::millis(2), Picos::millis(900))
    };
    vec![
        ("none", vec![]),
        ("drop", vec![rule(Fault::Drop, 10)]),
        ("duplicate", vec![rule(Fault::Duplicate(span), 30)]),
        ("reorder", vec![rule(Fault::Reorder(span), 30)]),
        ("delay", vec![rule(Fault::Delay(Picos::micros(100)), 20)]),
        ("header", vec![rule(Fault::CorruptHeader, 10)]),
        ("payload", vec![rule(Fault::CorruptPayload, 10)]),
        ("cut", vec![rule(Fault::Cut, 10)]),
        ("partition", vec![silence(&[SERVER], &CLIENTS), silence(&CLIENTS, &[SERVER])]),
        ("half partition", vec![silence(&[SERVER], &CLIENTS)]),
        (
            "all",
            vec![
                rule(Fault::Drop, 3),
                rule(Fault::Duplicate(span), 5),
                rule(Fault::Reorder(span), 5),
                rule(Fault::CorruptHeader, 2),
                rule(Fault::CorruptPayload, 2),
                rule(Fault::Cut, 2),
            ],
        ),
    ]
}

#[test]
fn every_call_is_answered_right_under_every_fault_of_the_network() {
    for (name, rules) in faults() {
        for seed in 0..3 {
            println!("fault {name}, seed {seed}");
            let mut outcome = run(seed, rules.clone(), |_, _| ());
            check(&mut outcome);
            assert_eq!(answered(&outcome), ALL, "nobody died, so every call is answered");
        }
    }
}

#[test]
fn crashes_end_calls_and_the_next_life_serves() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = Random::new(seed, "disturb");
        let rules = faults().pop().expect("the list's last is all").1;
        let mut outcome = run(seed, rules, move |world, tick| {
            if !world.is_up(SERVER) {
                world.start(SERVER);
            } else if random.chance(200_000) {
                let crash = if tick % 2 == 0 { Crash::Kill } else { Crash::Power };
                world.crash(SERVER, crash);
            } else if random.chance(100_000) {
                world.pause(SERVER, Picos::millis(random.within(1, 400)));
            }
        });
        check(&mut outcome);
        assert!(answered(&outcome) > ALL / 4);
    }
}

fn ethernets() -> Vec<(&'static str, EthernetModel)> {
    let model = EthernetModel::default();
    vec![
        ("none", model),
        ("loss", EthernetModel { lost: 100_000, ..model }),
        ("duplication", EthernetModel { repeated: 300_000, ..model }),
        ("reordering", EthernetModel { late: 300_000, ..model }),
        ("damage", EthernetModel { changed: 100_000, ..model }),
        ("short frames", EthernetModel { frame_bytes: FRAME_BYTES_MIN, lost: 10_000, ..model }),
        (
            "all",
            EthernetModel {
                lost: 30_000,
                repeated: 50_000,
                late: 50_000,
                changed: 20_000,
                ..model
            },
        ),
    ]
}

#[test]
fn every_call_over_an_ethernet_is_answered_right_under_every_fault_of_it() {
    for (name, model) in ethernets() {
        for seed in 0..3 {
            println!("fault {name}, seed {seed}");
            let mut outcome = run_over(seed, model, |_, _| ());
            check(&mut outcome);
            assert_eq!(answered(&outcome), ALL, "nobody died, so every call is answered");
            let ethernet = outcome.world.ethernet().unwrap();
            let (counters, strays) = (ethernet.counters(), ethernet.strays());
            assert!(counters.received > 3 * ALL as u64, "{counters:?}");
            assert!(model.lost == 0 || counters.lost > 0, "{counters:?}");
            assert!(model.repeated == 0 || counters.replayed > 0, "{counters:?}");
            assert!(model.changed == 0 || counters.forged + strays > 0, "{counters:?}");
        }
    }
}

#[test]
fn crashes_of_a_node_on_an_ethernet_end_calls_and_the_next_incarnation_serves() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = Random::new(seed, "disturb");
        let model = ethernets().pop().expect("the list's last is all").1;
        let mut outcome = run_over(seed, model, move |world, tick| {
            if !world.is_up(SERVER) {
                world.start(SERVER);
            } else if random.chance(200_000) {
                let crash = if tick % 2 == 0 { Crash::Kill } else { Crash::Power };
                world.crash(SERVER, crash);
            } else if random.chance(100_000) {
                world.pause(SERVER, Picos::millis(random.within(1, 400)));
            }
        });
        check(&mut outcome);
        assert!(answered(&outcome) > ALL / 4);
    }
}

#[test]
fn a_seed_is_a_run_over_an_ethernet_too() {
    let model = ethernets().pop().unwrap().1;
    let print = |seed| {
        let outcome = run_over(seed, model, |_, _| ());
        (outcome.world.fingerprint(), outcome.world.events())
    };
    assert_eq!(print(5), print(5));
    assert_ne!(print(5), print(6));
}

#[test]
fn a_seed_is_a_run() {
    let print = |seed| {
        let outcome = run(seed, faults().pop().unwrap().1, |world, tick| {
            if tick == 20 {
                world.crash(SERVER, Crash::Kill);
                world.start(SERVER);
            }
        });
        (outcome.world.fingerprint(), outcome.world.events())
    };
    assert_eq!(print(5), print(5));
    assert_ne!(print(5), print(6));
}
