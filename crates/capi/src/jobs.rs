//! An endpoint's part in network memory, and the tasks that do what the program asks of it.

use netmem::Service;
use node::{Cx, WorkQueue};
use std::pin::Pin;
use std::rc::Rc;

/// Pages that are got, put or flushed at the same time; more of a batch wait.
const WORKERS: usize = 32;

type Job = Pin<Box<dyn Future<Output = ()>>>;

/// An endpoint's part in network memory.
pub struct Memory {
    /// The service that does the work.
    pub service: Service,
    jobs: WorkQueue<Job>,
}

impl Memory {
    /// Of a node with this service.
    pub fn start_with(cx: &Cx, service: Service) -> Rc<Memory> {
        let memory = Rc::new(Memory { service, jobs: WorkQueue::new(cx) });
        (0..WORKERS).for_each(|_| cx.spawn("network memory", memory.clone().work()));
        memory
    }

    /// Does this when its turn comes.
    pub fn submit(&self, job: impl Future<Output = ()> + 'static) {
        self.jobs.push(Box::pin(job));
    }

    async fn work(self: Rc<Memory>) {
        loop {
            self.jobs.next().await.await;
        }
    }
}
