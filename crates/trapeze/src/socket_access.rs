//! Which users of a machine may connect to its UNIX sockets, as configurations and command lines say it.

use live::link::SocketAccess;
use std::fs;

/// Where the names of groups are.
const GROUPS: &str = "/etc/group";
/// With a group and no mode: it is the group that is to have access.
const GROUP_MODE: &str = "660";

/// A user that may connect there may do everything, without the cluster key. Default: the machine's own user, and root.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ListenAccess {
    /// Permissions of this machine's UNIX sockets, as chmod(1) has them in octal, when the directory is made: 600 by
    /// default, for its own user and root; 660 with --listen-group. A user that can connect has all rights in the
    /// cluster
    #[arg(long, value_name = "MODE")]
    pub listen_mode: Option<String>,
    /// Group of this machine's UNIX sockets, by name or number, when the directory is made
    #[arg(long, value_name = "GROUP")]
    pub listen_group: Option<String>,
}

impl ListenAccess {
    /// Whether it asks for something and that is not what was asked for then.
    pub fn differs_from(&self, then: &ListenAccess) -> bool {
        *self != ListenAccess::default() && self.resolve() != then.resolve()
    }

    /// Its meaning on this machine, or the error in it.
    pub fn resolve(&self) -> Result<SocketAccess, String> {
        let usual = self.listen_group.as_ref().map_or("600", |_| GROUP_MODE);
        let mode = self.listen_mode.as_deref().unwrap_or(usual);
        let is_octal = !mode.is_empty() && mode.bytes().all(|digit| digit.is_ascii_digit());
        let mode = match u32::from_str_radix(mode, 8) {
            Ok(bits) if is_octal && bits <= 0o777 => bits,
            _ => return Err(format!("listen_mode {mode:?}: write three octal digits, as 660")),
        };
        let group = self.listen_group.as_deref().map(group_of).transpose()?;
        Ok(SocketAccess { mode, group })
    }
}

fn group_of(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    number_in(&groups, name).ok_or_else(|| {
        format!("listen_group {name:?}: there is no such group in {GROUPS}; give its number")
    })
}

/// The number of a group in the text of /etc/group.
fn number_in(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == name;
        fields.nth(1)?.parse().ok().filter(|_| found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(mode: Option<&str>, group: Option<&str>) -> Result<SocketAccess, String> {
        let (listen_mode, listen_group) = (mode.map(String::from), group.map(String::from));
        ListenAccess { listen_mode, listen_group }.resolve()
    }

    #[test]
    fn sockets_are_their_users_unless_something_else_is_said() {
        assert_eq!(access(None, None), Ok(SocketAccess::default()));
        assert_eq!(access(None, Some("12")), Ok(SocketAccess { mode: 0o660, group: Some(12) }));
        assert_eq!(access(Some("0666"), None), Ok(SocketAccess { mode: 0o666, group: None }));
        assert_eq!(access(Some("600"), Some("root")).map(|access| access.group), Ok(Some(0)));
        for mode in ["", "888", "u+w", "1777", "+66", "-1"] {
            assert!(access(Some(mode), None).unwrap_err().contains("three octal digits"), "{mode}");
        }
        let error = access(None, Some("nobody-has-it")).unwrap_err();
        assert!(error.contains("nobody-has-it") && error.contains("its number"), "{error}");
    }

    #[test]
    fn a_group_is_found_by_its_name() {
        let groups = "root:x:0:\nrooted:x:7:a,b\ndamaged\ndisk:x:6:\n";
        let found =
            ["root", "rooted", "disk", "roo", "damaged"].map(|name| number_in(groups, name));
        assert_eq!(found, [Some(0), Some(7), Some(6), None, None]);
    }
}
