//! One executable that carries the library of `trapeze run`: behind its own bytes, then the library's length and a
//! mark.

use crate::run::{command, root, run};
use std::fs;

/// As `command`'s `preloaded` reads it.
const MARK: &[u8; 8] = b"TPZLIB01";

/// Builds `target/release/trapeze` with the library in it.
pub fn bundle() -> Result<(), String> {
    run("executable and library", command("cargo build --release --locked -p command -p preload"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), Into::into);
    let folder = target.join("release");
    let read = |name: &str| fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"));
    let (library, mut all) = (read("libpreload.so")?, read("trapeze")?);
    all.extend_from_slice(&library);
    all.extend_from_slice(&(library.len() as u64).to_le_bytes());
    all.extend_from_slice(MARK);
    // A new file of the old one's mode: the executable may be running.
    let (path, fresh) = (folder.join("trapeze"), folder.join("trapeze.bundle"));
    let put = fs::write(&fresh, all)
        .and_then(|()| fs::set_permissions(&fresh, fs::metadata(&path)?.permissions()))
        .and_then(|()| fs::rename(&fresh, &path));
    put.map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{} carries libpreload.so, {} bytes", path.display(), library.len());
    Ok(())
}
