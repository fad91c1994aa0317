//! Reports of a run: tables, figures, one page of HTML, traces. The same results give the same bytes.
//!
//! ```text
//!   Table ──► text, Markdown, CSV, JSON        Figure ──► SVG            Trace ──► Perfetto (Chrome JSON)
//!     └───────────────┬──────────────────────────┘                       Capture ─► pcapng
//!                     ▼
//!                    html: one file, nothing loaded, readable in light and dark
//! ```
//!
//! Writers return texts or bytes; nothing here touches a file. Numbers are formatted by [`number`], never by a locale,
//! and no transcendental function decides where a line is drawn.

pub mod activity;
pub mod html;
pub mod number;
pub mod pcapng;
pub mod perfetto;
pub mod svg;
pub mod table;

pub use activity::Activity;
pub use svg::{Drawing, Figure};
pub use table::{Origin, Row, Table};
