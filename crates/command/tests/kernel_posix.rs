//! pjdfstest in a guest, over NFS: what fails is what the manual explains.

use crate::common::{Up, skip, soaks, text};
use crate::guests::{Guest, Network, lacks_a_guest};
use crate::kernel_client::told;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/src/pjdfstest.md");
/// `/mnt` of a guest is another file system.
const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
secondary_fs = "/mnt"
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
[settings]
naptime = 0.05
"#;

/// Where pjdfstest is installed.
fn pjdfstest() -> Option<PathBuf> {
    let found = Command::new("sh").args(["-c", "command -v pjdfstest"]).output().unwrap();
    found.status.success().then(|| String::from_utf8(found.stdout).unwrap().trim().into())
}

/// Tests that the page's table of NFS names, with the cause.
fn explained() -> Vec<&'static str> {
    let (_, section) = PAGE.split_once("## Over NFS").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap_or((section, ""));
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(name, _)| name).collect()
}

/// Runs tests with one of the words in their names, all without a word; how many passed, and which failed.
fn run(guest: &mut Guest, program: &Path, settings: &Path, words: &str) -> (usize, Vec<String>) {
    let (program, settings) = (text(program), text(settings));
    let line = format!("NO_COLOR=1 {program} -c {settings} -p /home {words}");
    let (lines, _) = guest.watched(&format!("chroot /host /usr/bin/env {line}"), |_| ());
    assert!(lines.iter().any(|line| line.starts_with("Summary: ")), "{lines:#?}");
    let named = |end: &str| {
        let names = lines.iter().filter_map(|line| line.strip_suffix(end));
        let mut names: Vec<_> = names.map(|name| name.trim_end().to_string()).collect();
        names.sort(); // they run in the order in which they were linked
        names
    };
    (named(" ok").len(), named(" FAILED"))
}

#[test]
fn pjdfstest_fails_over_nfs_only_where_the_manual_says_why() {
    if lacks_a_guest() {
        return;
    }
    // no distribution packages it, so that continuous integration does not have it either
    let Some(program) = pjdfstest() else { return skip("pjdfstest is not installed") };
    let mut up = Up::new("2");
    let dir = up.at("data");
    told(&dir, &["mkdir", "/home"]);
    let network = Network::new("posix", dir.parent().unwrap());
    let server = network.serve("nfs", &dir, &dir.with_file_name("nfs.log"));
    let mut guest = network.boot(0);
    guest.told("chroot /host /bin/mount /home");
    let settings = [false, true].map(|remount| {
        let path = dir.with_file_name(format!("remount-{remount}.toml"));
        std::fs::write(&path, format!("{SETTINGS}allow_remount = {remount}\n")).unwrap();
        path
    });
    let (words, count) = if soaks() { ("", 380) } else { ("unlink utimensat", 20) };
    let (passed, failed) = run(&mut guest, &program, &settings[0], words);
    assert_eq!(failed, explained());
    assert!(passed >= count, "{passed} passed");
    // those that mount it read-only, by themselves: others leave files open
    let words = if soaks() { "erofs" } else { "unlink::erofs" };
    let (passed, failed) = run(&mut guest, &program, &settings[1], words);
    assert!(passed > 0 && failed.is_empty(), "{failed:?}");
    guest.told("umount /host/home");
    drop(guest);
    server.stop().unwrap();
    up.stop();
}
