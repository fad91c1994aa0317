//! Ethernets, as they are shown.

use members::Member;
use terminal::table::Table;
use trapeze::status::report::Report;

/// Frames of each machine that sends them.
pub(super) fn table(reports: &[(&Member, &Report)]) -> Table {
    let headings = ["frames of", "by", "sent", "received", "lost", "dropped", "forged", "replayed"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        let Some(ethernet) = &report.ethernet else { continue };
        let dropped = ethernet.early + ethernet.full + ethernet.strays + ethernet.drops;
        let numbers = [ethernet.sent, ethernet.received, ethernet.lost, dropped];
        let numbers = numbers.into_iter().chain([ethernet.forged, ethernet.replayed]);
        let mut row = vec![member.name.clone(), ethernet.port.clone()];
        row.extend(numbers.map(|number| number.to_string()));
        table.row(&row);
    }
    table
}
