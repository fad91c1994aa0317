//! Every experiment of the papers, run as the command runs it.

use papers::builtin::{self, CATALOGUE};
use papers::{Experiment, Outcome, Point, Source, Value, pages};
use std::sync::Mutex;
use std::thread;

fn outcome(experiment: &Experiment) -> Outcome {
    let run = |point| (experiment.model.run)(point, &experiment.constants);
    let results: Vec<Vec<Value>> = experiment.points().iter().map(run).collect();
    experiment.outcome(&results)
}

/// Those of all, whose points are run on two threads: that decides nothing, as what is kept shows, which was computed
/// with one thread for each experiment.
fn outcomes(experiments: &[Experiment]) -> Vec<Outcome> {
    let points: Vec<Vec<Point>> = experiments.iter().map(Experiment::points).collect();
    let of_one = |(experiment, points)| std::iter::repeat(experiment).zip(points);
    let left = Mutex::new(experiments.iter().zip(&points).flat_map(of_one).enumerate());
    let work = || {
        let mine = std::iter::from_fn(|| left.lock().unwrap().next());
        let run = |(at, (experiment, point)): (usize, (&Experiment, &Point))| {
            (at, (experiment.model.run)(point, &experiment.constants))
        };
        mine.map(run).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, Vec<Value>)> = thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    let mut values = done.into_iter().map(|(_, values)| values);
    let mut outcome = |(experiment, points): (&Experiment, &Vec<Point>)| {
        experiment.outcome(&values.by_ref().take(points.len()).collect::<Vec<_>>())
    };
    experiments.iter().zip(&points).map(&mut outcome).collect()
}

/// No declared band is left, and what the tables say is what is kept beside the files.
/// `UPDATE_EXPECT=1` keeps what they say now.
#[test]
fn every_experiment_is_within_its_bands_and_as_before() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/papers");
    let mut ran = Vec::new();
    let experiments = builtin::experiments().unwrap();
    let outcomes = outcomes(&experiments);
    for (experiment, outcome) in experiments.into_iter().zip(outcomes) {
        let table = outcome.table.as_ref().map(|table| table.text()).unwrap_or_default();
        let figure = outcome.figure.as_ref().map(|figure| figure.svg()).unwrap_or_default();
        println!("{table}");
        let outside = outcome.table.iter().flat_map(|table| table.outside());
        let outside: Vec<&str> = outside.map(|row| row.what.as_str()).collect();
        assert!(outside.is_empty(), "{}: {outside:?}", experiment.name);
        for (kind, text) in [("txt", table), ("svg", figure)] {
            let path = format!("{folder}/{}.{kind}", experiment.name);
            compare(&path, &text);
        }
        ran.push((experiment, outcome));
    }
    let page = std::fs::read_to_string(PAGE).unwrap();
    let written = page.lines().take_while(|line| !line.starts_with("<!-- generated"));
    let mark = page.lines().find(|line| line.starts_with("<!-- generated")).unwrap();
    let written: String = written.chain([mark, ""]).map(|line| format!("{line}\n")).collect();
    compare(PAGE, &(written + pages::markdown(&ran).trim_end() + "\n"));
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/papers.md");

/// The file that the documentation shows is one that runs.
#[test]
fn the_example_of_the_documentation_runs() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let text = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let experiment = Experiment::parse("mine", Source { file: "mine.toml", text }, CATALOGUE);
    let outcome = outcome(&experiment.unwrap());
    let table = outcome.table.unwrap();
    assert_eq!(table.rows[0].is_within(), Some(true), "{}", table.text());
}

fn compare(path: &str, text: &str) {
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    if std::env::var_os("UPDATE_EXPECT").is_some() && text != kept {
        std::fs::write(path, text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text, "{path} differs from what runs now; UPDATE_EXPECT=1 keeps that");
}

/// The examples run; their tables are kept beside them. `cluster-1000` is for `trapeze bench simulator`, and `managers`
/// takes minutes: `tests/managers.rs` has a part of it.
#[test]
fn the_examples_are_as_before() {
    let read = |(name, source): &(&str, Source<'_>)| Experiment::parse(name, *source, CATALOGUE);
    let experiments: Vec<Experiment> =
        builtin::EXAMPLES.iter().map(|example| read(example).unwrap()).collect();
    assert_eq!(experiments[1].points()[0].simulate, Some(2_000_000));
    let is_long = |known: &&Experiment| matches!(&known.name[..], "cluster-1000" | "managers");
    for experiment in experiments.iter().filter(|known| !is_long(known)) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
        let kept = format!("{folder}/{}", experiment.name);
        let outcome = outcome(experiment);
        compare(&format!("{kept}.txt"), &outcome.table.unwrap().text());
        if let Some(figure) = outcome.figure {
            compare(&format!("{kept}.svg"), &figure.svg());
        }
    }
}

#[test]
fn the_order_of_points_decides_nothing() {
    let mut experiments = builtin::experiments().unwrap();
    let experiment =
        experiments.iter_mut().find(|known| known.name == "forwarding-queues").unwrap();
    experiment.simulate.as_mut().unwrap().amount = 1_000;
    let points = experiment.points();
    let run = |point| (experiment.model.run)(point, &experiment.constants);
    let forward: Vec<Vec<Value>> = points.iter().map(run).collect();
    let mut backward: Vec<Vec<Value>> = points.iter().rev().map(run).collect();
    backward.reverse();
    assert_eq!(forward, backward);
}

const GOOD: &str = r#"paper = "p"
what = "Figure 1"
title = "t"
sentence = "s"
model = "bound"
preset = "hpdc"

[[axis]]
name = "ratio"
values = [1, 2]

[[axis]]
name = "write"
values = [1]

[[expect]]
measure = "speed-up"
at = { ratio = 2 }
paper = 2

[figure.lines]
x = "ratio"
y = "speed-up"
"#;

fn fault(text: &str) -> String {
    let source = Source { file: "mine.toml", text };
    Experiment::parse("mine", source, CATALOGUE).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_file_of_ones_own() {
    let source = Source { file: "mine.toml", text: GOOD };
    let experiment = Experiment::parse("mine", source, CATALOGUE).unwrap();
    assert_eq!(experiment.points().len(), 2);
    let outcome = outcome(&experiment);
    assert_eq!(outcome.table.unwrap().rows[0].formula, Some(2.0));
    assert!(outcome.figure.unwrap().svg().starts_with("<svg"));
}

/// A mistake is told with file, line and what is allowed.
#[test]
fn mistakes_are_told_with_their_line_and_what_is_allowed() {
    let cases = [
        ("preset = \"hpdc\"", "", "mine.toml:5: model `bound` needs a `preset`: hpdc"),
        (
            "preset = \"hpdc\"",
            "preset = \"forwarding\"",
            "mine.toml:6: preset `forwarding` does not fit model `bound`: presets/forwarding.toml:",
        ),
        (
            "model = \"bound\"",
            "model = \"bond\"",
            "mine.toml:5: unknown model `bond`; allowed: bound, dma, latency, fetch, stream, burst, tcp, forward, forward-gains, forward-load, forward-bursts, forward-adapters, forward-mix, forwarding, cluster, memory, managers, prefetch, slice-read, slice-write, slice-whole, fault",
        ),
        ("\"hpdc\"", "\"hpcd\"", "mine.toml:6: unknown preset `hpcd`; allowed: hpdc"),
        ("\"write\"", "\"wright\"", "mine.toml:13: unknown axis `wright`; allowed: ratio, write"),
        (
            "values = [1, 2]",
            "values = [1, 200]",
            "mine.toml:9: `200` cannot be on axis `ratio`; allowed: a number from 0.01 to 100",
        ),
        (
            "values = [1, 2]",
            "values = [1, \"two\"]",
            "mine.toml:9: `two` cannot be on axis `ratio`; allowed: a number from 0.01 to 100",
        ),
        (
            "values = [1, 2]",
            "from = 1",
            "mine.toml:9: axis `ratio` needs either `values`, or `from`, `to` and a positive `step`",
        ),
        (
            "values = [1, 2]",
            "values = [1, 2]\nunit = \"us\"",
            "mine.toml:11: unknown unit of axis `ratio` `us`; allowed: ",
        ),
        (
            "measure = \"speed-up\"",
            "measure = \"speed\"",
            "mine.toml:17: unknown measure `speed`; allowed: store-and-forward, cut-through, speed-up, bus",
        ),
        (
            "at = { ratio = 2 }",
            "at = { ratio = 3 }",
            "mine.toml:18: unknown value of axis `ratio` `3`; allowed: 1, 2",
        ),
        (
            "at = { ratio = 2 }",
            "at = {}",
            "mine.toml:17: the paper's value is for one point, `at` names 2",
        ),
        (
            "paper = 2",
            "paper = 2\nunit = \"ms\"",
            "mine.toml:20: unknown unit of measure `speed-up` `ms`; allowed: ",
        ),
        (
            "paper = 2",
            "paper = 2\nband_percent = 101",
            "mine.toml:20: `band_percent` = 101: a number from 0 to 100",
        ),
        (
            "paper = 2",
            "paper = 2\norigin = \"guessed\"",
            "mine.toml:20: unknown origin `guessed`; allowed: fitted, predicted",
        ),
        ("paper = 2", "paper = 0", "mine.toml:19: `paper` = 0: a number other than 0"),
        ("paper = 2", "paper = nan", "mine.toml:19: `paper` = NaN: a number other than 0"),
        (
            "y = \"speed-up\"",
            "y = \"speed-up\"\ny_most = inf",
            "mine.toml:24: `y_most` = inf: a number from -1000000000000 to 1000000000000",
        ),
        (
            "y = \"speed-up\"",
            "y = \"speed-up\"\ny_least = 3\ny_most = 2",
            "mine.toml:25: `y_most` = 2: more than 3, `y_least`",
        ),
        ("paper = 2", "papers = 2", "mine.toml:19: unknown field `papers`, expected one of"),
        (
            "y = \"speed-up\"",
            "y = \"ratio\"",
            "mine.toml:23: unknown measure `ratio`; allowed: store-and-forward",
        ),
        (
            "[figure.lines]",
            "[figure.line]",
            "mine.toml:21: unknown variant `line`, expected one of `lines`, `bars`, `drawing`",
        ),
        ("title = \"t\"", "title = t", "mine.toml:3: "),
        (
            "preset = \"hpdc\"",
            "preset = \"hpdc\"\nseeds = []",
            "mine.toml:7: 0 seeds; allowed: 1 to 64",
        ),
        (
            "values = [1]",
            "from = 0.01\nto = 100\nstep = 0.005",
            "mine.toml:13: the sweep has 39998 points, 20000 is the most",
        ),
    ];
    for (right, wrong, told) in cases {
        assert!(GOOD.contains(right), "{right}");
        let fault = fault(&GOOD.replacen(right, wrong, 1));
        assert!(fault.starts_with(told), "{wrong}:\n{fault}\n{told}");
    }
}

#[test]
fn constants_need_a_unit_and_a_source() {
    use papers::constants::Constants;
    let wanted = [("a.x", "us"), ("a.y", "MB/s")];
    let told = |text: &str| {
        let text = format!("kind = \"constants\"\nabout = \"x\"\n[a]\n{text}");
        let source = Source { file: "c.toml", text: &text };
        Constants::parse(source, &wanted).map(|_| ()).map_err(|fault| fault.to_string())
    };
    assert_eq!(told("x = [\"1 us\", \"s\"]\ny = [\"2 MB/s\", \"s\"]"), Ok(()));
    let cases = [
        ("x = [\"1 ms\", \"s\"]", "c.toml:4: `x` = 1 ms; allowed: a number from 0 on, in us"),
        ("x = [\"one us\", \"s\"]", "c.toml:4: `x` = one us; allowed: a number from 0 on, in us"),
        ("x = [\"1 us\", \"\"]", "c.toml:4: `x` must be [\"value\", \"source\"]"),
        ("z = [\"1 us\", \"s\"]", "c.toml:3: `x` is missing in [a]"),
        ("x = [\"1 us\", \"s\"]", "c.toml:3: `y` is missing in [a]"),
        (
            "x = [\"1 us\", \"s\"]\ny = [\"2 MB/s\", \"s\"]\nz = [1, \"s\"]",
            "c.toml:6: unknown key `z` in [a]; allowed: x, y",
        ),
    ];
    for (text, expected) in cases {
        let told = told(text).unwrap_err();
        assert!(told.starts_with(expected), "{told}\nexpected: {expected}");
    }
    let source = Source { file: "c.toml", text: "kind = \"board\"\nabout = \"x\"\n" };
    let told = Constants::parse(source, &wanted).unwrap_err().to_string();
    assert_eq!(told, "c.toml:1: `kind` = board; constants are needed here");
}
