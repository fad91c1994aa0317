//! `trapeze sim FILE` as a user runs it: experiments with faults and with a model, presets of one's own.

use std::path::Path;
use std::process::{Command, Output};

/// Runs it in this folder.
fn sim(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapeze"));
    command.current_dir(folder).arg("sim").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The message about a file of this text.
fn refused(text: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine.toml"), text).unwrap();
    let output = sim(folder.path(), &[&["mine.toml"], flags].concat());
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The way of the documentation: print an experiment and a preset, change them, run.
#[test]
fn a_cluster_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let print = |name: &str| text(&sim(folder.path(), &["--print", name]));
    let machine = print("server-gen4").replace("\"4 GB/s\", \"assumed", "\"2 GB/s\", \"measured");
    let few = print("cluster").replace("20_000                    #", "400 #");
    let own = few
        .replace("values = [\"server-gen4\"] ", "values = [\"server-gen4\", \"my-server.toml\"] ");
    assert_ne!(own, few);
    std::fs::write(folder.path().join("my-server.toml"), machine).unwrap();
    std::fs::write(folder.path().join("mine.toml"), own).unwrap();
    let run = |jobs| text(&sim(folder.path(), &["mine.toml", "--jobs", jobs, "--out", "results"]));
    let printed = run("1");
    assert!(printed.starts_with("fetches of 8 KiB between sixteen servers\n"), "{printed}");
    assert!(
        printed.contains("my-server.toml") && printed.contains("written: results/report.html"),
        "{printed}"
    );
    assert_eq!(run("2"), printed);
    assert!(folder.path().join("results/mine.svg").exists());
    let elsewhere = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let from_there = text(&sim(elsewhere.path(), &[path.to_str().unwrap()]));
    assert!(printed.starts_with(from_there.trim_end()), "{from_there}");
}

#[test]
fn all_that_is_built_in_can_be_printed() {
    let here = Path::new(".");
    let list = text(&sim(here, &["--list"]));
    for name in ["cluster", "forwarding", "server-gen5", "hpdc"] {
        assert!(list.contains(name), "{list}");
        assert!(text(&sim(here, &["--print", name])).contains(" = "));
    }
    let json = text(&sim(here, &["--list", "--json"]));
    assert!(json.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    let unknown = sim(here, &["--print", "server-gen9"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("trapeze sim --list"));
}

#[test]
fn what_is_no_experiment_is_told_with_what_would_be() {
    let told = refused("colour = \"red\"\n", &[]);
    assert!(
        told.contains("mine.toml:1: unknown key `colour`; an experiment has, with faults: seconds"),
        "{told}"
    );
    assert!(
        refused("seconds = 5\n[shape]\nservers = 0\n", &[]).contains("mine.toml:3: servers = 0")
    );
    assert!(
        refused("seconds = 5\nmodel = \"bound\"\n", &[])
            .contains("mine.toml:2: unknown field `model`")
    );
    assert!(
        refused("seconds = 5\n", &["--check"]).contains("--check is for experiments with a model")
    );
    let told = refused("model = \"bound\"\n", &["--seed", "1"]);
    assert!(told.contains("--seed is for experiments with faults"), "{told}");
    assert!(refused("model = \"bound\"\n", &[]).contains("mine.toml:1: missing field `title`"));
}

fn cluster(change: impl Fn(String) -> String) -> String {
    refused(&change(text(&sim(Path::new("."), &["--print", "cluster"]))), &[])
}

#[test]
fn impossible_clusters_are_refused_with_their_line() {
    let told = cluster(|text| text.replace("[\"dpu\"]", "[\"gpu\"]"));
    assert!(told.contains("`gpu` cannot be on axis `board`; allowed: lanai4,"), "{told}");
    let told = cluster(|text| text.replace("[\"dpu\"]", "[\"gpu.toml\"]"));
    assert!(told.contains("gpu.toml: No such file"), "{told}");
    let told = cluster(|text| text.replace("[16]", "[16, 1000]"));
    assert!(
        told.contains("1000 nodes on link `ethernet-25g`, whose crossbars join 512 at most"),
        "{told}"
    );
    let told = cluster(|text| text.replace("[\"dpu\"]", "[\"mine.toml\"]"));
    assert!(told.contains("mine.toml:1: `about = \"...\"` is missing"), "{told}");
}
