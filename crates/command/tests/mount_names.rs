//! Names in a mount as programs of a local file system expect them: listings beside renames, and what is reached
//! otherwise than by its name.

use crate::common::{Cluster, cannot_mount, lacks, shell, skip};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;

#[test]
fn names_as_on_a_local_file_system() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    let root = cluster.at("");
    a_listing_ends_while_its_files_are_renamed(&root.join("listed"));
    what_is_open_stays_without_a_name(&root.join("open"));
    files_are_made_without_a_name(&root);
    what_no_file_can_hold_is_refused_at_once(&root);
    an_overlay_has_its_upper_layer_here(&root.join("overlay"), &cluster.beside("lower"));
    the_mount_table_names_the_cluster(&cluster);
    handles_outlive_the_mount(&mut cluster);
    cluster.stop();
}

/// Many more names than one part of a listing holds, each renamed away and back as soon as it is listed.
fn a_listing_ends_while_its_files_are_renamed(dir: &Path) {
    const COUNT: usize = 1000;
    let other = dir.with_extension("other");
    fs::create_dir(&other).unwrap();
    fs::create_dir(dir).unwrap();
    (0..COUNT).for_each(|number| fs::write(dir.join(format!("file-{number:050}")), "").unwrap());
    let mut listed = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        listed += 1;
        assert!(listed <= COUNT, "{} is listed again", path.display());
        let away = if listed % 2 == 0 { other.join("away") } else { path.with_extension("away") };
        fs::rename(&path, &away).unwrap();
        fs::rename(&away, &path).unwrap();
    }
    assert_eq!(listed, COUNT);
    fs::remove_dir_all(dir).unwrap();
    fs::remove_dir_all(other).unwrap();
}

/// Opens, without following a link.
fn held(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap()
}

/// How many links it has, asked of its file system and not of the kernel's memory.
fn links(open: &OwnedFd) -> u32 {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(open, "", flags, StatxFlags::BASIC_STATS).unwrap().stx_nlink
}

fn make_node(path: &Path, kind: FileType) {
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, path, kind, Mode::from(0o644), device).unwrap();
}

/// Files without bytes, removed or replaced while they are open.
fn what_is_open_stays_without_a_name(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let at = |name: &str| dir.join(name);
    for (number, replaced) in [false, true].into_iter().enumerate() {
        for name in ["directory", "other directory"] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink("where it leads", at("link")).unwrap();
        make_node(&at("pipe"), FileType::Fifo);
        make_node(&at("device"), FileType::CharacterDevice);
        let listed = rustix::fs::open(at("directory"), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let names = ["directory", "link", "pipe", "device"];
        let open = names.map(|name| held(&at(name)));
        for name in names {
            let new = if name == "directory" { "other directory" } else { "new" };
            match (replaced, name) {
                (true, "directory") => fs::rename(at(new), at(name)).unwrap(),
                (true, _) => {
                    fs::write(at(new), "").unwrap();
                    fs::rename(at(new), at(name)).unwrap();
                }
                (false, "directory") => fs::remove_dir(at(name)).unwrap(),
                (false, _) => fs::remove_file(at(name)).unwrap(),
            }
        }
        assert_eq!(open.each_ref().map(links), [0; 4], "round {number}");
        assert_eq!(links(&listed), 0);
        let target = rustix::fs::readlinkat(&open[1], "", Vec::new()).unwrap();
        assert_eq!(target.as_bytes(), b"where it leads");
        rustix::fs::fchmod(&listed, Mode::from(0o700)).unwrap();
        rustix::fs::fsync(&listed).unwrap();
        fs::remove_dir_all(dir).unwrap();
        fs::create_dir(dir).unwrap();
    }
}

/// O_TMPFILE, which kernels from 6.2 on ask file systems like ours for.
fn files_are_made_without_a_name(root: &Path) {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let make = || rustix::fs::open(root, flags, Mode::from(0o600));
    let kept = match make() {
        Err(rustix::io::Errno::OPNOTSUPP) => return skip("this kernel's FUSE has no O_TMPFILE"),
        kept => kept.unwrap(),
    };
    let lost = make().unwrap();
    for (file, text) in [(&kept, b"kept"), (&lost, b"lost")] {
        assert_eq!(rustix::io::pwrite(file, text, 100_000), Ok(4));
        drop(rustix::io::dup(file).unwrap());
        rustix::fs::fsync(file).unwrap();
    }
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&kept));
    rustix::fs::linkat(CWD, path, CWD, root.join("kept"), AtFlags::SYMLINK_FOLLOW).unwrap();
    let mut seen = [0; 4];
    assert_eq!((rustix::io::pread(&lost, &mut seen, 100_000), &seen), (Ok(4), b"lost"));
    assert_eq!((links(&kept), links(&lost)), (1, 0));
    drop((kept, lost));
    assert_eq!(fs::read(root.join("kept")).unwrap()[100_000..], *b"kept");
    fs::remove_file(root.join("kept")).unwrap();
    let exclusive = rustix::fs::open(root, flags | OFlags::EXCL, Mode::from(0o600)).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&exclusive));
    let refused = rustix::fs::linkat(CWD, path, CWD, root.join("x"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(refused, Err(rustix::io::Errno::NOENT));
}

/// Not at a later fsync.
fn what_no_file_can_hold_is_refused_at_once(root: &Path) {
    let path = root.join("long");
    fs::write(&path, "before").unwrap();
    let file = rustix::fs::open(&path, OFlags::RDWR, Mode::empty()).unwrap();
    let big = Err(rustix::io::Errno::FBIG);
    for offset in [1 << 50, 1 << 62, i64::MAX as u64 - 10] {
        assert_eq!(rustix::io::pwrite(&file, b"beyond", offset), big, "{offset}");
        assert_eq!(rustix::fs::ftruncate(&file, offset), big.map(drop), "{offset}");
    }
    let copied = rustix::fs::copy_file_range(&file, Some(&mut 0), &file, Some(&mut 1000), 6);
    assert_eq!(copied, Ok(6));
    assert_eq!(rustix::fs::fsync(&file), Ok(()));
    let whole = fs::read(&path).unwrap();
    assert_eq!((whole.len(), &whole[..6], &whole[1000..]), (1006, &b"before"[..], &b"before"[..]));
}

/// overlayfs keeps what is new and what is removed in a directory of ours.
fn an_overlay_has_its_upper_layer_here(dir: &Path, lower: &Path) {
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| {
        // The merged view lies on the machine's own disk.
        let within = if name == "merged" { lower.with_extension("merged") } else { dir.join(name) };
        fs::create_dir_all(&within).unwrap();
        within
    });
    fs::create_dir(lower).unwrap();
    for name in ["removed", "renamed", "written"] {
        fs::write(lower.join(name), name).unwrap();
    }
    let [low, up, working] = [lower, &upper, &work].map(|path| path.display().to_string());
    let data = std::ffi::CString::new(format!("lowerdir={low},upperdir={up},workdir={working}"));
    let data = data.unwrap();
    let mounted =
        rustix::mount::mount("overlay", &merged, "overlay", MountFlags::empty(), data.as_c_str());
    if let Err(error @ (rustix::io::Errno::NODEV | rustix::io::Errno::PERM)) = mounted {
        return skip(format!("overlayfs cannot be mounted: {error}"));
    }
    mounted.unwrap();
    fs::remove_file(merged.join("removed")).unwrap();
    fs::rename(merged.join("renamed"), merged.join("new name")).unwrap();
    fs::write(merged.join("written"), "again").unwrap();
    fs::create_dir(merged.join("directory")).unwrap();
    let listed = |path: &Path| {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(name).collect();
        names.sort();
        names
    };
    assert_eq!(listed(&merged), ["directory", "new name", "written"]);
    assert_eq!(fs::read_to_string(merged.join("new name")).unwrap(), "renamed");
    assert_eq!(fs::read_to_string(merged.join("written")).unwrap(), "again");
    rustix::mount::unmount(&merged, UnmountFlags::empty()).unwrap();
    assert_eq!(listed(&upper), ["directory", "new name", "removed", "renamed", "written"]);
    let flags = RenameFlags::WHITEOUT | RenameFlags::NOREPLACE;
    let (old, new) = (upper.join("written"), upper.join("moved"));
    rustix::fs::renameat_with(CWD, &old, CWD, &new, flags).unwrap();
    let left = rustix::fs::lstat(&old).unwrap();
    assert_eq!(
        (FileType::from_raw_mode(left.st_mode), left.st_rdev),
        (FileType::CharacterDevice, 0)
    );
}

/// `findmnt` and `df` show what `trapeze mount` takes.
fn the_mount_table_names_the_cluster(cluster: &Cluster) {
    let point = cluster.processes.mount_point().display().to_string();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(&point)).unwrap();
    assert_eq!(line.split(' ').next(), Some(cluster.processes.target().as_str()));
}

/// A handle of name_to_handle_at(2) finds its file when the kernel has forgotten it.
fn handles_outlive_the_mount(cluster: &mut Cluster) {
    if lacks("python3") {
        return;
    }
    let root = cluster.at("");
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::write(root.join("deep/er/file"), "by its handle").unwrap();
    let script = |action: &str| format!("python3 - {action} ../handles <<'END'\n{HANDLES}\nEND\n");
    shell(&root, 60, &script("make"));
    cluster.remount();
    shell(&root, 60, &script("open"));
    fs::remove_dir_all(root.join("deep")).unwrap();
    shell(&root, 60, &script("refused"));
}

const HANDLES: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]
def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
action, kept = sys.argv[1:]
paths = ["deep/er/file", "deep/er"]
if action == "make":
    with open(kept, "wb") as out:
        for path in paths:
            handle, mount = Handle(bytes=128), ctypes.c_int()
            call("name_to_handle_at", -100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0)
            out.write(handle)
else:
    root = os.open(".", os.O_RDONLY)
    with open(kept, "rb") as kept:
        for path in paths:
            handle = Handle.from_buffer_copy(kept.read(ctypes.sizeof(Handle)))
            try:
                opened = call("open_by_handle_at", root, ctypes.byref(handle), os.O_RDONLY)
            except OSError as error:
                assert action == "refused" and error.errno == errno.ESTALE, error
                continue
            assert action == "open"
            if path == "deep/er":
                assert os.listdir(opened) == ["file"]
                assert os.path.samestat(os.stat("..", dir_fd=opened), os.stat("deep"))
            else:
                assert os.read(opened, 100) == b"by its handle"
"#;
