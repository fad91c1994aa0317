//! Everything but what stands beside the code.

mod client;
mod codecs;
mod exports;
mod filter;
mod front;
mod listings;
mod locks;
mod material;
mod memory;
mod oracle;
mod ports;
mod record;
mod server;
mod session;
