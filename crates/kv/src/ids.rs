//! The numbers that items and tenants go by.

/// A tenant's number, in the order in which they were configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TenantNo(pub u16);

/// An item's place in the table; good until the item is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemNo(pub(crate) u32);

/// No entry of the table.
pub const NONE: u32 = u32::MAX;
