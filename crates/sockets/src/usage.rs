//! What the system says this process uses, as clients of Redis are told.

use kv::Usage;

/// Memory and processor time now; 0 of what the system does not tell.
pub fn usage() -> Usage {
    let live::usage::Usage { resident_bytes, peak_bytes, user_us, system_us } =
        live::usage::usage();
    Usage { resident_bytes, peak_bytes, user_us, system_us }
}
