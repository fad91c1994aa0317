//! Where a sandbox forbids userfaultfd, a region says what to set.

use crate::seccomp::forbid_userfaultfd;
use region::uffd::OpenError;
use region::{Faults, LocalMemory, Region, RegionConfig, RegionError};

#[test]
fn without_userfaultfd_a_region_says_what_to_set() {
    forbid_userfaultfd();
    let backing = LocalMemory::new(256 * 4096).unwrap();
    for faults in [Faults::InThread, Faults::Handlers(1)] {
        let config = RegionConfig { faults, ..RegionConfig::new(64) };
        let error = Region::map(256 * 4096, config, &backing).err().unwrap();
        assert!(matches!(error, RegionError::Uffd(OpenError::Forbidden(_))), "{error}");
        let said = error.to_string();
        let to_set = ["vm.unprivileged_userfaultfd=1", "/dev/userfaultfd", "seccomp profile"];
        for part in ["not allowed here", "Operation not permitted"].iter().chain(&to_set) {
            assert!(said.contains(part), "{said}\nwithout {part:?}");
        }
    }
}
