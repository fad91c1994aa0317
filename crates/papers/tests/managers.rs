//! A name space on several managers.

use papers::builtin::{CATALOGUE, EXAMPLES};
use papers::{Experiment, Source};

/// Least share of twice one manager's operations.
const SCALING_MIN: f64 = 90.0;

/// Each kind of operations, in many directories and in a hashed one. The whole table is in `experiments/managers.txt`.
#[test]
fn two_managers_do_nearly_twice_as_much_as_one() {
    let (name, source): &(&str, Source<'_>) =
        EXAMPLES.iter().find(|(name, _)| *name == "managers").unwrap();
    let mut experiment = Experiment::parse(name, *source, CATALOGUE).unwrap();
    experiment.simulate.as_mut().unwrap().amount = 1_000;
    let points = experiment.points();
    let two = points.iter().filter(|point| point.number("managers") == 2.0);
    let scaling = experiment.model.measure("scaling").unwrap();
    let mut ran = 0;
    for point in two {
        let values = (experiment.model.run)(point, &experiment.constants);
        let percent = values[scaling].simulated.unwrap();
        assert!(percent >= SCALING_MIN, "{percent} % at {point:?}");
        ran += 1;
    }
    assert_eq!(ran, 6);
}
