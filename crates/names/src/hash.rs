//! The site that a name is hashed to.

use wire::FileId;

/// FNV-1a over parent and name, then mixed so that every bit depends on every byte.
pub(crate) fn hash(parent: FileId, name: &[u8]) -> u64 {
    let bytes = parent.0.to_le_bytes();
    let all = bytes.iter().chain(name);
    let sum = all.fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (sum ^ (sum >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 29)
}

/// The site of a name in a hashed directory; of `.` and `..` the directory's own.
pub fn site_of_name(directory: FileId, name: &[u8]) -> u8 {
    match name {
        b"." | b".." => directory.site(),
        _ => hash(directory, name) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_spread_over_sites() {
        let mut seen = [0u32; 256];
        (0..25_600u32).for_each(|i| seen[hash(FileId(1), &i.to_le_bytes()) as u8 as usize] += 1);
        assert!(seen.iter().all(|count| (40..200).contains(count)), "{seen:?}");
        let switched =
            (0..10_000u32).filter(|i| (hash(FileId(9), &i.to_be_bytes()) >> 32) % 1000 < 100);
        assert!((800..1200).contains(&switched.count()));
    }
}
