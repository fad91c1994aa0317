//! Findings, for people and for programs.

use super::file::{Findings, LostColumn};
use crate::cli::Target;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stripe::Kept;
use terminal::table::print_json;
use trapeze::size::Size;
use wire::{Errno, NodeId};

/// Why the end of a file is not known.
const GROWN: &str =
    "it got columns after the backup, and which bytes are in them stood in the store that is lost";
/// Ranges that people are shown of one file.
const SHOWN_RANGES: usize = 4;

/// A file of which something is lost.
#[derive(Debug)]
pub struct DamagedFile {
    pub path: PathBuf,
    pub size: u64,
    pub findings: Findings,
}

/// An object that no file claims.
#[derive(Debug)]
pub struct Orphan {
    pub server: String,
    pub kept: Kept,
    pub why: &'static str,
}

/// All that a check found.
#[derive(Debug, Default)]
pub struct Report {
    servers: BTreeMap<NodeId, String>,
    deep: bool,
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
    pub damaged: Vec<DamagedFile>,
    pub orphans: Vec<Orphan>,
    /// Names whose records cannot be read, and why.
    pub unreadable: Vec<(String, Errno)>,
    /// Names that do not fit their files' records, and why.
    pub misnamed: Vec<(PathBuf, String)>,
    /// Files of which a server did not answer.
    pub unchecked: u64,
    /// Files of restored names that are not compared with the disks yet.
    pub uncompared: u64,
    pub silent: Vec<NodeId>,
}

impl Report {
    pub fn new(servers: BTreeMap<NodeId, String>, deep: bool) -> Report {
        Report { servers, deep, ..Report::default() }
    }

    /// The manager cannot say what this is.
    pub fn unlisted(&mut self, path: &str, errno: Errno) {
        self.unreadable.push((path.to_string(), errno));
    }

    /// A name and the record of its file, of two managers, are not of one moment.
    pub fn misnamed(&mut self, path: &Path, why: &str) {
        self.misnamed.push((path.to_path_buf(), why.to_string()));
    }

    /// Number of problems. Objects without a file are no loss: the manager sets them aside.
    pub fn problems(&self) -> u64 {
        let named =
            self.damaged.len() + self.unreadable.len() + self.silent.len() + self.misnamed.len();
        named as u64 + self.orphans.len() as u64 + u64::from(self.uncompared > 0)
    }

    fn name(&self, server: NodeId) -> String {
        self.servers.get(&server).cloned().unwrap_or_else(|| server.to_string())
    }

    pub fn show(&self, target: &Target) {
        if target.json { self.show_json() } else { self.show_text() }
    }

    fn show_text(&self) {
        for DamagedFile { path, size, findings } in &self.damaged {
            let (bytes, text) = (findings.lost.bytes(), findings.lost.text(SHOWN_RANGES));
            match findings.grown {
                true => println!(
                    "{}: not known is what was written at its end: {GROWN}",
                    path.display()
                ),
                false => println!("{}: {bytes} of {size} bytes are lost: {text}", path.display()),
            }
            for lost in &findings.columns {
                println!("  column {} at {}", lost.column, self.column_text(lost));
            }
        }
        for (path, errno) in &self.unreadable {
            println!("{path}: the manager cannot read what it knows of it: {errno}");
        }
        for (path, why) in &self.misnamed {
            println!("{}: {why}", path.display());
        }
        for orphan in &self.orphans {
            println!("{}: an object without a file: {}", object_name(orphan), orphan.why);
        }
        for server in &self.silent {
            println!(
                "{} does not answer: its part of the files is not checked",
                self.name(*server)
            );
        }
        if self.uncompared > 0 {
            println!(
                "{} files are not compared yet with what the disks have, as the names were restored and a server is \
                 away: start it, or declare it gone with `trapeze forget`",
                self.uncompared
            );
        }
        println!("{}", self.summary());
    }

    fn column_text(&self, lost: &LostColumn) -> String {
        let why = match lost.why {
            Errno::EIO => "the object is missing or damaged",
            Errno::ENOENT => {
                "the object is not on the disk any more, as of a file that was removed after the backup"
            }
            Errno::ENODEV => "the disk is lost",
            _ => "the disk is refused",
        };
        format!("{} disk {}: {why}", self.name(lost.home.server), lost.home.disk)
    }

    fn summary(&self) -> String {
        let how = if self.deep { "read" } else { "checked" };
        let mut text = format!(
            "{} files ({}) in {} directories {how}: {} damaged, {} names unreadable, {} objects without a file",
            self.files,
            Size(self.bytes),
            self.directories,
            self.damaged.len(),
            self.unreadable.len(),
            self.orphans.len()
        );
        if !self.misnamed.is_empty() {
            text += &format!(", {} names that do not fit their files", self.misnamed.len());
        }
        if self.unchecked > 0 {
            text += &format!(", {} files not checked in full", self.unchecked);
        }
        text
    }

    fn show_json(&self) {
        self.damaged.iter().for_each(|file| print_json(&self.damaged_json(file)));
        for (path, errno) in &self.unreadable {
            print_json(
                &json!({ "problem": "unreadable", "path": path, "error": errno.to_string() }),
            );
        }
        for (path, why) in &self.misnamed {
            print_json(&json!({ "problem": "name", "path": path.to_string_lossy(), "why": why }));
        }
        for orphan in &self.orphans {
            print_json(&json!({
                "problem": "object without a file", "object": object_name(orphan), "server": orphan.server,
                "disk": orphan.kept.disk, "why": orphan.why,
            }));
        }
        for server in &self.silent {
            print_json(
                &json!({ "problem": "server does not answer", "server": self.name(*server) }),
            );
        }
        print_json(&json!({
            "files": self.files, "directories": self.directories, "bytes": self.bytes, "deep": self.deep,
            "damaged": self.damaged.len(), "unreadable": self.unreadable.len(), "orphans": self.orphans.len(),
            "misnamed": self.misnamed.len(), "unchecked": self.unchecked, "uncompared": self.uncompared, "problems": self.problems(),
        }));
    }

    fn damaged_json(&self, file: &DamagedFile) -> Value {
        let column = |lost: &LostColumn| {
            json!({
                "column": lost.column, "server": self.name(lost.home.server), "disk": lost.home.disk,
                "error": lost.why.to_string(),
            })
        };
        let DamagedFile { path, size, findings } = file;
        let columns: Vec<Value> = findings.columns.iter().map(column).collect();
        json!({
            "problem": "damaged", "path": path.to_string_lossy(), "size": size, "lost_bytes": findings.lost.bytes(),
            "lost": findings.lost.kept(), "columns": columns, "grown": findings.grown,
        })
    }
}

/// As `trapeze quarantine` names it, behind its server's name.
fn object_name(orphan: &Orphan) -> String {
    let object = orphan.kept.object;
    format!("{}.{}.{:x}.{}", orphan.server, orphan.kept.disk, object.file.0, object.column)
}
