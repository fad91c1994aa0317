//! The queueing model against the simulation that shares no formula with it.

use papers::queueing::simulate::{Load, Measured, Plan, simulate};
use papers::queueing::{Centre, Network, Traffic};

fn forwarder(visits: u32) -> Network {
    let bus = Centre::new("PCI", visits, 31.03);
    Network { centres: vec![Centre::new("NIC", 1, 42.27), bus, Centre::new("host", 1, 20.0)] }
}

fn run(network: &Network, traffic: Traffic, load: f64, seed: u64) -> Measured {
    let rate = load * network.saturation_per_s();
    let load = Load::Rate(rate);
    simulate(network, Plan { traffic, load, packets: 200_000, warm_up: 5_000, seed })
}

/// Length and response of the formula against those measured: per cent.
fn check(network: &Network, traffic: Traffic, load: f64, band_percent: f64) {
    let measured = run(network, traffic, load, 7);
    let rate = load * network.saturation_per_s();
    let length = network.length(rate, traffic).unwrap();
    let response = network.response_us(rate, traffic).unwrap();
    for (what, formula, found) in
        [("length", length, measured.length), ("response", response, measured.response_us)]
    {
        let error = (found / formula - 1.0) * 100.0;
        let little = measured.little_residual() * 100.0;
        println!(
            "{} at {load}: {what} {formula:.4}, {found:.4}: {error:.2} %, Little's law {little:.4} %",
            traffic.name()
        );
        assert!(error.abs() <= band_percent, "{what}: {found} instead of {formula}");
    }
    assert!(measured.little_residual().abs() < 1e-3, "{}", measured.little_residual());
}

#[test]
fn exponential_networks_are_products_of_queues() {
    for visits in [1, 2] {
        for load in [0.3, 0.6, 0.8] {
            check(&forwarder(visits), Traffic::Mm1, load, 5.0);
        }
    }
}

#[test]
fn constant_service_behind_poisson_arrivals() {
    let one = Network { centres: vec![Centre::new("PCI", 1, 31.03)] };
    for load in [0.3, 0.6, 0.8] {
        check(&one, Traffic::Md1, load, 3.0);
    }
}

#[test]
fn a_paced_stream_never_waits() {
    for load in [0.3, 0.6, 0.95] {
        check(&forwarder(1), Traffic::Dd1, load, 0.01);
    }
}

/// No packet waits behind a centre with constant service that is the slowest: the estimate is above the measured
/// length.
#[test]
fn constant_service_in_a_row_is_overestimated() {
    let network = forwarder(1);
    let measured = run(&network, Traffic::Md1, 0.8, 7);
    let estimate = network.length(0.8 * network.saturation_per_s(), Traffic::Md1).unwrap();
    assert!(measured.length < 0.95 * estimate, "{} and {estimate}", measured.length);
    let bare = 0.8 * network.saturation_per_s() * network.demand_us() / 1e6;
    assert!(measured.length > bare, "somebody waits for the bottleneck");
}

#[test]
fn a_full_ring_runs_at_saturation() {
    for visits in [1, 2] {
        let network = forwarder(visits);
        let load = Load::Window(64);
        let plan = Plan { traffic: Traffic::Dd1, load, packets: 20_000, warm_up: 1_000, seed: 1 };
        let measured = simulate(&network, plan);
        let error = measured.rate_per_s / network.saturation_per_s() - 1.0;
        let ends = 64.0 / 20_000.0; // what is inside when measuring begins and ends
        assert!(
            error.abs() < ends,
            "{} instead of {}",
            measured.rate_per_s,
            network.saturation_per_s()
        );
        assert!((measured.length - 64.0).abs() < 1e-9, "{}", measured.length);
        for (centre, demand) in network.centres.iter().zip(&measured.demands_us) {
            assert!((demand / centre.demand_us() - 1.0).abs() < 1e-2, "{}: {demand}", centre.name);
        }
    }
}

#[test]
fn the_confidence_interval_holds_the_formula() {
    let network = forwarder(2);
    let length = network.length(0.6 * network.saturation_per_s(), Traffic::Mm1).unwrap();
    let inside = (0..20).filter(|seed| {
        let measured = run(&network, Traffic::Mm1, 0.6, *seed);
        (measured.length - length).abs() <= measured.length_half_width
    });
    let inside = inside.count();
    assert!(inside >= 15, "95 % of 20 seeds are expected to, {inside} did");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let once = run(&forwarder(2), Traffic::Mm1, 0.6, 3);
    assert_eq!(once, run(&forwarder(2), Traffic::Mm1, 0.6, 3));
    assert_ne!(once.fingerprint, run(&forwarder(2), Traffic::Mm1, 0.6, 4).fingerprint);
}

/// The streams are named: a further centre without visits changes nothing for the others.
#[test]
fn another_centre_does_not_change_the_luck_of_the_others() {
    let mut more = forwarder(2);
    more.centres.push(Centre::new("disk", 0, 10.0));
    let (with, without) =
        (run(&more, Traffic::Mm1, 0.6, 3), run(&forwarder(2), Traffic::Mm1, 0.6, 3));
    assert_eq!(with.fingerprint, without.fingerprint);
}
