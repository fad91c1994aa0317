//! The conformance bodies and random operations over the library client of a live cluster, by shared memory and by
//! encrypted TCP.

use crate::common::{Cluster, free_ports, soaks};
use files::conformance::{Asks, Client, all, all_of_two, random};
use live::link::Address;
use live::wait::WaitPolicy;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use trapeze::client::Reach;
use trapeze::config::Machine;
use trapeze::local::Shape;
use trapeze::machine::{Running, client};
use wire::FileId;

/// A client node driven by the test's thread.
struct Application {
    running: Running,
    asks: Asks,
}

impl Application {
    fn new(reach: &Reach) -> Application {
        // Two nodes share this thread: neither may sleep for the other.
        let setup = reach.setup(64 << 20, WaitPolicy::Spin).unwrap();
        Application { running: client(&setup, "test").unwrap(), asks: Asks::default() }
    }

    fn client(&self) -> Client<Asks> {
        let frames = self.running.host.node().cx().frames().clone();
        Client::new(self.asks.clone(), frames)
    }

    fn turn(&mut self) {
        while let Some(request) = self.asks.take_request() {
            if let Err(refused) = self.running.host.node().front_push(request) {
                self.asks.put_back(refused);
                break;
            }
        }
        self.running.host.turn().unwrap();
        while let Some(done) = self.running.host.node().take_front_done() {
            self.asks.done(done);
        }
    }
}

/// Polls a body beside the nodes until it ends.
fn drive<T>(applications: &mut [Application], body: impl Future<Output = T>) -> T {
    let mut body = pin!(body);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = body.as_mut().poll(&mut context) {
            return value;
        }
        applications.iter_mut().for_each(Application::turn);
        std::thread::yield_now();
    }
}

fn shared_memory(cluster: &Cluster) -> Reach {
    Reach { cluster: cluster.processes.target(), key: None, insecure: false }
}

/// A cluster whose machines all listen on TCP only, and how to reach it.
fn over_tcp() -> (Cluster, Reach) {
    let port = free_ports(4);
    let manager = format!("127.0.0.1:{port}");
    let shape = Shape { listen: Some(manager.clone()), ..Shape::of(3) };
    let mut cluster = Cluster::shaped(&shape);
    for number in (0..=3).rev() {
        let machine = cluster.processes.cluster().machines[number].clone();
        let path = cluster.processes.cluster().config_of(&machine);
        let listen = format!("tcp:127.0.0.1:{}", port + number as u16);
        let mut machine = Machine { listen: vec![listen], ..machine };
        machine.manager.addresses = vec![format!("tcp:{manager}")];
        machine.save(&path).unwrap();
        cluster.processes.take_server(number).unwrap().stop().unwrap();
    }
    (0..=3).for_each(|number| cluster.processes.start_server(number).unwrap());
    let key = Some(cluster.beside("cluster/key"));
    assert!(format!("tcp:{manager}").parse::<Address>().is_ok());
    let reach = Reach { cluster: format!("tcp:{manager}"), key, insecure: false };
    (cluster, reach)
}

fn bodies(mut cluster: Cluster, reach: &Reach) {
    let mut applications = [Application::new(reach), Application::new(reach)];
    let (one, two) = (applications[0].client(), applications[1].client());
    drive(&mut applications, all(&one, FileId::ROOT));
    drive(&mut applications, all_of_two(&one, &two, FileId::ROOT));
    for seed in 0..if soaks() { 50 } else { 4 } {
        let steps = random::steps(seed, 150, 1 << 20);
        let name = format!("random{seed}");
        let result =
            drive(&mut applications, random::run(&one, FileId::ROOT, name.as_bytes(), &steps));
        result.unwrap_or_else(|mismatch| panic!("seed {seed}: {mismatch}"));
    }
    drop((one, two, applications));
    cluster.stop();
}

#[test]
fn conformance_over_shared_memory() {
    let cluster = Cluster::bare(3);
    let reach = shared_memory(&cluster);
    bodies(cluster, &reach);
}

#[test]
fn conformance_over_encrypted_tcp() {
    let (cluster, reach) = over_tcp();
    bodies(cluster, &reach);
}
