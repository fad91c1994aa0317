//! The commands of docs/src/backup.md, run in the order of the page.

use crate::common::{ended_by_signals, program, shell, text};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use trapeze::children::Process;

const PAGE: &str = include_str!("../../../docs/src/backup.md");

/// The commands of the page, a block each.
fn blocks() -> Vec<&'static str> {
    PAGE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn up(dir: &Path) -> Process {
    let mut command = ended_by_signals(program());
    command.args(["up", "--servers", "2", "--dir"]).arg(dir.join("data"));
    Process::start_command("up", command, &dir.join("out")).unwrap()
}

#[test]
fn every_command_of_the_page_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    // As typed: trapeze on the path, and another machine that is this one.
    fs::create_dir(dir.join("bin")).unwrap();
    symlink(program(), dir.join("bin/trapeze")).unwrap();
    let ssh = dir.join("bin/ssh");
    fs::write(&ssh, "#!/bin/sh\nmkdir -p other && cd other && exec sh -c \"$2\"\n").unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("export PATH={}:$PATH; ", text(&dir.join("bin")));
    let typed = |script: &str| shell(dir, 60, &format!("{path}{}", script.replace("DIR", "data")));
    let all = blocks();
    let [backup, remote, restore, after, loss, replace, accept, anew, salvage] = all[..] else {
        panic!("{} blocks: type the new one here", all.len())
    };

    let running = up(dir);
    fs::write(dir.join("file"), "bytes").unwrap();
    typed("trapeze cp -c DIR file :/file");
    typed("trapeze mkdir -c DIR /home; trapeze mkdir -c DIR /home/ann");
    typed("trapeze cp -c DIR file :/home/ann/mail.db");
    typed(backup);
    typed(remote);
    assert!(fs::metadata(dir.join("other/names.backup")).unwrap().len() > 500);
    assert!(!dir.join("names.backup.part").exists());
    typed("trapeze rm -c DIR /home/ann/mail.db");
    running.stop().unwrap();

    fs::remove_dir_all(dir.join("data/manager")).unwrap();
    let told = typed(restore);
    assert!(told.contains("quarantine resume"), "{told}");
    let running = up(dir);
    assert_eq!(typed("trapeze cat -c DIR /file"), "bytes");
    // The first two exit with 1 while it is not as any other.
    let (look, resume) = after.trim_end().rsplit_once('\n').unwrap();
    assert!(typed(&format!("({look}) || true")).contains("the names were restored"));
    assert!(typed(loss).contains("/home/ann/mail.db: 5 bytes read as zeros from now on"));
    typed(resume);
    assert!(typed(&format!("sleep 0; {look}")).starts_with("all is well"));
    running.stop().unwrap();

    let told = typed(replace);
    assert!(told.contains("what was there is in"), "{told}");
    let running = up(dir);
    assert_eq!(typed("trapeze cat -c DIR /file"), "bytes");
    running.stop().unwrap();
    typed(accept);
    let running = up(dir);
    assert_eq!(typed("trapeze cat -c DIR /file"), "bytes");
    running.stop().unwrap();

    fs::remove_dir_all(dir.join("data/manager")).unwrap();
    typed(anew);
    let running = up(dir);
    let told = typed(salvage);
    assert!(told.contains("files (") && told.contains("are in /lost+found"), "{told}");
    running.stop().unwrap();
}
