/// Memory and processor time of a process, as far as its world knows them; 0 of the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Bytes of memory now.
    pub resident_bytes: u64,
    /// Most bytes of memory until now.
    pub peak_bytes: u64,
    /// Microseconds of processor time in the program.
    pub user_us: u64,
    /// The same in the kernel.
    pub system_us: u64,
}
