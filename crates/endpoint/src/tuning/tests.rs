//! Estimators fed with samples whose truth is known.

use super::*;
use proptest::prelude::*;

fn cost() -> impl Strategy<Value = Cost> {
    (20.0..20_000.0, 0.01..20.0).prop_map(|(transfer, byte)| Cost { transfer, byte })
}

/// Samples of stages of this cost: of sizes that differ, each up to a tenth off.
fn samples(cost: Cost, seeds: &[(u8, i8)]) -> Vec<(usize, u64)> {
    let one = |(size, error): &(u8, i8)| {
        let bytes = 512_usize << (size % 11);
        (bytes, scattered(cost.of(bytes), *error))
    };
    seeds.iter().map(one).collect()
}

/// Up to a tenth off.
fn scattered(span: f64, error: i8) -> u64 {
    (span * (1.0 + f64::from(error) / 1280.0)) as u64
}

fn seeds(count: usize) -> impl Strategy<Value = Vec<(u8, i8)>> {
    prop::collection::vec(any::<(u8, i8)>(), count)
}

fn near(found: Cost, cost: Cost, share: f64) -> bool {
    [512, 8 << 10, 512 << 10].iter().all(|bytes| {
        let (found, real) = (found.of(*bytes), cost.of(*bytes));
        (found - real).abs() <= share * real
    })
}

proptest! {
    #[test]
    fn costs_are_found_from_samples_that_scatter(cost in cost(), seeds in seeds(200)) {
        let mut estimate = Estimate::default();
        samples(cost, &seeds).into_iter().for_each(|(bytes, span)| estimate.add(bytes, span));
        let found = estimate.cost().unwrap();
        prop_assert!(near(found, cost, 0.15), "{found:?} instead of {cost:?}");
    }

    /// A thread that loses its processor makes a transfer take a hundred times as long.
    #[test]
    fn transfers_that_were_interrupted_hardly_count(cost in cost(), seeds in seeds(200)) {
        let mut estimate = Estimate::default();
        for (at, (bytes, span)) in samples(cost, &seeds).into_iter().enumerate() {
            estimate.add(bytes, if at % 10 == 0 { span * 100 } else { span });
        }
        let found = estimate.cost().unwrap();
        prop_assert!(near(found, cost, 0.25), "{found:?} instead of {cost:?}");
    }

    #[test]
    fn a_machine_that_changes_is_followed(cost in cost(), factor in 0.2..5.0, seeds in seeds(600)) {
        let mut estimate = Estimate::default();
        samples(cost, &seeds).into_iter().for_each(|(bytes, span)| estimate.add(bytes, span));
        let changed = Cost { transfer: cost.transfer * factor, byte: cost.byte * factor };
        samples(changed, &seeds).into_iter().for_each(|(bytes, span)| estimate.add(bytes, span));
        let found = estimate.cost().unwrap();
        prop_assert!(near(found, changed, 0.25), "{found:?} instead of {changed:?}");
    }

    /// Whatever samples say, a stage never takes less than no time.
    #[test]
    fn costs_are_never_negative(
        samples in prop::collection::vec((0usize..1 << 20, any::<u32>()), 0..100),
    ) {
        let mut estimate = Estimate::default();
        samples.iter().for_each(|(bytes, span)| estimate.add(*bytes, u64::from(*span)));
        if let Some(found) = estimate.cost() {
            prop_assert!(found.transfer >= 0.0 && found.byte >= 0.0, "{found:?}");
            prop_assert!(found.transfer.is_finite() && found.byte.is_finite(), "{found:?}");
            prop_assert!(found.worthwhile() <= PAYLOAD_BYTES_MAX);
        }
    }
}

/// When the last byte of `total` is through both stages, if the sink takes all that is buffered once that is at least
/// `minimum`. The source brings all in one transfer, and shows what it has brought.
fn finish(total: usize, minimum: usize, source: Cost, sink: Cost) -> f64 {
    let (mut moved, mut time) = (0, 0.0_f64);
    while moved < total {
        let least = minimum.clamp(1, total - moved);
        let start = time.max(source.of(moved + least));
        let there = ((start - source.transfer) / source.byte) as usize;
        let upto = there.clamp(moved + least, total);
        time = start + sink.of(upto - moved);
        moved = upto;
    }
    time
}

/// Sends payloads through two modelled stages; the time of the last eighth beside that with the best fixed minimum.
fn ratio(tuner: &mut Tuner, total: usize, (source, sink): (Cost, Cost), errors: &[i8]) -> f64 {
    let time = |minimum| finish(total, minimum, source, sink);
    let mut late = Vec::new();
    for (at, error) in errors.iter().enumerate() {
        let minimum = tuner.minimum(total);
        let interrupted = if at % 50 == 7 { 20 } else { 1 };
        tuner.learn(total, minimum, scattered(time(minimum), *error) * interrupted);
        if at >= errors.len() / 8 * 7 {
            late.push(time(minimum));
        }
    }
    let best = (0..minima(total)).map(|at| time(total >> at)).fold(f64::MAX, f64::min);
    late.iter().sum::<f64>() / late.len() as f64 / best
}

fn errors(count: usize) -> impl Strategy<Value = Vec<i8>> {
    prop::collection::vec(any::<i8>(), count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// On any machine payloads take hardly longer than with the minimum that is best there, tries of others included.
    #[test]
    fn pulses_come_to_be_as_good_as_the_best(
        source in cost(), sink in cost(), exponent in 10u32..=20, errors in errors(600), turns: bool,
    ) {
        let order = if turns { Order::Turns } else { Order::Blocks };
        let ratio = ratio(&mut Tuner::new(order), 1 << exponent, (source, sink), &errors);
        prop_assert!(ratio <= 1.12, "{ratio}");
    }

    #[test]
    fn another_machine_is_learnt_anew(
        before in (cost(), cost()), factors in prop::array::uniform4(0.2..5.0),
        exponent in 10u32..=20, errors in errors(4000),
    ) {
        let changed = |Cost { transfer, byte }: Cost, [of_transfer, of_byte]: [f64; 2]| {
            Cost { transfer: transfer * of_transfer, byte: byte * of_byte }
        };
        let [a, b, c, d] = factors;
        let after = (changed(before.0, [a, b]), changed(before.1, [c, d]));
        let mut tuner = Tuner::new(Order::Turns);
        ratio(&mut tuner, 1 << exponent, before, &errors[..400]);
        let ratio = ratio(&mut tuner, 1 << exponent, after, &errors);
        prop_assert!(ratio <= 1.15, "{ratio}");
    }

    /// A minimum is a part of the payload that is not too short, whatever was learnt.
    #[test]
    fn a_minimum_is_one_of_those_that_are_tried(
        learnt in prop::collection::vec((0usize..2 << 20, 0usize..2 << 20, any::<u32>()), 0..300),
        total in 0usize..=1 << 20,
    ) {
        let mut tuner = Tuner::new(Order::Turns);
        learnt.iter().for_each(|(total, minimum, span)| tuner.learn(*total, *minimum, u64::from(*span)));
        for minimum in [tuner.minimum(total), tuner.best(total)] {
            prop_assert!(minimum == total || minimum >= MINIMUM_BYTES / 2, "{minimum} of {total}");
            prop_assert!(minimum <= total && minimum >= total >> (MINIMA - 1));
        }
    }
}

#[test]
fn every_minimum_is_tried_before_one_is_chosen() {
    let mut tuner = Tuner::new(Order::Turns);
    let total = 64 << 10;
    assert_eq!(tuner.minimum(total), total);
    for _ in 0..MINIMA as u32 * FIRST_SAMPLES {
        assert!(tuner.is_learning(total));
        let minimum = tuner.minimum(total);
        tuner.learn(total, minimum, if minimum == 16 << 10 { 900 } else { 1000 });
    }
    assert!(!tuner.is_learning(total));
    assert_eq!((tuner.minimum(total), tuner.best(total)), (16 << 10, 16 << 10));
    assert_eq!(tuner.measured(total).count(), MINIMA);
    assert!(tuner.is_learning(32 << 10), "each class by itself");
    assert_eq!(tuner.minimum(32 << 10), 32 << 10);
    tuner.learn(32 << 10, 32 << 10, 500);
    assert_eq!(tuner.minimum(32 << 10), 16 << 10, "in turns");
    let mut tuner = Tuner::new(Order::Blocks);
    tuner.learn(32 << 10, 32 << 10, 500);
    assert_eq!(tuner.minimum(32 << 10), 32 << 10, "again");
}

#[test]
fn a_transfer_costs_an_eighth_of_what_is_worth_one() {
    let cost = Cost { transfer: 1000.0, byte: 0.5 };
    assert_eq!(cost.worthwhile(), 16_000);
    assert_eq!(Cost { byte: 0.0, ..cost }.worthwhile(), PAYLOAD_BYTES_MAX);
    assert_eq!(Cost::default().worthwhile(), PAYLOAD_BYTES_MAX, "nothing is known");
}
