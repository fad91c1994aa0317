//! The rows of `trapeze bench`: one for each measurement, under the names that scripts rely on.

use std::process::Command;

const KEYS: [&str; 16] = [
    "name",
    "op",
    "link",
    "wait",
    "depth",
    "cpus",
    "processes",
    "bytes",
    "p50_us",
    "p99_us",
    "ops_per_s",
    "mb_per_s",
    "baseline_p50_us",
    "baseline_ops_per_s",
    "baseline_mb_per_s",
    "ratio",
];

fn bench(arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapeze"));
    let output = command.arg("bench").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn fetch_and_rate_print_one_row_each_over_every_link() {
    for link in [&["shm"][..], &["adapter"], &["tcp"], &["tcp", "--insecure"]] {
        for what in ["fetch", "rate"] {
            let common = ["--count", "70", "--json", "--wait", "block", "--cpus", "0,0"];
            let arguments = [&[what, "--link"][..], link, &common].concat();
            let (done, rows, errors) = bench(&arguments);
            assert!(done, "{arguments:?}: {errors}");
            assert_eq!(rows.lines().count(), 1, "{rows}");
            let row: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(&rows).unwrap();
            let mut found: Vec<&str> = row.keys().map(String::as_str).collect();
            let mut wanted = KEYS.to_vec();
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted);
            assert_eq!(row["name"], what);
            assert!(row["p50_us"].as_f64().unwrap() > 0.0, "{rows}");
            assert!(row["ratio"].as_f64().unwrap() > 0.0, "{rows}");
        }
    }
}

#[test]
fn memory_prints_a_row_for_each_link_and_each_way_to_come_and_go() {
    let arguments = ["memory", "--count", "1000", "--seconds", "1", "--json", "--cpus", "0,0"];
    let (done, rows, errors) = bench(&arguments);
    if errors.contains("userfaultfd is not allowed") {
        rig::skip(errors);
        return;
    }
    assert!(done, "{errors}");
    let rows: Vec<serde_json::Value> =
        rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let of = |op: &str| rows.iter().filter(|row| row["op"] == op).collect::<Vec<_>>();
    let faults = of("fault");
    assert_eq!([&faults[0]["link"], &faults[1]["link"]], ["tcp", "shm"]);
    assert!(faults.iter().all(|row| row["name"] == "region" && row["ratio"].as_f64() > Some(0.0)));
    let churns = of("churn");
    let gets = of("get");
    assert_eq!((churns.len(), gets.len(), rows.len()), (8, 8, 18));
    for (at, source) in ["local", "shm", "tcp", "disk"].iter().enumerate() {
        let [small, large] = [gets[2 * at], gets[2 * at + 1]];
        assert_eq!([&small["link"], &large["link"]], [source, source]);
        assert_eq!([&small["bytes"], &large["bytes"]], [4096, 8192]);
    }
    let is_there = |row: &&serde_json::Value| row["p99_us"].as_f64() >= row["p50_us"].as_f64();
    assert!(gets.iter().all(|row| is_there(row) && row["p50_us"].as_f64() > Some(0.0)));
    assert!(churns.iter().all(|row| row["pairs_per_s"].as_f64() > Some(0.0)));
}

fn json(rows: &str) -> Vec<serde_json::Value> {
    let rows = rows.lines().filter(|row| row.starts_with('{'));
    rows.map(|row| serde_json::from_str(row).unwrap()).collect()
}

#[test]
fn memory_says_where_its_processes_ran_and_how_they_waited() {
    let arguments = ["memory", "--count", "1000", "--seconds", "1", "--cpus", "0,0"];
    let (_, table, errors) = bench(&arguments);
    // this part comes first, also where there are no regions
    let head = "this node and its peer on processors [0, 0], both sides on one processor";
    assert!(table.contains("in a peer, tcp") && table.contains(head), "{table}{errors}");
}

#[test]
fn blocks_prints_a_row_for_the_library_and_the_mount() {
    if crate::common::cannot_mount() {
        return;
    }
    let arguments = ["blocks", "--size", "32M", "--count", "64", "--json"];
    let (done, rows, errors) = bench(&arguments);
    let excuses = ["userfaultfd is not allowed", "that is no measurement of network memory"];
    if let Some(excuse) = excuses.iter().find(|excuse| errors.contains(**excuse)) {
        println!("skipped: {excuse}: {errors}");
        return;
    }
    assert!(done, "{errors}");
    let rows = json(&rows);
    assert_eq!([&rows[0]["op"], &rows[1]["op"]], ["library", "mount"]);
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["bytes"] == 8192 && row["ratio"].as_f64() > Some(0.0)));
}

#[test]
fn protocols_prints_a_row_for_each_protocol_and_depth() {
    let arguments =
        ["protocols", "--count", "40", "--rounds", "2", "--placement", "free", "--json"];
    let (done, rows, errors) = bench(&arguments);
    assert!(done, "{errors}");
    for name in ["memcached", "redis-server"] {
        let of = json(&rows).into_iter().filter(|row| row["against"] == name);
        let of: Vec<serde_json::Value> = of.collect();
        assert_eq!([&of[0]["depth"], &of[1]["depth"]], [1, 16], "{rows}");
        assert!(of.iter().all(|row| row["ours"]["gets_per_s"].as_f64() > Some(0.0)), "{rows}");
        if crate::common::lacks(name) {
            assert!(rows.contains(&format!("without {name}")), "{rows}");
            continue;
        }
        assert!(of.iter().all(|row| row["theirs"]["gets_per_s"].as_f64() > Some(0.0)), "{rows}");
    }
}

#[test]
fn flags_that_do_not_go_together_are_refused_with_what_to_do() {
    for (arguments, told) in [
        (&["fetch", "--cpus", "0"][..], "--cpus 0,1"),
        (&["fetch", "--cpus", "0,0", "--wait", "spin"], "--wait adaptive"),
        (&["rate", "--depth", "65"], "1 to 64"),
        (&["memory", "--cpus", "0"], "--cpus 0,1"),
        (&["memory", "--page", "16384"], "8192"),
        (&["rate", "--pace", "100"], "--depth 1"),
    ] {
        let (done, _, errors) = bench(arguments);
        assert!(!done && errors.contains(told), "{arguments:?}: {errors}");
    }
}

#[test]
fn the_simulator_has_a_row_for_each_of_its_speeds() {
    let few = ["--events", "2000", "--fetches", "80", "--nodes", "12", "--millis", "1"];
    let (done, rows, errors) = bench(&[&["simulator", "--json"][..], &few].concat());
    assert!(done, "{errors}");
    let rows: Vec<serde_json::Value> =
        rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["events_per_s"].as_f64().unwrap() > 0.0));
    assert!(rows.iter().all(|row| row["memory_peak_bytes"].as_u64().unwrap() > 1 << 20));
    assert_eq!(
        (rows[0]["needed_events_per_s"].as_f64(), &rows[1]["needed_events_per_s"]),
        (Some(1e7), &serde_json::Value::Null)
    );
    assert_eq!((rows[2]["fetches"].as_u64(), rows[3]["fetches"].as_u64()), (Some(80), Some(240)));
    assert!(rows[3]["p99_us"].as_f64() >= rows[3]["p50_us"].as_f64());
    let (done, table, _) = bench(&[&["simulator"][..], &few].concat());
    assert!(done && table.contains("hold model, 65536 pending"), "{table}");
}
