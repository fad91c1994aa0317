//! How a store is opened.

use crate::limits::{CACHE_BYTES_DEFAULT, OVERLAY_BYTES_DEFAULT};

/// Purpose of a store and the format of its keys and values; kept in it and checked when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Such as "names".
    pub kind: &'static str,
    /// Changes whenever keys or values are written in another way.
    pub version: u32,
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The format that it must have.
    pub format: Format,
    /// Bytes of the checkpoint's cache.
    pub cache_bytes: usize,
    /// Bytes of changes in memory over which [`Store::admit`](crate::Store::admit) refuses.
    pub overlay_bytes_max: usize,
    /// Planted bugs; none outside of tests of the checkers.
    pub flaws: Flaws,
}

/// Planted bugs, for simulations that test whether their checkers find them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flaws {
    /// Pages of the checkpoint are not verified.
    pub pages_unverified: bool,
}

impl Config {
    /// With the default limits.
    pub fn new(kind: &'static str, version: u32) -> Config {
        Config {
            format: Format { kind, version },
            cache_bytes: CACHE_BYTES_DEFAULT,
            overlay_bytes_max: OVERLAY_BYTES_DEFAULT,
            flaws: Flaws::default(),
        }
    }
}
