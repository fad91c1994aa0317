//! Several outcomes as one page.

use super::{Experiment, Outcome};
use crate::report::html::{Item, Section, page};

const TITLE: &str = "Trapeze: the papers' evaluation, run again";
const INTRODUCTION: &str = "Each number of a paper beside what a formula and a simulation say. A band is how far they may \
    be from the paper; it was declared before anything ran. Fitted: a constant was chosen to fit this number; \
    predicted: none was. Nothing on this page was measured on a machine.";

/// One page of HTML, whole.
pub fn html(ran: &[(Experiment, Outcome)]) -> String {
    let mut sections: Vec<Section> = Vec::new();
    for (experiment, outcome) in ran {
        let item = Item {
            name: experiment.name.clone(),
            title: experiment.heading(),
            figure: outcome.figure.clone(),
            table: outcome.table.clone(),
        };
        match sections.iter_mut().find(|section| section.title == experiment.paper) {
            Some(section) => section.items.push(item),
            None => {
                sections.push(Section { title: experiment.paper.clone(), items: vec![item] });
            }
        }
    }
    page(TITLE, INTRODUCTION, &sections)
}

/// The tables in Markdown, one section for each paper.
pub fn markdown(ran: &[(Experiment, Outcome)]) -> String {
    let mut text = String::new();
    let mut paper = "";
    for (experiment, outcome) in ran {
        let Some(table) = &outcome.table else { continue };
        if experiment.paper != paper {
            text.push_str(&format!("## {}\n\n", experiment.paper));
            paper = &experiment.paper;
        }
        text.push_str(&format!("{}\n", table.markdown()));
    }
    text
}
