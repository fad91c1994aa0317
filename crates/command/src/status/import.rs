//! Importers, as they are shown.

use members::Member;
use terminal::table::Table;
use trapeze::size::Size;
use trapeze::status::report::Report;

/// Each importer and its origin.
pub(super) fn table(reports: &[(&Member, &Report)]) -> Table {
    let headings = ["import of", "origin", "state", "calls", "in all: read", "written"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        let Some(import) = &report.import else { continue };
        let state = match import.away {
            true => format!("away for {} s", import.away_s),
            false => "answers".to_string(),
        };
        let bytes = [import.read_bytes, import.written_bytes].map(|it| Size(it).to_string());
        let (name, calls) = (member.name.clone(), import.calls.to_string());
        let row = [name, import.origin.clone(), state, calls].into_iter().chain(bytes);
        table.row(&row.collect::<Vec<_>>());
    }
    table
}
