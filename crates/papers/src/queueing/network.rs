//! Open networks of single servers, in closed form.
//!
//! Exponential service at every centre makes the network a product of M/M/1 queues (Jackson 1957), so that the lengths
//! add up exactly. With constant service what leaves a centre is no longer Poisson: `Md1` treats each centre as if it
//! were, which is exact for one centre and an estimate for several. `Dd1` is a paced stream that never waits.

/// One service centre of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Centre {
    /// Its name in tables.
    pub name: String,
    /// How often each packet visits it.
    pub visits: u32,
    /// Time of one visit without waiting, in microseconds.
    pub service_us: f64,
}

impl Centre {
    /// A centre that each packet visits `visits` times for `service_us` microseconds.
    pub fn new(name: &str, visits: u32, service_us: f64) -> Centre {
        Centre { name: name.to_string(), visits, service_us }
    }

    /// Service demand: microseconds that each packet needs of this centre.
    pub fn demand_us(&self) -> f64 {
        f64::from(self.visits) * self.service_us
    }
}

/// How packets arrive and are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Poisson arrivals, exponential service.
    Mm1,
    /// Poisson arrivals, constant service.
    Md1,
    /// Evenly spaced arrivals, constant service.
    Dd1,
}

impl Traffic {
    /// All of them.
    pub const ALL: [Traffic; 3] = [Traffic::Mm1, Traffic::Md1, Traffic::Dd1];

    /// Kendall's notation.
    pub fn name(self) -> &'static str {
        match self {
            Traffic::Mm1 => "M/M/1",
            Traffic::Md1 => "M/D/1",
            Traffic::Dd1 => "D/D/1",
        }
    }

    /// Mean number of packets in a centre that is busy this part of the time, which is below 1.
    fn length(self, busy: f64) -> f64 {
        match self {
            Traffic::Mm1 => busy / (1.0 - busy),
            Traffic::Md1 => busy + busy * busy / (2.0 * (1.0 - busy)), // Pollaczek and Khinchine
            Traffic::Dd1 => busy,
        }
    }
}

/// An open network with one class of packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The centres, in the order of the first visits. At least one, with a positive demand.
    pub centres: Vec<Centre>,
}

impl Network {
    /// The centre with the largest demand; the first of several.
    pub fn bottleneck(&self) -> &Centre {
        let longest = self.centres.iter().reduce(longer);
        longest.expect("a network has a centre")
    }

    /// Packets a second at which the bottleneck is always busy.
    pub fn saturation_per_s(&self) -> f64 {
        1e6 / self.bottleneck().demand_us()
    }

    /// Microseconds that a packet takes without ever waiting.
    pub fn demand_us(&self) -> f64 {
        self.centres.iter().map(Centre::demand_us).sum()
    }

    /// Mean packets in the network; none from saturation on, where queues grow without end.
    pub fn length(&self, rate_per_s: f64, traffic: Traffic) -> Option<f64> {
        let busy = self.centres.iter().map(|centre| rate_per_s * centre.demand_us() / 1e6);
        (rate_per_s < self.saturation_per_s()).then(|| busy.map(|part| traffic.length(part)).sum())
    }

    /// Mean microseconds from arrival to departure, by Little's law.
    pub fn response_us(&self, rate_per_s: f64, traffic: Traffic) -> Option<f64> {
        match rate_per_s > 0.0 {
            true => self.length(rate_per_s, traffic).map(|length| length / rate_per_s * 1e6),
            false => Some(self.demand_us()),
        }
    }

    /// Mean bytes of payload in the network: what a payload cache that misses nothing holds (fast forwarding, 2.3).
    pub fn cache_bytes(&self, rate_per_s: f64, traffic: Traffic, packet_bytes: f64) -> Option<f64> {
        self.length(rate_per_s, traffic).map(|length| length * packet_bytes)
    }

    /// The largest part of saturation at which the cache is at most `bytes`, within one part in 2^40.
    pub fn load_for_cache(&self, bytes: f64, traffic: Traffic, packet_bytes: f64) -> f64 {
        let fits = |load: f64| {
            let held = self.cache_bytes(load * self.saturation_per_s(), traffic, packet_bytes);
            held.is_some_and(|held| held <= bytes)
        };
        let halve = |(low, high): (f64, f64), _| {
            let middle = (low + high) / 2.0;
            if fits(middle) { (middle, high) } else { (low, middle) }
        };
        (0..40).fold((0.0, 1.0), halve).0
    }
}

/// The one with the larger demand, or the first.
fn longer<'c>(first: &'c Centre, second: &'c Centre) -> &'c Centre {
    if second.demand_us() > first.demand_us() { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Network {
        Network { centres: vec![Centre::new("a", 1, 10.0), Centre::new("b", 2, 20.0)] }
    }

    #[test]
    fn the_largest_demand_is_the_bottleneck() {
        assert_eq!(two().bottleneck().name, "b");
        assert_eq!(two().saturation_per_s(), 25_000.0);
        assert_eq!(two().demand_us(), 50.0);
        let equal = Network { centres: vec![Centre::new("a", 2, 5.0), Centre::new("b", 1, 10.0)] };
        assert_eq!(equal.bottleneck().name, "a");
    }

    #[test]
    fn lengths_of_the_textbook() {
        let one = Network { centres: vec![Centre::new("a", 1, 10.0)] };
        assert_eq!(one.length(50_000.0, Traffic::Mm1), Some(1.0));
        assert_eq!(one.length(50_000.0, Traffic::Md1), Some(0.75));
        assert_eq!(one.length(50_000.0, Traffic::Dd1), Some(0.5));
        assert_eq!(one.response_us(50_000.0, Traffic::Mm1), Some(20.0));
        assert_eq!(one.cache_bytes(50_000.0, Traffic::Mm1, 4096.0), Some(4096.0));
    }

    #[test]
    fn at_saturation_nothing_is_bounded() {
        for traffic in Traffic::ALL {
            assert_eq!(two().length(25_000.0, traffic), None);
            assert_eq!(two().response_us(0.0, traffic), Some(50.0));
        }
    }

    #[test]
    fn a_load_for_a_cache_is_the_inverse() {
        let bytes = 16.0 * 4096.0;
        let load = two().load_for_cache(bytes, Traffic::Mm1, 4096.0);
        let held = two().cache_bytes(load * two().saturation_per_s(), Traffic::Mm1, 4096.0);
        assert!((held.unwrap() / bytes - 1.0).abs() < 1e-6, "{held:?}");
    }
}
