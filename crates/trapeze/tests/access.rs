//! Who may do what: users, groups and capabilities in a mount, and those of who runs the command.

mod common;

use common::{Cluster, cannot_mount, free_ports, lacks, program, shell, text};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use trapeze::local::Shape;

/// Sets the mode of a file.
fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs `words` as `setpriv` is told to.
fn with(privileges: &str, words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "setpriv"]).args(privileges.split(' '));
    command.arg("--").args(words).output().unwrap()
}

/// A user with a group of its own and the supplementary groups `groups`, as `setpriv` names them.
fn user(id: u32, groups: &str) -> String {
    let groups = match groups {
        "" => "--clear-groups".to_string(),
        groups => format!("--groups={groups}"),
    };
    format!("--reuid={id} --regid={id} {groups}")
}

/// What a program that must succeed prints.
#[track_caller]
fn done(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a program that must fail says.
#[track_caller]
fn refused(output: Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{:?}: {said}", output.status);
}

/// Python that does this as a user with no other groups, without anything before it. It begins when its standard input
/// has something.
fn call(id: u32, what: &str) -> Command {
    let become_user =
        format!("os.setgroups([]); os.setresgid({id},{id},{id}); os.setresuid({id},{id},{id})");
    let mut command = Command::new("python3");
    command.args(["-c", &format!("import os; {become_user}; {what}")]);
    command
}

/// A cluster whose mount other users can reach.
fn open_cluster() -> Cluster {
    let cluster = Cluster::mounted(1);
    chmod(&cluster.beside(""), 0o755);
    chmod(&cluster.at(""), 0o755);
    cluster
}

#[test]
fn supplementary_groups_count_in_a_mount() {
    if cannot_mount() || lacks("setpriv") {
        return;
    }
    let mut cluster = open_cluster();
    let dir = cluster.at("shared");
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(0), Some(4242)).unwrap();
    chmod(&dir, 0o2770);
    let (member, stranger) = (user(1000, "4242,77"), user(1001, "77"));
    let file = dir.join("file");
    done(with(&member, &["touch", text(&file)]));
    done(with(&member, &["mkdir", text(&dir.join("sub"))]));
    let (made, below) = (fs::metadata(&file).unwrap(), fs::metadata(dir.join("sub")).unwrap());
    assert_eq!((made.uid(), made.gid()), (1000, 4242));
    assert_eq!((below.gid(), below.mode() & 0o7000), (4242, 0o2000));
    done(with(&member, &["chmod", "2775", text(&file)]));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o2775, "its group's member may");
    done(with(&member, &["chgrp", "77", text(&file)]));
    assert_eq!(fs::metadata(&file).unwrap().gid(), 77);
    done(with(&member, &["chmod", "2775", text(&file)]));
    let not_now = user(1000, "4242");
    done(with(&not_now, &["chmod", "2755", text(&file)]));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o755, "nobody else may");
    refused(with(&member, &["chgrp", "78", text(&file)]), "not permitted");
    refused(with(&stranger, &["ls", text(&dir)]), "Permission denied");
    let (large, other) = (
        user(1002, &(2000..2900).map(|g| g.to_string()).collect::<Vec<_>>().join(",")),
        cluster.at("large"),
    );
    fs::write(&other, "read me").unwrap();
    chown(&other, Some(0), Some(2899)).unwrap();
    chmod(&other, 0o640);
    assert_eq!(done(with(&large, &["cat", text(&other)])), "read me");
    refused(with(&user(1002, "2898"), &["cat", text(&other)]), "Permission denied");
    cluster.stop();
}

#[test]
fn capabilities_count_in_a_mount() {
    if cannot_mount() || lacks("setpriv") {
        return;
    }
    let mut cluster = open_cluster();
    let file = cluster.at("secret");
    fs::write(&file, "secret").unwrap();
    chmod(&file, 0);
    let able = |name: &str| format!("{} --inh-caps=+{name} --ambient-caps=+{name}", user(1000, ""));
    refused(with(&user(1000, ""), &["cat", text(&file)]), "Permission denied");
    assert_eq!(done(with(&able("dac_read_search"), &["cat", text(&file)])), "secret");
    done(with(&able("fowner"), &["chmod", "600", text(&file)]));
    done(with(&able("chown"), &["chown", "1000:7", text(&file)]));
    done(with(&user(1000, ""), &["chmod", "640", text(&file)]));
    let bare = "--bounding-set=-all --inh-caps=-all";
    refused(with(bare, &["cat", text(&file)]), "Permission denied");
    let dir = cluster.at("sticky");
    fs::create_dir(&dir).unwrap();
    chmod(&dir, 0o1777);
    let [one, two] = ["one", "two"].map(|name| dir.join(name));
    for path in [&one, &two] {
        done(with(&user(1001, ""), &["touch", text(path)]));
    }
    refused(with(&user(1000, ""), &["rm", "-f", text(&one)]), "not permitted");
    done(with(&able("fowner"), &["rm", "-f", text(&one)]));
    done(with(&able("fowner"), &["mv", text(&two), text(&one)]));
    cluster.stop();
}

/// The kernel believes for a second what it was told of a name; what another client made of it meanwhile it has not
/// checked.
#[test]
fn a_name_that_another_mount_has_just_made_is_opened_only_by_who_may() {
    if cannot_mount() || lacks("setpriv") || lacks("python3") {
        return;
    }
    let mut cluster = open_cluster();
    chmod(&cluster.at(""), 0o777);
    let (here, there) = (cluster.at(""), cluster.mount_again());
    let flags = "os.O_CREAT|os.O_RDWR";
    for (name, mode, extra, why) in [
        ("closed", 0o600, "", Some("Permission denied")),
        ("open", 0o666, "", None),
        ("exclusive", 0o666, "|os.O_EXCL", Some("File exists")),
    ] {
        let path = here.join(name);
        assert!(fs::metadata(&path).is_err(), "the kernel remembers that there is none");
        fs::write(there.join(name), "other").unwrap();
        chmod(&there.join(name), mode);
        let output =
            call(1000, &format!("os.open('{}', {flags}{extra})", path.display())).output().unwrap();
        match why {
            Some(why) => refused(output, why),
            None => _ = done(output),
        }
    }
    assert!(fs::metadata(here.join("link")).is_err());
    std::os::unix::fs::symlink("open", there.join("link")).unwrap();
    let path = here.join("link");
    let output = call(1000, &format!("os.open('{}', {flags})", path.display())).output().unwrap();
    done(output);
    cluster.stop();
}

/// In a sticky directory the owner of a name's file decides, also when the kernel still takes it for another file.
#[test]
fn a_sticky_directory_protects_the_file_that_another_mount_gave_the_name_to() {
    if cannot_mount() || lacks("setpriv") || lacks("python3") {
        return;
    }
    let mut cluster = open_cluster();
    let (here, there) = (cluster.at("d"), cluster.mount_again().join("d"));
    fs::create_dir(&here).unwrap();
    chmod(&here, 0o1777);
    for what in ["os.unlink('x')", "os.rename('own', 'x')", "os.rename('x', 'own2')"] {
        shell(&here, 20, "rm -f x own own2");
        done(with(&user(1000, ""), &["touch", text(&here.join("x")), text(&here.join("own"))]));
        let script = format!(
            "os.chdir('{}'); os.stat('x'); os.stat('own'); print(1, flush=True); os.read(0, 1); {what}",
            here.display(),
        );
        let mut command = call(1000, &script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        shell(&there, 20, "rm x; touch y; chown 1001 y; mv y x");
        child.stdin.as_mut().unwrap().write_all(b"g").unwrap();
        refused(child.wait_with_output().unwrap(), "not permitted");
        assert_eq!(fs::metadata(there.join("x")).unwrap().uid(), 1001, "{what}");
    }
    cluster.stop();
}

/// The commands run as who calls them, in all groups of theirs.
#[test]
fn commands_have_the_groups_of_who_runs_them() {
    if cannot_mount() || lacks("setpriv") {
        return;
    }
    let listen = format!("127.0.0.1:{}", free_ports(2));
    let shape = Shape { listen: Some(listen.clone()), insecure: true, ..Shape::of(1) };
    let mut cluster = Cluster::shaped(&shape);
    cluster.processes.mount().unwrap();
    chmod(&cluster.beside(""), 0o755);
    let file = cluster.at("file");
    fs::write(&file, "of the group").unwrap();
    chown(&file, Some(0), Some(3999)).unwrap();
    chmod(&file, 0o640);
    // Who runs it may not be able to reach where it was built.
    let copy = cluster.beside("trapeze");
    shell(&cluster.beside(""), 60, &format!("cp {} {}", text(program()), text(&copy)));
    let address = format!("tcp:{listen}");
    let words = [text(&copy), "cat", "-c", &address, "--insecure", "/file"];
    let groups: Vec<String> = (3000..4000).map(|group| group.to_string()).collect();
    assert_eq!(done(with(&user(1000, &groups.join(",")), &words)), "of the group");
    refused(with(&user(1000, &groups[..999].join(",")), &words), "permission denied");
    cluster.stop();
}
