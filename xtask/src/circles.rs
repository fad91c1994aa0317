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
    let (mut imports, mut exported) = (Imports::new(), BTreeMap::new());
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{file:?}: {error}"))?;
        let path = file.strip_prefix(source).ok().map(|path| path.with_extension(""));
        let path = path.ok_or(format!("{file:?}: no module"))?;
        let module = path.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        match module == "lib" {
            true => exported = named_at_root(&text),
            false => {
                imports.entry(module).or_default().extend(imported(&text, path.iter().count()))
            }
        }
    }
    for names in imports.values_mut() {
        *names = names.iter().map(|name| exported.get(name).unwrap_or(name).clone()).collect();
    }
    Ok(imports)
}

/// The first names of the paths in a file that begin at the crate's root, without its tests. `depth` is how many
/// modules deep the file is: that many `super::` lead to the root.
fn imported(text: &str, depth: usize) -> BTreeSet<String> {
    let (code, up) = (code(text), "super::".repeat(depth));
    let mut parts = code.split(&up);
    let mut before = parts.next().unwrap_or_default();
    let from_super = parts.filter(|path| {
        let is_deeper = before.ends_with("super::") || path.starts_with("super::");
        before = path;
        !is_deeper
    });
    code.split("crate::").skip(1).chain(from_super).flat_map(firsts).collect()
}

/// The module of each name that the crate's root takes from one.
fn named_at_root(text: &str) -> BTreeMap<String, String> {
    let code = code(text);
    let uses = code.split("use ").skip(1).filter_map(|path| path.split(';').next());
    let paths = uses.filter_map(|path| path.split_once("::"));
    let all = paths.flat_map(|(module, names)| lasts(names).zip(std::iter::repeat(module)));
    all.map(|(name, module)| (name, module.to_string())).collect()
}

/// A file's code without comments and tests.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The names that a path begins with, several where it begins with a group in braces.
fn firsts(path: &str) -> Vec<String> {
    let is_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let name = |path: &str| path.trim_start().chars().take_while(is_name).collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 0;
    let ends = |letter: char| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        depth < 0 || depth == 0 && letter == ','
    };
    // Behind the group's end nothing is its own.
    let mut is_open = true;
    let paths = group.split_inclusive(ends).take_while(|path| {
        let was_open = is_open;
        is_open = path.ends_with(',');
        was_open
    });
    paths.map(name).filter(|name| !name.is_empty()).collect()
}

/// The names that a path brings into scope.
fn lasts(path: &str) -> impl Iterator<Item = String> {
    let parts = path.split([',', '{', '}']).map(str::trim).filter(|part| !part.ends_with("::"));
    let names = parts.filter_map(|part| part.rsplit([':', ' ']).next());
    names.filter(|name| !name.is_empty()).map(String::from)
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
            let entry = |(name, text): &(&str, &str)| (name.to_string(), imported(text, 1));
            pairs.iter().map(entry).collect::<Imports>()
        };
        let open = [("a", "use crate::b::B;\nuse crate::c;"), ("b", "crate::c::f()"), ("c", "")];
        assert_eq!(circle(&imports(&open)), None);
        let closed = [open[0], open[1], ("c", "//! crate::d\nuse crate::a::{A, B};")];
        assert_eq!(circle(&imports(&closed)), Some(vec!["a", "b", "c", "a"]));
        assert!(problem("wire", &["a", "b", "a"]).starts_with("wire: a imports b imports a: "));
    }

    #[test]
    fn names_in_groups_at_the_root_and_above_are_imports() {
        let names = |text, depth| imported(text, depth).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(
            names("use crate::{\n    a::{b, c},\n    d, e::F,\n};\nuse crate::{g}, h;", 1),
            "a d e g"
        );
        assert_eq!(names("use super::{a, b};\nsuper::c::d();", 1), "a b c");
        assert_eq!(
            names("use super::a;\nuse super::super::{b};\nuse super::super::super::c;", 2),
            "b"
        );
        assert_eq!(names("fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}", 1), "");
        let text = "use std::io;\npub use a::{B, c::{d, E as F}};\npub(crate) use g::h::I;\n";
        let root = named_at_root(text).into_iter().map(|(name, module)| name + "=" + &module);
        assert_eq!(root.collect::<Vec<_>>(), ["B=a", "F=a", "I=g", "d=a", "io=std"]);
    }
}
