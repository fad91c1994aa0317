//! Machines and disks that were declared gone and come back.

/// The message for a machine that was declared gone, or some of whose disks were.
pub(super) fn gone_text(name: &str, disks: Option<u32>) -> String {
    match disks {
        Some(disks) if disks != 0 => {
            let numbers: Vec<String> = (0..32)
                .filter(|disk| disks >> disk & 1 == 1)
                .map(|disk| disk.to_string())
                .collect();
            format!(
                "disk {} of {name} was declared gone with `trapeze forget`, and files may have been removed since: \
                 move its directory away, leave its [[disk]] entry where it is, and start {name} again, which serves \
                 without it; a new disk gets a directory of its own: `trapeze disk add`",
                numbers.join(" and ")
            )
        }
        _ => format!(
            "{name} was declared gone with `trapeze forget`, and files may have been removed since: it cannot come back. \
             To use this machine again, move its directories away and run `trapeze join` with a new --dir; it may have \
             the same name"
        ),
    }
}
