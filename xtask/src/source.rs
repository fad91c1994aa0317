//! Limits and bans in our own source files. rustfmt has formatted them, so that the indentation of a closing brace
//! tells what it closes.

use crate::run::root;
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 120;

/// Words that may not stand in a crate, and what to use.
const BANNED: &[(&str, &str)] = &[
    ("Instant::now", "time is an argument: cx.now()"),
    ("SystemTime::now", "time is an argument: cx.wall()"),
    ("std::thread", "threads belong to live"),
    ("HashMap<", "its order differs from run to run: BTreeMap, or a hasher of our own"),
    ("HashMap::new", "its order differs from run to run: BTreeMap, or a hasher of our own"),
    ("HashSet", "its order differs from run to run: BTreeSet"),
    ("std::net::", "the operating system belongs to live"),
    ("std::fs::", "the operating system belongs to live"),
];
const BANNED_EVERYWHERE: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it"),
    (concat!("unimple", "mented!("), "finish it"),
    (concat!("db", "g!("), "a leftover"),
    (concat!("FIX", "ME"), "fix it or file an issue"),
    (concat!("XX", "X"), "fix it or file an issue"),
];
/// Names of types that do not say of what they are.
const VAGUE_TYPES: [&str; 5] = ["Place", "Held", "Found", "Asked", "Way"];
/// `rig` is for tests: it counts allocations, and writes down what was skipped.
const WORLDLY: &[&str] = &[
    "live", "region", "sockets", "preload", "trapeze", "terminal", "bench", "command", "capi",
    "xtask", "rig",
];
const UNSAFE_ALLOWED: &[&str] = &["endpoint", "live", "region", "preload", "capi", "rig"];

/// Every problem in every source file, one line each.
pub fn problems() -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "examples", "fuzz"] {
        collect(&root().join(folder), &["rs"], &mut files)?;
    }
    files.sort();
    let forgotten = files.iter().filter_map(|file| forgotten_test(file));
    Ok(files.iter().flat_map(|file| file_problems(file)).chain(forgotten).collect())
}

/// A file of tests that is neither a module of its folder's `all.rs` nor a program of its own would never run.
fn forgotten_test(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|folder| folder.ends_with("tests"))?;
    let all = fs::read_to_string(folder.join("all.rs")).ok()?;
    let manifest = fs::read_to_string(folder.with_file_name("Cargo.toml")).unwrap_or_default();
    let name = path.file_stem()?.to_str()?;
    let file = path.strip_prefix(root()).unwrap_or(path).display();
    let is_run = is_run(name, &all, &manifest);
    (!is_run)
        .then(|| format!("{file}: no test program: `mod {name};` belongs into all.rs beside it"))
}

fn is_run(name: &str, all: &str, manifest: &str) -> bool {
    let module = format!("mod {name};");
    all.lines().any(|line| line == module) || manifest.contains(&format!("\"tests/{name}.rs\""))
}

/// The files below a folder whose names end so.
pub fn collect(folder: &Path, endings: &[&str], files: &mut Vec<PathBuf>) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, endings, files)?;
        } else if path.extension().is_some_and(|its| endings.iter().any(|ending| its == *ending)) {
            files.push(path);
        }
    }
    Ok(())
}

fn file_problems(path: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(path) else { return vec![format!("{path:?}: not readable")] };
    let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
    let mut parts = name.split('/');
    let owner = parts.find(|part| *part != "crates").unwrap_or_default().to_string();
    let is_test = name.contains("/tests/") || name.contains("/benches/");
    let lines: Vec<&str> = text.lines().collect();
    let tests = ["#[cfg(test)]", "#[cfg(all(test, "];
    let starts_tests = |line: &&str| tests.iter().any(|start| line.starts_with(start));
    let code = lines.iter().position(starts_tests).unwrap_or(lines.len());
    let mut problems = Vec::new();
    if is_named_twice(&name) {
        problems.push(format!("{name}: a module is NAME.rs, with NAME/ for its parts"));
    }
    if code > FILE_LINES_MAX && !is_test {
        problems
            .push(format!("{name}: {code} lines without its tests, {FILE_LINES_MAX} is the most"));
    }
    for (number, line) in lines.iter().enumerate() {
        let product = number < code && !is_test;
        line_problems(&owner, line, product, |what| {
            problems.push(format!("{name}:{}: {what}", number + 1));
        });
    }
    let measured = if is_test { 0 } else { code };
    problems.extend(long_functions(&lines[..measured]).map(|(at, long)| {
        format!("{name}:{}: a function of {long} lines, {FUNCTION_LINES_MAX} is the most", at + 1)
    }));
    problems
}

/// Whether a module is a `mod.rs`: there is one way to name modules. What programs of tests share may be one, since
/// every other file beside them is a program of its own.
fn is_named_twice(name: &str) -> bool {
    name.contains("/src/") && name.ends_with("/mod.rs")
}

fn line_problems(owner: &str, line: &str, product: bool, mut report: impl FnMut(String)) {
    // what rustfmt leaves long holds a text or a macro's arguments
    if line.chars().count() > COLUMNS_MAX && !line.contains(['"', '|']) {
        report(format!("more than {COLUMNS_MAX} columns"));
    }
    for (word, instead) in BANNED_EVERYWHERE {
        if line.contains(word) {
            report(format!("{word}: {instead}"));
        }
    }
    if let Some(name) = vague_type(line) {
        report(format!("a type `{name}`: name it by what it is of"));
    }
    let comment = line.trim_start().starts_with("//");
    let own_hasher = line.contains("BuildHasherDefault");
    if product && !comment && !own_hasher && !WORLDLY.contains(&owner) {
        for (word, instead) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
            report(format!("{word}: {instead}"));
        }
    }
    let is_unsafe = ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| line.contains(word));
    if is_unsafe && !comment && product && !UNSAFE_ALLOWED.contains(&owner) && owner != "xtask" {
        report("unsafe belongs to endpoint, live, region and capi".to_string());
    }
}

fn vague_type(line: &str) -> Option<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: Vec<&str> = line.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
    let defines = |word: &str| ["struct", "enum", "type", "trait"].contains(&word);
    let mut pairs = words.windows(2).filter(|pair| defines(pair[0]));
    pairs.find(|pair| VAGUE_TYPES.contains(&pair[1])).map(|pair| pair[1])
}

/// Functions that are too long: their first line and their length.
fn long_functions<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, usize)> + 'a {
    lines.iter().enumerate().filter_map(move |(at, line)| {
        let body = line.trim_start();
        let starts =
            ["fn ", "pub fn ", "pub(crate) fn ", "async fn ", "pub async fn ", "pub(super) fn "];
        if !starts.iter().any(|start| body.starts_with(start)) || line.ends_with(';') {
            return None;
        }
        let indent = line.len() - body.len();
        let closing = format!("{}}}", " ".repeat(indent));
        let length = lines[at..].iter().position(|line| *line == closing)? + 1;
        (length > FUNCTION_LINES_MAX).then_some((at, length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_one_way_to_be_named() {
        assert!(is_named_twice("crates/a/src/b/mod.rs"));
        let others = ["crates/a/src/b.rs", "crates/a/src/b/c.rs", "crates/a/tests/common/mod.rs"];
        assert!(!others.into_iter().any(is_named_twice));
    }

    #[test]
    fn a_type_is_named_by_what_it_is_of() {
        let of = |line: &str| vague_type(&line.replace("{}", "Held")).map(String::from);
        let expected = Some("Held".to_string());
        assert_eq!([of("pub struct {}<'a> {"), of("type {} = u8;")], [expected.clone(), expected]);
        assert_eq!([of("struct {}Lock;"), of("fn {}() {")], [None, None]);
    }

    #[test]
    fn a_long_function_is_seen() {
        let mut lines = vec!["    fn short() {", "    }", "    pub fn long() {"];
        lines.extend(std::iter::repeat_n("        work();", 70));
        lines.push("    }");
        assert_eq!(long_functions(&lines).collect::<Vec<_>>(), [(2, 72)]);
    }

    #[test]
    fn a_file_of_tests_that_no_program_has_is_seen() {
        let (all, manifest) = ("//! All.\n\nmod order;\n", "path = \"tests/price.rs\"");
        let is_run = |name| is_run(name, all, manifest);
        assert_eq!(["order", "price", "orde", "scrub"].map(is_run), [true, true, false, false]);
        let path = root().join("crates/stripe/tests/nothing.rs");
        assert!(forgotten_test(&path).unwrap().contains("`mod nothing;` belongs"));
        assert_eq!(forgotten_test(&root().join("crates/stripe/tests/all.rs")), None);
    }

    #[test]
    fn clocks_are_banned_outside_the_worlds() {
        let mut seen = Vec::new();
        line_problems("stripe", "let t = Instant::now();", true, |what| seen.push(what));
        line_problems("live", "let t = Instant::now();", true, |what| seen.push(what));
        assert_eq!(seen.len(), 1);
    }
}
