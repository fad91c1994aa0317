use super::{Dice, Done, Versions, contents, stopped};
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;

/// Writes and reads pages of `bytes` of memory until standard input ends. Memory has no errors.
pub fn change_an_array(bytes: usize) {
    let (stop, mut dice, mut versions) = (stopped(), Dice(2), Versions::default());
    let mut array = vec![0; bytes];
    let mut done = Done::default();
    while !stop.load(Ordering::Relaxed) {
        let place = dice.below((bytes / PAGE) as u64);
        let page = &mut array[place as usize * PAGE..][..PAGE];
        done.wrong.extend(versions.check(place, page));
        if dice.below(2) == 0 {
            let version = versions.try_next(place);
            page.copy_from_slice(&contents(place, version, PAGE));
            versions.acknowledge(place, version);
        }
        done.operations += 1;
    }
    for place in versions.acknowledged() {
        done.wrong.extend(versions.check(place, &array[place as usize * PAGE..][..PAGE]));
    }
    done.report("array");
}
