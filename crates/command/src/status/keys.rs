//! Keys and values for clients of memcached and Redis, as they are shown.

use members::Member;
use terminal::table::Table;
use trapeze::size::Size;
use trapeze::status::keys::Tenant;
use trapeze::status::report::Report;

/// The cells of a row that say what is here and elsewhere.
pub(super) fn places(tenant: &Tenant) -> [String; 4] {
    let size = |bytes| Size(bytes).to_string();
    [tenant.items.to_string(), size(tenant.bytes), size(tenant.max_bytes), size(tenant.away_bytes)]
}

/// Headings of [`places`].
pub(super) const PLACES: [&str; 4] = ["items", "bytes", "of", "away"];

/// The front ends' tenants.
pub(super) fn table(reports: &[(&Member, &Report)]) -> Table {
    let counts = ["hits", "misses", "stored", "evicted", "expired", "from away", "lost"];
    let head = ["keys of", "clients", "tenant"];
    let headings: Vec<&str> = head.into_iter().chain(PLACES).chain(counts).collect();
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        let Some(keys) = &report.keys else { continue };
        for tenant in &keys.tenants {
            let numbers = [
                tenant.hits,
                tenant.misses,
                tenant.stored,
                tenant.evicted,
                tenant.expired,
                tenant.away_asked,
                tenant.away_lost,
            ];
            let mut row = vec![member.name.clone(), keys.connections.to_string()];
            row.push(tenant.name.clone());
            row.extend(places(tenant));
            row.extend(numbers.map(|number| number.to_string()));
            table.row(&row);
        }
    }
    table
}
