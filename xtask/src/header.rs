//! `crates/capi/include/trapeze.h`, made from the C library's docstrings with the installed cbindgen; and where the
//! library's files go.
//!
//! cbindgen is a tool, not a dependency: its licence is none that our dependencies may have, and what it writes is
//! ours.

use crate::run::{command, root, run};
use std::fs;
use std::process::Command;

const CRATE: &str = "crates/capi";
/// Oldest cbindgen whose header is the committed one: Debian 12 has 0.24, which cannot read these sources.
const CBINDGEN_MIN: (u32, u32) = (0, 29);

/// Writes the header anew.
pub fn header() -> Result<(), String> {
    let path = root().join(CRATE).join("include/trapeze.h");
    let text = generated()?;
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn generated() -> Result<String, String> {
    let mut tool = Command::new("cbindgen");
    tool.args(["--quiet", "--config", "cbindgen.toml", "."]).current_dir(root().join(CRATE));
    let output = tool.output().map_err(|e| format!("cbindgen: {e}: cargo install cbindgen"))?;
    if !output.status.success() {
        return Err(format!("cbindgen: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8(output.stdout).map_err(|error| format!("cbindgen: {error}"))?;
    // What Rust calls safety is what a function needs of its caller in C.
    Ok(text.replace("# Safety\n", "Needs:\n"))
}

/// Whether the installed cbindgen, if there is one, writes the header as it is committed.
fn has_tool() -> bool {
    let Ok(output) = Command::new("cbindgen").arg("--version").output() else { return false };
    let said = String::from_utf8_lossy(&output.stdout);
    let mut numbers = said.split([' ', '.']).filter_map(|number| number.trim().parse().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= CBINDGEN_MIN)
}

/// Whether the committed header is what the sources say; not a word where there is no cbindgen that can tell.
pub fn problems() -> Result<Vec<String>, String> {
    if !has_tool() {
        return Ok(Vec::new());
    }
    let path = root().join(CRATE).join("include/trapeze.h");
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let same = committed == generated()?;
    let stale = "crates/capi/include/trapeze.h is not what the sources say: cargo xtask header";
    Ok(if same { Vec::new() } else { vec![stale.to_string()] })
}

/// Builds libtrapeze in release and puts it, its header and its pkg-config file under a prefix.
pub fn install(arguments: &[String]) -> Result<(), String> {
    let prefix = match arguments {
        [flag, prefix] if flag == "--prefix" => prefix,
        [] => "/usr/local",
        _ => return Err("install-c takes --prefix PATH, or nothing for /usr/local".to_string()),
    };
    run("libtrapeze", command("cargo build --release --locked -p capi"))?;
    let target = std::env::var("CARGO_TARGET_DIR").map_or(root().join("target"), Into::into);
    let mut script = Command::new("sh");
    script.arg(root().join(CRATE).join("install.sh"));
    script.arg(target.join("release/libcapi.so")).arg(prefix);
    run("installation", script)
}
