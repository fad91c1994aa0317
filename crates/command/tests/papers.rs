//! `trapeze papers` as a user runs it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

fn papers(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapeze"));
    command.arg("papers").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = papers(arguments);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut files: Vec<_> =
        entries.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// Runs experiments on so many processors: what is printed, and the files. No band is left.
fn checked(names: &[String], jobs: &str) -> (String, Vec<(String, Vec<u8>)>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let mut arguments: Vec<&str> = names.iter().map(String::as_str).collect();
    arguments.extend(["--check", "--jobs", jobs, "--out", out]);
    (text(&papers(&arguments)).replace(out, "OUT"), files(folder.path()))
}

/// The first experiment of each model: those that move files through whole clusters, and all others. On which threads
/// their points run is the command's business and not the experiment's, and `crates/sim/tests/papers.rs` runs all.
fn names() -> (Vec<String>, Vec<String>) {
    let listed = text(&papers(&["--list", "--json"]));
    let object = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let mut of_models = BTreeMap::new();
    for line in listed.lines() {
        let name = object(line)["name"].as_str().unwrap().to_string();
        let text = std::fs::read_to_string(format!("{KEPT}/{name}.toml")).unwrap();
        let model = text.lines().find(|line| line.starts_with("model = ")).unwrap().to_string();
        of_models.entry(model).or_insert(name);
    }
    let (whole, others): (Vec<_>, Vec<_>) =
        of_models.into_iter().partition(|(model, _)| model.contains("\"slice-"));
    let names = |some: Vec<(String, String)>| some.into_iter().map(|(_, name)| name).collect();
    let (whole, mut others): (_, Vec<String>) = (names(whole), names(others));
    others.extend(AS_WELL.map(String::from));
    (whole, others)
}

/// Beside the first of each model: a table of one, and a drawing that has a trace.
const AS_WELL: [&str; 2] = ["forwarding-table-2", "hpdc-figure-2"];

/// Where goldens are.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/papers");

fn assert_kept(files: &[(String, Vec<u8>)]) {
    let goldens = files.iter().filter(|(name, _)| name.ends_with(".txt") || name.ends_with(".svg"));
    for (name, bytes) in goldens {
        let golden = std::fs::read(Path::new(KEPT).join(name)).unwrap();
        assert!(golden == *bytes, "{name} is not what is kept beside its experiment");
    }
}

/// The same bytes in every file and on the terminal, on one processor and on two.
#[test]
fn one_thread_or_two_write_the_same_bytes() {
    let (_, names) = names();
    let (one, two) = (checked(&names, "1"), checked(&names, "2"));
    assert!(one == two, "the number of threads shows");
    let (printed, files) = one;
    assert!(printed.contains("demand of the adapter, LANai-4, cache off"), "{printed}");
    assert!(printed.ends_with("written: OUT/report.html\n"));
    let endings = ["txt", "md", "csv", "json", "svg", "html", "trace.json"];
    for ending in endings {
        assert!(files.iter().any(|(name, _)| name.ends_with(&format!(".{ending}"))), "{ending}");
    }
    assert!(files.iter().all(|(_, bytes)| !bytes.is_empty()));
    assert_kept(&files);
}

/// One of the longest experiments says on two processors what `crates/papers/tests/papers.rs` keeps of one.
#[test]
fn whole_clusters_on_two_threads_are_as_kept() {
    let (names, others) = names();
    assert!(names.len() >= 3 && others.len() >= 10, "{names:?} {others:?}");
    let short = "what-if-write".to_string();
    assert_kept(&checked(&[short], "2").1);
}

#[test]
fn names_choose_and_json_is_one_object_a_line() {
    let printed = text(&papers(&["hpdc-figure-8", "hpdc-bounds", "--json"]));
    let objects: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = objects.iter().map(|object| object["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hpdc-figure-8", "hpdc-bounds"]);
    assert_eq!(objects[0]["rows"][0]["paper"], 3.0);
    assert!(text(&papers(&["--list"])).contains("forwarding-table-2"));
}

#[test]
fn what_cannot_be_run_is_named() {
    assert!(refused(&["forwarding-figure-9"]).contains("trapeze papers --list"));
    assert!(refused(&["/nowhere/mine.toml"]).contains("/nowhere/mine.toml"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "paper = \"p\"\nmodel = 3\n").unwrap();
    let told = refused(&[file.to_str().unwrap()]);
    assert!(told.contains("mine.toml:2: invalid type"), "{told}");
}

/// A file of one's own runs, and `--check` fails with what is outside its band, and by how much.
#[test]
fn a_band_that_is_left_fails_the_check() {
    let experiment = "paper = \"p\"\nwhat = \"w\"\ntitle = \"t\"\nsentence = \"s\"\nmodel = \"bound\"\n\
                      preset = \"hpdc\"\n[[axis]]\nname = \"ratio\"\nvalues = [2]\n[[axis]]\nname = \"write\"\n\
                      values = [1]\n[[expect]]\nmeasure = \"speed-up\"\npaper = 2.5\nband_percent = 3\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, experiment).unwrap();
    let file = file.to_str().unwrap();
    assert!(text(&papers(&[file])).contains("NO"));
    let told = refused(&[file, "--check"]);
    assert!(told.contains("1 value is outside"), "{told}");
    assert!(
        told.contains("mine: speed-up of cut-through delivery: -20.00 %, 3 % allowed"),
        "{told}"
    );
}
