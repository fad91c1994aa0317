//! Decimal numbers as the protocols write them.

/// Most digits of a number.
pub const DIGITS_MAX: usize = 20;

/// The digits of a number.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; DIGITS_MAX + 1],
    start: usize,
}

impl Decimal {
    /// Of an unsigned number.
    pub fn new(mut value: u64) -> Decimal {
        let (mut digits, mut start) = ([0; DIGITS_MAX + 1], DIGITS_MAX + 1);
        loop {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                return Decimal { digits, start };
            }
        }
    }

    /// Of a number that may be negative.
    pub fn signed(value: i64) -> Decimal {
        let mut decimal = Decimal::new(value.unsigned_abs());
        if value < 0 {
            decimal.start -= 1;
            decimal.digits[decimal.start] = b'-';
        }
        decimal
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// The number that all of `text` is, digits only.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > DIGITS_MAX {
        return None;
    }
    text.iter().try_fold(0u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The number that all of `text` is, digits with at most a minus in front.
pub fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        None => i64::try_from(unsigned(text)?).ok(),
        Some(digits) => 0i64.checked_sub_unsigned(unsigned(digits)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", "+1", " 1", "1 ", "1a", "--1", "18446744073709551616", "0x1"] {
            assert_eq!(unsigned(text.as_bytes()), None, "{text}");
            assert_eq!(signed(text.as_bytes()), None, "{text}");
        }
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"9223372036854775808"), None);
    }

    proptest! {
        #[test]
        fn numbers_come_back(value in any::<u64>(), other in any::<i64>()) {
            prop_assert_eq!(unsigned(Decimal::new(value).text()), Some(value));
            prop_assert_eq!(signed(Decimal::signed(other).text()), Some(other));
            let written = Decimal::signed(other);
            prop_assert_eq!(String::from_utf8_lossy(written.text()), other.to_string());
        }
    }
}
