//! nfs-ganesha beside ours in a network of guests: an export that is imported and mounted, and speeds beside ours.

use crate::common::{Up, pattern, program, shell, text};
use crate::guests::{Guest, Network, SERVER, lacks_a_guest};
use crate::kernel_client::told;
use rig::ganesha::{is_missing, settings};
use rig::{lacking, lacks};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use trapeze::children::Process;

/// rpcbind, which nfs-ganesha does not start without, has a network of its own: in this one ours answers at its port.
/// The shell ends it when that ends: rpcbind itself forgets such a wish as it becomes another user.
const START: &str = "\
setpriv --pdeathsig KILL unshare --net --pid --fork --kill-child sh -c 'rpcbind -f; exit' &
until [ -S /run/rpcbind.sock ]; do sleep 0.05; done
exec ganesha.nfsd -F -L STDOUT -f \"$1\" -p /run/ganesha.pid";

const NFS: u16 = 12049;
const MOUNT: u16 = 12050;

/// A server with one export.
struct Ganesha {
    _process: Process,
    export: PathBuf,
}

impl Ganesha {
    fn is_missing() -> bool {
        let missing = is_missing("ganesha.nfsd");
        if missing {
            lacking("nfs-ganesha is not installed");
        }
        missing || ["setpriv", "rpcbind"].into_iter().any(lacks)
    }

    fn start(network: &Network, dir: &Path) -> Ganesha {
        let (export, config) = (dir.join("export"), dir.join("ganesha.conf"));
        fs::create_dir(&export).unwrap();
        let ports = format!("NFS_Port = {NFS}; MNT_Port = {MOUNT}; ");
        fs::write(&config, settings(dir, &export, &ports)).unwrap();
        let mut command = network.alone("sh");
        command.args(["-c", START, "sh", text(&config)]);
        let listens = || {
            let mut probe = network.command("bash");
            probe.args(["-c", &format!("exec 3<> /dev/tcp/{SERVER}/{NFS}")]);
            probe.output().unwrap().status.success()
        };
        let log = config.with_file_name("ganesha.log");
        let process = Process::start_until("ganesha", command, &log, listens).unwrap();
        Ganesha { _process: process, export }
    }

    fn source(&self) -> String {
        format!("nfs://{SERVER}:{NFS}{}?mountport={MOUNT}", self.export.display())
    }
}

/// The contents of a directory by names: modes, owners, sizes, sums and targets; a line of any shell.
const LISTED: &str = "find . | LC_ALL=C sort | while read -r name; do \
    if [ -h $name ]; then echo $name $(readlink $name); \
    elif [ -d $name ]; then stat -c '%n %a %u %g' $name; \
    else stat -c '%n %a %u %g %s %Y' $name && sha256sum < $name; fi; done";

fn listed_here(dir: &Path) -> Vec<String> {
    shell(dir, 60, LISTED).lines().map(String::from).collect()
}

fn listed_there(guest: &mut Guest) -> Vec<String> {
    guest.told(&format!("cd /host/mnt/import && {LISTED}; cd /"))
}

#[test]
fn the_kernels_client_reads_and_writes_an_import() {
    if lacks_a_guest() || Ganesha::is_missing() {
        return;
    }
    let mut up = Up::new("2");
    let dir = up.at("data");
    told(&dir, &["mkdir", "/home", "/imports"]);
    let network = Network::new("import", dir.parent().unwrap());
    let ganesha = Ganesha::start(&network, dir.parent().unwrap());
    let origin = &ganesha.export;
    fs::create_dir_all(origin.join("there/empty")).unwrap();
    fs::write(origin.join("there/long"), pattern(1, 2_500_000)).unwrap();
    (0..40).for_each(|file| fs::write(origin.join(format!("{file}")), pattern(file, 99)).unwrap());
    symlink("there/long", origin.join("link")).unwrap();
    let mut import = network.command(program());
    import.args(["import", &ganesha.source(), "/imports/origin", "--write", "through"]);
    import.args(["--cluster", text(&dir)]);
    let log = dir.with_file_name("import.log");
    let importer = Process::start_command("import", import, &log).unwrap();
    let server = network.serve("nfs", &dir, &dir.with_file_name("nfs.log"));
    let mut guest = network.boot(0);
    guest.told("mkdir /host/mnt/import");
    let options = "vers=3,tcp,port=2049,mountport=2049,nolock";
    let mount = format!("mount -t nfs -o {options} {SERVER}:/imports/origin /mnt/import");
    guest.told(&format!("chroot /host /bin/{mount}"));
    assert_eq!(listed_there(&mut guest), listed_here(origin));

    let changes = [
        "cd /host/mnt/import",
        "mkdir made && chmod 750 made && mv there/long made",
        "cat made/long made/long > made/longer && truncate -s 1000 made/long",
        "echo more >> 7 && rm 8 link && ln -s 7 made/link && chown 12:34 9 && rmdir there/empty",
    ];
    guest.told(&changes.join(" && "));
    guest.told("cd / && sync");
    let wanted = listed_here(origin);
    assert_eq!(fs::read(origin.join("made/longer")).unwrap(), pattern(1, 2_500_000).repeat(2));
    assert_eq!(listed_there(&mut guest), wanted);
    fs::write(origin.join("9"), b"theirs\n").unwrap();
    guest.told("until grep -q theirs /host/mnt/import/9; do sleep 0.2; done");
    guest.told("umount /host/mnt/import");
    drop(guest);
    server.stop().unwrap();
    importer.stop().unwrap();
    up.stop();
}

/// Seconds that dd says of a file of so many MiB.
fn seconds(guest: &mut Guest, line: &str) -> f64 {
    let lines = guest.told(&format!("chroot /host /bin/{line} 2>&1"));
    let (_, rest) = lines.iter().find_map(|line| line.split_once(" copied, ")).unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Sequential writes with fsync(2), and reads after the guest has forgotten all, of ours and of nfs-ganesha in turns.
#[test]
#[ignore = "measures; part of cargo xtask bench"]
fn bench_the_kernels_client_beside_nfs_ganesha() {
    if lacks_a_guest() || Ganesha::is_missing() {
        return;
    }
    let (mib, rounds) = if std::env::var_os("TRAPEZE_BENCH").is_some() { (64, 7) } else { (8, 1) };
    let mut up = Up::new("2");
    let dir = up.at("data");
    told(&dir, &["mkdir", "/home"]);
    let network = Network::new("speed", dir.parent().unwrap());
    let ganesha = Ganesha::start(&network, dir.parent().unwrap());
    let server = network.serve("nfs", &dir, &dir.with_file_name("nfs.log"));
    let mut guest = network.boot(0);
    let export = ganesha.export.display();
    let theirs = format!("vers=3,tcp,port={NFS},mountport={MOUNT},nolock {SERVER}:{export}");
    let source = format!("yes 0123456789 | head -c {} > /host/mnt/source", mib << 20);
    guest.told(&source);
    // theirs has other ports
    guest.told("chroot /host /sbin/tc qdisc del dev eth0 clsact");
    guest.told("mkdir /host/mnt/theirs && chroot /host /bin/mount /home");
    guest.told(&format!("chroot /host /bin/mount -t nfs -o {theirs} /mnt/theirs"));
    let sides = [("trapeze nfs", "/home"), ("nfs-ganesha", "/mnt/theirs")];
    let mut all: [[Vec<f64>; 2]; 2] = Default::default();
    for _ in 0..rounds {
        for ((_, path), [writes, reads]) in sides.iter().zip(&mut all) {
            let file = format!("{path}/file");
            let write = format!("dd if=/mnt/source of={file} bs=1M conv=fsync");
            writes.push(seconds(&mut guest, &write));
            guest.told("echo 3 > /proc/sys/vm/drop_caches");
            reads.push(seconds(&mut guest, &format!("dd if={file} of=/dev/null bs=1M")));
            guest.told(&format!("rm /host{file}"));
        }
    }
    for ((name, _), spans) in sides.iter().zip(all) {
        let [write, read] = spans.map(|spans| f64::from(mib) * 1.048_576 / median(spans));
        println!("{name}: {mib} MiB, {rounds} rounds: write {write:.0} MB/s, read {read:.0} MB/s");
    }
    guest.told("umount /host/home && umount /host/mnt/theirs");
    drop(guest);
    server.stop().unwrap();
    up.stop();
}
