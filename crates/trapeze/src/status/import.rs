//! An importer, as it tells of itself and of its origin.

use super::figures::{Figure, Number, figures};
use imports::Standing;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;

/// The origin of a node that imports; `None` on every other node.
pub type SharedOrigin = Rc<RefCell<Option<Rc<imports::Origin>>>>;

figures! {
    /// Counters since its start.
    #[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
    pub struct Import {
        origin: String;
        calls => counter "import_calls_total", "Calls that the origin has answered.";
        read_bytes => counter "import_read_bytes_total", "Bytes that were read of the origin.";
        written_bytes => counter "import_written_bytes_total", "Bytes that were written to the origin.";
        /// It does not answer, since when and why.
        away: bool => gauge "import_origin_away", "Whether the origin does not answer.";
        away_s => gauge "import_origin_away_seconds", "For how long it has not answered.";
        why: String;
    }
}

impl Import {
    /// As it is now.
    pub fn of(standing: Standing) -> Import {
        let Standing { name, calls, read_bytes, written_bytes, away } = standing;
        let is_away = away.is_some();
        let (age, why) = away.unwrap_or_default();
        let (origin, away_s) = (name, age.as_secs());
        Import { origin, calls, read_bytes, written_bytes, away: is_away, away_s, why }
    }

    /// Its problem, for people.
    pub fn problem(&self) -> Option<String> {
        self.away.then(|| format!("{} is away for {} s: {}", self.origin, self.away_s, self.why))
    }
}
