use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trapeze man /usr/local/share/man/man1 && man trapeze-mount")]
pub struct Man {
    /// Where to write them; made if need be
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trapeze completions bash > /etc/bash_completion.d/trapeze")]
pub struct Completions {
    pub shell: Shell,
}
