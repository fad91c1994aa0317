//! Mounting as mount(8), fstab and mount.fuse3 do it.

use crate::common::{Cluster, cannot_mount, lacks, program, refusal, shell, text};

/// In a mount name space of its own, in which this program is a helper of mount(8): nothing of it is left behind.
fn with_helper(cluster: &Cluster, script: &str) -> String {
    let helper = format!(
        "unshare -m --propagation private bash -euc '\n\
         mkdir -p helper m && ln -sf {program} helper/mount.trapeze && ln -sf {program} helper/mount.fuse.trapeze\n\
         mount -t overlay overlay -o lowerdir=$PWD/helper:$(realpath /sbin) $(realpath /sbin)\n\
         {script}'",
        program = text(program()),
    );
    shell(&cluster.beside(""), 60, &helper)
}

#[test]
fn mount_and_a_line_of_fstab_mount_a_cluster() {
    if cannot_mount() || lacks("unshare") {
        return;
    }
    let mut cluster = Cluster::bare(1);
    let dir = cluster.processes.target();
    let until_gone = "while [ -n \"$(jobs -p)\" ]; do sleep 0.1; done";
    let said = with_helper(
        &cluster,
        &format!(
            "mount -t fuse.trapeze {dir} m -o noatime,nosuid,nodev,allow_other,default_permissions\n\
             echo hello > m/file; cat m/file; findmnt -no SOURCE,FSTYPE,OPTIONS m; umount m; {until_gone}\n\
             echo \"{dir} $PWD/m trapeze ro,_netdev,x-systemd.automount 0 0\" > fstab\n\
             mount --fstab fstab m; cat m/file; ! touch m/file 2> refused; cat refused; umount m\n\
             {program} trapeze#{dir} m -o rw,dev,suid; cat m/file; umount m\n\
             ! mount -t trapeze {dir} m -o bogus 2> refused; cat refused; echo code $?",
            program = text(program()),
        ),
    );
    assert_eq!(said.matches("hello").count(), 3, "{said}");
    for part in [
        "fuse.trapeze",
        "noatime",
        "nosuid,nodev",
        "allow_other",
        &dir,
        "Read-only file system",
        "-o bogus",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    cluster.stop();
}

#[test]
fn an_option_that_there_is_none_of_is_refused_by_name() {
    let said = refusal(&["mount", "unix:/nowhere", "/nowhere", "-o", "ro,allow_root"]);
    assert!(said.contains("-o allow_root"), "{said}");
}
