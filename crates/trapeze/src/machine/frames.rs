//! Memory for a machine's payload frames.

use super::{MachineError, Setup, system};
use crate::machine_stat::available_memory;
use live::memory::MemfdRegion;

/// As much as `setup` says, backed by memory at once if it says so.
pub(super) fn payload_memory(name: &str, setup: &Setup) -> Result<MemfdRegion, MachineError> {
    let region = match setup.lending.lend {
        Some(_) => MemfdRegion::create_returnable(name, setup.pages()),
        None => MemfdRegion::create(name, setup.pages()),
    };
    let region = region.map_err(system("payload memory"))?;
    if !setup.prefault {
        return Ok(region);
    }
    let available = available_memory() as u64;
    if setup.frame_bytes() > available {
        let (available, wanted) = (available >> 20, setup.frame_bytes() >> 20);
        return Err(MachineError::Prefault { available, wanted });
    }
    region.touch().map_err(system("payload memory, all at the start"))?;
    Ok(region)
}
