//! A file striped over four I/O servers, written and read without a mount.
//!
//! `cargo run --release --example striped_read`

use std::path::Path;
use std::time::Instant;
use trapeze::embedded::Embedded;
use trapeze::scratch::Scratch;

const SERVERS: u16 = 4;
const FILE_BYTES: usize = 32 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new(None, false)?;
    // A manager and four I/O servers, each a node on a thread of its own.
    let cluster = Embedded::start(&scratch.path().join("cluster"), SERVERS)?;
    let mut volume = cluster.volume()?;
    let path = Path::new("/film");
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at / 7) as u8).collect();

    // Written: at the I/O servers. Synced: on their stable storage.
    volume.write_file(path, 0o644, &mut &bytes[..], &mut |_| {})?;
    volume.sync(path)?;

    // Each 32 KiB of the file is on the next server; a read asks all of them at once.
    let (mut back, start) = (Vec::with_capacity(FILE_BYTES), Instant::now());
    volume.read_file(path, &mut back, &mut |_| {})?;
    let seconds = start.elapsed().as_secs_f64();
    assert!(back == bytes, "byte for byte");
    println!("read {FILE_BYTES} bytes over {SERVERS} servers: {:.0} MB/s", {
        FILE_BYTES as f64 / 1e6 / seconds
    });

    volume.close()?;
    cluster.stop()?;
    Ok(())
}
