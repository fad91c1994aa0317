//! Numbers as people read them.

/// Four digits or so: as many decimals as the size asks for.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 1000.0 => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{}", Fixed(value, decimals))
}

/// With so many decimals, and never "-0.00".
pub fn fixed(value: f64, decimals: usize) -> String {
    Fixed(value, decimals).to_string()
}

/// A number as it was written: no more digits than it has.
pub fn plain(value: f64) -> String {
    let value = if value == 0.0 { 0.0 } else { value };
    format!("{value}")
}

struct Fixed(f64, usize);

impl std::fmt::Display for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.*}", self.1, self.0);
        let is_zero = !text.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
        f.write_str(if is_zero { text.trim_start_matches('-') } else { &text })
    }
}

/// Ticks from at most `least` to at least `most`, about `count` of them, at multiples of 1, 2, 2.5 or 5 times a power
/// of ten; with the decimals that they need.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    /// Where they are.
    pub at: Vec<f64>,
    /// Decimals of their labels.
    pub decimals: usize,
}

impl Ticks {
    /// Ticks for values between `least` and `most`, which is larger.
    pub fn new(least: f64, most: f64, count: usize) -> Ticks {
        assert!(most > least, "an axis has a length");
        let (step, decimals) = nice_step((most - least) / count.max(1) as f64);
        let first = (least / step + 1e-9).floor() as i64;
        let last = (most / step - 1e-9).ceil() as i64;
        Ticks { at: (first..=last).map(|n| n as f64 * step).collect(), decimals }
    }

    /// The least of them.
    pub fn least(&self) -> f64 {
        self.at[0]
    }

    /// The largest of them.
    pub fn most(&self) -> f64 {
        self.at[self.at.len() - 1]
    }

    /// The label of a value on this axis.
    pub fn label(&self, value: f64) -> String {
        thousands(&fixed(value, self.decimals))
    }
}

/// The least nice step that is not below `rough`, and the decimals of its multiples.
fn nice_step(rough: f64) -> (f64, usize) {
    let mut unit = 1.0;
    while unit > rough {
        unit /= 10.0;
    }
    while unit * 10.0 <= rough {
        unit *= 10.0;
    }
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * unit);
    let enough = nice.into_iter().find(|step| *step >= rough * (1.0 - 1e-9));
    let step = enough.expect("ten units are more than the rough step");
    (step, decimals(step))
}

/// Decimals that a step has, nine at most.
fn decimals(step: f64) -> usize {
    let (mut scaled, mut decimals) = (step, 0);
    while decimals < 9 && (scaled - scaled.round()).abs() > 1e-6 * scaled {
        scaled *= 10.0;
        decimals += 1;
    }
    decimals
}

/// 12000 as 12,000.
fn thousands(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    if whole.len() < 5 {
        return text.to_string();
    }
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    format!("{sign}{}{fraction}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_follow_the_size() {
        let texts = [1234.56, 123.456, 12.3456, 0.123456, -0.0001].map(short);
        assert_eq!(texts, ["1235", "123.5", "12.35", "0.123", "0.000"]);
        assert_eq!([308.0, 78.72, -0.0].map(plain), ["308", "78.72", "0"]);
    }

    #[test]
    fn ticks_are_nice_and_cover_the_values() {
        let labels = |least, most, count| {
            let ticks = Ticks::new(least, most, count);
            ticks.at.iter().map(|at| ticks.label(*at)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(0.0, 128.0, 8), "0 20 40 60 80 100 120 140");
        assert_eq!(labels(0.0, 1.0, 4), "0.00 0.25 0.50 0.75 1.00");
        assert_eq!(labels(64.0, 8192.0, 4), "0 2500 5000 7500 10,000");
        assert_eq!(labels(0.25, 4.0, 4), "0 1 2 3 4");
        assert_eq!(labels(-3.0, 3.0, 3), "-4 -2 0 2 4");
        assert_eq!(labels(0.0, 0.004, 4), "0.000 0.001 0.002 0.003 0.004");
    }
}
