//! Nodes of a program that have network memory, all on one thread.

use live::host::Host;
use netmem::Service;
use netmem::service::{Config, Up, View};
use node::Cx;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use trapeze::join::{Joined, Plan, join};
use trapeze::service::{Options, WaitPolicy};
use wire::NodeId;

/// Nodes from 1 on; those that are killed are `None`.
pub struct Nodes {
    pub hosts: Vec<Option<Host>>,
    pub services: Vec<Service>,
    view: u64,
}

impl Nodes {
    /// So many, linked over shared memory, with sockets in a directory. Each has so much memory for all that it does.
    pub fn new(
        directory: &Path,
        count: u16,
        memory_bytes: usize,
        config: impl Fn(&Cx) -> Config,
    ) -> Nodes {
        let at = |node: u16| format!("unix:{}", directory.join(node.to_string()).display());
        let options = Options { memory_bytes, wait: WaitPolicy::Block, ..Options::default() };
        let (mut hosts, mut services) = (Vec::new(), Vec::new());
        for node in 1..=count {
            let plan = Plan { node: NodeId(node), listen: Some(&at(node)), connect: None };
            let Joined { host, directory, .. } = join(plan, &options).unwrap();
            for other in (1..=count).filter(|other| *other != node) {
                directory.set(NodeId(other), vec![at(other).parse().unwrap()]);
            }
            services.push(Service::start(host.node().cx(), config(host.node().cx())));
            hosts.push(Some(host));
        }
        let mut nodes = Nodes { hosts, services, view: 0 };
        nodes.next_view();
        nodes
    }

    /// Tells all who is there, and waits until they have told each other what they have.
    pub fn next_view(&mut self) {
        self.tell_view();
        let live: Vec<Service> = self.live().cloned().collect();
        self.until(|| live.iter().all(Service::is_settled));
    }

    /// Tells all who is there.
    pub fn tell_view(&mut self) {
        self.view += 1;
        let up = |host: &Host| Up {
            node: host.node().cx().id(),
            incarnation: host.node().cx().incarnation(),
            weight: 1,
            machine: 0,
        };
        let view = View::new(self.view, self.hosts.iter().flatten().map(up).collect());
        self.live().for_each(|service| service.set_view(view.clone()));
    }

    fn live(&self) -> impl Iterator<Item = &Service> {
        let all = self.hosts.iter().zip(&self.services);
        all.filter(|(host, _)| host.is_some()).map(|(_, service)| service)
    }

    /// A node is gone with all it knew; the others hear of it with the next view.
    pub fn kill(&mut self, node: usize) {
        self.hosts[node - 1] = None;
    }

    pub fn cx(&self, node: usize) -> &Cx {
        self.hosts[node - 1].as_ref().unwrap().node().cx()
    }

    pub fn until(&mut self, done: impl Fn() -> bool) {
        self.until_so(|_| done());
    }

    pub fn until_so(&mut self, done: impl Fn(&Nodes) -> bool) {
        while !done(self) {
            for host in self.hosts.iter_mut().flatten() {
                host.turn_until(Some(wire::Time::ZERO)).unwrap();
            }
        }
    }

    /// Runs a task on a node to its end.
    pub fn run<T: 'static>(&mut self, node: usize, task: impl Future<Output = T> + 'static) -> T {
        let output = Rc::new(RefCell::new(None));
        let (slot, host) = (output.clone(), self.hosts[node - 1].as_mut().unwrap());
        host.catch_up();
        let cx = host.node().cx().clone();
        cx.spawn("test", async move {
            let value = task.await;
            *slot.borrow_mut() = Some(value);
        });
        self.until(|| output.borrow().is_some());
        output.take().unwrap()
    }
}
