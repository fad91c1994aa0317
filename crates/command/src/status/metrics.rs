//! `trapeze metrics`: the servers' counters for Prometheus, asked for at each scrape (text format 0.0.4), and those of
//! a `trapeze memory` that is in no cluster. Members of a cluster never talk HTTP.

use super::exporter::{Bell, Exporter, Scrape};
use crate::cli;
use members::{Member, Roles};
use node::Cx;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;
use trapeze::ask::{Asker, Told};
use trapeze::children::READY;
use trapeze::client::{Reach, VisitError};
use trapeze::status::ethernet::Ethernet;
use trapeze::status::figures::{Figure, Kind, Number};
use trapeze::status::import::Import;
use trapeze::status::keys::{Keys, Tenant};
use trapeze::status::memory::{Memory, Source};
use trapeze::status::nfs::{Nfs, Procedure};
use trapeze::status::reads::{self, SourceReads};
use trapeze::status::report::{Disk, Io, Link, Mount, Pool, Report, Rpc, Scrub, StoreHealth, Wait};
use trapeze::status::service;

/// How late a scrape is seen.
const TICK: Duration = Duration::from_millis(20);

/// Of the store that is behind the other.
const OF_STORES: &[Figure<Report>] =
    &[Figure::gauge("store_scrub_done", "Part of the scrub of the manager's stores.", |report| {
        report.stores.iter().filter_map(StoreHealth::scrubbed).reduce(f64::min).unwrap_or(f64::NAN)
    })];

/// Bytes of network memory, by what is in them.
const OF_PLACES: &[Figure<u64>] =
    &[Figure::gauge("memory_bytes", "Network memory by what is in it.", u64::number)];

fn write_memory<'a>(text: &mut String, rows: impl Iterator<Item = (String, &'a Memory)> + Clone) {
    write(text, Memory::FIGURES, rows.clone());
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut sources: Vec<(String, Source)> = Vec::new();
    for (labels, m) in rows {
        let places = [
            ("local", m.local_bytes),
            ("hosted", m.hosted_bytes),
            ("mirror", m.mirror_bytes),
            ("free", m.free_bytes),
        ];
        parts.extend(places.map(|(role, bytes)| (format!("{labels},role=\"{role}\""), bytes)));
        let from = [("local", m.local), ("peer", m.peer)].into_iter();
        let from = from.chain(m.storage.map(|storage| ("storage", storage)));
        sources.extend(from.map(|(name, one)| (format!("{labels},source=\"{name}\""), one)));
    }
    write(text, OF_PLACES, parts.iter().map(|(labels, bytes)| (labels.clone(), bytes)));
    write(text, Source::FIGURES, sources.iter().map(|(labels, source)| (labels.clone(), source)));
}

fn write_reads<'a>(text: &mut String, rows: impl Iterator<Item = (String, &'a Io)>) {
    let found = |(labels, io): (String, &Io)| {
        let of = move |(name, found)| (format!("{labels},source=\"{name}\""), found);
        reads::NAMES.into_iter().zip(io.found.all()).map(of)
    };
    let all: Vec<(String, SourceReads)> = rows.flat_map(found).collect();
    write(text, SourceReads::FIGURES, all.iter().map(|(labels, found)| (labels.clone(), found)));
}

fn write_keys<'a>(text: &mut String, rows: impl Iterator<Item = (String, &'a Keys)> + Clone) {
    write(text, Keys::FIGURES, rows.clone());
    let tenants = rows.flat_map(|(labels, keys)| {
        let label = move |t: &Tenant| format!("{labels},tenant=\"{}\"", escaped(&t.name));
        keys.tenants.iter().map(move |tenant| (label(tenant), tenant))
    });
    write(text, Tenant::FIGURES, tenants);
}

fn write_nfs<'a>(text: &mut String, rows: impl Iterator<Item = (String, &'a Nfs)> + Clone) {
    write(text, Nfs::FIGURES, rows.clone());
    let procedures = rows.flat_map(|(labels, nfs)| {
        let label = move |p: &Procedure| format!("{labels},procedure=\"{}\"", escaped(&p.name));
        nfs.procedures.iter().map(move |procedure| (label(procedure), procedure))
    });
    write(text, Procedure::FIGURES, procedures);
}

/// A section's samples: labels and numbers of each metric, in one group as the format wants it.
fn write<'a, T: 'a>(
    text: &mut String,
    figures: &[Figure<T>],
    rows: impl Iterator<Item = (String, &'a T)> + Clone,
) {
    for figure in figures {
        write_group(text, figure, rows.clone().map(|(labels, row)| (labels, (figure.of)(row))));
    }
}

/// As [`write`], each row being the sum of several.
fn write_sums<'a, T: 'a>(
    text: &mut String,
    figures: &[Figure<T>],
    rows: impl Iterator<Item = (String, &'a [T])> + Clone,
) {
    for figure in figures {
        let sum = |(labels, parts): (String, &[T])| (labels, parts.iter().map(figure.of).sum());
        write_group(text, figure, rows.clone().map(sum));
    }
}

/// As [`write`], of a section of every report that has it.
fn write_all<'a, T: 'a>(
    text: &mut String,
    figures: &[Figure<T>],
    reports: impl Iterator<Item = (String, &'a Report)> + Clone,
    section: impl Fn(&'a Report) -> Option<&'a T> + Clone,
) {
    write(text, figures, reports.filter_map(|(labels, report)| Some((labels, section(report)?))));
}

fn write_group<T>(
    text: &mut String,
    Figure { name, kind, help, .. }: &Figure<T>,
    samples: impl Iterator<Item = (String, f64)>,
) {
    let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
    let _ = writeln!(text, "# HELP trapeze_{name} {help}\n# TYPE trapeze_{name} {kind}");
    for (labels, number) in samples {
        let _ = writeln!(text, "trapeze_{name}{{{labels}}} {number}");
    }
}

/// As a label's value: backslash, quote and line feed are written with a backslash.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn server(told: &Told) -> String {
    format!("node=\"{}\",name=\"{}\"", told.member.id.0, escaped(&told.member.name))
}

fn render(told: &[Told]) -> String {
    let mut text = String::new();
    // A machine declared gone is no server that is away.
    let told = || told.iter().filter(|told| !told.member.gone);
    let up = Figure::<Told>::gauge(
        "up",
        "Whether a server answers; of a client, whether it is alive.",
        |t| {
            f64::from(match t.report {
                Some(_) => t.report().is_some(),
                None => t.member.alive,
            })
        },
    );
    write(&mut text, &[up], told().map(|told| (server(told), told)));
    let reports = told().filter_map(|told| Some((server(told), told.report()?)));
    write(&mut text, Report::FIGURES, reports.clone());
    write_all(&mut text, Pool::FIGURES, reports.clone(), |report| Some(&report.pool));
    write_all(&mut text, Wait::FIGURES, reports.clone(), |report| Some(&report.wait));
    write_all(&mut text, Rpc::FIGURES, reports.clone(), |report| Some(&report.rpc));
    let stores = reports.clone().map(|(labels, report)| (labels, &report.stores[..]));
    write_sums(&mut text, StoreHealth::FIGURES, stores);
    write(&mut text, OF_STORES, reports.clone());
    write_all(&mut text, Io::FIGURES, reports.clone(), |report| report.io.as_ref());
    write_all(&mut text, Mount::FIGURES, reports.clone(), |report| report.mount.as_ref());
    write_reads(
        &mut text,
        reports.clone().filter_map(|(labels, r)| Some((labels, r.io.as_ref()?))),
    );
    let memories =
        reports.clone().filter_map(|(labels, report)| Some((labels, report.memory.as_ref()?)));
    write_memory(&mut text, memories);
    let keys = reports.clone().filter_map(|(labels, report)| Some((labels, report.keys.as_ref()?)));
    write_keys(&mut text, keys);
    let nfs = reports.clone().filter_map(|(labels, report)| Some((labels, report.nfs.as_ref()?)));
    write_nfs(&mut text, nfs);
    write_all(&mut text, Import::FIGURES, reports.clone(), |report| report.import.as_ref());
    write_all(&mut text, Ethernet::FIGURES, reports.clone(), |report| report.ethernet.as_ref());
    let disks = reports.clone().flat_map(|(labels, report)| {
        let label = move |disk: &Disk| format!("{labels},disk=\"{}\"", escaped(&disk.path));
        report.disks.iter().map(move |disk| (label(disk), disk))
    });
    write(&mut text, Disk::FIGURES, disks.clone());
    write(&mut text, Scrub::FIGURES, disks.map(|(labels, disk)| (labels, &disk.scrub)));
    let links = reports.flat_map(|(labels, report)| {
        let label = move |link: &Link| format!("{labels},peer=\"{}\"", link.peer);
        report.links.iter().map(move |link| (label(link), link))
    });
    write(&mut text, Link::FIGURES, links);
    text
}

/// `trapeze metrics`.
pub fn metrics(arguments: &cli::Metrics) -> Result<(), VisitError> {
    let exporter = Exporter::bind("--listen", &arguments.listen)?;
    let mut asker = Asker::start(&Reach::from(&arguments.target.cluster))?;
    println!("{READY} {}", exporter.address()?);
    let asked = exporter.start(None)?;
    while asker.wait(TICK, || false)? {
        let waiting: Vec<Scrape> = asked.try_iter().collect();
        if !waiting.is_empty() {
            answer(&mut asker, waiting)?;
        }
    }
    asker.stop()
}

/// One asking of the cluster serves all who wait.
fn answer(asker: &mut Asker, waiting: Vec<Scrape>) -> Result<(), VisitError> {
    let text = render(&asker.ask()?);
    for scrape in waiting {
        let _ = scrape.try_send(text.clone()); // who has gone needs none
    }
    Ok(())
}

/// Has a node that is in no cluster answer for itself. The device belongs into its host.
pub fn serve_own(exporter: Exporter, name: &str, source: service::Source) -> io::Result<Bell> {
    let (cx, bell) = (source.cx.clone(), Bell::new(&source.cx)?);
    let asked = exporter.start(Some(bell.ringer()))?;
    let (rung, started) = (bell.rung(), cx.now());
    let member = itself(&cx, name);
    cx.spawn("metrics", async move {
        loop {
            let next = rung.wait();
            for scrape in asked.try_iter() {
                let report = Some(Ok(source.report(started).await));
                let told = Told { member: member.clone(), lease: None, report };
                let _ = scrape.try_send(render(&[told])); // who has gone needs none
            }
            next.await;
        }
    });
    Ok(bell)
}

/// A node as the only member there is.
fn itself(cx: &Cx, name: &str) -> Member {
    Member {
        id: cx.id(),
        name: name.to_string(),
        roles: Roles::MEMORY,
        alive: true,
        gone: false,
        retired: false,
        drained: false,
        incarnation: cx.incarnation(),
        addresses: Vec::new(),
        disks: 0,
        gone_disks: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use std::collections::BTreeSet;
    use trapeze::status::reads::Reads;
    use trapeze::status::report::Took;
    use wire::Errno;

    fn told(id: u16, report: Option<Result<Report, Errno>>) -> Told {
        tests::told(id, &format!("a\"{id}"), report)
    }

    fn some() -> Vec<Told> {
        let disk = Disk { path: "/d\\1".into(), state: "serving".into(), ..Disk::default() };
        let took = Took { p50_ns: Some(60_000), p99_ns: None };
        let found = Reads { disk: SourceReads { reads: 3, took }, ..Reads::default() };
        let io = Some(Io { reads: 7, found, ..Io::default() });
        let peer = Source { pages: 5, took: Took { p50_ns: Some(7500), p99_ns: None } };
        let oldest_ms = Some(2500);
        let memory = Some(Memory { hosted_bytes: 8192, oldest_ms, peer, ..Memory::default() });
        let tenant = Tenant { name: "web".into(), ..Tenant::default() };
        let report = Report {
            io,
            disks: vec![disk],
            links: vec![Link::default()],
            memory,
            keys: Some(Keys { tenants: vec![Tenant { hits: 9, ..tenant }], ..Keys::default() }),
            ..Report::default()
        };
        vec![told(2, Some(Ok(report))), told(3, Some(Err(Errno::ETIMEDOUT))), told(4, None)]
    }

    /// Every name that there is, as Prometheus sees it.
    fn all_names() -> std::collections::BTreeSet<String> {
        fn names<T>(figures: &[Figure<T>]) -> impl Iterator<Item = String> + '_ {
            figures.iter().map(|figure| format!("trapeze_{}", figure.name))
        }
        let all = names(Report::FIGURES).chain(names(Pool::FIGURES)).chain(names(Wait::FIGURES));
        let all = all.chain(names(Rpc::FIGURES)).chain(names(StoreHealth::FIGURES));
        let all =
            all.chain(names(OF_STORES)).chain(names(Io::FIGURES)).chain(names(Mount::FIGURES));
        let all = all.chain(names(Memory::FIGURES)).chain(names(OF_PLACES));
        let all = all.chain(names(Source::FIGURES)).chain(names(SourceReads::FIGURES));
        let all = all.chain(names(Keys::FIGURES)).chain(names(Tenant::FIGURES));
        let all = all.chain(names(Disk::FIGURES)).chain(names(Scrub::FIGURES));
        let all = all.chain(names(Link::FIGURES)).chain(names(Ethernet::FIGURES));
        let all = all.chain(names(Nfs::FIGURES)).chain(names(Procedure::FIGURES));
        all.chain(["trapeze_up".to_string()]).collect()
    }

    #[test]
    fn every_number_that_the_dashboard_and_the_alerts_name_is_there() {
        let known = all_names();
        for text in [
            include_str!("../../../../extras/grafana/trapeze.json"),
            include_str!("../../../../extras/prometheus/trapeze-alerts.yml"),
        ] {
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = text.split(|c: char| !is_of_name(c));
            let named: Vec<&str> = words.filter(|word| word.starts_with("trapeze_")).collect();
            assert!(named.len() > 5);
            named.iter().for_each(|name| assert!(known.contains(*name), "{name}"));
        }
    }

    #[test]
    fn every_metric_is_named_once_and_typed() {
        let text = render(&some());
        let typed: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let names: BTreeSet<&str> =
            typed.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
        assert_eq!(names.len(), typed.len());
        for line in typed {
            let counter = line.ends_with(" counter");
            assert_eq!(counter, line.split(' ').nth(2).unwrap().ends_with("_total"), "{line}");
        }
    }

    /// Every number of a section by its name, each with another value from `first` on.
    fn numbered<T: Serialize + DeserializeOwned>(
        section: &T,
        first: u64,
    ) -> (T, Vec<(String, u64)>) {
        let mut value = serde_json::to_value(section).unwrap();
        let mut numbers = Vec::new();
        for (name, value) in value.as_object_mut().unwrap() {
            if value.is_u64() {
                let number = first + numbers.len() as u64;
                *value = number.into();
                numbers.push((name.clone(), number));
            }
        }
        (serde_json::from_value(value).unwrap(), numbers)
    }

    #[test]
    fn every_number_of_memory_and_keys_is_there() {
        let (memory, mut numbers) = numbered(&Memory::default(), 1_000_000);
        let web = Tenant { name: "web".into(), ..Tenant::default() };
        let (tenant, more) = numbered(&web, 2_000_000);
        numbers.extend(more);
        let (keys, more) = numbered(&Keys::default(), 3_000_000);
        numbers.extend(more);
        assert!(numbers.len() > 50, "{numbers:?}");
        let keys = Keys { tenants: vec![tenant], ..keys };
        let report = Report { memory: Some(memory), keys: Some(keys), ..Report::default() };
        let text = render(&[told(2, Some(Ok(report)))]);
        for (name, number) in numbers {
            assert!(text.lines().any(|line| line.ends_with(&format!(" {number}"))), "{name}");
        }
    }

    #[test]
    fn labels_are_escaped_and_who_is_silent_is_down() {
        let text = render(&some());
        assert!(text.contains("trapeze_reads_total{node=\"2\",name=\"a\\\"2\"} 7\n"), "{text}");
        let of = "{node=\"2\",name=\"a\\\"2\",";
        for line in [
            format!("trapeze_memory_bytes{of}role=\"hosted\"}} 8192\n"),
            format!("trapeze_memory_pages_total{of}source=\"peer\"}} 5\n"),
            format!("trapeze_memory_latency_p50_seconds{of}source=\"peer\"}} 0.0000075\n"),
            format!("trapeze_memory_latency_p99_seconds{of}source=\"peer\"}} NaN\n"),
            format!("trapeze_memory_oldest_seconds{}}} 2.5\n", of.trim_end_matches(',')),
            format!("trapeze_reads_found_total{of}source=\"disk\"}} 3\n"),
            format!("trapeze_read_latency_p50_seconds{of}source=\"disk\"}} 0.00006\n"),
            format!("trapeze_keys_hits_total{of}tenant=\"web\"}} 9\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.contains("disk=\"/d\\\\1\"} 1\n"), "{text}");
        assert!(!text.contains("source=\"storage\""), "no node has any");
        for (node, up) in [(2, 1), (3, 0), (4, 1)] {
            assert!(
                text.contains(&format!(
                    "trapeze_up{{node=\"{node}\",name=\"a\\\"{node}\"}} {up}\n"
                ))
            );
        }
    }
}
