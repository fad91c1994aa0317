//! The library as programs use it: its examples, the pages that show it, and what a call costs. One program, which is
//! linked once.

mod examples;
mod imports;
mod service_speed;
mod snippets;
