//! Quantities as people write them: `132 MB/s`, `2.71 us`, `33 MHz`, `8 KiB`, `28 %`.
//!
//! Decimal fractions are read digit by digit into integers; no floating point decides anything in a run.

/// A kind of quantity and the units it may be written in, each with its size in the base unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name, for messages.
    pub name: &'static str,
    /// Unit and how many base units it has.
    pub units: &'static [(&'static str, u64)],
}

/// Bytes a second. MB is a million bytes, as the papers count: with 2^20 HotI'99 Table 1 would be beyond its bus.
pub const RATE: Kind = Kind {
    name: "rate",
    units: &[
        ("B/s", 1),
        ("KB/s", 1_000),
        ("MB/s", 1_000_000),
        ("GB/s", 1_000_000_000),
        ("Mb/s", 125_000),
        ("Gb/s", 125_000_000),
    ],
};
/// Picoseconds.
pub const TIME: Kind = Kind {
    name: "time",
    units: &[
        ("ps", 1),
        ("ns", 1_000),
        ("us", 1_000_000),
        ("ms", 1_000_000_000),
        ("s", 1_000_000_000_000),
    ],
};
/// Cycles a second.
pub const CLOCK: Kind = Kind {
    name: "clock",
    units: &[("Hz", 1), ("kHz", 1_000), ("MHz", 1_000_000), ("GHz", 1_000_000_000)],
};
/// Bytes.
pub const SIZE: Kind = Kind {
    name: "size",
    units: &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ],
};
/// Parts of a million.
pub const SHARE: Kind = Kind { name: "share", units: &[("%", 10_000), ("ppm", 1)] };

impl Kind {
    /// Reads `text` as this kind, in base units. The error says what is allowed.
    pub fn read(&self, text: &str) -> Result<u64, String> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
        let (number, unit) = text.split_at(split.unwrap_or(text.len()));
        let unit = unit.trim();
        let size = self.units.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size);
        let Some(size) = size else {
            let what =
                if unit.is_empty() { "no unit".to_string() } else { format!("unit `{unit}`") };
            return Err(format!(
                "{what} in \"{text}\"; a {} has one of: {}",
                self.name,
                self.allowed()
            ));
        };
        scaled(number, size).ok_or_else(|| format!("\"{text}\" is not a {}", self.name))
    }

    /// The units, for messages.
    pub fn allowed(&self) -> String {
        self.units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// `value` base units in the largest unit that leaves a whole part; rates in bytes.
    pub fn show(&self, value: u64) -> String {
        let fits = self
            .units
            .iter()
            .filter(|(name, size)| *size <= value.max(1) && !name.ends_with("b/s"));
        let Some((name, size)) = fits.max_by_key(|(_, size)| *size) else {
            return value.to_string();
        };
        let thousandths = u128::from(value % size) * 1_000 / u128::from(*size);
        let digits = format!("{}.{thousandths:03}", value / size);
        format!("{} {name}", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// `number` times `size`, exactly, if it is one and fits.
fn scaled(number: &str, size: u64) -> Option<u64> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let whole: u128 = whole.parse().ok()?;
    let parts: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let places = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let size = u128::from(size);
    u64::try_from(whole.checked_mul(size)? + parts.checked_mul(size)? / places).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_exactly() {
        assert_eq!(RATE.read("107.5 MB/s"), Ok(107_500_000));
        assert_eq!(RATE.read("1.28 Gb/s"), Ok(160_000_000));
        assert_eq!(TIME.read("2.71us"), Ok(2_710_000));
        assert_eq!(TIME.read("0 ns"), Ok(0));
        assert_eq!(CLOCK.read("33.3 MHz"), Ok(33_300_000));
        assert_eq!(SIZE.read("8 KiB"), Ok(8_192));
        assert_eq!(SHARE.read("49 %"), Ok(490_000));
    }

    #[test]
    fn what_cannot_be_read_is_answered_with_what_can() {
        let error = RATE.read("132 mph").unwrap_err();
        assert!(error.contains("mph") && error.contains("MB/s, GB/s"), "{error}");
        assert!(TIME.read("17").unwrap_err().contains("no unit"));
        assert!(TIME.read("1.2.3 us").unwrap_err().contains("not a time"));
        assert!(TIME.read("us").unwrap_err().contains("not a time"));
        assert!(SIZE.read("99999999999 TB").unwrap_err().contains("not a size"));
        assert!(RATE.read("-3 MB/s").is_err());
    }

    #[test]
    fn values_are_shown_as_they_are_written() {
        assert_eq!(RATE.show(107_500_000), "107.5 MB/s");
        assert_eq!(TIME.show(2_710_000), "2.71 us");
        assert_eq!(SIZE.show(8_192), "8 KiB");
        assert_eq!(TIME.show(0), "0 ps");
    }
}
