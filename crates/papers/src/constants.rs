//! Presets of an experiment: the constants that its model needs, and hardware of the user's own.
//!
//! A preset of kind `constants` has tables of numbers, each beside its unit and where it comes from, as all presets:
//!
//! ```toml
//! kind = "constants"
//! about = "..."
//! [host]
//! bus = ["33 MHz", "fast forwarding, Table 2"]
//! ```

use nic::Costs;
use sim::hardware::board::Board;
use sim::hardware::catalogue::{self, Machine, Preset};
use sim::hardware::fabric::Link;
use sim::hardware::preset::File;
use sim::source::{Fault, Source};

/// All that the experiment's presets say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants {
    /// Table and key with a dot, and the value in its unit.
    values: Vec<(&'static str, f64)>,
    /// Presets of the user's own, under the paths that the experiment has for them.
    own: Vec<(String, Preset)>,
}

/// A key and the unit that it must have.
pub type Wanted = (&'static str, &'static str);

impl Constants {
    /// Reads a preset that has exactly these constants.
    pub fn parse(source: Source<'_>, wanted: &[Wanted]) -> Result<Constants, Fault> {
        let file = File::parse(source.file, source.text)?;
        file.text("about")?;
        let kind = file.text("kind")?;
        if kind != "constants" {
            let what = format!("`kind` = {kind}; constants are needed here");
            return Err(file.error_at("kind", what));
        }
        let mut tables: Vec<&'static str> = wanted.iter().map(|wanted| parts(wanted).0).collect();
        tables.dedup();
        file.only(&[&["kind", "about"], &tables[..]].concat())?;
        let tables = tables.into_iter().map(|table| read(&file, table, wanted));
        let values = tables.collect::<Result<Vec<_>, Fault>>()?.concat();
        Ok(Constants { values, own: Vec::new() })
    }

    /// The same with hardware of the user's own.
    pub fn with(self, own: Vec<(String, Preset)>) -> Constants {
        Constants { own, ..self }
    }

    /// The value under a key that the model asked for.
    pub fn get(&self, key: &str) -> f64 {
        let found = self.values.iter().find(|(known, _)| *known == key);
        found.expect("a constant that the model declares").1
    }

    fn own(&self, name: &str) -> Option<Preset> {
        self.own.iter().find(|(path, _)| path == name).map(|(_, preset)| *preset)
    }
}

fn parts((key, _): &Wanted) -> (&'static str, &'static str) {
    key.split_once('.').expect("a table and a key of it")
}

fn read(
    file: &File<'_>,
    table: &'static str,
    wanted: &[Wanted],
) -> Result<Vec<(&'static str, f64)>, Fault> {
    let section = file.section(table)?;
    let here = wanted.iter().filter(|wanted| parts(wanted).0 == table);
    let value = |wanted: &Wanted| Ok((wanted.0, section.number(parts(wanted).1, wanted.1)?));
    let values = here.map(value).collect::<Result<Vec<_>, Fault>>()?;
    section.close()?;
    Ok(values)
}

macro_rules! of_kind {
    ($($find:ident $variant:ident $type:ident)*) => { impl Constants { $(
        /// The preset of this kind and name: the user's own, or one that is built in. The loader has seen that it is
        /// there.
        pub fn $find(&self, name: &str) -> $type {
            match self.own(name) {
                Some(Preset::$variant(value)) => value,
                _ => catalogue::$find(name).expect("the loader allows only presets that are"),
            }
        }
    )* } };
}

of_kind! { machine Machine Machine board Board Board firmware Firmware Costs link Link Link }
