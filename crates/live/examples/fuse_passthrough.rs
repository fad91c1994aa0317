//! `fuse_passthrough SOURCE MOUNTPOINT`: the baseline of the benchmarks by itself, until somebody unmounts it.

use live::fuse::{MountOptions, passthrough};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [source, mount] = &words[..] else {
        return Err("usage: fuse_passthrough SOURCE MOUNTPOINT".into());
    };
    passthrough::serve(Path::new(source), &MountOptions::new(mount), false, || {})?;
    Ok(())
}
