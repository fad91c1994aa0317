//! The layers of ARCHITECTURE.md, checked against what cargo says.

use crate::run::command;
use serde_json::Value;

/// Each crate of the workspace and those of ours that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("endpoint", &["wire"]),
    ("netrpc", &["wire", "endpoint"]),
    ("nic", &["wire", "endpoint"]),
    ("node", &["wire", "endpoint", "netrpc"]),
    ("store", &["wire"]),
    ("members", &["wire", "endpoint", "netrpc", "node", "store"]),
    ("netmem", &["wire", "endpoint", "netrpc", "node", "members"]),
    ("stripe", &["wire", "endpoint", "netrpc", "node", "members", "netmem"]),
    ("kv", &["wire", "endpoint", "netrpc", "node", "members", "netmem"]),
    ("nfs", &["wire", "endpoint", "node"]),
    ("names", &["wire", "endpoint", "netrpc", "node", "store", "stripe"]),
    ("imports", &["wire", "endpoint", "node", "stripe", "names", "nfs"]),
    (
        "files",
        &[
            "wire", "endpoint", "netrpc", "node", "store", "netmem", "stripe", "names", "members",
            "imports", "nfs",
        ],
    ),
    (
        "sim",
        &[
            "wire", "endpoint", "netrpc", "nic", "node", "store", "stripe", "names", "members",
            "files", "netmem", "kv", "nfs", "imports",
        ],
    ),
    ("papers", &["wire", "endpoint", "nic", "node", "names", "netmem", "sim"]),
    ("live", &["wire", "endpoint", "nic", "node", "store", "netmem"]),
    ("region", &["wire", "endpoint", "netrpc", "netmem", "live"]),
    ("sockets", &["wire", "endpoint", "node", "kv", "nfs", "live"]),
    (
        "trapeze",
        &[
            "wire", "endpoint", "netrpc", "node", "store", "stripe", "names", "members", "netmem",
            "files", "kv", "nfs", "live", "region", "sockets", "imports",
        ],
    ),
    ("terminal", &["trapeze"]),
    (
        "bench",
        &[
            "wire", "endpoint", "nic", "node", "stripe", "netmem", "files", "kv", "nfs", "sim",
            "papers", "live", "region", "trapeze", "terminal",
        ],
    ),
    (
        "command",
        &[
            "wire", "endpoint", "node", "store", "stripe", "names", "members", "netmem", "files",
            "kv", "nfs", "sim", "papers", "live", "region", "sockets", "trapeze", "terminal",
            "bench",
        ],
    ),
    ("preload", &["region"]),
    ("capi", &["wire", "endpoint", "netrpc", "node", "netmem", "live", "region", "trapeze"]),
    ("rig", &["wire", "endpoint", "node"]),
    (
        "fuzz-bodies",
        &["wire", "endpoint", "netrpc", "node", "stripe", "members", "kv", "nfs", "live"],
    ),
    ("xtask", &[]),
];

/// Licences that a dependency may have, as the parts of its expression.
const LICENCES: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "BSL-1.0",
    "CC0-1.0",
    "Unlicense",
    "Unicode-3.0",
];

fn metadata() -> Result<Value, String> {
    let output = command("cargo metadata --format-version 1 --locked").output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// Every problem with layers and licences, one line each.
pub fn problems() -> Result<Vec<String>, String> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    Ok(packages.iter().flat_map(package_problems).collect())
}

fn package_problems(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    match package["source"].is_null() {
        true => layer_problems(name, package),
        false => licence_problem(name, package).into_iter().collect(),
    }
}

fn layer_problems(name: &str, package: &Value) -> Vec<String> {
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        return vec![format!("{name}: a crate that the layers do not know (xtask/src/layers.rs)")];
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let ours = dependencies.filter(|d| d["kind"].is_null() && !d["path"].is_null());
    let imported = ours.filter_map(|d| d["name"].as_str());
    let wrong = imported.filter(|other| !allowed.contains(other));
    wrong
        .map(|other| format!("{name} may not import {other}: it lies above or beside it"))
        .collect()
}

fn licence_problem(name: &str, package: &Value) -> Option<String> {
    let licence = package["license"].as_str().unwrap_or("none");
    let alternatives = licence.replace('/', " OR ").replace(['(', ')'], "");
    let fits = alternatives
        .split(" OR ")
        .any(|choice| choice.split(" AND ").all(|part| LICENCES.contains(&part.trim())));
    (!fits).then(|| format!("dependency {name} has the licence {licence:?}, which we do not take"))
}
