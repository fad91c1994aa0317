//! Programs that people use, over a mount: fio's verification, SQLite, git, and pjdfstest where it is installed.

use crate::common::{Cluster, cannot_mount, lacks, shell, skip, soaks};
use std::process::Command;

#[test]
fn fio_verifies_random_writes() {
    if cannot_mount() || lacks("fio") {
        return;
    }
    let mut cluster = Cluster::mounted(3);
    let (engines, sizes) =
        if soaks() { ("psync libaio", "4k 8k 70000 128k") } else { ("psync", "8k 70000") };
    let script = format!(
        "for engine in {engines}; do for size in {sizes}; do for sync in 0 16; do
            fio --name=v --filename=v --rw=randwrite --bs=$size --size=24M --io_size=8M --ioengine=$engine \
                --verify=crc32c --verify_fatal=1 --fsync=$sync
            rm -f v
        done; done; done"
    );
    shell(&cluster.at(""), 580, &script);
    cluster.stop();
}

#[test]
fn sqlite_keeps_its_database() {
    if cannot_mount() || lacks("sqlite3") {
        return;
    }
    let mut cluster = Cluster::mounted(3);
    let rows = if soaks() { 500 } else { 100 };
    for mode in ["DELETE", "WAL"] {
        let script = format!(
            "rm -f db*; {{ echo 'PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL;
            CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);'
            for batch in $(seq 20); do echo 'BEGIN;'
            for row in $(seq {rows}); do echo \"INSERT INTO t(v) VALUES('row $batch $row');\"; done
            echo 'COMMIT;'; done; }} | sqlite3 db"
        );
        shell(&cluster.at(""), 300, &script);
        cluster.remount();
        let query = "sqlite3 db 'PRAGMA integrity_check; SELECT count(*) FROM t'";
        assert_eq!(shell(&cluster.at(""), 60, query), format!("ok\n{}\n", rows * 20));
    }
    cluster.stop();
}

#[test]
fn git_clones_and_checks() {
    if cannot_mount() || lacks("git") {
        return;
    }
    let mut cluster = Cluster::mounted(3);
    let source = cluster.beside("source");
    let make = "git init -q source; cd source; git config user.email a@b; git config user.name a
        for commit in $(seq 5); do for file in $(seq 20); do echo $commit $file > f$file; done
        git add -A; git commit -qm $commit; done";
    shell(&cluster.beside(""), 60, make);
    let clone = format!("git clone -q --no-hardlinks {} clone", source.display());
    shell(&cluster.at(""), 300, &clone);
    cluster.remount();
    shell(&cluster.at("clone"), 300, "git fsck --full --strict; test -z \"$(git status --short)\"");
    cluster.stop();
}

#[test]
#[ignore = "a soak's"]
fn pjdfstest_passes() {
    if cannot_mount() {
        return;
    }
    // no distribution packages it, so that continuous integration does not have it either
    if Command::new("pjdfstest").arg("--version").output().is_err() {
        return skip("pjdfstest is not installed");
    }
    let mut cluster = Cluster::mounted(3);
    let settings = "
        [features]
        posix_fallocate = {}
        rename_ctime = {}
        utimensat = {}
        utime_now = {}
        [settings]
        naptime = 0.05
        allow_remount = false
        [dummy_auth]
        entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"], [\"bin\", \"bin\"]]";
    std::fs::write(cluster.beside("pjdfstest.toml"), settings).unwrap();
    let command = format!("pjdfstest -c {} -p .", cluster.beside("pjdfstest.toml").display());
    let said = shell(&cluster.at(""), 580, &command);
    assert!(said.contains("Summary: 0 failed"), "{said}");
    cluster.stop();
}
