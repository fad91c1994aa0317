//! Random bytes from the system: for keys, ids and seeds.

/// As many as the type has.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut have = 0;
    while have < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        have += rustix::rand::getrandom(&mut bytes[have..], flags).unwrap_or(0);
    }
    bytes
}
