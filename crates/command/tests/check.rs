//! `trapeze check` finds what is damaged, says it as paths and ranges, and takes a loss as final where a person says
//! so.

use crate::common::{Cluster, pattern, text, trapeze};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

const UNIT: usize = 32 * 1024;
/// Of an object's file: two headers, then the first group's checksums, then blocks.
const DATA_AT: u64 = 12_288;

/// A cluster with some files in it, stopped and started again so that all is in place.
struct Checked {
    cluster: Cluster,
    target: String,
}

impl Checked {
    fn with_files() -> Checked {
        let mut cluster = Cluster::bare(2);
        let (tree, target) = (cluster.beside("tree"), cluster.processes.target());
        fs::create_dir_all(tree.join("sub")).unwrap();
        for (name, bytes) in [("small", 5000), ("sub/wide", 10 * UNIT + 7), ("empty", 0)] {
            fs::write(tree.join(name), pattern(bytes as u64, bytes)).unwrap();
        }
        let done = trapeze(&["cp", "-r", "-c", &target, text(&tree), ":/tree"]);
        assert!(done.status.success(), "{done:?}");
        // A start brings into place what the logs hold.
        (1..=2).for_each(|server| cluster.crash(server, Duration::ZERO));
        assert!(trapeze(&["check", "-c", &target]).status.success());
        Checked { cluster, target }
    }

    /// Stops the servers, changes what they keep, and starts them again.
    fn damaged(&mut self, damage: impl FnOnce(&Checked)) {
        self.cluster.stop();
        damage(self);
        for number in 0..=2 {
            self.cluster.processes.start_server(number).unwrap();
        }
    }

    fn check(&self, more: &[&str]) -> Output {
        trapeze(&[&["check", "-c", &self.target], more].concat())
    }

    /// The rows of `check --json`, and whether nothing was wrong.
    fn rows(&self, more: &[&str]) -> (Vec<Value>, bool) {
        let done = self.check(&[&["--json"], more].concat());
        let lines = String::from_utf8(done.stdout).unwrap();
        let rows = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (rows, done.status.success())
    }

    /// The file's id, as in the names of its objects.
    fn id_of(&self, path: &str) -> String {
        let told = trapeze(&["stat", "--json", "-c", &self.target, path]);
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        format!("{:016x}", told["file"].as_u64().unwrap())
    }

    /// The object files of a file, by their columns; of servers that are stopped, so that all is in place.
    fn objects_of(&self, file: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for server in ["io1", "io2"] {
            collect(&self.cluster.beside("cluster").join(server), file, &mut found);
        }
        found.sort_by_key(|path| path.extension().unwrap().to_os_string());
        found
    }
}

fn collect(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => collect(&path, name, found),
            path if entry.file_name().to_string_lossy().contains(name) => found.push(path),
            _ => {}
        }
    }
}

fn flip(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
}

#[test]
fn a_whole_tree_has_no_problems_and_exit_code_0() {
    let mut checked = Checked::with_files();
    for more in [&[][..], &["--deep"]] {
        let done = checked.check(more);
        assert!(done.status.success(), "{done:?}");
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(said.contains("3 files") && said.contains("0 damaged"), "{said}");
    }
    let (rows, whole) = checked.rows(&["--deep", "/tree/sub"]);
    assert!(whole && rows.len() == 1, "{rows:?}");
    assert_eq!((&rows[0]["files"], &rows[0]["deep"]), (&1.into(), &true.into()));
    checked.cluster.stop();
}

#[test]
fn a_damaged_block_is_found_by_reading_and_named_by_its_range() {
    let mut checked = Checked::with_files();
    let wide = checked.id_of("/tree/sub/wide");
    // The third block of column 1 is in the file behind the first stripe unit.
    checked.damaged(|it| flip(&it.objects_of(&wide)[1], DATA_AT + 2 * 4096 + 9));
    assert!(checked.check(&[]).status.success(), "heads are whole");
    let (rows, whole) = checked.rows(&["--deep"]);
    assert!(!whole);
    let row = &rows[0];
    assert_eq!((&row["problem"], &row["path"]), (&"damaged".into(), &"/tree/sub/wide".into()));
    let offset = UNIT + 2 * 4096;
    assert_eq!(row["lost"], serde_json::json!([{ "offset": offset, "bytes": 4096 }]));
    assert_eq!(row["columns"], serde_json::json!([]));
    // The person takes the loss as final: the rest is as it was, and the check has nothing more to say.
    let accepted = checked.check(&["--accept", "/tree/sub/wide", "--deep"]);
    assert!(accepted.status.success(), "{accepted:?}");
    let read = trapeze(&["cat", "-c", &checked.target, "/tree/sub/wide"]).stdout;
    let mut expected = pattern(10 * UNIT as u64 + 7, 10 * UNIT + 7);
    expected[offset..offset + 4096].fill(0);
    assert!(read == expected, "zeros where the loss was accepted, and nowhere else");
    checked.cluster.stop();
}

#[test]
fn a_lost_object_is_found_without_reading_and_its_loss_can_be_accepted() {
    let mut checked = Checked::with_files();
    let wide = checked.id_of("/tree/sub/wide");
    checked.damaged(|it| fs::remove_file(&it.objects_of(&wide)[1]).unwrap());
    let (rows, whole) = checked.rows(&[]);
    assert!(!whole);
    assert_eq!(rows[0]["path"], "/tree/sub/wide");
    assert_eq!(rows[0]["lost_bytes"], 5 * UNIT, "every other stripe unit");
    assert_eq!(rows[0]["columns"][0]["column"], 1);
    let said = String::from_utf8(checked.check(&[]).stdout).unwrap();
    assert!(said.contains("the object is missing or damaged"), "{said}");
    let accepted = checked.check(&["--accept", "/tree/sub/wide", "--deep"]);
    assert!(accepted.status.success(), "{accepted:?}");
    let read = trapeze(&["cat", "-c", &checked.target, "/tree/sub/wide"]).stdout;
    let mut expected = pattern(10 * UNIT as u64 + 7, 10 * UNIT + 7);
    expected.chunks_mut(UNIT).skip(1).step_by(2).for_each(|unit| unit.fill(0));
    assert!(read == expected, "zeros where the loss was accepted, and nowhere else");
    checked.cluster.stop();
}

#[test]
fn an_object_without_a_file_is_named_with_its_server() {
    let mut checked = Checked::with_files();
    let small = checked.id_of("/tree/small");
    checked.damaged(|it| {
        let objects = it.objects_of(&small);
        let name = objects[0].file_name().unwrap().to_str().unwrap();
        let (volume, rest) = name.split_once('.').unwrap();
        let (_, column) = rest.split_once('.').unwrap();
        let stray = format!("{volume}.{:016x}.{column}", 0xff_ffff);
        let place = objects[0].parent().unwrap().parent().unwrap();
        // Spread over directories by their numbers: the check lists all of them.
        for entry in fs::read_dir(place).unwrap().map(Result::unwrap) {
            fs::copy(&objects[0], entry.path().join(&stray)).unwrap();
        }
    });
    let (rows, whole) = checked.rows(&[]);
    assert!(!whole);
    let stray = rows.iter().find(|row| row["problem"] == "object without a file").unwrap();
    assert!(stray["object"].as_str().unwrap().contains("ffffff"), "{stray}");
    assert_eq!(stray["why"], "its file is gone");
    checked.cluster.stop();
}

#[test]
fn a_server_that_is_away_is_named_and_what_it_has_is_not_called_lost() {
    let mut checked = Checked::with_files();
    checked.cluster.processes.kill_server(2).unwrap();
    let (rows, whole) = checked.rows(&[]);
    assert!(!whole);
    let row = &rows[0];
    assert_eq!(
        (&row["problem"], &row["server"]),
        (&"server does not answer".into(), &"io2".into())
    );
    let last = rows.last().unwrap();
    assert_eq!((&last["damaged"], last["unchecked"].as_u64() > Some(0)), (&0.into(), true));
    checked.cluster.processes.start_server(2).unwrap();
    checked.cluster.stop();
}

#[test]
fn a_rebalance_names_what_it_cannot_read_and_moves_the_rest() {
    let mut checked = Checked::with_files();
    let wide = checked.id_of("/tree/sub/wide");
    checked.damaged(|it| fs::remove_file(&it.objects_of(&wide)[1]).unwrap());
    let (rows, _) = checked.rows(&[]);
    let server = rows[0]["columns"][0]["server"].as_str().unwrap();
    let run = |flags: &[&str]| trapeze(&[&["rebalance", "-c", &checked.target], flags].concat());
    let done = run(&["--off", server, "--json"]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let lines = String::from_utf8(done.stdout).unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let skipped: Vec<_> =
        rows.iter().filter(|row| row["column"] == 1 && row["skipped"].is_string()).collect();
    assert!(skipped.len() == 1 && skipped[0]["path"] == "/tree/sub/wide", "{lines}");
    let others = |row: &&Value| row["from"]["server"] == server && row["path"] != "/tree/sub/wide";
    assert!(rows.iter().any(|row| others(&row)), "{lines}");
    let done = run(&["--off", server]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        said.contains("/tree/sub/wide: column 1 stays where it is: ")
            && said.contains("`trapeze check`"),
        "{said}"
    );
    checked.cluster.stop();
}
