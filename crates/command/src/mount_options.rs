//! The words behind `-o`: those of mount(8), those of FUSE, and this command's own flags, so that a line of fstab can
//! say everything.

use crate::cli;
use live::fuse::MountOptions;

/// Options that hold anyway, are about when to mount, or are for mount(8) alone. `suid` and `dev` are among them
/// because mount.fuse3 adds them to the options given: set-id programs and devices of a volume count on no mount.
const WITHOUT_EFFECT: &[&str] = &[
    "",
    "defaults",
    "default_permissions",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "atime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "noiversion",
    "silent",
    "nomand",
];
/// The same, before what they say.
const PREFIXES_WITHOUT_EFFECT: &[&str] =
    &["x-", "X-", "comment=", "uhelper=", "helper=", "subtype=", "context="];

/// The arguments with what `-o` says of them, and how to mount.
pub(crate) fn applied(arguments: &cli::Mount) -> Result<(cli::Mount, MountOptions), String> {
    let mut arguments = arguments.clone();
    let (cluster, path) = arguments.places();
    let mut options = MountOptions { source: cluster, ..MountOptions::new(&path) };
    for word in arguments.options.join(",").split(',') {
        apply(word, &mut arguments, &mut options)?;
    }
    Ok((arguments, options))
}

fn apply(word: &str, arguments: &mut cli::Mount, options: &mut MountOptions) -> Result<(), String> {
    let ignored = WITHOUT_EFFECT.contains(&word)
        || PREFIXES_WITHOUT_EFFECT.iter().any(|prefix| word.starts_with(prefix));
    if ignored {
        return Ok(());
    }
    let size = |text: &str| text.parse().map_err(|error| format!("-o {word}: {error}"));
    match word.split_once('=').unwrap_or((word, "")) {
        ("nonempty", "") => arguments.nonempty = true,
        ("ro", "") => options.read_only = true,
        ("rw", "") => options.read_only = false,
        ("allow_other", "") => options.allow_other = true,
        ("noatime", "") => options.no_atime = true,
        ("noexec", "") => options.no_exec = true,
        ("exec", "") => options.no_exec = false,
        ("sync", "") => options.synchronous = true,
        ("fsname", name) if !name.is_empty() => options.source = name.to_string(),
        ("insecure", "") => arguments.insecure = true,
        ("key", file) if !file.is_empty() => arguments.key = Some(file.into()),
        ("listen", address) if !address.is_empty() => arguments.listen = Some(address.into()),
        ("xdp", text) => {
            arguments.xdp.xdp = Some(text.parse().map_err(|error| format!("-o {word}: {error}"))?);
        }
        ("pool", text) => arguments.pool = size(text)?,
        ("lend", text) => arguments.lending.lend = Some(size(text)?),
        _ => {
            return Err(format!(
                "-o {word}: there is no such option; see trapeze mount --help, and leave it out"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn asked(options: &str) -> Result<(cli::Mount, MountOptions), String> {
        let words = ["trapeze", "mount", "tcp:a:1", "/m", "-o", options];
        let Command::Mount(arguments) = Cli::try_parse_from(words).unwrap().command else {
            panic!()
        };
        applied(&arguments)
    }

    #[test]
    fn the_words_of_a_line_of_fstab_are_known() {
        let usual = "defaults,_netdev,nofail,x-systemd.automount,nosuid,nodev,dev,suid,default_permissions,allow_other";
        let (_, options) = asked(usual).unwrap();
        assert!(options.allow_other && !options.read_only && !options.no_atime);
        assert_eq!(options.source, "tcp:a:1");
        let (arguments, options) =
            asked("ro,noatime,noexec,sync,fsname=vol,key=/k,insecure,pool=64M,listen=h:1,xdp=eth0")
                .unwrap();
        assert!(options.read_only && options.no_atime && options.no_exec && options.synchronous);
        assert_eq!((options.source.as_str(), arguments.pool.0), ("vol", 64 << 20));
        assert!(arguments.insecure && arguments.key.is_some() && arguments.listen.is_some());
        assert_eq!(arguments.xdp.xdp.unwrap().to_string(), "eth0:0");
        assert!(!asked("ro,rw,noexec,exec").unwrap().1.read_only);
        for wrong in ["allow_root", "bogus", "pool=x", "xdp=a/b", "key=", "ro=1"] {
            assert!(asked(wrong).is_err_and(|said| said.contains(wrong)), "{wrong}");
        }
    }
}
