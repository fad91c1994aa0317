//! Which machine this is.

use std::fs::read_to_string;

/// Drawn by the kernel when it starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A number of this machine from its start to its end: the same for all processes on it, those in containers too, and
/// for none elsewhere. 0 where the kernel does not tell.
pub fn number() -> u64 {
    read_to_string(BOOT_ID).ok().and_then(|text| parse(&text)).unwrap_or(0)
}

fn parse(text: &str) -> Option<u64> {
    let digits: String = text.trim().chars().filter(|letter| *letter != '-').collect();
    let all = u128::from_str_radix(&digits, 16).ok()?;
    Some((all >> 64) as u64 ^ all as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_number() {
        assert_eq!(number(), number());
        assert!(number() != 0, "this kernel tells");
        assert_eq!(parse("00000000-0000-0001-0000-000000000003\n"), Some(2));
        assert_eq!(parse("no number"), None);
    }
}
