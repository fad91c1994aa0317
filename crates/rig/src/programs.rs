//! Executables that tests copy.

use std::path::Path;
use std::process::Command;

/// Copies an executable that the test runs afterwards, with the permissions `mode` in octal digits. Another process
/// writes the copy: a descriptor of this one that is open for writing would be inherited by whatever another test's
/// thread starts at that moment, and until that executes, running the copy fails with ETXTBSY.
pub fn copy_program(from: &Path, to: &Path, mode: &str) {
    let mut install = Command::new("install");
    let status = install.args(["-m", mode]).arg(from).arg(to).status();
    assert!(status.expect("install(1) is there").success(), "copying {}", from.display());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_copied_program_runs_while_others_are_started() {
        let dir = std::env::temp_dir().join(format!("trapeze-copies-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let done = AtomicBool::new(false);
        let start = || Command::new("true").status().unwrap().success();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut starts = std::iter::repeat_with(start);
                    starts.any(|started| !started || done.load(Ordering::Relaxed))
                });
            }
            for number in 0..50 {
                let copy = dir.join(number.to_string());
                copy_program(Path::new("/bin/true"), &copy, "755");
                let ran = Command::new(&copy).status();
                done.store(ran.is_err(), Ordering::Relaxed);
                assert!(ran.expect("the copy runs").success());
            }
            done.store(true, Ordering::Relaxed);
        });
        std::fs::remove_dir_all(dir).unwrap();
    }
}
