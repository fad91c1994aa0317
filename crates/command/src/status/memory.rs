//! Network memory, as it is shown.

use members::Member;
use terminal::table::Table;
use trapeze::size::Size;
use trapeze::status::memory::{Memory, Source};
use trapeze::status::report::Report;

/// Memory that it lends, and of how much where that is less than it could.
fn lent(memory: &Memory) -> String {
    let size = |bytes| Size(bytes >> 20 << 20).to_string();
    match (memory.share_bytes < memory.lent_bytes, memory.over_bytes) {
        (false, _) => Size(memory.lent_bytes).to_string(),
        (true, 0) => format!("{} of {}", size(memory.share_bytes), Size(memory.lent_bytes)),
        (true, over) => {
            format!(
                "{} of {}, {} over",
                size(memory.share_bytes),
                Size(memory.lent_bytes),
                Size(over)
            )
        }
    }
}

/// The first cells of a row: what is where, and by which view and epoch.
pub(super) fn places(memory: &Memory) -> [String; 8] {
    let size = |bytes| Size(bytes).to_string();
    let view = match memory.incarnation {
        0 => format!("{} (out)", memory.view),
        _ if !memory.settled => format!("{} (new)", memory.view),
        _ => memory.view.to_string(),
    };
    [
        lent(memory),
        size(memory.local_bytes),
        size(memory.hosted_bytes),
        size(memory.mirror_bytes),
        size(memory.free_bytes),
        format!("{view}/{}", memory.members),
        memory.epoch.to_string(),
        age(memory.oldest_ms),
    ]
}

/// Headings of [`places`].
pub(super) const PLACES: [&str; 8] =
    ["lent", "own", "hosted", "mirrors", "free", "view/nodes", "epoch", "oldest"];

/// An age for people; `-` where frames are free.
fn age(ms: Option<u64>) -> String {
    ms.map_or("-".to_string(), |ms| format!("{:.1} s", ms as f64 / 1e3))
}

/// Network memory of those that have it, with a column for storage where any of them has that.
pub(super) fn table(reports: &[(&Member, &Report)]) -> Table {
    let lenders = || reports.iter().filter_map(|(member, r)| Some((member, r.memory.as_ref()?)));
    let storage = lenders().any(|(_, memory)| memory.storage.is_some());
    let found = ["local", "peer"].into_iter().chain(storage.then_some("storage"));
    let rest = ["missed", "local us", "peer us", "lost", "lacking"];
    let headings: Vec<&str> =
        ["lent by"].into_iter().chain(PLACES).chain(found).chain(rest).collect();
    let mut table = Table::new(&headings);
    for (member, memory) in lenders() {
        let mut row = vec![member.name.clone()];
        row.extend(places(memory));
        row.extend([memory.local.pages, memory.peer.pages].map(|pages| pages.to_string()));
        let of_storage = |source: Source| source.pages.to_string();
        row.extend(storage.then(|| memory.storage.map_or("-".into(), of_storage)));
        row.push(memory.missed.to_string());
        row.extend([memory.local, memory.peer].map(|source| source.took.shown()));
        row.extend([memory.lost_pages, memory.mirrors_missing].map(|number| number.to_string()));
        table.row(&row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use netmem::service::Counters;

    #[test]
    fn ages_are_shown_where_they_are_known() {
        assert_eq!((age(None), age(Some(1500))), ("-".to_string(), "1.5 s".to_string()));
    }

    #[test]
    fn a_node_without_a_life_is_out_of_the_view() {
        let memory = Memory { view: 4, members: 2, settled: true, ..Memory::default() };
        assert_eq!(places(&memory)[0], "0");
        assert_eq!(places(&memory)[5], "4 (out)/2");
        assert_eq!(places(&Memory { incarnation: 3, ..memory })[5], "4/2");
        assert_eq!(places(&Memory { incarnation: 3, settled: false, ..memory })[5], "4 (new)/2");
    }

    #[test]
    fn a_share_that_has_shrunk_is_shown_beside_all() {
        let lent = |share_bytes: u64, over_bytes| {
            super::lent(&Memory {
                lent_bytes: 64 << 20,
                share_bytes,
                over_bytes,
                ..Memory::default()
            })
        };
        assert_eq!(lent(64 << 20, 0), "64M");
        assert_eq!(lent((48 << 20) + 4096, 0), "48M of 64M");
        assert_eq!(lent(16 << 20, 5 << 20), "16M of 64M, 5M over");
    }

    #[test]
    fn storage_has_a_column_where_somebody_has_it() {
        let member = super::super::tests::told(2, "io1", None).member;
        let shown = |memory: Memory| {
            let report = Report { memory: Some(memory), ..Report::default() };
            table(&[(&member, &report)]).render()
        };
        let without = Memory { storage: None, ..Memory::counted(&Counters::default()) };
        let with = Memory::counted(&Counters { backing_hits: 77, ..Counters::default() });
        assert!(!shown(without).contains("storage"), "{}", shown(without));
        assert!(shown(with).contains("storage") && shown(with).contains("77"), "{}", shown(with));
    }
}
