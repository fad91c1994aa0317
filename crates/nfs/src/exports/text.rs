//! The text of exports, and what is wrong with it.

use super::network::BadNetwork;
use super::{Access, Export, Exports, Network, Options, Rule, Squash};
use crate::limits::{EXPORTS_MAX, MOUNT_PATH_BYTES_MAX, NETWORKS_MAX};

/// A fault in the text of exports: its place, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadExport {
    /// Line of the text, from 1.
    pub line: usize,
    /// The fault.
    pub what: Wrong,
}

/// A fault of an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The directory.
    #[error(
        "the directory {0:?} does not begin with a slash: write it from the volume's root, as /home"
    )]
    Relative(String),
    /// The directory is not plain.
    #[error("the directory {0:?} has an empty, `.` or `..` part: write it without")]
    NotPlain(String),
    /// The directory is too long.
    #[error("the directory has {0} bytes, MOUNT takes {MOUNT_PATH_BYTES_MAX}: export one above it")]
    TooLong(usize),
    /// A quote has no end.
    #[error("the quoted directory has no end: close it with \"")]
    Quote,
    /// No client.
    #[error(
        "{0:?} is exported to nobody: add a network, as 192.168.1.0/24(rw), or *(ro) for everybody"
    )]
    NoClients(String),
    /// A bad network.
    #[error(transparent)]
    Network(#[from] BadNetwork),
    /// Parentheses.
    #[error(
        "the options of {0:?} have no closing parenthesis: write NETWORK(rw,no_root_squash), no blanks"
    )]
    Parenthesis(String),
    /// Options that stand alone.
    #[error(
        "{0:?} are options without a network: write the network before them, without a blank, or *{0}"
    )]
    Alone(String),
    /// An unknown option.
    #[error(
        "{0:?} is no option: there are ro, rw, root_squash, no_root_squash, all_squash, no_all_squash, \
         anonuid=N, anongid=N"
    )]
    Option(String),
    /// A bad number.
    #[error("{0:?} has no number from 0 to 4294967295")]
    Number(String),
    /// Said twice.
    #[error("{0} is said twice: keep one")]
    Twice(String),
    /// Too many.
    #[error("more than {0} {1}: use larger networks, or fewer directories")]
    TooMany(usize, &'static str),
}

/// Reads exports.
pub fn parse(text: &str) -> Result<Exports, BadExport> {
    let mut exports: Vec<Export> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = |what: Wrong| BadExport { line: index + 1, what };
        let Some(export) = parse_line(line).map_err(at)? else { continue };
        // two of one number could not be told apart in a handle: the same path, or one in four thousand million
        if exports.iter().any(|other| other.number() == export.number()) {
            return Err(at(Wrong::Twice(format!("the directory {:?}", export.path))));
        }
        if exports.len() == EXPORTS_MAX {
            return Err(at(Wrong::TooMany(EXPORTS_MAX, "exports")));
        }
        exports.push(export);
    }
    Ok(Exports::new(exports))
}

fn parse_line(line: &str) -> Result<Option<Export>, Wrong> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (path, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or(Wrong::Quote)?,
        None => line.split_once(char::is_whitespace).unwrap_or((line, "")),
    };
    let path = directory(path)?;
    let clients = rest.split_whitespace().take_while(|word| !word.starts_with('#'));
    let mut rules: Vec<Rule> = Vec::new();
    for client in clients {
        let rule = parse_rule(client)?;
        if rules.iter().any(|other| other.network == rule.network) {
            return Err(Wrong::Twice(format!("the network {}", rule.network)));
        }
        if rules.len() == NETWORKS_MAX {
            return Err(Wrong::TooMany(NETWORKS_MAX, "networks of one export"));
        }
        rules.push(rule);
    }
    if rules.is_empty() {
        return Err(Wrong::NoClients(path));
    }
    Ok(Some(Export { path, rules }))
}

fn directory(path: &str) -> Result<String, Wrong> {
    let Some(inner) = path.strip_prefix('/') else { return Err(Wrong::Relative(path.to_string())) };
    if path.len() > MOUNT_PATH_BYTES_MAX {
        return Err(Wrong::TooLong(path.len()));
    }
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if !inner.is_empty() && !inner.split('/').all(is_plain) {
        return Err(Wrong::NotPlain(path.to_string()));
    }
    Ok(format!("/{inner}"))
}

/// One client of an export, as `192.168.1.0/24(rw,no_root_squash)`: what a configuration of another shape has too.
fn parse_rule(text: &str) -> Result<Rule, Wrong> {
    let (network, options) = match text.split_once('(') {
        None => (text, ""),
        Some(("", _)) => return Err(Wrong::Alone(text.to_string())),
        Some((network, rest)) => {
            let options = rest.strip_suffix(')').filter(|options| !options.contains(['(', ')']));
            (network, options.ok_or(Wrong::Parenthesis(network.to_string()))?)
        }
    };
    let network: Network = network.parse()?;
    let mut all = Options::default();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        set(&mut all, option)?;
    }
    Ok(Rule { network, options: all })
}

fn set(options: &mut Options, option: &str) -> Result<(), Wrong> {
    let number = |text: &str| text.parse().map_err(|_| Wrong::Number(option.to_string()));
    match option.split_once('=') {
        Some(("anonuid", text)) => options.anonymous_uid = number(text)?,
        Some(("anongid", text)) => options.anonymous_gid = number(text)?,
        Some(_) => return Err(Wrong::Option(option.to_string())),
        None => match option {
            "ro" => options.access = Access::ReadOnly,
            "rw" => options.access = Access::ReadWrite,
            "root_squash" | "no_all_squash" => options.squash = Squash::Root,
            "no_root_squash" => options.squash = Squash::Nobody,
            "all_squash" => options.squash = Squash::All,
            _ => return Err(Wrong::Option(option.to_string())),
        },
    }
    Ok(())
}

impl std::str::FromStr for Rule {
    type Err = Wrong;
    fn from_str(text: &str) -> Result<Rule, Wrong> {
        parse_rule(text)
    }
}
