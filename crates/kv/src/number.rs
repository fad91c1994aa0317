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

/// The number at the beginning of `text`, as memcached reads those that it counts: behind spaces, and anything may
/// follow behind another one.
pub fn counted(text: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|byte| is_space(byte)).count()..];
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.split(|byte| is_space(byte)).next().unwrap_or_default();
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    unsigned(&digits[zeros.min(digits.len().saturating_sub(1))..])
}

/// The number that all of `text` is, written as Redis writes it: without zeros in front.
pub fn integer(text: &[u8]) -> Option<i64> {
    signed(text).filter(|value| Decimal::signed(*value).text() == text)
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

    #[test]
    fn memcached_counts_what_stands_between_spaces() {
        for (text, number) in [
            ("10", Some(10)),
            (" 10", Some(10)),
            ("\t+10 \r\nabc", Some(10)),
            ("00000000000000000000000000000000000000007", Some(7)),
            ("0", Some(0)),
            ("18446744073709551615 ", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("10a", None),
            ("+", None),
            ("  ", None),
            ("", None),
        ] {
            assert_eq!(counted(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn redis_writes_a_number_in_one_way() {
        for text in ["0", "-1", "10", "-9223372036854775808", "9223372036854775807"] {
            assert_eq!(integer(text.as_bytes()), Some(text.parse().unwrap()));
        }
        for text in ["007", "-0", "-01", "+1", "00", " 1", "1 ", "9223372036854775808", ""] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
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
