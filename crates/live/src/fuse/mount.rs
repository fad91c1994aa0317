//! The place in the file tree: mounting, replacing a dead mount of ours, unmounting.
//!
//! Root mounts by itself; anybody else through `fusermount3`, which is installed set-uid for this. The kernel
//! decides what its processes may, from the attributes it was told (`default_permissions`): groups, capabilities and
//! user namespaces are known there alone, and the manager takes its word.
//!
//! It never looks inside a mount that may be its own: what it needs to know it reads from the mount table.

use super::limits::{IO_BYTES_MAX, READ_AHEAD_BYTES};
use super::{helper, mount_table};
use mount_table::Mounted;
use rustix::io::Errno as OsError;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::{fs, io};

/// The type of our mounts in the mount table.
pub const FILE_SYSTEM: &str = "fuse.trapeze";
/// How long a mount that is already there has to show that it is served.
const PROBE: Duration = Duration::from_secs(2);
/// Dead mounts on top of each other that are cleared away.
const STACKED_MAX: usize = 8;

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The directory.
    pub path: PathBuf,
    /// Whether other users may use it. Root's mounts are for all users; an ordinary user needs `user_allow_other` in
    /// /etc/fuse.conf.
    pub allow_other: bool,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whether the kernel is told never to change access times; reads do not change them anyway.
    pub no_atime: bool,
    /// Whether programs in it cannot be run.
    pub no_exec: bool,
    /// Whether every write is stable when it returns, as with O_SYNC.
    pub synchronous: bool,
    /// The source that the mount table shows.
    pub source: String,
}

impl MountOptions {
    /// The usual: writable, for all users when root mounts.
    pub fn new(path: impl Into<PathBuf>) -> MountOptions {
        let allow_other = rustix::process::geteuid().is_root();
        MountOptions {
            path: path.into(),
            allow_other,
            read_only: false,
            no_atime: false,
            no_exec: false,
            synchronous: false,
            source: "trapeze".into(),
        }
    }
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or the container hides it.
    #[error(
        "cannot mount on {path}: /dev/fuse is not there; load the module (modprobe fuse), give the container \
         the device, or do without a mount (trapeze ls, cp, cat)"
    )]
    NoDevice {
        /// Where.
        path: PathBuf,
    },
    /// There is no such directory.
    #[error("cannot mount on {path}: no such directory; make it first (mkdir -p {path})")]
    Missing {
        /// Where.
        path: PathBuf,
    },
    /// It is something else.
    #[error("cannot mount on {path}: not a directory; name an empty directory")]
    NotDirectory {
        /// Where.
        path: PathBuf,
    },
    /// A mount of ours is there and is served.
    #[error(
        "cannot mount on {path}: a trapeze volume is mounted there and in use; unmount it first \
         (umount {path}) or choose another directory"
    )]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// A dead mount of another file system is there.
    #[error(
        "cannot mount on {path}: a dead mount of {kind} is there; remove it first (umount -l {path})"
    )]
    Dead {
        /// Where.
        path: PathBuf,
        /// The other file system.
        kind: String,
    },
    /// Not root and no helper.
    #[error(
        "cannot mount on {path}: only root may mount, and fusermount3 is not installed; install fuse3 or run as root"
    )]
    NoHelper {
        /// Where.
        path: PathBuf,
    },
    /// The helper refused.
    #[error("cannot mount on {path}: fusermount3 refused: {said}")]
    Refused {
        /// Where.
        path: PathBuf,
        /// Its words.
        said: String,
    },
    /// Anything else.
    #[error("cannot mount on {path}: {action}: {error}")]
    System {
        /// Where.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

/// A mount of ours. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    by_helper: bool,
    /// Number of the file system in the mount table; tells ours from one that was mounted over it. The kernel gives
    /// it to another mount once this one has ended.
    device: Option<String>,
    ended: bool,
}

impl Mount {
    /// Mounts; the descriptor is where the kernel's requests come from. It never waits for a reader.
    pub fn new(options: &MountOptions) -> Result<(OwnedFd, Mount), MountError> {
        let path = check_mount_point(&options.path)?;
        let (descriptor, by_helper) = match open_and_mount(options, &path) {
            Ok(descriptor) => (descriptor, false),
            Err(OsError::PERM | OsError::ACCESS) => (by_helper(options, &path)?, true),
            Err(error) if is_absence(error) => return Err(MountError::NoDevice { path }),
            Err(error) => return Err(system(&path, "mount", error.into())),
        };
        rustix::io::ioctl_fionbio(&descriptor, true)
            .map_err(|error| system(&path, "set /dev/fuse to not wait", error.into()))?;
        let device = mount_table::top(&path).map(|mounted| mounted.device);
        Ok((descriptor, Mount { path, by_helper, device, ended: false }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the kernel read ahead as far as two of the largest reads; its default is an eighth of one. Only root may,
    /// for anybody else it stays as it is. To be called once INIT is agreed on, which sets the default.
    pub fn raise_read_ahead(&self) {
        if let Some(device) = &self.device {
            let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
            // Without it the mount is slower, not wrong.
            let _ = fs::write(setting, (READ_AHEAD_BYTES >> 10).to_string());
        }
    }

    /// The kernel has said on the descriptor that the mount has ended: what is at its place from now on is another one,
    /// whatever its number.
    pub fn note_ended(&mut self) {
        self.ended = true;
    }

    /// Whether it is still in the mount table, on top.
    pub fn is_mounted(&self) -> bool {
        if self.ended {
            return false;
        }
        let top = mount_table::top(&self.path);
        top.is_some_and(|top| top.kind == FILE_SYSTEM && Some(top.device) == self.device)
    }

    /// Takes the mount out of the file tree; who uses it still can until the descriptor is closed. The kernel may
    /// first write what programs changed in mapped files, so the descriptor must be served meanwhile, on another
    /// thread than this one, or be closed.
    pub fn unmount(&self) -> io::Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        detach(&self.path, self.by_helper)
    }

    /// As [`unmount`](Mount::unmount), on a thread of its own.
    pub fn unmount_beside(&self) -> thread::JoinHandle<io::Result<()>> {
        let (path, by_helper, mounted) = (self.path.clone(), self.by_helper, self.is_mounted());
        thread::spawn(move || if mounted { detach(&path, by_helper) } else { Ok(()) })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the next mount on this path replaces a dead one.
        let _ = self.unmount();
    }
}

fn system(path: &Path, action: &'static str, error: io::Error) -> MountError {
    MountError::System { path: path.into(), action, error }
}

/// Whether something could be mounted at `path`, as far as that shows without mounting: dead mounts of ours are removed
/// there. The path without links and dots.
pub fn check_mount_point(path: &Path) -> Result<PathBuf, MountError> {
    let path = absolute(path)?;
    clear_dead(&path)?;
    check_directory(&path)?;
    match open_device() {
        Err(error) if is_absence(error) => Err(MountError::NoDevice { path }),
        // A user who may not open it may have a helper that may.
        _ => Ok(path),
    }
}

/// Whether there is no such device.
fn is_absence(error: OsError) -> bool {
    matches!(error, OsError::NOENT | OsError::NXIO | OsError::NODEV)
}

fn open_device() -> Result<OwnedFd, OsError> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// The path without links and dots, by its parent: a dead mount cannot be looked at itself.
fn absolute(path: &Path) -> Result<PathBuf, MountError> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return fs::canonicalize(path).map_err(|_| MountError::Missing { path: path.into() });
    }
    let Some(name) = path.file_name() else {
        return fs::canonicalize(path).map_err(|_| MountError::Missing { path: path.into() });
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = fs::canonicalize(parent).map_err(|_| MountError::Missing { path: path.into() })?;
    Ok(parent.join(name))
}

/// Removes dead mounts of ours at `path`.
fn clear_dead(path: &Path) -> Result<(), MountError> {
    for _ in 0..STACKED_MAX {
        let Some(Mounted { kind, .. }) = mount_table::top(path) else { return Ok(()) };
        let ours = kind == FILE_SYSTEM;
        if !kind.starts_with("fuse") {
            return Ok(());
        }
        match (is_dead(path), ours) {
            (Some(true), true) => detach(path, !rustix::process::geteuid().is_root())
                .map_err(|error| system(path, "remove the dead mount there", error))?,
            (Some(true), false) => return Err(MountError::Dead { path: path.into(), kind }),
            (_, true) => return Err(MountError::InUse { path: path.into() }),
            (_, false) => return Ok(()),
        }
    }
    Err(MountError::InUse { path: path.into() })
}

/// Whether the FUSE mount at `path` has no server any more; `None` when it does not say. Asked on a thread of its own:
/// a server may hang.
fn is_dead(path: &Path) -> Option<bool> {
    let (tell, told) = mpsc::channel();
    let path = path.to_path_buf();
    thread::spawn(move || {
        let dead = rustix::fs::statfs(&path).is_err_and(|error| error == OsError::NOTCONN);
        // The caller has gone when this took too long.
        let _ = tell.send(dead);
    });
    told.recv_timeout(PROBE).ok()
}

fn check_directory(path: &Path) -> Result<(), MountError> {
    let path_buf = path.to_path_buf();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(MountError::NotDirectory { path: path_buf }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(MountError::Missing { path: path_buf })
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(MountError::NotDirectory { path: path_buf })
        }
        Err(error) => Err(system(path, "look at it", error)),
    }
}

fn open_and_mount(options: &MountOptions, path: &Path) -> Result<OwnedFd, OsError> {
    let descriptor = open_device()?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,max_read={IO_BYTES_MAX}{}",
        descriptor.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        if options.allow_other { ",allow_other" } else { "" },
    );
    let data = CString::new(data).map_err(|_| OsError::INVAL)?;
    // Devices and set-id programs in the volume are of other machines: as fusermount3 does for all users.
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOATIME, options.no_atime);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    flags.set(MountFlags::SYNCHRONOUS, options.synchronous);
    rustix::mount::mount(options.source.as_str(), path, FILE_SYSTEM, flags, Some(data.as_c_str()))?;
    Ok(descriptor)
}

fn by_helper(options: &MountOptions, path: &Path) -> Result<OwnedFd, MountError> {
    let mut words = format!(
        "fsname={},subtype=trapeze,default_permissions,max_read={IO_BYTES_MAX},nosuid,nodev",
        // A comma would end the option.
        options.source.replace('\\', r"\\").replace(',', r"\,"),
    );
    words.push_str(if options.allow_other { ",allow_other" } else { "" });
    for (word, asked) in [
        (",ro", options.read_only),
        (",noatime", options.no_atime),
        (",noexec", options.no_exec),
        (",sync", options.synchronous),
    ] {
        words.push_str(if asked { word } else { "" });
    }
    helper::mount(&words, path).map_err(|failure| match failure {
        helper::Failure::Missing => MountError::NoHelper { path: path.into() },
        helper::Failure::Refused(said) => MountError::Refused { path: path.into(), said },
        helper::Failure::System(error) => system(path, "talk to fusermount3", error),
    })
}

/// Takes away every FUSE mount at `folder` and below it, also one in use.
pub fn detach_below(folder: &Path) -> io::Result<()> {
    let mounts = mount_table::below(folder).into_iter();
    let ours = mounts.filter(|mounted| mounted.kind.starts_with("fuse"));
    let by_helper = !rustix::process::geteuid().is_root();
    ours.map(|mounted| mounted.path).try_for_each(|path| detach(&path, by_helper))
}

fn detach(path: &Path, by_helper: bool) -> io::Result<()> {
    if by_helper {
        return helper::unmount(path);
    }
    Ok(rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}
