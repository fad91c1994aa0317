//! `trapeze papers`: experiments of the papers, on all processors, as tables, figures and one page.
//!
//! The output is a function of the experiments: neither time nor the number of processors is in it.

use crate::cli;
use papers::builtin::{self, CATALOGUE};
use papers::report::perfetto::Trace;
use papers::report::{Drawing, Row};
use papers::{Catalogue, Experiment, Fault, Outcome, Point, Source, Value, pages};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use terminal::progress;
use terminal::table::print_json;

/// Why nothing came out, or what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum PapersError {
    /// A file.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// An experiment.
    #[error("{0}")]
    Experiment(#[from] Fault),
    /// A name.
    #[error("no experiment is called {0:?}; `trapeze papers --list` shows those there are")]
    Unknown(String),
    /// Bands.
    #[error("{} outside the declared bands:\n{}", values(.0.len()), .0.join("\n"))]
    Outside(Vec<String>),
}

fn values(count: usize) -> String {
    if count == 1 { "1 value is".to_string() } else { format!("{count} values are") }
}

type Ran = (Experiment, Outcome);

/// Runs experiments, prints what they say, and with `--check` fails when a band is left.
pub fn papers(arguments: &cli::Papers) -> Result<(), PapersError> {
    let experiments = chosen(&arguments.experiments)?;
    if arguments.list {
        experiments.iter().for_each(|experiment| list(experiment, arguments.output.json));
        return Ok(());
    }
    evaluate(experiments, &arguments.results, &arguments.output)
}

/// Runs experiments with models, prints and writes what they say.
pub fn evaluate(
    experiments: Vec<Experiment>,
    results: &cli::Results,
    output: &cli::Output,
) -> Result<(), PapersError> {
    let ran = run(experiments, output.jobs());
    if let Some(folder) = &results.out {
        write(folder, &ran)?;
    }
    print(&ran, results, output.json);
    let outside: Vec<String> = ran.iter().flat_map(outside).collect();
    if results.check && !outside.is_empty() {
        return Err(PapersError::Outside(outside));
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<Experiment>, PapersError> {
    let builtin = builtin::experiments()?;
    if names.is_empty() {
        return Ok(builtin);
    }
    let find = |name: &String| match name.ends_with(".toml") {
        true => read(Path::new(name)),
        false => {
            let found = builtin.iter().find(|experiment| experiment.name == *name);
            found.cloned().ok_or_else(|| PapersError::Unknown(name.clone()))
        }
    };
    names.iter().map(find).collect()
}

fn read(path: &Path) -> Result<Experiment, PapersError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| PapersError::File(path.into(), error))?;
    let file = path.display().to_string();
    Ok(parse(path, Source { file: &file, text: &text })?)
}

/// An experiment with a model; the presets that it names by a path are beside it.
pub fn parse(path: &Path, source: Source<'_>) -> Result<Experiment, Fault> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let beside = |name: &str| path.parent().unwrap_or(Path::new("")).join(name);
    let read =
        |name: &str| std::fs::read_to_string(beside(name)).map_err(|error| error.to_string());
    Experiment::parse(&name, source, Catalogue { read: &read, ..CATALOGUE })
}

fn list(experiment: &Experiment, json: bool) {
    let Experiment { name, paper, what, title, .. } = experiment;
    match json {
        true => print_json(&json!({"name": name, "paper": paper, "what": what, "title": title})),
        false => println!("{name:<28} {what}: {title}"),
    }
}

/// Runs all points of all experiments, so many at a time.
fn run(experiments: Vec<Experiment>, jobs: usize) -> Vec<Ran> {
    let points: Vec<Vec<Point>> = experiments.iter().map(Experiment::points).collect();
    let all: Vec<(&Experiment, &Point)> = experiments
        .iter()
        .zip(&points)
        .flat_map(|(experiment, points)| points.iter().map(move |point| (experiment, point)))
        .collect();
    let mut results = on_all_processors(&all, jobs).into_iter();
    let outcomes: Vec<Outcome> = experiments
        .iter()
        .zip(&points)
        .map(|(experiment, points)| {
            experiment.outcome(&results.by_ref().take(points.len()).collect::<Vec<_>>())
        })
        .collect();
    experiments.into_iter().zip(outcomes).collect()
}

/// How often the time beside the bar goes on: a large point takes long.
const TICK: Duration = Duration::from_secs(1);

/// Results of the points, in their order.
fn on_all_processors(points: &[(&Experiment, &Point)], jobs: usize) -> Vec<Vec<Value>> {
    let bar = progress::steps("simulating", points.len() as u64);
    bar.enable_steady_tick(TICK);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Relaxed);
            let Some((experiment, point)) = points.get(index) else { return done };
            done.push((index, (experiment.model.run)(point, &experiment.constants)));
            bar.inc(1);
        }
    };
    let mut results: Vec<(usize, Vec<Value>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no model panics")).collect()
    });
    bar.finish_and_clear();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, values)| values).collect()
}

fn outside((experiment, outcome): &Ran) -> Vec<String> {
    let line = |row: &Row| {
        let error = row.error_percent().map(|error| format!("{error:.2} %"));
        let error = error.unwrap_or_else(|| "no value".to_string());
        let band = row.band_percent.unwrap_or_default();
        format!("  {}: {}: {error}, {band} % allowed", experiment.name, row.what)
    };
    outcome.table.iter().flat_map(|table| table.outside()).map(line).collect()
}

fn print(ran: &[Ran], results: &cli::Results, json: bool) {
    if results.markdown {
        return print!("{}", pages::markdown(ran));
    }
    for (experiment, outcome) in ran {
        match (&outcome.table, json) {
            (Some(table), true) => print_json(&table.value()),
            (Some(table), false) => println!("{}", table.text()),
            (None, true) => {}
            (None, false) => {
                println!("{} (a figure only: --out DIR writes it)\n", experiment.heading());
            }
        }
    }
    if let (Some(folder), false) = (&results.out, json) {
        println!("written: {}", folder.join("report.html").display());
    }
}

/// Everything as files.
fn write(folder: &Path, ran: &[Ran]) -> Result<(), PapersError> {
    let fail = |path: &Path, error| PapersError::File(path.into(), error);
    std::fs::create_dir_all(folder).map_err(|error| fail(folder, error))?;
    let mut files = vec![("report.html".to_string(), pages::html(ran))];
    files.extend(ran.iter().flat_map(files_of));
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| fail(&path, error))?;
    }
    Ok(())
}

fn files_of((experiment, outcome): &Ran) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut file = |ending: &str, text| files.push((format!("{}.{ending}", experiment.name), text));
    if let Some(table) = &outcome.table {
        file("txt", table.text());
        file("md", table.markdown());
        file("csv", table.csv());
        file("json", table.json());
    }
    if let Some(figure) = &outcome.figure {
        file("svg", figure.svg());
        if let Drawing::Stripes(stripes) = &figure.drawing {
            file("trace.json", Trace::from(stripes).json());
        }
    }
    files
}
