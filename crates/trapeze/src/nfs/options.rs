//! What is to be served, as command lines and configurations say it.

use super::{NfsError, Plan};
use crate::config::{ExportConfig, NfsConfig};
use nfs::exports::{Export, Exports, Network, Rule, parse};
use nfs::v3::PORT;
use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Of a command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NfsOptions {
    /// Export this directory of the volume over NFS: to these clients, as in /home:192.168.1.0/24(rw), or with these
    /// options to all who can connect, as in /home:rw; may be repeated. Default: / to this machine, with
    /// rw,root_squash
    #[arg(long = "export", value_name = "PATH[:CLIENTS|:OPTIONS]")]
    pub exports: Vec<String>,
    /// Read more exports from this file, written as exports(5)
    #[arg(long = "exports", value_name = "FILE")]
    pub exports_file: Option<PathBuf>,
    /// Answer clients that ask port 111 for the port of NFS, where no rpcbind runs on this machine; else the port is
    /// registered there
    #[arg(long)]
    pub portmap: bool,
    /// Answer MOUNT over UDP too, for old clients
    #[arg(long)]
    pub mount_udp: bool,
}

impl NfsOptions {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        let NfsOptions { exports, exports_file, portmap, mount_udp } = self;
        exports.is_empty() && exports_file.is_none() && !portmap && !mount_udp
    }

    /// What is to be served at `listen`.
    pub fn plan(&self, listen: &str) -> Result<Plan, NfsError> {
        let mut lines = String::new();
        for text in &self.exports {
            let line = line(text);
            let checked = parse(&line)
                .map_err(|bad| NfsError::Export(format!("--export {text:?}: {}", bad.what)))?;
            drop(checked);
            lines += &line;
        }
        if let Some(path) = &self.exports_file {
            let wrong = |why: String| NfsError::Export(format!("{}: {why}", path.display()));
            let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            parse(&text).map_err(|bad| wrong(bad.to_string()))?;
            lines += &text;
        }
        let exports = match lines.is_empty() {
            true => own_machine(),
            false => {
                let twice = |bad: nfs::exports::BadExport| NfsError::Export(bad.what.to_string());
                parse(&lines).map_err(twice)?
            }
        };
        let (portmap, mount_udp) = (self.portmap, self.mount_udp);
        Ok(Plan { listen: address(listen)?, exports, portmap, mount_udp })
    }
}

impl NfsConfig {
    /// What is to be served, with these exports.
    pub fn plan(&self, exports: &[ExportConfig]) -> Result<Plan, NfsError> {
        let lines: String = exports
            .iter()
            .map(|export| format!("\"{}\" {}\n", export.path, export.clients.join(" ")))
            .collect();
        let bad = |bad: nfs::exports::BadExport| {
            NfsError::Export(format!("the {}. [[export]]: {}", bad.line, bad.what))
        };
        let exports =
            if exports.is_empty() { own_machine() } else { parse(&lines).map_err(bad)? };
        let NfsConfig { portmap, mount_udp, .. } = *self;
        Ok(Plan { listen: address(&self.listen)?, exports, portmap, mount_udp })
    }
}

/// A line of exports(5).
fn line(text: &str) -> String {
    let (path, rest) = text.split_once(':').unwrap_or((text, "ro"));
    let first = rest.split(['(', ' ']).next().unwrap_or_default();
    // options alone are for all
    let is_network = first == "*" || first.parse::<Network>().is_ok() || rest.contains('(');
    let clients = if is_network { rest.to_string() } else { format!("*({rest})") };
    format!("\"{path}\" {clients}\n")
}

/// All of the volume to this machine's own clients, when nothing is said.
fn own_machine() -> Exports {
    let rules = ["127.0.0.0/8(rw)", "::1(rw)"].map(|text| text.parse::<Rule>().expect("a rule"));
    Exports::new(vec![Export { path: "/".to_string(), rules: rules.to_vec() }])
}

/// HOST, HOST:PORT, or an address of either kind.
fn address(text: &str) -> Result<SocketAddr, NfsError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, PORT));
    }
    let with_port = |text: &str| text.to_socket_addrs().map(|mut found| found.next());
    let found = match text.contains(':') {
        true => with_port(text),
        false => with_port(&format!("{text}:{PORT}")),
    };
    let wrong = |why: &str| NfsError::Address(text.to_string(), why.to_string());
    found.map_err(|error| wrong(&error.to_string()))?.ok_or_else(|| wrong("it has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(exports: &[&str], listen: &str) -> Result<Plan, String> {
        let exports = exports.iter().map(|text| text.to_string()).collect();
        let options = NfsOptions { exports, ..NfsOptions::default() };
        options.plan(listen).map_err(|error| error.to_string())
    }

    #[test]
    fn exports_of_a_command_line_are_those_of_exports_5() {
        let both = plan(&["/home:192.168.1.0/24(rw,no_root_squash) ::1(ro)", "/pub"], "127.0.0.1");
        let both = both.unwrap();
        let file = "/home 192.168.1.0/24(rw,no_root_squash) ::1(ro)\n/pub *(ro)\n";
        assert_eq!(both.exports, parse(file).unwrap());
        assert_eq!(both.listen, "127.0.0.1:2049".parse().unwrap());
        let options = plan(&["/home:rw,all_squash", "/net:10.0.0.0/8"], "[::1]:7000").unwrap();
        let file = "/home *(rw,all_squash)\n/net 10.0.0.0/8\n";
        assert_eq!(options.exports, parse(file).unwrap());
        assert_eq!(options.listen, "[::1]:7000".parse().unwrap());
        let own = plan(&[], "localhost:1").unwrap();
        let local = own.exports.find(b"/", "127.0.0.1".parse().unwrap());
        assert!(local.is_ok());
        assert!(own.exports.find(b"/", "10.0.0.1".parse().unwrap()).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |exports: &[&str], listen: &str| plan(exports, listen).unwrap_err();
        assert!(refused(&["home:rw"], "127.0.0.1").contains("begin with a slash"));
        assert!(refused(&["/home:rv"], "127.0.0.1").contains("\"rv\" is no option"));
        assert!(refused(&["/a:host.example(rw)"], "127.0.0.1").contains("not looked up"));
        assert!(refused(&["/a", "/a/"], "127.0.0.1").contains("twice"));
        assert!(refused(&[], "127.0.0.1:99999").contains("--nfs"));
        let options =
            NfsOptions { exports_file: Some("/nowhere/exports".into()), ..NfsOptions::default() };
        assert!(options.plan("127.0.0.1").unwrap_err().to_string().contains("/nowhere/exports"));
        let config = NfsConfig { listen: "127.0.0.1".into(), portmap: false, mount_udp: false };
        let export =
            |path: &str| ExportConfig { path: path.into(), clients: vec!["127.0.0.1(rw)".into()] };
        assert!(config.plan(&[export("/a")]).is_ok());
        let error = config.plan(&[export("/a"), export("b")]).unwrap_err().to_string();
        assert!(error.starts_with("the 2. [[export]]"), "{error}");
    }
}
