//! Progress of long work: on a terminal, and nothing in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, WeakProgressBar};
use std::cell::RefCell;

thread_local! {
    /// The bar of this thread's command, if it has one.
    static SHOWN: RefCell<WeakProgressBar> = RefCell::default();
}

fn shown(bar: ProgressBar) -> ProgressBar {
    SHOWN.with(|shown| shown.replace(bar.downgrade()));
    bar
}

/// Says a line on standard error, above the bar that is there.
pub fn tell(text: &str) {
    let bar = SHOWN.with(|shown| shown.borrow().upgrade());
    match bar {
        Some(bar) => bar.suspend(|| eprintln!("{text}")),
        None => eprintln!("{text}"),
    }
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
