//! Permissions: users, groups and capabilities in a mount, and those of the command's user.

use crate::common::{Cluster, cannot_mount, free_ports, lacks, program, shell, text};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use trapeze::local::Shape;
use trapeze::socket_access::ListenAccess;

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

/// The output of a program that must succeed.
#[track_caller]
fn done(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks the message of a program that must fail.
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

/// Files that children of this process would have open, beyond standard input and output.
fn inherited_of(process: u32) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let is_inherited = |number: &str| {
        let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
        Some(u32::from_str_radix(flags, 8).unwrap() & rustix::fs::OFlags::CLOEXEC.bits() == 0)
    };
    let inherited = descriptors.filter(|entry| {
        let number = entry.file_name().into_string().unwrap();
        !["0", "1", "2"].contains(&&number[..]) && is_inherited(&number) == Some(true)
    });
    inherited.flat_map(|entry| fs::read_link(entry.path())).collect()
}

/// Keys, memory, files, sockets, the kernel's device: all of a manager, of a server and of a mount is theirs.
fn nothing_is_inherited(cluster: &Cluster) {
    let before = inherited_of(std::process::id()); // from whatever started the test
    for process in cluster.processes.ids() {
        let open = inherited_of(process);
        assert!(open.iter().all(|target| before.contains(target)), "{open:?}");
    }
}

/// The commands run as who calls them, in all groups of theirs. A socket is its own user's, and the configured group's.
#[test]
fn commands_have_the_groups_of_who_runs_them() {
    if cannot_mount() || lacks("setpriv") {
        return;
    }
    let listen = format!("127.0.0.1:{}", free_ports(2));
    let listen_group = Some("3999".to_string());
    let access = ListenAccess { listen_group, ..ListenAccess::default() };
    let shape = Shape { listen: Some(listen.clone()), insecure: true, access, ..Shape::of(1) };
    let mut cluster = Cluster::shaped(&shape);
    cluster.processes.mount().unwrap();
    chmod(&cluster.beside(""), 0o755);
    let file = cluster.at("file");
    fs::write(&file, "of the group").unwrap();
    chown(&file, Some(0), Some(3999)).unwrap();
    chmod(&file, 0o640);
    // Its user may not be able to reach where it was built.
    let copy = cluster.beside("trapeze");
    shell(&cluster.beside(""), 60, &format!("cp {} {}", text(program()), text(&copy)));
    let address = format!("tcp:{listen}");
    let words = [text(&copy), "cat", "-c", &address, "--insecure", "/file"];
    let groups: Vec<String> = (3000..4000).map(|group| group.to_string()).collect();
    assert_eq!(done(with(&user(1000, &groups.join(",")), &words)), "of the group");
    refused(with(&user(1000, &groups[..999].join(",")), &words), "permission denied");
    // A command that writes takes a program's privileges away, as a kernel does.
    let (name, flags) = ("security.capability", rustix::fs::XattrFlags::empty());
    let value = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    rustix::fs::setxattr(&file, name, &value, flags).unwrap();
    let given = |words: &[&str]| done(with(&user(0, "0"), &[&[text(&copy)], words].concat()));
    given(&["cp", "-c", &address, "--insecure", "/proc/version", ":/file"]);
    let left = rustix::fs::getxattr(&file, name, &mut [0; 64]);
    assert_eq!(left, Err(rustix::io::Errno::NODATA));
    fs::write(&file, "of the group").unwrap();
    let socket = format!("unix:{}/run/manager.sock", cluster.processes.target());
    let words = [text(&copy), "cat", "-c", &socket, "/file"];
    assert_eq!(done(with(&user(1000, "3999"), &words)), "of the group");
    refused(with(&user(1000, "3998"), &words), "--listen-group");
    nothing_is_inherited(&cluster);
    cluster.stop();
}

/// Effects on set-id bits, on a file's capabilities and on calls that touch them, one line for each case.
const SET_ID: &str = r#"
import errno, os, sys
CAPABILITY = bytes.fromhex('0100000202000000000000000000000000000000')[:20]
def become(user):
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
def write(path):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b'x')
    os.close(fd)
def append(path):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b'x')
    os.fsync(fd)
    os.close(fd)
def written_then_set(path):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b'x')
    os.fchmod(fd, 0o4755)
    os.close(fd)
def with_fd(what, flags=os.O_WRONLY):
    def run(path):
        fd = os.open(path, flags)
        what(fd)
        os.close(fd)
    return run
WAYS = {
    'write': write, 'append': append, 'fchmod after the write': written_then_set,
    'open': with_fd(lambda fd: None), 'O_TRUNC': with_fd(lambda fd: None, os.O_WRONLY | os.O_TRUNC),
    'O_CREAT|O_TRUNC': with_fd(lambda fd: None, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    'truncate': lambda path: os.truncate(path, 3), 'ftruncate': with_fd(lambda fd: os.ftruncate(fd, 1)),
    'fallocate': with_fd(lambda fd: os.posix_fallocate(fd, 0, 9000)),
    'chown to nobody else': lambda path: os.chown(path, -1, -1),
    'chown to itself': lambda path: os.chown(path, os.getuid(), -1),
    'chgrp to itself': lambda path: os.chown(path, -1, os.getgid()),
    'utime': lambda path: os.utime(path), 'chmod': lambda path: os.chmod(path, 0o4711),
}
def case(name, way, mode, user, capability):
    path = 'file'
    with open(path, 'wb') as file:
        file.write(b'content')
    os.chown(path, 1000, 1000)
    os.chmod(path, mode)
    if capability:
        os.setxattr(path, 'security.capability', CAPABILITY)
    child = os.fork()
    if child == 0:
        become(user)
        try:
            way(path)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    result = errno.errorcode.get(code, 'done')
    left = 'security.capability' in os.listxattr(path)
    print(name, f'{mode:o}', user, result, f'{os.stat(path).st_mode & 0o7777:o}', os.stat(path).st_size, left)
    os.unlink(path)
for name, way in WAYS.items():
    for user in (0, 1000, 1001):
        for mode in (0o4777, 0o6755, 0o2777, 0o755):
            case(name, way, mode, user, False)
        case(name, way, 0o777, user, True)
os.mkdir('dir', 0o777)
os.chmod('dir', 0o6777)
os.chown('dir', 1000, 1000)
print(f'{os.stat("dir").st_mode:o}')
os.rmdir('dir')
"#;

#[test]
fn set_id_bits_and_capabilities_of_files_go_where_a_local_file_system_has_them_go() {
    let local = Path::new("/dev/shm");
    if cannot_mount() || lacks("python3") || !local.is_dir() {
        return;
    }
    let mut cluster = open_cluster();
    let local = tempfile::tempdir_in(local).unwrap();
    chmod(local.path(), 0o777);
    chmod(&cluster.at(""), 0o777);
    let script = cluster.beside("set-id.py");
    fs::write(&script, SET_ID).unwrap();
    let run = |dir: &Path| shell(dir, 120, &format!("python3 {}", text(&script)));
    let (expected, found) = (run(local.path()), run(&cluster.at("")));
    // A kernel that leaves set-id bits to the front does not say that a chown asked for this one: it is no error, and
    // nothing changes.
    let stranger = |line: &str| line.starts_with("chown to nobody else") && line.contains(" 1001 ");
    let differ = |(one, two): &(&str, &str)| {
        one != two && !(stranger(one) && one.replace("EPERM", "done") == *two)
    };
    let different: Vec<_> = expected.lines().zip(found.lines()).filter(differ).collect();
    assert!(different.is_empty(), "(local, here): {different:#?}");
    assert_eq!(expected.lines().count(), found.lines().count());
    cluster.stop();
}

/// A directory of an ordinary user's, with a copy of the command.
fn home() -> (tempfile::TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("trapeze");
    shell(home.path(), 60, &format!("cp {} {}", text(program()), text(&copy)));
    chown(home.path(), Some(1000), Some(1000)).unwrap();
    (home, copy)
}

/// The first page of the documents as a user other than root.
#[test]
fn an_ordinary_user_has_a_file_system_of_its_own() {
    if cannot_mount() || lacks("setpriv") {
        return;
    }
    let (home, copy) = home();
    let user = user(1000, "");
    let script = format!(
        "cd {home} && export HOME=$PWD TMPDIR=$PWD TRAPEZE_CLUSTER=$PWD/data\n\
         mkdir files && echo hello > files/one\n\
         {trapeze} up --dir data --servers 1 > up.log 2>&1 & up=$!\n\
         for _ in $(seq 300); do grep -q ^ready up.log && break; sleep 0.1; done\n\
         {trapeze} cp -r files :/headers && {trapeze} ls /headers && {trapeze} cat /headers/one && \
         {trapeze} ls --json /\n\
         {trapeze} rm -r /headers; code=$?; kill -INT $up; wait $up; exit $code",
        home = home.path().display(),
        trapeze = copy.display(),
    );
    let said = done(with(&user, &["bash", "-c", &script]));
    assert!(said.contains("one") && said.contains("hello"), "{said}");
}

#[test]
fn the_demonstration_runs_for_an_ordinary_user() {
    if cannot_mount() || lacks("setpriv") {
        return;
    }
    let (home, copy) = home();
    let files = home.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("one"), crate::common::pattern(1, 300_000)).unwrap();
    let temporary = format!("TMPDIR={}", home.path().display());
    let words =
        ["env", &temporary, text(&copy), "demo", text(&files), "--servers", "1", "--no-mount"];
    let said = done(with(&user(1000, ""), &words));
    assert!(said.contains("every byte is the same"), "{said}");
}
