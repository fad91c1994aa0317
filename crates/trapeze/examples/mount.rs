//! A cluster in this process, mounted: from here on it is a file system like any other.
//!
//! `cargo run --release --example mount`

use std::fs;
use std::io::Write;
use std::path::Path;
use trapeze::embedded::Embedded;
use trapeze::scratch::Scratch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: there is no /dev/fuse here");
        return Ok(());
    }
    let scratch = Scratch::new(None, false)?;
    let cluster = Embedded::start(&scratch.path().join("cluster"), 3)?;
    let point = scratch.path().join("mnt");
    fs::create_dir(&point)?;

    // The mount is served by a thread of its own; this one may use it.
    let mounted = cluster.mount(&point)?;
    fs::create_dir(point.join("letters"))?;
    let mut letter = fs::File::create(point.join("letters/first"))?;
    letter.write_all(b"dear reader")?;
    letter.sync_all()?; // on stable storage
    drop(letter);
    fs::rename(point.join("letters/first"), point.join("letters/sent"))?;
    mounted.unmount()?;

    // Mounted again: nothing is remembered but what the cluster keeps.
    let mounted = cluster.mount(&point)?;
    let text = fs::read_to_string(point.join("letters/sent"))?;
    assert_eq!(text, "dear reader");
    println!("the letter says {text:?}");
    mounted.unmount()?;
    cluster.stop()?;
    Ok(())
}
