//! The project's pages: rows of PROMISES.md are short, tests that it names exist, links lead somewhere, and what
//! `where.md` says to open can be found by its word.

use crate::run::root;
use crate::source;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PROMISES: &str = "PROMISES.md";
const ROW_CHARS_MAX: usize = 200;

/// Every problem of every page, one line each.
pub fn problems() -> Result<Vec<String>, String> {
    let mut pages: Vec<PathBuf> =
        [PROMISES, "README.md", "ARCHITECTURE.md"].map(|page| root().join(page)).into();
    source::collect(&root().join("docs/src"), &["md"], &mut pages)?;
    pages.sort();
    let sources = sources()?;
    let words: BTreeSet<&str> = sources.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut problems = Vec::new();
    for page in &pages {
        let name = page.strip_prefix(root()).unwrap_or(page).display().to_string();
        let folder = page.parent().unwrap_or(page);
        let text = read(page)?;
        let mut found = link_problems(&text, |target| leads_somewhere(folder, page, target));
        if name == PROMISES {
            found.extend(row_problems(&text));
        }
        if page.ends_with("where.md") {
            found.extend(where_problems(&text, |file| read(&root().join(file)).ok()));
        }
        if name == PROMISES || folder.ends_with("measurements") {
            found.extend(missing_tests(&text, &words));
        }
        problems.extend(found.iter().map(|problem| format!("{name}:{problem}")));
    }
    Ok(problems)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// All sources in one text, in which tests are looked for.
fn sources() -> Result<String, String> {
    let mut files = Vec::new();
    source::collect(&root().join("crates"), &["rs", "c", "py"], &mut files)?;
    files.iter().map(|file| read(file)).collect()
}

/// Rows that are too long, and numbers that two rows have.
fn row_problems(page: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, row) in page.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let length = row.chars().count();
        if length > ROW_CHARS_MAX {
            let place = "what is not the promise itself belongs into docs/src/measurements";
            let what = format!("a row of {length} characters, {ROW_CHARS_MAX} is the most");
            problems.push(format!("{}: {what}: {place}", at + 1));
        }
        let number = row.split('|').nth(1).unwrap_or_default().trim().trim_matches(['[', ']']);
        if number.ends_with(|c: char| c.is_ascii_alphanumeric()) && !seen.insert(number) {
            problems.push(format!("{}: there is another {number}", at + 1));
        }
    }
    problems
}

/// Rows `| where | word | file: name; file: name |` whose first file does not have the word in its module's doc, or
/// whose files do not have their names.
fn where_problems(page: &str, source: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let rows = page.lines().enumerate().filter(|(_, row)| row.starts_with("| ")).skip(1);
    for (at, row) in rows.filter(|(_, row)| !row.starts_with("| ---")) {
        let words: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let is_file = |word: &&&str| word.starts_with("crates/");
        let (word, first) = (words.first(), words.iter().find(is_file));
        if !first
            .and_then(|file| source(file))
            .zip(word)
            .is_some_and(|(text, word)| has(&text, word))
        {
            problems.push(format!("{}: its word is not in the doc of the file to open", at + 1));
        }
        for pair in words.windows(2).filter(|pair| is_file(&&pair[0]) && !is_file(&&pair[1])) {
            let name = |text: &str| {
                text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == pair[1])
            };
            if !source(pair[0]).is_some_and(|text| name(&text)) {
                problems.push(format!("{}: {} has no {}", at + 1, pair[0], pair[1]));
            }
        }
    }
    problems
}

/// Whether a word is in the doc of a module.
fn has(source: &str, word: &str) -> bool {
    let doc: Vec<&str> = source.lines().filter_map(|line| line.strip_prefix("//!")).collect();
    doc.concat().to_lowercase().contains(&word.to_lowercase())
}

/// Tests that a page names and no source has.
fn missing_tests(page: &str, words: &BTreeSet<&str>) -> Vec<String> {
    let is_test = |name: &&str| {
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        plain && name.contains('_')
    };
    let mut problems = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let names = line.split('`').skip(1).step_by(2).filter(is_test);
        let missing = names.filter(|name| !words.contains(name));
        problems.extend(missing.map(|name| format!("{}: no test {name}", at + 1)));
    }
    problems
}

/// Links of a page that lead nowhere, each with its line: `[text](target)`, and `[label]` with `[label]: target`.
fn link_problems(page: &str, leads_somewhere: impl Fn(&str) -> bool) -> Vec<String> {
    let mut targets: BTreeMap<&str, usize> = BTreeMap::new();
    let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
    let mut defined: BTreeSet<&str> = BTreeSet::new();
    let mut is_code = false;
    for (at, line) in page.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        if let Some((label, target)) = definition(line) {
            defined.insert(label);
            targets.insert(target, at + 1);
            continue;
        }
        for text in line.split('`').step_by(2) {
            let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            targets.extend(inline.map(|target| (target, at + 1)));
            labels.extend(shortcuts(text).map(|label| (label, at + 1)));
        }
    }
    let broken = targets.iter().filter(|(target, _)| !leads_somewhere(target));
    let broken = broken.map(|(target, at)| format!("{at}: {target} leads nowhere"));
    // a page without definitions has brackets, and no such links
    let loose = labels.iter().filter(|(label, _)| !defined.is_empty() && !defined.contains(*label));
    broken.chain(loose.map(|(label, at)| format!("{at}: [{label}] is not defined"))).collect()
}

fn definition(line: &str) -> Option<(&str, &str)> {
    let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
    Some((label, target.trim()))
}

/// `[label]`s that no target follows.
fn shortcuts(text: &str) -> impl Iterator<Item = &str> {
    text.split('[').skip(1).filter_map(|rest| {
        let (label, after) = rest.split_once(']')?;
        (!after.starts_with('(')).then_some(label)
    })
}

fn leads_somewhere(folder: &Path, page: &Path, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_path_buf() } else { folder.join(file) };
    if anchor.is_empty() {
        return path.exists();
    }
    read(&path).is_ok_and(|text| {
        text.lines().any(|line| line.starts_with('#') && anchor_of(line) == anchor)
    })
}

/// The name that mdBook and GitHub give a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || ['-', '_'].contains(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_row_and_a_repeated_number_are_refused() {
        let long = format!("| S1 | {} |", "x".repeat(ROW_CHARS_MAX));
        let page = format!(
            "| # | promise |\n| --- | --- |\n{long}\n| [S2] | short |\n| S2 | again |\n{long}"
        );
        let problems = row_problems(&page);
        let places: Vec<&str> =
            problems.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(places, ["3:", "5:", "6:", "6:"]);
        assert!(problems[0].contains("a row of 209 characters"), "{}", problems[0]);
    }

    #[test]
    fn a_row_of_the_longest_length_passes() {
        let row = format!("| {} |", "x".repeat(ROW_CHARS_MAX - 4));
        assert_eq!(row_problems(&row), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_no_source_has_is_named() {
        let page = "| D1 | kept | `it_is_kept`, `it_is_gone`; `trapeze bench` | fsync |";
        let problems = missing_tests(page, &BTreeSet::from(["it_is_kept", "it_is_gone_again"]));
        assert_eq!(problems, ["1: no test it_is_gone"]);
    }

    #[test]
    fn what_cannot_be_found_by_its_word_is_named() {
        let page = "| where | search | open |\n| --- | --- | --- |\n\
            | is A | `A word` | `crates/a.rs`: `here`; else `crates/b.rs`: `there` |\n\
            | is B | `no such` | `crates/a.rs`: `gone` |\n";
        let source = |file: &str| match file {
            "crates/a.rs" => Some("//! All of a\n//! word.\nfn here() {}\n".to_string()),
            "crates/b.rs" => Some("fn there() {}".to_string()),
            _ => None,
        };
        let problems = where_problems(page, source);
        let expected =
            ["4: its word is not in the doc of the file to open", "4: crates/a.rs has no gone"];
        assert_eq!(problems, expected);
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let page = "[a](there) and [b](lost)\n`[c](code)` [d] [e]\n\n[d]: there\n[f]: lost-too\n";
        let problems = link_problems(page, |target| target == "there");
        let expected =
            ["1: lost leads nowhere", "5: lost-too leads nowhere", "2: [e] is not defined"];
        assert_eq!(problems, expected);
    }

    #[test]
    fn an_anchor_is_the_heading_in_lower_case() {
        assert_eq!(anchor_of("### N4a"), "n4a");
        assert_eq!(anchor_of("## The machine: what it is"), "the-machine-what-it-is");
    }
}
