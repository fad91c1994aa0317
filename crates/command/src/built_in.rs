//! Parts for experiments of one's own: models, presets, and experiments to begin with, all in the binary.

use papers::builtin::{EXAMPLES, EXPERIMENTS};
use papers::models;
use papers::{Model, Source};
use serde_json::{Value, json};
use sim::hardware::catalogue;
use terminal::table::print_json;

/// The text of a preset or an experiment.
pub fn find(name: &str) -> Option<&'static str> {
    let all = [EXAMPLES, EXPERIMENTS, catalogue::BUILT_IN].into_iter().flatten();
    all.into_iter().find(|(known, _)| *known == name).map(|(_, source)| source.text)
}

/// All models and presets.
pub fn list(json: bool) {
    if json {
        models::ALL.iter().for_each(|model| print_json(&model_value(model)));
        catalogue::BUILT_IN.iter().for_each(|preset| print_json(&preset_value(preset)));
        return;
    }
    println!("Models: what an experiment sweeps, and what comes out");
    models::ALL.iter().for_each(|model| show(model));
    println!("\nPresets: `trapeze sim --print NAME` prints one");
    let all = catalogue::BUILT_IN.iter();
    all.for_each(|(name, source)| println!("  {name:<20} {}", summary(*source)));
    println!("\nExperiments to begin with: `trapeze sim --print NAME`");
    EXAMPLES.iter().for_each(|(name, _)| println!("  {name}"));
}

fn show(model: &Model) {
    println!("\n  {}", model.name);
    for axis in model.axes {
        println!("    axis     {:<18} {}", axis.name, axis.allowed());
    }
    for measure in model.measures {
        println!("    measure  {:<18} {} {}", measure.name, measure.label, measure.unit);
    }
    for (key, unit) in model.constants {
        println!("    constant {key:<18} {unit}");
    }
}

/// Kind and description of a preset.
fn words(source: Source<'_>) -> [String; 2] {
    let table = source.text.parse::<toml::Table>().unwrap_or_default();
    ["kind", "about"]
        .map(|key| table.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_string())
}

fn summary(source: Source<'_>) -> String {
    let [kind, about] = words(source);
    format!("{kind:<10} {about}")
}

fn model_value(model: &Model) -> Value {
    let axes = model
        .axes
        .iter()
        .map(|axis| json!({"name": axis.name, "unit": axis.unit, "allowed": axis.allowed()}));
    let measures = model
        .measures
        .iter()
        .map(|measure| json!({"name": measure.name, "label": measure.label, "unit": measure.unit}));
    json!({"model": model.name, "axes": axes.collect::<Value>(), "measures": measures.collect::<Value>()})
}

fn preset_value((name, source): &(&str, Source<'_>)) -> Value {
    let [kind, about] = words(*source);
    json!({"preset": name, "kind": kind, "about": about})
}
