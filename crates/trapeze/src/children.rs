//! Processes of this program that this process starts, watches and ends.

use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The line that a process prints when it can be used; a message may follow on the line.
pub const READY: &str = "ready";
/// How long a process may take to be ready: replaying a log of its largest size takes seconds.
const READY_SPAN: Duration = Duration::from_secs(60);
/// Pause between two looks whether it is, where it does not say so.
const READY_PAUSE: Duration = Duration::from_millis(5);
/// How long a process may take to stop before it is killed.
const STOP_SPAN: Duration = Duration::from_secs(30);

/// Names the process that started this one, to be ended with it.
const PARENT: &str = "TRAPEZE_PARENT";

/// Has the kernel send `signal` to this process when the one that started it as a [`Process`] ends, however that ends:
/// nothing else would stop it then.
pub fn follow_parent(signal: Signal) -> io::Result<()> {
    let parent = std::env::var(PARENT).ok().and_then(|text| text.parse().ok());
    let Some(parent) = parent.and_then(Pid::from_raw) else { return Ok(()) };
    live::signals::note_parent(parent);
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    match rustix::process::getppid() == Some(parent) {
        true => Ok(()),
        false => Err(io::Error::other("the process that started this one has ended")),
    }
}

/// A running process of this program. Dropping it kills it; it ends, too, with the thread that started it.
#[derive(Debug)]
pub struct Process {
    /// Its name in messages.
    pub name: String,
    child: Child,
    log: PathBuf,
    /// The text after `ready` on its line.
    pub said: String,
}

impl Process {
    /// Starts `trapeze ARGUMENTS`, its messages going to `log`, and waits until it is ready.
    pub fn start(name: &str, arguments: &[String], log: &Path) -> io::Result<Process> {
        Process::start_program(&std::env::current_exe()?, name, arguments, log)
    }

    /// As [`start`](Process::start), with the program at `program`: a test is not the program that it starts.
    pub fn start_program(
        program: &Path,
        name: &str,
        arguments: &[String],
        log: &Path,
    ) -> io::Result<Process> {
        let mut command = Command::new(program);
        command.args(arguments);
        Process::start_command(name, command, log)
    }

    /// As [`start`](Process::start), for any program that says `ready`.
    pub fn start_command(name: &str, command: Command, log: &Path) -> io::Result<Process> {
        let mut process = Process::spawn(name, command, log, Stdio::null())?;
        process.said = process.await_ready()?;
        Ok(process)
    }

    /// As [`start_command`](Process::start_command), for a program that does not say so: `is_ready` is asked.
    pub fn start_until(
        name: &str,
        command: Command,
        log: &Path,
        is_ready: impl Fn() -> bool,
    ) -> io::Result<Process> {
        let mut process = Process::spawn(name, command, log, Stdio::null())?;
        let start = Instant::now();
        while !is_ready() {
            if !process.runs() || start.elapsed() > READY_SPAN {
                let words = process.last_words();
                return Err(io::Error::other(format!("{name} did not start: {words}")));
            }
            std::thread::sleep(READY_PAUSE);
        }
        Ok(process)
    }

    /// A process that begins when it is told to (`--on-line`). Starting a process has the kernel close, in the child,
    /// files that are open here; for a file on a mount that can mean waiting for the very server that is being
    /// started. So it is started before the files are opened.
    pub fn prepare(name: &str, command: Command, log: &Path) -> io::Result<Prepared> {
        Process::spawn(name, command, log, Stdio::piped()).map(Prepared)
    }

    fn spawn(name: &str, mut command: Command, log: &Path, input: Stdio) -> io::Result<Process> {
        let messages = File::options().create(true).append(true).open(log)?;
        command.stdin(input).stdout(Stdio::piped()).stderr(messages);
        // The terminal's Ctrl-C is for this process, which ends the others in its own order.
        command.process_group(0).env(PARENT, std::process::id().to_string());
        let child = command.spawn()?;
        let (name, log) = (name.to_string(), log.to_path_buf());
        Ok(Process { name, child, log, said: String::new() })
    }

    fn await_ready(&mut self) -> io::Result<String> {
        let output = self.child.stdout.take().expect("piped");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let start = Instant::now();
        while let Some(left) = READY_SPAN.checked_sub(start.elapsed()) {
            match told.recv_timeout(left) {
                Ok(line) if line.starts_with(READY) => {
                    return Ok(line[READY.len()..].trim().to_string());
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Err(io::Error::other(format!("{} did not start: {}", self.name, self.last_words())))
    }

    /// The end of what it wrote to its log.
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        match last.is_empty() {
            true => format!("it said nothing in {}", self.log.display()),
            false => last.into_iter().rev().collect::<Vec<_>>().join(" / "),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Takes the processor away from it (SIGSTOP) until [`resume`](Process::resume).
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Ends [`pause`](Process::pause).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it at once, as a crash would (SIGKILL).
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Asks it to stop (SIGTERM) and waits; an error when it had to be killed or failed.
    pub fn stop(mut self) -> io::Result<()> {
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < STOP_SPAN {
            if let Some(status) = self.child.try_wait()? {
                let told =
                    || io::Error::other(format!("{}: {status}: {}", self.name, self.last_words()));
                return if status.success() { Ok(()) } else { Err(told()) };
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::other(format!("{} did not stop in {STOP_SPAN:?} and was killed", self.name)))
    }
}

/// A process that waits for the word. Dropping it kills it.
#[derive(Debug)]
pub struct Prepared(Process);

impl Prepared {
    /// Gives the word and waits until the process is ready.
    pub fn go(self) -> io::Result<Process> {
        let Prepared(mut process) = self;
        let mut input = process.child.stdin.take().expect("piped");
        input.write_all(b"go\n")?;
        drop(input);
        process.said = process.await_ready()?;
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.runs() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
