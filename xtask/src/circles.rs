//! Modules of a crate that import each other in a circle: none of them can be read, or tested, without the others.

use crate::run::root;
use crate::source::collect;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Which modules of a crate each of them imports. Parents and children inside one module count as one.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Every crate that has a circle, one line each.
pub fn problems() -> Result<Vec<String>, String> {
    let crates = root().join("crates");
    let entries = fs::read_dir(&crates).map_err(|error| format!("{crates:?}: {error}"))?;
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    let mut problems = Vec::new();
    for name in names {
        let imports = imports(&crates.join(&name).join("src"))?;
        problems.extend(circle(&imports).map(|circle| problem(&name.to_string_lossy(), &circle)));
    }
    Ok(problems)
}

fn problem(name: &str, circle: &[&str]) -> String {
    let circle = circle.join(" imports ");
    format!("{name}: {circle}: move what both need into a module of its own")
}

fn imports(source: &Path) -> Result<Imports, String> {
    let mut files = Vec::new();
    collect(source, &["rs"], &mut files)?;
    let module = |file: &Path| {
        let first = file.strip_prefix(source).ok()?.components().next()?;
        Some(Path::new(first.as_os_str()).file_stem()?.to_str()?.to_string())
    };
    let mut imports = Imports::new();
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{file:?}: {error}"))?;
        let module = module(file).ok_or(format!("{file:?}: no module"))?;
        imports.entry(module).or_default().extend(imported(&text));
    }
    imports.remove("lib");
    Ok(imports)
}

/// The first names of the paths in a file that begin with `crate::`, without its tests.
fn imported(text: &str) -> BTreeSet<String> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = code.flat_map(|line| line.split("crate::").skip(1));
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    paths.map(|path| path.chars().take_while(|letter| is_name(*letter)).collect()).collect()
}

/// Modules of which each imports the next, and the last is the first, if there are such.
fn circle(imports: &Imports) -> Option<Vec<&str>> {
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| circle_from(imports, module, &mut Vec::new(), &mut done))
}

fn circle_from<'a>(
    imports: &'a Imports,
    module: &'a str,
    way: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(at) = way.iter().position(|other| *other == module) {
        return Some([&way[at..], &[module]].concat());
    }
    if done.contains(module) {
        return None;
    }
    way.push(module);
    let others = imports.get(module)?.iter().filter(|other| *other != module);
    let known = others.filter(|other| imports.contains_key(*other));
    let found = known.map(String::as_str).find_map(|other| circle_from(imports, other, way, done));
    way.pop();
    done.insert(module);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_seen_and_named() {
        let imports = |pairs: &[(&str, &str)]| {
            let entry = |(name, text): &(&str, &str)| (name.to_string(), imported(text));
            pairs.iter().map(entry).collect::<Imports>()
        };
        let open = [("a", "use crate::b::B;\nuse crate::c;"), ("b", "crate::c::f()"), ("c", "")];
        assert_eq!(circle(&imports(&open)), None);
        let closed = [open[0], open[1], ("c", "//! crate::d\nuse crate::a::{A, B};")];
        assert_eq!(circle(&imports(&closed)), Some(vec!["a", "b", "c", "a"]));
        assert!(problem("wire", &["a", "b", "a"]).starts_with("wire: a imports b imports a: "));
    }
}
