//! `trapeze quarantine`: what no file claims, and what becomes of it.

use crate::cli::{self, QuarantineDo};
use crate::tools::{ToolError, close, volume};
use names::{Aside, Unclaimed};
use serde_json::json;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use terminal::table::{Table, print_json};
use trapeze::size::Size;

type Result<T> = std::result::Result<T, ToolError>;

/// An object's name in this command: node, disk, file and column.
fn name_of(aside: &Aside) -> String {
    let Aside { home, file, column, .. } = aside;
    format!("{}.{}.{:x}.{column}", home.server.0, home.disk, file.0)
}

fn why_of(aside: &Aside) -> &'static str {
    match aside.why {
        Unclaimed::FileGone => "its file is gone",
        Unclaimed::Elsewhere => "its file has this column elsewhere",
    }
}

/// `trapeze quarantine`.
pub fn quarantine(arguments: &cli::Quarantine) -> Result<()> {
    match &arguments.what {
        QuarantineDo::List(target) => list(target),
        QuarantineDo::Restore(objects) => {
            each(objects, "put back", |volume, path, aside| volume.restore(path, aside))
        }
        QuarantineDo::Resume(target) => {
            let mut volume = volume(target)?;
            volume.own_all()?;
            println!("objects that the manager's store did not know are set aside from now on");
            close(volume)
        }
        QuarantineDo::Purge(objects) => {
            each(objects, "removed", |volume, path, aside| volume.purge(path, aside))
        }
    }
}

fn list(target: &cli::Target) -> Result<()> {
    let mut volume = volume(target)?;
    let (all, names) = (volume.quarantined()?, volume.server_names());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs());
    let headings = ["object", "server", "disk", "size", "age", "state", "why"];
    let mut table = Table::new(&headings);
    for aside in &all {
        let server = names.get(&aside.home.server).cloned();
        let server = server.unwrap_or_else(|| aside.home.server.to_string());
        let state = if aside.restored { "put back" } else { "aside" };
        if target.json {
            print_json(&json!({
                "object": name_of(aside), "server": server, "disk": aside.home.disk, "file": aside.file.0,
                "column": aside.column, "bytes": aside.bytes, "since_s": aside.since, "restored": aside.restored,
                "why": why_of(aside),
            }));
            continue;
        }
        table.row(&[
            name_of(aside),
            server,
            aside.home.disk.to_string(),
            Size(aside.bytes).to_string(),
            format!("{} min", now.saturating_sub(aside.since) / 60),
            state.to_string(),
            why_of(aside).to_string(),
        ]);
    }
    if !target.json {
        match all.is_empty() {
            true => println!("nothing is in quarantine"),
            false => print!("{}", table.render()),
        }
    }
    close(volume)
}

fn each(
    objects: &cli::Objects,
    done: &'static str,
    act: impl Fn(&mut trapeze::volume::Volume, &Path, Aside) -> trapeze::volume::Result<()>,
) -> Result<()> {
    let mut volume = volume(&objects.target)?;
    let all = volume.quarantined()?;
    let wanted = match objects.all {
        true => all.iter().filter(|aside| !aside.restored).copied().collect(),
        false => chosen(&all, &objects.objects)?,
    };
    for aside in wanted {
        let name = name_of(&aside);
        act(&mut volume, Path::new(&name), aside)?;
        match objects.target.json {
            true => print_json(&json!({ "object": name, "done": done })),
            false => println!("{name} {done}"),
        }
    }
    close(volume)
}

fn chosen(all: &[Aside], names: &[String]) -> Result<Vec<Aside>> {
    let find = |name: &String| {
        let found = all.iter().find(|aside| name_of(aside) == *name).copied();
        let unknown = || {
            let text = "is not in quarantine: take the name from `trapeze quarantine list`";
            ToolError::Usage(format!("{name} {text}"))
        };
        found.ok_or_else(unknown)
    };
    names.iter().map(find).collect()
}
