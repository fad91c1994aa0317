//! The figures of a report, each declared once: its field in the JSON of `trapeze status`, the counter it is taken
//! from, and its name, kind and help in the metrics of `trapeze metrics`.
//!
//! ```text
//! cached_bytes = counters.cached_bytes => gauge "cached_bytes", "Blocks in memory.";
//! │              │                        └ metric; a figure without one is in the JSON only
//! │              └ taken from; a figure without it is set by the code that makes the section
//! └ field, a u64 unless `: type` says otherwise
//! ```

/// Whether a number only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It does.
    Counter,
    /// It may fall.
    Gauge,
}

/// A number of each row of a section, as monitors are told of it.
pub struct Figure<T> {
    /// The metric, after `trapeze_`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// One sentence.
    pub help: &'static str,
    /// The number.
    pub of: fn(&T) -> f64,
}

impl<T> Figure<T> {
    /// One that only grows.
    pub const fn counter(name: &'static str, help: &'static str, of: fn(&T) -> f64) -> Figure<T> {
        assert!(is_total(name), "the name of a counter ends with _total");
        Figure { name, kind: Kind::Counter, help, of }
    }

    /// One that may fall.
    pub const fn gauge(name: &'static str, help: &'static str, of: fn(&T) -> f64) -> Figure<T> {
        assert!(!is_total(name), "only the name of a counter ends with _total");
        Figure { name, kind: Kind::Gauge, help, of }
    }
}

const fn is_total(name: &str) -> bool {
    matches!(name.as_bytes(), [.., b'_', b't', b'o', b't', b'a', b'l'])
}

/// A value that is exported as a number.
pub trait Number {
    /// The number; NaN, which the metrics' format knows, for what was not measured.
    fn number(&self) -> f64;
}

impl Number for u64 {
    fn number(&self) -> f64 {
        *self as f64
    }
}

impl Number for u32 {
    fn number(&self) -> f64 {
        f64::from(*self)
    }
}

impl Number for bool {
    fn number(&self) -> f64 {
        f64::from(*self)
    }
}

/// In seconds what was measured in `units` of them.
pub fn seconds(measured: Option<u64>, units: f64) -> f64 {
    measured.map_or(f64::NAN, |measured| measured as f64 / units)
}

/// Declares a section of the report: see [the module](self).
macro_rules! figures {
    (@type) => { u64 };
    (@type $type:ty) => { $type };
    (@of $field:ident) => { |section| section.$field.number() };
    (@of $field:ident, $of:expr) => { $of };
    (@from) => { Default::default() };
    (@from $from:expr) => { $from };
    (
        $(#[$about:meta])*
        pub struct $section:ident of ($counters:ident: &$source:ty) {
            $(
                $(#[$doc:meta])*
                $field:ident $(: $type:ty)? $(= $from:expr)?
                    $(=> $kind:ident $name:literal, $help:literal $(, $of:expr)?)*;
            )*
        }
    ) => {
        figures! {
            $(#[$about])*
            pub struct $section {
                $($(#[$doc])* $field $(: $type)? $(=> $kind $name, $help $(, $of)?)*;)*
            }
        }

        impl $section {
            /// From what was counted; what the counters do not tell is left out.
            pub fn counted($counters: &$source) -> $section {
                $section { $($field: figures!(@from $($from)?),)* }
            }
        }
    };
    (
        $(#[$about:meta])*
        pub struct $section:ident {
            $(
                $(#[$doc:meta])*
                $field:ident $(: $type:ty)? $(=> $kind:ident $name:literal, $help:literal $(, $of:expr)?)*;
            )*
        }
    ) => {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        $(#[$about])*
        pub struct $section {
            $($(#[$doc])* pub $field: figures!(@type $($type)?),)*
        }

        impl $section {
            /// Its metrics.
            pub const FIGURES: &[Figure<$section>] = &[
                $($(Figure::$kind($name, $help, figures!(@of $field $(, $of)?)),)*)*
            ];
        }
    };
}
pub(super) use figures;
