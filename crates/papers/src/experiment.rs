//! An experiment: one file of TOML, one figure or table of a paper.
//!
//! ```toml
//! paper = "Experiences with Fast Forwarding on Myrinet, 2000"
//! what = "Figure 4"
//! title = "Payload cache and arrival rate"
//! sentence = "..."
//! model = "forwarding"            # one of models::ALL
//! preset = "forwarding"           # its constants: a preset of `presets/`, or a file beside this one
//! fitted = 0                      # constants that were chosen to fit the numbers below
//!
//! [[axis]]                        # every axis of the model; the sweep is all combinations
//! name = "load"
//! from = 2
//! to = 98
//! step = 2
//!
//! [simulate]                      # without it, formulas only
//! amount = 100_000
//! at = { load = [50, 80] }        # without it, everywhere
//!
//! [[expect]]                      # rows of the table, with their bands; without any and without a figure, all
//! measure = "cache"
//! at = { load = [50], cache = ["on"] }
//! paper = 64
//! band_percent = 3
//! origin = "predicted"
//!
//! [figure.lines]
//! x = "load"
//! y = "cache"
//! ```
//!
//! A mistake is an error with file, line and what is allowed, before anything runs.

use super::constants::Constants;
use super::model::{Allowed, AxisKind, Level, Measure, Model, ORIGINS, Point, is_file};
use super::raw::{RawAxis, RawExpect, RawExperiment, RawFigure};
use crate::report::Origin;
use sim::hardware::catalogue::{self, Preset};
use sim::limits::{FIGURE_MOST, POINTS_MAX, SEEDS_MAX};
use sim::source::{Fault, Source};
use toml::Spanned;

/// A file that makes sense.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Of its outputs: the file's name without its ending.
    pub name: String,
    /// Which paper.
    pub paper: String,
    /// Which figure or table of it.
    pub what: String,
    /// One line.
    pub title: String,
    /// Its message, in a sentence.
    pub sentence: String,
    /// The model that runs.
    pub model: &'static Model,
    /// Its constants.
    pub constants: Constants,
    /// How many of them were fitted to the numbers expected.
    pub fitted: usize,
    /// Each point is run with each of them; what is simulated is their mean.
    pub seeds: Vec<u64>,
    /// The sweep, in the order of the file.
    pub axes: Vec<(&'static str, Vec<Level>)>,
    /// The points that are simulated.
    pub simulate: Option<Simulate>,
    /// The table's rows.
    pub expected: Vec<Expected>,
    /// The figure.
    pub figure: Option<RawFigure>,
}

/// Levels by axis; an axis that is not named has all of its levels.
pub type Selection = Vec<(&'static str, Vec<Level>)>;

/// Which points are simulated, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulate {
    /// In the model's unit, packets mostly.
    pub amount: u64,
    /// Where.
    pub at: Selection,
}

/// Rows of the table.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The measure.
    pub measure: usize,
    /// Where; one row for each point.
    pub at: Selection,
    /// The paper's value, when there is one point.
    pub paper: Option<f64>,
    /// Declared.
    pub band_percent: Option<f64>,
    /// Whether a constant was fitted to it.
    pub origin: Origin,
    /// A remark.
    pub note: String,
}

impl Expected {
    /// A measure at every point, without an expected value.
    fn everywhere(measure: usize) -> Expected {
        let (paper, band_percent, origin) = (None, None, Origin::Predicted);
        Expected { measure, at: Selection::new(), paper, band_percent, origin, note: String::new() }
    }
}

/// Where an experiment's model and presets are looked up; those that are built in are in [`catalogue`].
#[derive(Clone, Copy)]
pub struct Catalogue<'c> {
    /// The models.
    pub models: &'static [&'static Model],
    /// The text of a file, by its path from the experiment's folder; or why it cannot be read.
    pub read: &'c dyn Fn(&str) -> Result<String, String>,
}

impl Experiment {
    /// Reads a file.
    pub fn parse(
        name: &str,
        source: Source<'_>,
        catalogue: Catalogue<'_>,
    ) -> Result<Experiment, Fault> {
        let raw: RawExperiment =
            toml::from_str(source.text).map_err(|error| source.of_toml(&error))?;
        let model = find_model(source, &raw, catalogue)?;
        let reader = Reader { source, model, read: catalogue.read };
        let constants = reader.constants(&raw)?;
        let axes = reader.axes(&raw.axis)?;
        let constants = constants.with(reader.presets(&raw.axis, &axes)?);
        let seeds = reader.seeds(&raw, &axes)?;
        let expect = raw.expect.iter().map(|expect| reader.expected(expect, &axes));
        let mut expected = expect.collect::<Result<Vec<_>, _>>()?;
        if expected.is_empty() && raw.figure.is_none() {
            expected = (0..model.measures.len()).map(Expected::everywhere).collect();
        }
        if let Some(figure) = &raw.figure {
            reader.figure(figure)?;
        }
        let simulate = match &raw.simulate {
            Some(raw) => {
                let at = reader.selection(&raw.at, &axes)?;
                Some(Simulate { amount: reader.amount(&raw.amount)?, at })
            }
            None => None,
        };
        let name = name.to_string();
        let RawExperiment { paper, what, title, sentence, fitted, figure, .. } = raw;
        #[rustfmt::skip]
        let experiment = Experiment {
            name, paper, what, title, sentence, model, constants, fitted, seeds, axes, simulate, expected, figure,
        };
        experiment.refuse(source, &raw.axis)?;
        Ok(experiment)
    }

    /// An error at the axis of the first point that cannot be.
    fn refuse(&self, source: Source<'_>, axes: &[RawAxis]) -> Result<(), Fault> {
        let points = self.points();
        let wrong = points.iter().find_map(|point| (self.model.refuse)(point, &self.constants));
        wrong.map_or(Ok(()), |(name, what)| {
            let axis = axes.iter().find(|axis| axis.name.get_ref() == name);
            Err(source.fault(axis.map_or(0..0, |axis| axis.name.span()), what))
        })
    }

    /// The levels on an axis of the model.
    pub fn levels(&self, axis: &str) -> &[Level] {
        let found = self.axes.iter().find(|(name, _)| *name == axis);
        found.map_or(&[], |(_, levels)| levels)
    }

    /// Figure or table and title, of its outputs.
    pub fn heading(&self) -> String {
        let (what, title) = (&self.what, &self.title);
        if what.is_empty() { title.clone() } else { format!("{what}: {title}") }
    }

    /// Every point with every seed, in the order of the file: the last axis changes first, the seeds before it.
    pub fn points(&self) -> Vec<Point> {
        let all = combinations(&self.axes);
        let simulated = |at: &Vec<(&'static str, Level)>| match &self.simulate {
            Some(simulate) if is_selected(&simulate.at, at) => Some(simulate.amount),
            _ => None,
        };
        let each = all.into_iter().map(|at| (simulated(&at), at));
        each.flat_map(|(simulate, at)| {
            let point = move |seed: &u64| Point { at: at.clone(), seed: *seed, simulate };
            self.seeds.iter().map(point).collect::<Vec<_>>()
        })
        .collect()
    }
}

/// To nine decimals, so that 0.25 and 15 steps of 0.05 are 1.
fn rounded(number: f64) -> f64 {
    (number * 1e9).round() / 1e9
}

/// Every combination of the levels, the last axis changing first.
pub fn combinations(axes: &[(&'static str, Vec<Level>)]) -> Vec<Vec<(&'static str, Level)>> {
    axes.iter().fold(vec![Vec::new()], |so_far, (name, levels)| {
        let longer = |at: &Vec<(&'static str, Level)>| {
            let at = at.clone();
            levels.iter().map(move |level| [&at[..], &[(*name, level.clone())]].concat())
        };
        so_far.iter().flat_map(longer).collect()
    })
}

/// Whether a point lies in a selection.
pub fn is_selected(selection: &Selection, at: &[(&'static str, Level)]) -> bool {
    selection
        .iter()
        .all(|(axis, levels)| at.iter().any(|(name, level)| name == axis && levels.contains(level)))
}

fn find_model(
    source: Source<'_>,
    raw: &RawExperiment,
    catalogue: Catalogue<'_>,
) -> Result<&'static Model, Fault> {
    let name = raw.model.get_ref();
    let found = catalogue.models.iter().find(|model| model.name == name.as_str());
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = catalogue.models.iter().map(|model| model.name).collect();
        source.unknown(raw.model.span(), "model", name, &names)
    })
}

/// Reads what depends on the model.
struct Reader<'s> {
    source: Source<'s>,
    model: &'static Model,
    read: &'s dyn Fn(&str) -> Result<String, String>,
}

impl Reader<'_> {
    /// The text of a file of the user's own, which is named here.
    fn file(&self, at: &Spanned<String>, path: &str) -> Result<String, Fault> {
        (self.read)(path).map_err(|what| self.source.fault(at.span(), format!("{path}: {what}")))
    }

    /// The constants of the preset; a model that needs none takes none.
    fn constants(&self, raw: &RawExperiment) -> Result<Constants, Fault> {
        let wanted = self.model.constants;
        match &raw.preset {
            None if wanted.is_empty() => Ok(Constants::default()),
            None => {
                let (model, names) = (self.model.name, self.fitting().join(", "));
                let what = format!("model `{model}` needs a `preset`: {names}");
                Err(self.source.fault(raw.model.span(), what))
            }
            Some(preset) if is_file(preset.get_ref()) => {
                let path = preset.get_ref();
                Constants::parse(Source { file: path, text: &self.file(preset, path)? }, wanted)
            }
            Some(preset) => self.built_in(preset),
        }
    }

    fn built_in(&self, preset: &Spanned<String>) -> Result<Constants, Fault> {
        let (name, model) = (preset.get_ref().as_str(), self.model.name);
        let known = catalogue::BUILT_IN.iter().find(|(known, _)| *known == name);
        let unknown = || self.source.unknown(preset.span(), "preset", name, &self.fitting());
        let source = known.ok_or_else(unknown)?.1;
        Constants::parse(source, self.model.constants).map_err(|fault| {
            let what = format!("preset `{name}` does not fit model `{model}`: {fault}");
            self.source.fault(preset.span(), what)
        })
    }

    /// Names of the presets that have the model's constants.
    fn fitting(&self) -> Vec<&'static str> {
        let fits = |source: Source<'_>| Constants::parse(source, self.model.constants).is_ok();
        let fitting = catalogue::BUILT_IN.iter().filter(|(_, source)| fits(*source));
        fitting.map(|(name, _)| *name).collect()
    }

    /// The files of the user's own that stand on axes of presets.
    fn presets(
        &self,
        raw: &[RawAxis],
        axes: &[(&'static str, Vec<Level>)],
    ) -> Result<Vec<(String, Preset)>, Fault> {
        let mut own = Vec::new();
        for (raw, (name, levels)) in raw.iter().zip(axes) {
            let Some(Allowed::Presets(kind)) = self.model.axis(name).map(|kind| kind.allowed)
            else {
                continue;
            };
            for level in levels {
                if let Level::Name(path) = level
                    && is_file(path)
                {
                    own.push((path.clone(), self.preset(&raw.name, path, kind)?));
                }
            }
        }
        Ok(own)
    }

    fn preset(&self, at: &Spanned<String>, path: &str, kind: &str) -> Result<Preset, Fault> {
        let (preset, _) = Preset::parse(path, &self.file(at, path)?)?;
        if preset.kind() == kind {
            return Ok(preset);
        }
        let what = format!("{path} is a preset of kind `{}`; a {kind} is needed", preset.kind());
        Err(self.source.fault(at.span(), what))
    }

    fn axes(&self, raw: &[RawAxis]) -> Result<Vec<(&'static str, Vec<Level>)>, Fault> {
        let axes = raw.iter().map(|axis| self.axis(axis)).collect::<Result<Vec<_>, Fault>>()?;
        let given = |name: &str| axes.iter().filter(|(axis, _)| *axis == name).count();
        let wrong = self.model.axes.iter().find(|kind| given(kind.name) != 1);
        wrong.map_or(Ok(()), |kind| {
            let what = format!("axis `{}` must be given once", kind.name);
            Err(self.source.fault(0..0, what))
        })?;
        Ok(axes)
    }

    fn axis_kind(&self, name: &Spanned<String>) -> Result<&'static AxisKind, Fault> {
        self.model.axis(name.get_ref()).ok_or_else(|| {
            let names: Vec<&str> = self.model.axes.iter().map(|kind| kind.name).collect();
            self.source.unknown(name.span(), "axis", name.get_ref(), &names)
        })
    }

    fn axis(&self, raw: &RawAxis) -> Result<(&'static str, Vec<Level>), Fault> {
        let kind = self.axis_kind(&raw.name)?;
        if let Some(unit) = raw.unit.as_ref().filter(|unit| unit.get_ref() != kind.unit) {
            let what = format!("unit of axis `{}`", kind.name);
            return Err(self.source.unknown(unit.span(), &what, unit.get_ref(), &[kind.unit]));
        }
        let levels = match (&raw.values, raw.from, raw.to, raw.step) {
            (Some(values), None, None, None) => values.clone(),
            (None, Some(from), Some(to), Some(step)) if step > 0.0 && to >= from => {
                let steps = ((to - from) / step + 1e-9).floor().min(POINTS_MAX as f64) as u64;
                (0..=steps).map(|n| Level::Number(rounded(from + n as f64 * step))).collect()
            }
            _ => {
                let what = format!(
                    "axis `{}` needs either `values`, or `from`, `to` and a positive `step`",
                    kind.name
                );
                return Err(self.source.fault(raw.name.span(), what));
            }
        };
        let wrong = levels.iter().find_map(|level| kind.refuse(level));
        let none = levels.is_empty().then(|| format!("axis `{}` has no value", kind.name));
        match wrong.or(none) {
            Some(what) => Err(self.source.fault(raw.name.span(), what)),
            None => Ok((kind.name, levels)),
        }
    }

    fn selection(
        &self,
        raw: &[(Spanned<String>, Vec<Level>)],
        axes: &[(&'static str, Vec<Level>)],
    ) -> Result<Selection, Fault> {
        let mut selection = Selection::new();
        for (axis, levels) in raw {
            let name = self.axis_kind(axis)?.name;
            let on_axis = axes.iter().find(|(axis, _)| *axis == name).map(|(_, levels)| levels);
            let on_axis = on_axis.expect("every axis of the model is given");
            if let Some(level) = levels.iter().find(|level| !on_axis.contains(level)) {
                let known: Vec<String> = on_axis.iter().map(Level::to_string).collect();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let what = format!("value of axis `{name}`");
                return Err(self.source.unknown(axis.span(), &what, &level.to_string(), &known));
            }
            selection.push((name, levels.clone()));
        }
        Ok(selection)
    }

    fn measure(&self, name: &Spanned<String>) -> Result<usize, Fault> {
        self.model.measure(name.get_ref()).ok_or_else(|| {
            let names: Vec<&str> = self.model.measures.iter().map(|known| known.name).collect();
            self.source.unknown(name.span(), "measure", name.get_ref(), &names)
        })
    }

    fn expected(
        &self,
        raw: &RawExpect,
        axes: &[(&'static str, Vec<Level>)],
    ) -> Result<Expected, Fault> {
        let measure = self.measure(&raw.measure)?;
        let kind: &Measure = &self.model.measures[measure];
        if let Some(unit) = raw.unit.as_ref().filter(|unit| unit.get_ref() != kind.unit) {
            let what = format!("unit of measure `{}`", kind.name);
            return Err(self.source.unknown(unit.span(), &what, unit.get_ref(), &[kind.unit]));
        }
        let at = self.selection(&raw.at, axes)?;
        let points = combinations(axes).iter().filter(|point| is_selected(&at, point)).count();
        if raw.paper.is_some() && points != 1 {
            let what = format!("the paper's value is for one point, `at` names {points}");
            return Err(self.source.fault(raw.measure.span(), what));
        }
        let paper = raw.paper.as_ref();
        if let Some(paper) = paper.filter(|n| !n.get_ref().is_finite() || *n.get_ref() == 0.0) {
            let what = format!("`paper` = {}: a number other than 0", paper.get_ref());
            return Err(self.source.fault(paper.span(), what));
        }
        let paper = paper.map(|paper| *paper.get_ref());
        let band = raw.band_percent.as_ref();
        if let Some(band) = band.filter(|band| !(0.0..=100.0).contains(band.get_ref())) {
            let what = format!("`band_percent` = {}: a number from 0 to 100", band.get_ref());
            return Err(self.source.fault(band.span(), what));
        }
        let band_percent = band.map(|band| *band.get_ref());
        let (origin, note) = (self.origin(raw)?, raw.note.clone());
        Ok(Expected { measure, at, paper, band_percent, origin, note })
    }

    fn origin(&self, raw: &RawExpect) -> Result<Origin, Fault> {
        let Some(name) = &raw.origin else { return Ok(Origin::Predicted) };
        let found = ORIGINS.iter().find(|(known, _)| known == name.get_ref());
        found.map(|(_, origin)| *origin).ok_or_else(|| {
            let names = ORIGINS.map(|(name, _)| name);
            self.source.unknown(name.span(), "origin", name.get_ref(), &names)
        })
    }

    /// A figure's axes and measures, looked up.
    fn figure(&self, figure: &RawFigure) -> Result<(), Fault> {
        let axes = || self.model.axes.iter().map(|kind| kind.name);
        let measures = || self.model.measures.iter().map(|measure| measure.name);
        let drawings = || self.model.drawings.iter().map(|(name, _)| *name);
        let refuse = |name: &Spanned<String>, what: &str, known: Vec<&str>| match known
            .contains(&name.get_ref().as_str())
        {
            true => Ok(()),
            false => Err(self.source.unknown(name.span(), what, name.get_ref(), &known)),
        };
        match figure {
            RawFigure::Lines { x, y, along, x_least, y_least, y_most, marks } => {
                let ends = [("x_least", x_least), ("y_least", y_least), ("y_most", y_most)];
                let ends = ends.into_iter().filter_map(|(key, end)| Some((key, end.as_ref()?)));
                let mut numbers = ends.chain(marks.iter().map(|mark| ("at", &mark.at)));
                numbers.try_for_each(|(key, number)| self.on_figure(key, number))?;
                self.has_length(y_least.as_ref(), y_most.as_ref())?;
                along.iter().try_for_each(|along| refuse(along, "axis", axes().collect()))?;
                refuse(x, "axis or measure", axes().chain(measures()).collect())?;
                refuse(y, "measure", measures().collect())
            }
            RawFigure::Bars { x, y, .. } => {
                refuse(x, "axis", axes().collect())?;
                refuse(y, "measure", measures().collect())
            }
            RawFigure::Drawing { name } => refuse(name, "drawing", drawings().collect()),
        }
    }

    /// A number of a figure that can be drawn.
    fn on_figure(&self, key: &str, number: &Spanned<f64>) -> Result<(), Fault> {
        if number.get_ref().abs() <= FIGURE_MOST {
            return Ok(());
        }
        let allowed = format!("a number from -{FIGURE_MOST} to {FIGURE_MOST}");
        let what = format!("`{key}` = {}: {allowed}", number.get_ref());
        Err(self.source.fault(number.span(), what))
    }

    /// An axis ends above where it begins.
    fn has_length(
        &self,
        least: Option<&Spanned<f64>>,
        most: Option<&Spanned<f64>>,
    ) -> Result<(), Fault> {
        let least = least.map_or(0.0, |least| *least.get_ref());
        most.filter(|most| *most.get_ref() <= least).map_or(Ok(()), |most| {
            let what = format!("`y_most` = {}: more than {least}, `y_least`", most.get_ref());
            Err(self.source.fault(most.span(), what))
        })
    }

    fn amount(&self, amount: &Spanned<u64>) -> Result<u64, Fault> {
        let (least, most) = sim::limits::AMOUNT;
        match (least..=most).contains(amount.get_ref()) {
            true => Ok(*amount.get_ref()),
            false => {
                let what =
                    format!("`amount` = {}: a number from {least} to {most}", amount.get_ref());
                Err(self.source.fault(amount.span(), what))
            }
        }
    }

    /// The seeds, if the sweep with them is not too large.
    fn seeds(
        &self,
        raw: &RawExperiment,
        axes: &[(&'static str, Vec<Level>)],
    ) -> Result<Vec<u64>, Fault> {
        let seeds = raw.seeds.get_ref();
        if !(1..=SEEDS_MAX).contains(&seeds.len()) {
            let what = format!("{} seeds; allowed: 1 to {SEEDS_MAX}", seeds.len());
            return Err(self.source.fault(raw.seeds.span(), what));
        }
        let lengths = axes.iter().map(|(_, levels)| levels.len());
        let points = lengths.fold(seeds.len(), usize::saturating_mul);
        if points > POINTS_MAX {
            let longest = axes.iter().enumerate().max_by_key(|(_, (_, levels))| levels.len());
            let at = longest.map_or(0..0, |(index, _)| raw.axis[index].name.span());
            let what = format!("the sweep has {points} points, {POINTS_MAX} is the most");
            return Err(self.source.fault(at, what));
        }
        Ok(seeds.clone())
    }
}
