//! A link that reads adapter memory later: what has left stays where it is until the link lets go of it.

use nic::*;

const PAGE: usize = 4096;

/// Lets everything happen that can; messages that have left.
fn drive(nic: &mut Nic) -> usize {
    let mut left = 0;
    while let Some(command) = nic.step(0, &|_: Engine| 0) {
        match command.action {
            Action::Start(engine) => nic.finished(0, engine),
            Action::Complete { .. } => left += 1,
            _ => {}
        }
    }
    left
}

fn post(nic: &mut Nic, address: u64, bytes: usize) {
    nic.post(Send::default(), &[HostFrame { address, bytes }.into()]).unwrap();
}

#[test]
fn a_buffer_that_left_is_filled_again_only_when_the_link_lets_go() {
    let buffers = Buffers::Pools { send: 1, receive: 1 };
    let mut nic = Nic::new(Config { buffers, link_keeps: true, ..Config::new(PAGE) }).unwrap();
    post(&mut nic, 0, PAGE);
    post(&mut nic, 1 << 20, PAGE);
    assert_eq!(
        (drive(&mut nic), nic.with_link()),
        (1, 1),
        "the host's frame is free, the buffer is not"
    );
    nic.released(0);
    assert_eq!((drive(&mut nic), nic.with_link()), (1, 1));
    nic.released(0);
    assert_eq!(nic.cache().state(0), State::Free);
}

#[test]
fn a_payload_longer_than_memory_goes_on_with_each_buffer_that_is_let_go() {
    let buffers = Buffers::Pools { send: 2, receive: 1 };
    let config = Config { buffers, link_keeps: true, mtu: 5 * PAGE, ..Config::new(PAGE) };
    let mut nic = Nic::new(config).unwrap();
    post(&mut nic, 0, 5 * PAGE);
    let mut left = drive(&mut nic);
    let mut released = 0;
    while nic.with_link() > 0 {
        nic.released(0);
        released += 1;
        left += drive(&mut nic);
    }
    assert_eq!((left, released), (1, 5));
}
