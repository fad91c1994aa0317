//! Bad input: each has a clear error, and what was acknowledged before is still there.

use crate::common::{
    Cluster, cannot_mount, free_ports, garbage, pattern, program, refusal, shell, text, trapeze,
};
use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use trapeze::config::{ClusterKey, Machine, Memory};
use trapeze::embedded::Embedded;
use trapeze::local::Shape;

#[test]
fn garbage_on_every_port() {
    let port = free_ports(3);
    let listen = Some(format!("127.0.0.1:{port}"));
    let mut cluster = Cluster::shaped(&Shape { listen, ..Shape::of(2) });
    let target = cluster.processes.target();
    let file = cluster.beside("file");
    fs::write(&file, pattern(2, 500_000)).unwrap();
    assert!(trapeze(&["cp", "-c", &target, text(&file), ":/file"]).status.success());
    for name in ["manager", "io1", "io2"] {
        let socket = cluster.beside(&format!("cluster/run/{name}.sock"));
        garbage(|| Box::new(UnixStream::connect(&socket).unwrap()));
    }
    let connect = |port: u16| TcpStream::connect(("127.0.0.1", port)).unwrap();
    (port..port + 3).for_each(|port| garbage(|| Box::new(connect(port))));
    let idle = connect(port);
    let copy = cluster.beside("copy");
    assert!(trapeze(&["cp", "-c", &target, ":/file", text(&copy)]).status.success());
    assert!(fs::read(&copy).unwrap() == pattern(2, 500_000));
    drop(idle);
    cluster.stop();
}

#[test]
fn a_wrong_key_is_refused() {
    let port = format!("127.0.0.1:{}", free_ports(2));
    let mut cluster = Cluster::shaped(&Shape { listen: Some(port.clone()), ..Shape::of(1) });
    let address = format!("tcp:{port}");
    let (wrong, right) = (cluster.beside("wrong"), cluster.beside("cluster/key"));
    ClusterKey([7; 32]).save(&wrong).unwrap();
    let said = refusal(&["ls", "-c", &address, "--key", text(&wrong)]);
    assert!(said.contains("key"), "{said}");
    let said = refusal(&["ls", "-c", &address]);
    assert!(said.contains("--key"), "{said}");
    let said = refusal(&["ls", "-c", &address, "--insecure"]);
    assert!(said.contains("encrypt") || said.contains("insecure"), "{said}");
    assert!(trapeze(&["ls", "-c", &address, "--key", text(&right)]).status.success());
    cluster.stop();
}

#[test]
fn two_servers_on_one_directory() {
    let mut cluster = Cluster::bare(2);
    let (first, second) = (cluster.beside("cluster/io1.toml"), cluster.beside("second.toml"));
    let said = refusal(&["serve", "--config", text(&first)]);
    assert!(said.contains("io1") && said.contains("use"), "{said}");
    let mut machine = Machine::load(&first).unwrap();
    machine.listen = vec![format!("unix:{}", cluster.beside("second.sock").display())];
    machine.name = "second".to_string();
    machine.node = 9;
    machine.save(&second).unwrap();
    let said = refusal(&["serve", "--config", text(&second)]);
    assert!(said.contains("disk0") && said.contains("use"), "{said}");
    let manager = cluster.beside("cluster/manager.toml");
    let said = refusal(&["serve", "--config", text(&manager)]);
    assert!(said.contains("manager") && said.contains("use"), "{said}");
    cluster.stop();
}

#[test]
fn missing_directories_and_unknown_fields() {
    let mut cluster = Cluster::bare(1);
    cluster.stop();
    let config = cluster.beside("cluster/io1.toml");
    let disk = cluster.beside("cluster/io1/disk0");
    fs::rename(&disk, cluster.beside("away")).unwrap();
    let said = refusal(&["serve", "--config", text(&config)]);
    assert!(said.contains("disk0"), "{said}");
    assert!(!disk.exists(), "a missing disk is not made anew");
    let broken = fs::read_to_string(&config).unwrap().replace("volume", "volumes");
    fs::write(&config, broken).unwrap();
    let said = refusal(&["serve", "--config", text(&config)]);
    assert!(said.contains("volumes") && said.contains("io1.toml"), "{said}");
    let said = refusal(&["serve", "--config", "/no/such.toml"]);
    assert!(said.contains("/no/such.toml"), "{said}");
}

/// Memory that is asked for at the start is there at the start, or the server says that it is not.
#[test]
fn memory_at_the_start() {
    if trapeze::machine_stat::available_memory() < 2 << 30 {
        return rig::skip("this machine has less than 2 GiB left");
    }
    let shape = Shape::of(1);
    let memory = Memory { prefault: true, ..shape.memory };
    let mut cluster = Cluster::shaped(&Shape { memory, ..shape });
    let (server, pool) = (cluster.processes.ids()[1], memory.pool.0);
    let resident = || trapeze::machine_stat::process_memory(server).unwrap();
    assert!(resident() > pool, "{} bytes of a pool of {pool}", resident());
    cluster.stop();
    let config = cluster.beside("cluster/io1.toml");
    let greedy = fs::read_to_string(&config).unwrap().replace("\"512M\"", "\"4096G\"");
    fs::write(&config, greedy).unwrap();
    let said = refusal(&["serve", "--config", text(&config)]);
    assert!(said.contains("4194304 MiB") && said.contains("prefault"), "{said}");
}

#[test]
fn directories_that_up_refuses() {
    let mut cluster = Cluster::bare(1);
    let dir = cluster.processes.target();
    let said = refusal(&["up", "--dir", &dir]);
    assert!(said.contains("in use") && said.contains(&dir), "{said}");
    let foreign = cluster.beside("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter"), "dear").unwrap();
    let said = refusal(&["up", "--dir", text(&foreign)]);
    assert!(said.contains("foreign") && said.contains("no Trapeze cluster"), "{said}");
    cluster.stop();
    let description = fs::read_to_string(Path::new(&dir).join("cluster.toml")).unwrap();
    let older = cluster.beside("older");
    fs::create_dir(&older).unwrap();
    fs::write(older.join("cluster.toml"), description.replace("format = 3", "format = 2")).unwrap();
    let said = refusal(&["up", "--dir", text(&older)]);
    assert!(said.contains("has format 2") && said.contains("knows format 3"), "{said}");
}

/// Each machine's directories know its last start, which is in the future when the clock was set back. Where nothing
/// knows it any more, the machine is told by name what is wrong.
#[test]
fn a_clock_that_was_set_back() {
    let mut cluster = Cluster::bare(1);
    cluster.stop();
    let (names, disk) = ("cluster/manager/incarnation", "cluster/io1/disk0/incarnation");
    let number = |path: &Path| fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap();
    let (names, disk) = (cluster.beside(names), cluster.beside(disk));
    let ahead = number(&disk) + 3_600_000_000_000;
    fs::write(&names, ahead.to_string()).unwrap();
    fs::write(&disk, ahead.to_string()).unwrap();
    cluster.processes.restart_servers().unwrap();
    let (target, file) = (cluster.processes.target(), cluster.beside("file"));
    fs::write(&file, pattern(2, 500_000)).unwrap();
    assert!(trapeze(&["cp", "-c", &target, text(&file), ":/file"]).status.success());
    assert!(number(&names) > ahead && number(&disk) > ahead);
    let before = number(&disk);
    cluster.crash(1, Duration::ZERO);
    let later = number(&disk);
    assert!(later > before);
    assert!(trapeze(&["cat", "-c", &target, "/file"]).stdout == pattern(2, 500_000));

    cluster.processes.take_server(1).unwrap().stop().unwrap();
    let config = cluster.beside("cluster/io1.toml");
    let refused = |config: &Path, noted: &Path, later: u64| {
        fs::remove_file(noted).unwrap();
        let said = refusal(&["serve", "--config", text(config)]);
        assert!(said.contains(&format!("a later start of this machine, {later}, 3")), "{said}");
        assert!(said.contains(&format!("write {later} into `incarnation`")), "{said}");
    };
    refused(&config, &disk, later);
    fs::write(&disk, later.to_string()).unwrap();
    cluster.processes.start_server(1).unwrap();
    assert!(trapeze(&["cat", "-c", &target, "/file"]).stdout == pattern(2, 500_000));
    cluster.stop();
    let later = number(&names);
    refused(&cluster.beside("cluster/manager.toml"), &names, later);
}

/// `up` ends with the error of a machine that has ended; the others are stopped in order, or they could not be started
/// again.
#[test]
fn a_machine_of_up_that_the_cluster_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let disk = dir.join("io1/disk0/incarnation");
    let number = || fs::read_to_string(&disk).unwrap().trim().parse::<u64>().unwrap();
    Embedded::start(&dir, 1).unwrap().stop().unwrap();
    fs::write(&disk, (number() + 3_600_000_000_000).to_string()).unwrap();
    let cluster = Embedded::start(&dir, 1).unwrap();
    let later = number();
    // A machine serves before it has joined, and of a start that was over by then the cluster knows nothing.
    let known = format!("\"incarnation\":{later}");
    let status = || trapeze(&["status", "--cluster", text(&dir), "--json"]).stdout;
    while !String::from_utf8_lossy(&status()).contains(&known) {
        std::thread::sleep(Duration::from_millis(10));
    }
    cluster.stop().unwrap();
    let way_out = format!("write {later} into `incarnation`");
    fs::remove_file(&disk).unwrap();
    let said = refusal(&["up", "--dir", text(&dir)]);
    assert!(said.contains(&way_out), "{said}");
    fs::remove_file(&disk).unwrap();
    let cluster = Embedded::start(&dir, 1).unwrap();
    while !cluster.has_ended() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = cluster.stop().unwrap_err().to_string();
    assert!(said.contains(&way_out), "{said}");
    fs::write(&disk, later.to_string()).unwrap();
    Embedded::start(&dir, 1).unwrap().stop().unwrap();
}

/// The disk's label says which format its objects have: only a program that reads it serves.
#[test]
fn a_disk_of_an_older_format_is_refused_naming_both() {
    let mut cluster = Cluster::bare(1);
    cluster.stop();
    let label = cluster.beside("cluster/io1/disk0/label");
    let mut bytes = fs::read(&label).unwrap();
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    bytes[4..6].copy_from_slice(&(version - 1).to_le_bytes());
    fs::write(&label, bytes).unwrap();
    let said = refusal(&["serve", "--config", text(&cluster.beside("cluster/io1.toml"))]);
    let (found, reads) = (format!("version is {}", version - 1), format!("reads {version}"));
    assert!(said.contains(&found) && said.contains(&reads), "{said}");
}

#[test]
fn what_cat_and_cp_cannot_do() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let said = refusal(&["cat", "-c", &target, "/"]);
    assert!(said.contains("EISDIR"), "{said}");
    let tree = cluster.beside("tree");
    fs::create_dir(&tree).unwrap();
    shell(&tree, 10, "mkfifo pipe");
    let said = refusal(&["cp", "-c", &target, text(&tree.join("pipe")), ":/pipe"]);
    assert!(said.contains("FIFO") && said.contains("pipe"), "{said}");
    refusal(&["stat", "-c", &target, "/pipe"]);
    cluster.stop();
}

/// FIFOs, a socket, a source that is not there: the rest is copied, and the user is told.
#[test]
fn a_tree_is_copied_without_what_cannot_be() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let tree = cluster.beside("tree");
    fs::create_dir(&tree).unwrap();
    shell(
        &tree,
        10,
        "for name in a b c d e; do mkdir $name; echo $name >$name/file; mkfifo $name/pipe; done",
    );
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("c/socket")).unwrap();
    let said = refusal(&["cp", "-r", "-c", &target, text(&tree), "/no/such", ":/"]);
    for name in ["a/pipe", "b/pipe", "c/pipe", "c/socket", "d/pipe", "e/pipe"] {
        let line = said.lines().find(|line| line.contains(name));
        assert!(line.is_some_and(|line| line.contains("skipped")), "{name}: {said}");
    }
    assert!(said.contains("/no/such: No such file"), "{said}");
    assert!(said.contains("not everything was copied: 6 skipped, 1 failed"), "{said}");
    let back = cluster.beside("back");
    let output = trapeze(&["cp", "-r", "--json", "-c", &target, ":/tree", text(&back)]);
    let counts = r#"{"files":5,"directories":6,"links":0,"bytes":10,"skipped":0,"errors":0}"#;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), counts);
    let script =
        "for name in a b c d e; do test $(cat $name/file) = $name; done; find . -type f | wc -l";
    assert_eq!(shell(&back, 10, script).trim(), "5");
    let listed = trapeze(&["ls", "-c", &target, "/tree"]).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let names: Vec<&str> =
        listed.lines().skip(2).filter_map(|l| l.split(' ').next_back()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    // Names are bytes, not always text.
    let copy = format!("{} cp -c {target}", program().display());
    let script =
        format!(r"printf x >$'n\xff'; {copy} $'n\xff' :/; {copy} $':/n\xff' n; cmp n $'n\xff'");
    shell(&back, 10, &script);
    what_is_copied_out(&mut cluster, &back);
    cluster.stop();
}

/// The other direction: a FIFO of the cluster, and a directory where a file is to go.
fn what_is_copied_out(cluster: &mut Cluster, back: &Path) {
    if cannot_mount() {
        return;
    }
    cluster.processes.mount().unwrap();
    shell(&cluster.at("tree"), 10, "mkfifo b/cluster-pipe");
    shell(back, 10, "rm -r a c d e; rm b/file; mkdir b/file");
    let (target, parent) = (cluster.processes.target(), back.join("."));
    let said = refusal(&["cp", "-r", "-c", &target, ":/tree/b", ":/tree/e", text(&parent)]);
    assert!(said.contains("/tree/b/cluster-pipe is a FIFO"), "{said}");
    assert!(said.contains("b/file: Is a directory"), "{said}");
    assert!(said.contains("1 skipped, 1 failed"), "{said}");
    assert_eq!(fs::read_to_string(back.join("e/file")).unwrap(), "e\n");
    // Room for two pages: the third file ends it.
    let small = back.join("small");
    shell(back, 10, "mkdir small; mount -t tmpfs -o size=8k none small");
    let said = refusal(&["cp", "-r", "-c", &target, ":/tree", text(&small)]);
    let files = shell(&small, 10, "find . -type f | wc -l");
    crate::common::detach(&small);
    assert_eq!(said.matches("No space left on device").count(), 1, "{said}");
    assert_eq!(files.trim(), "3", "{said}");
}

#[test]
fn copies_and_removals_that_would_lose_files() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let done = |arguments: &[&str]| assert!(trapeze(arguments).status.success(), "{arguments:?}");
    let tree = cluster.beside("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "file").unwrap();
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    let (tree, file) = (text(&tree), tree.join("file"));
    let file = text(&file);
    // Twice: a copy that was broken off is repeated.
    (0..2).for_each(|_| done(&["cp", "-r", "-c", &target, tree, ":/"]));
    let back = cluster.beside("back");
    fs::create_dir(&back).unwrap();
    (0..2).for_each(|_| done(&["cp", "-r", "-c", &target, ":/tree", text(&back)]));
    assert_eq!(fs::read_link(back.join("tree/link")).unwrap(), Path::new("file"));
    for arguments in [&[file, file, ":/none"][..], &[file, ":/none/"]] {
        let said = refusal(&[&["cp", "-c", &target], arguments].concat());
        assert!(said.contains("is not a directory"), "{said}");
    }
    for path in ["/", "//", "/tree/.."] {
        refusal(&["rm", "-r", "-c", &target, path]);
    }
    let said = refusal(&["rm", "-c", &target, "/tree"]);
    assert!(said.contains("--recursive"), "{said}");
    done(&["cat", "-c", &target, "/tree/file"]);
    let output = trapeze(&["rm", "-r", "--json", "-c", &target, "/tree", "/none"]);
    let counts = r#"{"files":2,"directories":1,"bytes":8,"errors":1}"#;
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), counts);
    cluster.stop();
}

#[test]
fn a_removal_of_trees_goes_through_no_link() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let done = |arguments: &[&str]| assert!(trapeze(arguments).status.success(), "{arguments:?}");
    let tree = cluster.beside("tree");
    fs::create_dir_all(tree.join("gone/deep/empty")).unwrap();
    fs::write(tree.join("gone/deep/file"), "12").unwrap();
    fs::create_dir(tree.join("kept")).unwrap();
    fs::write(tree.join("kept/file"), "file").unwrap();
    for (points_at, link) in [("../kept", "gone/link"), ("kept", "link")] {
        std::os::unix::fs::symlink(points_at, tree.join(link)).unwrap();
    }
    done(&["cp", "-r", "-c", &target, text(&tree), ":/"]);
    let output = trapeze(&["rm", "-r", "--json", "-c", &target, "/tree/gone", "/tree/link"]);
    let counts = r#"{"files":3,"directories":3,"bytes":13,"errors":0}"#;
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), counts);
    let output = trapeze(&["ls", "--json", "-c", &target, "/tree"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().matches(r#""name":"#).count(), 1);
    done(&["cat", "-c", &target, "/tree/kept/file"]);
    cluster.stop();
}

#[test]
fn output_that_nobody_takes() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    for arguments in [&["status"][..], &["ls"], &["df", "--json"], &["df"], &["stat"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(program());
        let command = command.args(arguments).args(["-c", &target]).stdout(full);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("trapeze: standard output: No space left"), "{said}");
    }
    cluster.stop();
}

#[test]
fn measurements_that_cannot_be() {
    for arguments in [
        &["bench", "stream", "--passes", "0"][..],
        &["bench", "stream", "--size", "0"],
        &["bench", "files", "--servers", "17"],
        &["bench", "fetch", "--pace", "0"],
        &["demo", "--size", "1"],
    ] {
        let output = trapeze(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let said = refusal(&["bench", "fetch", "--cpus", "0,5000"]);
    assert!(said.contains("processor 5000"), "{said}");
    let said = refusal(&["demo", "/no/such/directory"]);
    assert!(said.contains("/no/such/directory"), "{said}");
}

#[test]
fn mount_points_that_cannot_be() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    let target = cluster.processes.target();
    let missing = cluster.beside("missing");
    let said = refusal(&["mount", &target, text(&missing)]);
    assert!(said.contains("missing"), "{said}");
    let file = cluster.beside("file");
    fs::write(&file, "x").unwrap();
    let said = refusal(&["mount", &target, text(&file)]);
    assert!(said.contains("file"), "{said}");
    let said = refusal(&["mount", &target, text(&cluster.at(""))]);
    assert!(said.contains("mnt"), "{said}");
    fs::write(cluster.at("still"), "mounted").unwrap();
    cluster.stop();
}

/// Nothing is made where the mount could not be, and no mount hides what it is made of.
#[test]
fn up_looks_at_the_mount_point_first() {
    if cannot_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (new, file) = (folder.path().join("new"), folder.path().join("file"));
    fs::write(&file, "x").unwrap();
    for (point, why) in [
        (&folder.path().join("none"), "no such directory"),
        (&file, "not a directory"),
        (&folder.path().to_path_buf(), "the cluster's data is in it"),
    ] {
        let said = refusal(&["up", "--servers", "1", "--dir", text(&new), "--mount", text(point)]);
        assert!(said.contains(why), "{said}");
        assert!(!new.exists(), "{said}");
    }
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let said = refusal(&["mount", &target, &target]);
    assert!(said.contains("the cluster's data is in it"), "{said}");
    for part in ["manager", "io1/disk0"] {
        let point = Path::new(&target).join(part);
        for arguments in [
            &["mount", &target, text(&point)][..],
            &["up", "--dir", &target, "--mount", text(&point)],
        ] {
            let said = refusal(arguments);
            assert!(said.contains("it is in the cluster's own directory"), "{said}");
        }
    }
    cluster.stop();
}
