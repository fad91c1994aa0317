//! The report of a salvage, for people and for programs.

use files::salvage::Report;
use serde_json::json;
use terminal::table::print_json;
use trapeze::size::Size;

/// The next step, for people.
const NEXT: &str = "look at `trapeze check`, move the files where they belong, and when all is as it should be, \
                    `trapeze quarantine resume`: until then nothing that the names do not know is purged";

pub fn show(report: &Report, as_json: bool) {
    if as_json { show_json(report) } else { show_text(report) }
}

fn counts(report: &Report) -> (usize, usize, u64) {
    let named = report.made.iter().filter(|(_, file)| file.named).count();
    let bytes = report.made.values().map(|file| file.size).sum();
    (named, report.made.len() - named, bytes)
}

fn show_text(report: &Report) {
    for file in report.lost() {
        let path = String::from_utf8_lossy(&file.path);
        println!(
            "{path}: bytes of it are missing; opening it is an error until `trapeze check --accept`"
        );
    }
    for (file, why) in &report.left {
        println!("file #{:x}: {why}; its objects are left as they are", file.0);
    }
    let (named, nameless, bytes) = counts(report);
    println!(
        "{} files ({}) are in /lost+found: {named} by their last path, {nameless} by their number",
        report.made.len(),
        Size(bytes)
    );
    if report.known > 0 {
        println!("{} files were known by name, and left alone", report.known);
    }
    if report.empty > 0 {
        println!("{} files have only empty objects, as moved columns leave them", report.empty);
    }
    println!("{NEXT}");
}

fn show_json(report: &Report) {
    for (number, file) in &report.made {
        print_json(&json!({
            "file": number.0, "path": String::from_utf8_lossy(&file.path), "size": file.size,
            "named": file.named, "lost": file.lost,
        }));
    }
    for (file, why) in &report.left {
        print_json(&json!({ "file": file.0, "problem": why }));
    }
    let (named, nameless, bytes) = counts(report);
    print_json(&json!({
        "files": report.made.len(), "named": named, "nameless": nameless, "bytes": bytes, "known": report.known,
        "empty": report.empty, "problems": report.problems(),
    }));
}
