//! The same network as events: packets queue first come, first served, at single servers; everything is measured.
//!
//! It shares no formula with [`super::network`]. Times are whole picoseconds; random times come from von Neumann's
//! method, which only compares, so that no library's logarithm decides anything.

use super::network::{Network, Traffic};
use sim::fingerprint::Fingerprint;
use sim::queue::{Picos, Queue};
use sim::random::Random;
use std::collections::VecDeque;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How packets arrive and are served.
    pub traffic: Traffic,
    /// How many arrive.
    pub load: Load,
    /// Departures to measure; at least as many as there are batches.
    pub packets: u64,
    /// Departures before measuring begins.
    pub warm_up: u64,
    /// The run is a function of this and of the plan.
    pub seed: u64,
}

/// When packets arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many a second, which is positive, whatever leaves: below saturation.
    Rate(f64),
    /// So many are always inside, as with a ring of that size and back-pressure: at saturation.
    Window(u32),
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Departures a second.
    pub rate_per_s: f64,
    /// Mean packets in the network.
    pub length: f64,
    /// Half of the 95 % confidence interval of `length`, from the means of 20 batches.
    pub length_half_width: f64,
    /// Most packets in the network at one time.
    pub length_max: u64,
    /// Mean microseconds from arrival to departure.
    pub response_us: f64,
    /// Microseconds of service for each departure at each centre.
    pub demands_us: Vec<f64>,
    /// Of everything that happened.
    pub fingerprint: u64,
}

impl Measured {
    /// How far the three means are from Little's law, length = rate x response, as a part of the length. Not zero,
    /// because packets are in the network when measuring begins and ends.
    pub fn little_residual(&self) -> f64 {
        self.rate_per_s * self.response_us / 1e6 / self.length - 1.0
    }
}

const BATCHES: u64 = 20;
/// Student's t for 95 % and 19 degrees of freedom.
const T_95: f64 = 2.093;
const PICOS_PER_SECOND: f64 = 1e12;

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival,
    Served { centre: usize, packet: usize },
}

#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    arrived: Picos,
    /// Visits made.
    visits: usize,
}

struct Server {
    service: Picos,
    waiting: VecDeque<usize>,
    random: Random,
    busy: u128,
}

/// Sums since measuring began, or of one batch.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    since: Picos,
    departures: u64,
    /// Packets times picoseconds.
    area: u128,
    /// Picoseconds that departed packets were there.
    residence: u128,
}

struct Run {
    plan: Plan,
    events: Queue<Event>,
    arrivals: Random,
    /// Mean time between arrivals, where they do not depend on departures.
    between: Option<Picos>,
    route: Vec<usize>,
    servers: Vec<Server>,
    packets: Vec<Packet>,
    free: Vec<usize>,
    inside: u64,
    inside_max: u64,
    changed: Picos,
    departures: u64,
    sums: Sums,
    batch: Sums,
    means: Vec<f64>,
    fingerprint: Fingerprint,
}

/// Runs the network until `plan.warm_up + plan.packets` packets have left.
pub fn simulate(network: &Network, plan: Plan) -> Measured {
    assert!(plan.packets >= BATCHES, "a packet for each batch");
    let mut run = Run::new(network, plan);
    run.begin();
    while run.departures < plan.warm_up + plan.packets {
        let (now, event) = run.events.pop().expect("there is always a packet to come");
        run.happen(now, event);
    }
    run.measured()
}

impl Load {
    fn between(self) -> Option<Picos> {
        match self {
            Load::Rate(rate_per_s) => {
                assert!(rate_per_s > 0.0, "packets arrive");
                Some(picos(1e6 / rate_per_s))
            }
            Load::Window(_) => None,
        }
    }
}

/// Centres in the order of visits: each once, then those that are visited again, in the same order.
fn route(network: &Network) -> Vec<usize> {
    let most = network.centres.iter().map(|centre| centre.visits).max().unwrap_or(0);
    let round = |round| {
        let visited = move |(_, centre): &(usize, &super::Centre)| centre.visits > round;
        network.centres.iter().enumerate().filter(visited).map(|(index, _)| index)
    };
    (0..most).flat_map(round).collect()
}

fn picos(us: f64) -> Picos {
    Picos((us * 1e6).round() as u64)
}

impl Run {
    fn new(network: &Network, plan: Plan) -> Run {
        let server = |centre: &super::Centre| Server {
            service: picos(centre.service_us),
            waiting: VecDeque::new(),
            random: Random::new(plan.seed, &centre.name),
            busy: 0,
        };
        Run {
            plan,
            events: Queue::with_capacity(network.centres.len() + 1),
            arrivals: Random::new(plan.seed, "arrivals"),
            between: plan.load.between(),
            route: route(network),
            servers: network.centres.iter().map(server).collect(),
            packets: Vec::new(),
            free: Vec::new(),
            inside: 0,
            inside_max: 0,
            changed: Picos::ZERO,
            departures: 0,
            sums: Sums::default(),
            batch: Sums::default(),
            means: Vec::new(),
            fingerprint: Fingerprint::default(),
        }
    }

    fn begin(&mut self) {
        let count = match self.plan.load {
            Load::Rate(_) => 1,
            Load::Window(count) => count,
        };
        let first = self.between.unwrap_or_default();
        (0..count).for_each(|_| self.events.push(first, 1, Event::Arrival));
    }

    fn happen(&mut self, now: Picos, event: Event) {
        self.fingerprint.mix(now.0);
        match event {
            Event::Arrival => self.arrive(now),
            Event::Served { centre, packet } => {
                self.go_on(now, packet);
                self.servers[centre].waiting.pop_front();
                self.serve_next(now, centre);
            }
        }
    }

    fn arrive(&mut self, now: Picos) {
        if let Some(mean) = self.between {
            let between = match self.plan.traffic {
                Traffic::Dd1 => mean,
                Traffic::Mm1 | Traffic::Md1 => Picos(self.arrivals.exponential(mean.0)),
            };
            self.events.push(now + between, 1, Event::Arrival);
        }
        let packet = self.free.pop().unwrap_or(self.packets.len());
        self.packets.resize(self.packets.len().max(packet + 1), Packet::default());
        self.packets[packet] = Packet { arrived: now, visits: 0 };
        self.change(now, 1);
        self.enter(now, packet);
    }

    /// The packet joins the queue of the centre that is next on its route. The first in a queue is being served.
    fn enter(&mut self, now: Picos, packet: usize) {
        let centre = self.route[self.packets[packet].visits];
        self.servers[centre].waiting.push_back(packet);
        if self.servers[centre].waiting.len() == 1 {
            self.serve_next(now, centre);
        }
    }

    fn serve_next(&mut self, now: Picos, centre: usize) {
        let server = &mut self.servers[centre];
        let Some(&packet) = server.waiting.front() else { return };
        let service = match self.plan.traffic {
            Traffic::Mm1 => Picos(server.random.exponential(server.service.0)),
            Traffic::Md1 | Traffic::Dd1 => server.service,
        };
        if self.departures >= self.plan.warm_up {
            server.busy += u128::from(service.0);
        }
        self.events.push(now + service, 0, Event::Served { centre, packet });
    }

    fn go_on(&mut self, now: Picos, packet: usize) {
        self.packets[packet].visits += 1;
        match self.packets[packet].visits < self.route.len() {
            true => self.enter(now, packet),
            false => self.depart(now, packet),
        }
    }

    fn depart(&mut self, now: Picos, packet: usize) {
        self.change(now, -1);
        self.free.push(packet);
        self.departures += 1;
        if self.between.is_none() {
            self.events.push(now, 1, Event::Arrival);
        }
        let residence = u128::from(now.since(self.packets[packet].arrived).0);
        for sums in [&mut self.sums, &mut self.batch] {
            sums.departures += 1;
            sums.residence += residence;
        }
        let begun = self.departures == self.plan.warm_up;
        if begun {
            self.sums = Sums { since: now, ..Sums::default() };
            self.batch = self.sums;
        } else if self.batch.departures == self.plan.packets / BATCHES {
            self.means.push(self.batch.length(now));
            self.batch = Sums { since: now, ..Sums::default() };
        }
    }

    fn change(&mut self, now: Picos, by: i64) {
        let area = u128::from(self.inside) * u128::from(now.since(self.changed).0);
        self.sums.area += area;
        self.batch.area += area;
        self.changed = now;
        self.inside = self.inside.strict_add_signed(by);
        self.inside_max = self.inside_max.max(self.inside);
    }

    fn measured(&self) -> Measured {
        let seconds = self.changed.since(self.sums.since).0 as f64 / PICOS_PER_SECOND;
        let departures = self.sums.departures as f64;
        let demand = |server: &Server| server.busy as f64 / departures / 1e6;
        Measured {
            rate_per_s: departures / seconds,
            length: self.sums.length(self.changed),
            length_half_width: half_width(&self.means),
            length_max: self.inside_max,
            response_us: self.sums.residence as f64 / departures / 1e6,
            demands_us: self.servers.iter().map(demand).collect(),
            fingerprint: self.fingerprint.value(),
        }
    }
}

impl Sums {
    fn length(&self, now: Picos) -> f64 {
        self.area as f64 / now.since(self.since).0 as f64
    }
}

fn half_width(means: &[f64]) -> f64 {
    let count = means.len() as f64;
    let mean = means.iter().sum::<f64>() / count;
    let squares: f64 = means.iter().map(|value| (value - mean) * (value - mean)).sum();
    T_95 * (squares / (count - 1.0) / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::Centre;

    #[test]
    fn a_packet_visits_all_centres_and_then_again_those_that_it_visits_twice() {
        let centres = vec![
            Centre::new("adapter", 1, 1.0),
            Centre::new("bus", 2, 1.0),
            Centre::new("host", 1, 1.0),
        ];
        assert_eq!(route(&Network { centres }), [0, 1, 2, 1]);
    }
}
