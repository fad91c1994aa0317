//! Arguments of `trapeze import`.

use super::ClusterArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use trapeze::flags::Wait;
use trapeze::size::Size;

#[derive(Debug, Args)]
#[command(
    after_help = "A file server's export, read by all machines of the cluster, each block fetched once:\n  trapeze import nfs://fileserver/export /imports/fileserver\n\nThe import is read only without --write. It is there as long as this runs; started again, it goes on with what is cached.\nPorts that are not named are asked of the server's port mapper."
)]
pub struct ImportExport {
    /// The export: nfs://HOST[:PORT]/EXPORT[?mountport=PORT]
    #[arg(value_name = "ORIGIN", required_unless_present = "remove")]
    pub source: Option<String>,
    /// The directory in the volume, which is made
    #[arg(value_name = "DIR", required_unless_present = "remove")]
    pub directory: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How soon a change at the origin is noticed: 2s at least
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = span)]
    pub attributes: Duration,
    /// While the origin does not answer, go on with what is cached
    #[arg(long)]
    pub stale_ok: bool,
    /// Changes go to the origin, and are on its stable storage before they are answered; default: read only
    #[arg(long, value_enum)]
    pub write: Option<Writes>,
    /// Bytes that may be cached, as in 10G; what was read least recently goes first. Default: no limit
    #[arg(long, value_name = "SIZE")]
    pub space: Option<Size>,
    /// User that the origin is asked as, by default this process's; changes too, by default their maker's
    #[arg(long, value_name = "N")]
    pub uid: Option<u32>,
    /// Group, likewise
    #[arg(long, value_name = "N")]
    pub gid: Option<u32>,
    /// Where other machines of the cluster reach this process
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Remove the import at this directory and what is cached of it; the origin keeps its files
    #[arg(long, value_name = "DIR", conflicts_with_all = ["source", "directory"])]
    pub remove: Option<PathBuf>,
    /// Memory for payload frames
    #[arg(long, default_value = "128M")]
    pub pool: Size,
    /// How to wait for messages
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub wait: Wait,
    /// Run on this processor only
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
}

/// How an import is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Writes {
    /// Nothing is written behind
    Through,
}

/// A time: a number with ms, s or m.
fn span(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: u32 = number.parse().map_err(|_| "a number and ms, s or m".to_string())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number.into())),
        "s" => Ok(Duration::from_secs(number.into())),
        "m" => Ok(Duration::from_secs(u64::from(number) * 60)),
        _ => Err("a number and ms, s or m".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(span("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(
            (span("3s"), span("2m")),
            (Ok(Duration::from_secs(3)), Ok(Duration::from_secs(120)))
        );
        assert!(["3", "s", "-3s", "3h", ""].iter().all(|text| span(text).is_err()));
    }
}
