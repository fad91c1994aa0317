//! The presets that come with the simulator, and files of a user's own in the same form.

use super::board::Board;
use super::bus::Bus;
use super::disk::Disk;
use super::fabric::Link;
use super::flow::Rate;
use super::host::{FileCalls, Host};
use super::preset::{File, Section, Stated};
use crate::queue::Picos;
use crate::source::{Fault, Source};
use nic::Costs;

macro_rules! presets {
    ($($name:literal)*) => {
        /// Name, file and text of every preset, in `presets/` of the project.
        pub const BUILT_IN: &[(&str, Source<'static>)] = &[$(($name, Source {
            file: concat!("presets/", $name, ".toml"),
            text: include_str!(concat!("../../../../presets/", $name, ".toml")),
        })),*];
    };
}

presets! {
    "as500" "piii450" "miata500" "pii300" "piii433" "piii733" "xp1000" "server-gen3" "server-gen4" "server-gen5"
    "lanai4" "lanai4-256k" "lanai5" "lanai7" "lanai9" "lanai9-250" "dpu"
    "mcp-constants" "mcp-hoti" "mcp-forward" "mcp-modern"
    "myrinet" "myrinet-2000" "ethernet-25g" "ethernet-100g" "ethernet-200g" "ethernet-200g-64"
    "barracuda" "medalist" "deskstar-22gxp" "nvme"
    "hpdc" "forwarding" "forwarding-boards" "managers" "memory" "prefetch"
}

/// A host and the bus its adapters are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor's costs.
    pub host: Host,
    /// The bus.
    pub bus: Bus,
    /// Costs of file calls, where a paper's numbers give them.
    pub files: Option<FileCalls>,
    /// Fitted constants that stand for the adapter's processor and memory, where a paper's numbers give them.
    pub constants: Option<Constants>,
}

/// Costs of transfers in two regimes: alone, and while another packet is queued or in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// A transfer of a lone message.
    pub alone: Picos,
    /// A transfer beside others.
    pub busy: Picos,
    /// Rate of the net engines.
    pub wire: Rate,
    /// Further cost of a message at each end, host and adapter together: half of what is left of T0.
    pub message: Picos,
    /// More, at each end, when a payload is attached, beside what the host spends on that.
    pub attached: Picos,
}

/// Content of a preset file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// A host and its bus.
    Machine(Machine),
    /// An adapter.
    Board(Board),
    /// Costs of the firmware on the adapter's processor.
    Firmware(Costs),
    /// A network.
    Link(Link),
    /// A disk.
    Disk(Disk),
    /// Constants of a model without hardware, which knows what they are (`papers::constants`).
    Constants,
}

const KINDS: [&str; 6] = ["machine", "board", "firmware", "link", "disk", "constants"];

impl Preset {
    /// Reads a file's text; `name` is for messages. Also every number with its source.
    pub fn parse(name: &str, text: &str) -> Result<(Preset, Vec<Stated>), Fault> {
        let file = File::parse(name, text)?;
        file.text("about")?;
        let preset = match file.text("kind")? {
            "machine" => Preset::Machine(Machine::read(&file)?),
            "board" => Preset::Board(only(&file, "board", Board::read)?),
            "firmware" => Preset::Firmware(only(&file, "firmware", read_costs)?),
            "link" => Preset::Link(only(&file, "link", Link::read)?),
            "disk" => Preset::Disk(only(&file, "disk", Disk::read)?),
            "constants" => Preset::Constants,
            other => {
                let what = format!("unknown kind `{other}`; allowed: {}", KINDS.join(", "));
                return Err(file.error_at("kind", what));
            }
        };
        Ok((preset, file.stated()))
    }

    /// The kind's name in a file.
    pub fn kind(&self) -> &'static str {
        match self {
            Preset::Machine(_) => KINDS[0],
            Preset::Board(_) => KINDS[1],
            Preset::Firmware(_) => KINDS[2],
            Preset::Link(_) => KINDS[3],
            Preset::Disk(_) => KINDS[4],
            Preset::Constants => KINDS[5],
        }
    }
}

fn only<T>(
    file: &File<'_>,
    name: &'static str,
    read: impl FnOnce(&Section<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    file.only(&["kind", "about", name])?;
    let table = file.section(name)?;
    let value = read(&table)?;
    table.close()?;
    Ok(value)
}

impl Machine {
    fn read(file: &File<'_>) -> Result<Machine, Fault> {
        file.only(&["kind", "about", "host", "tcp", "files", "bus", "constants"])?;
        let [host, bus] = [file.section("host")?, file.section("bus")?];
        let [tcp, files, constants] =
            [file.find("tcp")?, file.find("files")?, file.find("constants")?];
        let machine = Machine {
            host: Host::read(&host, tcp.as_ref())?,
            bus: Bus::read(&bus)?,
            files: files.as_ref().map(FileCalls::read).transpose()?,
            constants: constants.as_ref().map(Constants::read).transpose()?,
        };
        host.close()?;
        bus.close()?;
        tcp.map_or(Ok(()), Section::close)?;
        files.map_or(Ok(()), Section::close)?;
        constants.map_or(Ok(()), Section::close)?;
        Ok(machine)
    }
}

impl Constants {
    fn read(table: &Section<'_>) -> Result<Constants, Fault> {
        let constants = Constants {
            alone: table.time("alone", Picos::millis(1))?,
            busy: table.time("busy", Picos::millis(1))?,
            wire: table.rate("wire", 1_000_000..=100_000_000_000)?,
            message: table.time("message", Picos::millis(1))?,
            attached: table.time("attached", Picos::millis(1))?,
        };
        if constants.busy < constants.alone {
            return Err(table.impossible(
                "busy",
                "`busy` below `alone`: company makes no transfer cheaper".into(),
            ));
        }
        Ok(constants)
    }
}

fn read_costs(table: &Section<'_>) -> Result<Costs, Fault> {
    let count = |key| table.count(key, 0..=1_000_000).map(|count| count as u32);
    Ok(Costs {
        host: count("host")?,
        net_send: count("net_send")?,
        net_receive: count("net_receive")?,
        send_packet: count("send_packet")?,
        receive_packet: count("receive_packet")?,
        cache: count("cache")?,
        interrupt: count("interrupt")?,
        punt: count("punt")?,
    })
}

/// Names of the presets of a kind; all, without one.
pub fn names(kind: Option<&str>) -> Vec<&'static str> {
    let is = |text: &str| kind.is_none_or(|kind| text.starts_with(&format!("kind = \"{kind}\"")));
    BUILT_IN.iter().filter(|(_, source)| is(source.text)).map(|(name, _)| *name).collect()
}

/// A preset by name, with every number's source. The error names those that exist.
pub fn find(name: &str) -> Result<(Preset, Vec<Stated>), String> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    let unknown = || format!("unknown preset `{name}`; allowed: {}", names(None).join(", "));
    let source = found.ok_or_else(unknown)?.1;
    Preset::parse(source.file, source.text).map_err(|error| error.to_string())
}

macro_rules! of_kind {
    ($($find:ident $variant:ident $type:ident $doc:literal)*) => {$(
        #[doc = $doc]
        /// by its preset's name. The error names those that exist.
        pub fn $find(name: &str) -> Result<$type, String> {
            match find(name) {
                Ok((Preset::$variant(value), _)) => Ok(value),
                Ok((other, _)) => Err(format!(
                    "preset `{name}` is a {}; a {} is needed: {}",
                    other.kind(), stringify!($find), names(Some(stringify!($find))).join(", "),
                )),
                Err(_) => Err(format!(
                    "unknown preset `{name}`; allowed: {}", names(Some(stringify!($find))).join(", "),
                )),
            }
        }
    )*};
}

of_kind! {
    machine Machine Machine "A machine"
    board Board Board "A board"
    firmware Firmware Costs "A firmware"
    link Link Link "A link"
    disk Disk Disk "A disk"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_good_and_every_number_has_a_source() {
        for name in names(None).into_iter().filter(|name| !names(Some("constants")).contains(name))
        {
            let (_, stated) = find(name).unwrap();
            assert!(stated.len() >= 5, "{name}");
            assert!(stated.iter().all(|number| number.source.len() > 3), "{name}: {stated:?}");
        }
    }

    #[test]
    fn an_unknown_or_wrong_preset_is_answered_with_those_that_exist() {
        let error = machine("as5000").unwrap_err();
        assert!(error.contains("`as5000`") && error.contains("as500, piii450"), "{error}");
        assert!(!error.contains("lanai4"), "{error}");
        assert!(board("nvme").unwrap_err().contains("is a disk"));
        assert!(find("x").unwrap_err().contains("ethernet-200g"));
    }

    #[test]
    fn impossible_machines_are_refused_with_their_line() {
        let good = BUILT_IN[0].1.text;
        let cases = [
            (
                good.replace(
                    "107.5 MB/s\", \"fitted to the seven latencies of HPDC'97 section 4; nominal",
                    "133 MB/s\", \"",
                ),
                "above the bus's peak of 132 MB/s",
            ),
            (good.replace("poll = [\"0.2 us\"", "poll = [\"2 us\""), "`poll_most` below `poll`"),
            (good.replace("alone = [\"2.71", "alone = [\"3.71"), "`busy` below `alone`"),
            (
                good.replace("kind = \"machine\"", "kind = \"engine\""),
                "allowed: machine, board, firmware, link, disk, constants",
            ),
            (good.replace("about", "abuot"), "`about = \"...\"` is missing"),
            (
                good.replace("[constants]", "[constant]"),
                "unknown key `constant`; allowed: kind, about, host",
            ),
        ];
        for (text, expected) in cases {
            assert_ne!(text, good);
            let error = Preset::parse("mine.toml", &text).unwrap_err();
            assert!(error.what.contains(expected), "{error}");
            let line = text.lines().nth(error.line - 1).unwrap();
            let named = error.what.split('`').nth(1).unwrap_or_default();
            assert!(line.contains(named) || error.line == 1, "{error}: {line}");
        }
    }
}
