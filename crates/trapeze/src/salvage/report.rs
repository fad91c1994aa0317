//! The report of a salvage, for people and for programs.

use super::{File, Made, Outcome};
use crate::size::Size;
use crate::table::print_json;
use serde_json::json;
use wire::FileId;

/// The next step, for people.
const NEXT: &str = "look at `trapeze check`, move the files where they belong, and when all is as it should be, \
                    `trapeze quarantine resume`: until then nothing that the names do not know is purged";

/// All that was found.
#[derive(Default)]
pub struct Report {
    pub made: Vec<(FileId, File)>,
    /// Files that the names have.
    known: u64,
    /// Files whose objects are empty.
    empty: u64,
    /// Files that could not be put together, and why.
    left: Vec<(FileId, &'static str)>,
}

impl Report {
    pub fn note(&mut self, made: Made) {
        match made.outcome {
            Outcome::Known => self.known += 1,
            Outcome::Empty => self.empty += 1,
            Outcome::Left(why) => self.left.push((made.file, why)),
            Outcome::Made(file) => self.made.push((made.file, file)),
        }
    }

    /// Files that are not whole.
    pub fn problems(&self) -> usize {
        self.lost().count() + self.left.len()
    }

    fn lost(&self) -> impl Iterator<Item = &File> {
        self.made.iter().map(|(_, file)| file).filter(|file| file.lost)
    }

    pub fn show(&self, as_json: bool) {
        if as_json { self.show_json() } else { self.show_text() }
    }

    fn counts(&self) -> (usize, usize, u64) {
        let named = self.made.iter().filter(|(_, file)| file.named).count();
        let bytes = self.made.iter().map(|(_, file)| file.size).sum();
        (named, self.made.len() - named, bytes)
    }

    fn show_text(&self) {
        for file in self.lost() {
            let path = String::from_utf8_lossy(&file.path);
            println!(
                "{path}: bytes of it are missing; opening it is an error until `trapeze check --accept`"
            );
        }
        for (file, why) in &self.left {
            println!("file #{:x}: {why}; its objects are left as they are", file.0);
        }
        let (named, nameless, bytes) = self.counts();
        println!(
            "{} files ({}) are in /lost+found: {named} by their last path, {nameless} by their number",
            self.made.len(),
            Size(bytes)
        );
        if self.known > 0 {
            println!("{} files were known by name, and left alone", self.known);
        }
        if self.empty > 0 {
            println!("{} files have only empty objects, as moved columns leave them", self.empty);
        }
        println!("{NEXT}");
    }

    fn show_json(&self) {
        for (number, file) in &self.made {
            print_json(&json!({
                "file": number.0, "path": String::from_utf8_lossy(&file.path), "size": file.size,
                "named": file.named, "lost": file.lost,
            }));
        }
        for (file, why) in &self.left {
            print_json(&json!({ "file": file.0, "problem": why }));
        }
        let (named, nameless, bytes) = self.counts();
        print_json(&json!({
            "files": self.made.len(), "named": named, "nameless": nameless, "bytes": bytes, "known": self.known,
            "empty": self.empty, "problems": self.problems(),
        }));
    }
}
