//! Progress of long work: on a terminal, and nothing in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, WeakProgressBar};
use trapeze::output;

/// Lines are said above this bar as long as it is there.
fn shown(bar: ProgressBar) -> ProgressBar {
    let weak: WeakProgressBar = bar.downgrade();
    output::say_above_by(move |text| match weak.upgrade() {
        Some(bar) => bar.suspend(|| eprintln!("{text}")),
        None => eprintln!("{text}"),
    });
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template that is written here")
}

/// Counts bytes of work whose length is not known.
pub fn bytes_moved(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style("{msg} {bytes} ({bytes_per_sec})"));
    shown(bar.with_message(what.to_string()))
}

/// Counts steps of work whose length is not known.
pub fn counted(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style("{msg} {pos} ({per_sec})"));
    bar.with_message(what.to_string())
}

/// A bar of `total` bytes.
pub fn bytes_of(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    bar.set_style(style("{msg:<24} {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec})"));
    shown(bar.with_message(what.to_string()))
}

/// A bar of `total` steps.
pub fn steps(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    bar.set_style(style("{msg:<24} {wide_bar} {pos}/{len} {elapsed}"));
    shown(bar.with_message(what.to_string()))
}
