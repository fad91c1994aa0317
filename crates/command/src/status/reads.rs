//! READs by where their blocks were, as they are shown.

use members::Member;
use terminal::table::Table;
use trapeze::status::report::Report;

/// READs of the I/O servers since their start.
pub(super) fn table(reports: &[(&Member, &Report)]) -> Table {
    let mut table =
        Table::new(&["reads of", "cache", "network", "disk", "cache us", "network us", "disk us"]);
    for (member, report) in reports {
        let Some(io) = &report.io else { continue };
        let all = io.found.all();
        let counts = all.iter().map(|found| found.reads.to_string());
        let times = all.iter().map(|found| found.took.shown());
        let name = [member.name.clone()].into_iter();
        table.row(&name.chain(counts).chain(times).collect::<Vec<String>>());
    }
    table
}
