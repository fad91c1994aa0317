//! One page of HTML with everything in it: no script, nothing loaded, light and dark.

use super::{Figure, Table};

/// A part of the page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Its figures and tables.
    pub items: Vec<Item>,
}

/// A figure, a table, or a figure and its numbers.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its anchor: letters, digits and hyphens.
    pub name: String,
    /// One line.
    pub title: String,
    /// Title and sentence stand in it.
    pub figure: Option<Figure>,
    /// The numbers.
    pub table: Option<Table>,
}

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;background:#fff;color:#1d2329}
h1{font-size:1.7rem;line-height:1.2}h2{font-size:1.25rem;margin-top:2.5rem;border-bottom:1px solid #d4d9de}
h3{font-size:1.05rem;margin:1.5rem 0 .3rem}nav ul{columns:2;padding-left:1.2rem}nav li{break-inside:avoid}
a{color:#0b62a4}
figure{margin:1.2rem 0}figure svg{max-width:100%;height:auto;border:1px solid #d4d9de;border-radius:6px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px}
th,td{padding:.2rem .6rem;border-bottom:1px solid #e3e7ea;text-align:left;vertical-align:top}
th{font-weight:600;white-space:nowrap}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.bad{color:#b3261e;font-weight:700}p.small{color:#57606a;font-size:13px}
@media(prefers-color-scheme:dark){body{background:#14181c;color:#e2e6ea}a{color:#6cb2eb}
h2,figure svg{border-color:#3a424a}
th,td{border-color:#2b3239}td.bad{color:#ff8a80}p.small{color:#a3acb5}}
";

/// The page, whole.
pub fn page(title: &str, introduction: &str, sections: &[Section]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{0}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<p>{1}</p>\n",
        escape(title),
        escape(introduction)
    );
    text.push_str(&contents(sections));
    sections.iter().for_each(|section| text.push_str(&section.html()));
    text.push_str("</body>\n</html>\n");
    text
}

fn contents(sections: &[Section]) -> String {
    let item =
        |item: &Item| format!("<li><a href=\"#{}\">{}</a></li>\n", item.name, escape(&item.title));
    let items = sections.iter().flat_map(|section| &section.items);
    format!("<nav><ul>\n{}</ul></nav>\n", items.map(item).collect::<String>())
}

impl Section {
    fn html(&self) -> String {
        let items: String = self.items.iter().map(Item::html).collect();
        format!("<h2>{}</h2>\n{items}", escape(&self.title))
    }
}

impl Item {
    /// A figure says itself what it is; a table alone gets a heading.
    fn html(&self) -> String {
        let mut text = format!("<section id=\"{}\">\n", self.name);
        match (&self.figure, &self.table) {
            (Some(figure), _) => text.push_str(&format!("<figure>\n{}</figure>\n", figure.svg())),
            (None, Some(table)) => text.push_str(&format!(
                "<h3>{}</h3>\n<p>{}</p>\n",
                escape(&table.title),
                escape(&table.sentence)
            )),
            (None, None) => {}
        }
        if let Some(table) = &self.table {
            let honesty = escape(&table.honesty());
            text.push_str(&format!("{}<p class=\"small\">{honesty}</p>\n", table.html()));
        }
        text.push_str("</section>\n");
        text
    }
}

/// A text as it must stand in HTML, SVG and their attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(character),
        }
    }
    escaped
}
