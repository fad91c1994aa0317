//! Threads that go on until a test has what it waits for.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when it is dropped, so that a test that fails inside `std::thread::scope` does not wait for ever for
/// the threads that look at the flag.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_fails_ends_the_threads_of_its_scope() {
        let stop = AtomicBool::new(false);
        let failed = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                });
                let _stop = SetOnDrop(&stop);
                std::panic::resume_unwind(Box::new("a failed assertion"));
            })
        });
        assert!(failed.is_err());
    }
}
