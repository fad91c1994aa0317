//! Start of the data in a record of NFSv3, for [`Reader::poll`](crate::record::Reader::poll).
//!
//! It looks at nothing that it need not, and judges nothing: what is wrong with a call is found when it is parsed.

use super::{PROGRAM, Procedure, ReadOk, Status, VERSION, WriteArgs};
use crate::record::Plan;
use crate::rpc;
use crate::xdr::{Input, Xdr};

/// A server's plan of a call: only a WRITE has data.
pub fn call_plan(head: &[u8]) -> Plan {
    let mut input = Input::new(head);
    let mut word = || input.u32().ok();
    let (Some(_xid), Some(kind), Some(version)) = (word(), word(), word()) else {
        return Plan::More;
    };
    let (Some(program), Some(of_program), Some(procedure)) = (word(), word(), word()) else {
        return Plan::More;
    };
    let wanted = (0, rpc::VERSION, PROGRAM, VERSION, Procedure::Write as u32);
    if (kind, version, program, of_program, procedure) != wanted {
        return Plan::Head;
    }
    match credential_bytes(&mut input) {
        Some(true) => {}
        Some(false) => return Plan::Head,
        None => return Plan::More,
    }
    match is_longer(&input) {
        Some(true) => return Plan::Head,
        Some(false) => {}
        None => return Plan::More,
    }
    match WriteArgs::take(&mut input) {
        Ok(args) => data(head, &input, args.data_bytes),
        // with all of its bytes there it is no WRITE that could be: its arguments are garbage
        Err(_) if input_has(&input, WRITE_BYTES_MAX) => Plan::Head,
        Err(_) => Plan::More,
    }
}

/// Bytes of a WRITE's arguments at most: a handle with its length, offset, count, stable, and the data's length.
const WRITE_BYTES_MAX: usize = 4 + crate::limits::HANDLE_BYTES_MAX + 8 + 4 + 4 + 4;

fn input_has(input: &Input<'_>, bytes: usize) -> bool {
    input.rest().len() >= bytes
}

/// Whether the handle is longer than a handle is; `None`: not known yet.
fn is_longer(input: &Input<'_>) -> Option<bool> {
    let bytes = input.clone().u32().ok()?;
    Some(bytes as usize > crate::limits::HANDLE_BYTES_MAX)
}

/// Skips credential and verifier; `Some(false)` when one is too long, `None` when they are not all there.
fn credential_bytes(input: &mut Input<'_>) -> Option<bool> {
    for _ in 0..2 {
        input.u32().ok()?;
        let mut length = input.clone();
        if length.u32().ok()? as usize > crate::limits::AUTH_BYTES_MAX {
            return Some(false);
        }
        input.opaque(crate::limits::AUTH_BYTES_MAX).ok()?;
    }
    Some(true)
}

fn data(head: &[u8], input: &Input<'_>, bytes: u32) -> Plan {
    Plan::Data { head_bytes: head.len() - input.rest().len(), data_bytes: bytes as usize }
}

/// A client's plan of a reply: `is_read` says of a number whether it is a READ's.
pub fn read_reply_plan(head: &[u8], is_read: impl FnOnce(u32) -> bool) -> Plan {
    let Some(xid) = head.first_chunk() else { return Plan::More };
    if !is_read(u32::from_be_bytes(*xid)) {
        return Plan::Head;
    }
    let (reply, mut input) = match rpc::Reply::parse(head) {
        Ok((_, reply, results)) => (reply, Input::new(results)),
        Err(_) if head.len() >= REPLY_BYTES_MAX => return Plan::Head,
        Err(_) => return Plan::More,
    };
    if reply != rpc::Reply::Accepted(rpc::Acceptance::Success) {
        return Plan::Head;
    }
    match input.u32() {
        Ok(status) if status == Status::Ok as u32 => {}
        Ok(_) => return Plan::Head,
        Err(_) => return Plan::More,
    }
    match ReadOk::take(&mut input) {
        Ok(read) => data(head, &input, read.data_bytes),
        Err(_) if input_has(&input, READ_BYTES_MAX) => Plan::Head,
        Err(_) => Plan::More,
    }
}

/// Bytes of a reply's head at most: number, kind, status, a verifier, the outcome with two versions.
const REPLY_BYTES_MAX: usize = 3 * 4 + 8 + crate::limits::AUTH_BYTES_MAX + 3 * 4;
/// Bytes of a READ's results before the data: attributes, count, end, length.
const READ_BYTES_MAX: usize = 4 + 84 + 4 + 4 + 4;

/// Bytes of data that a WRITE's head announces; `None` for another call.
pub fn write_data_bytes(head: &[u8]) -> Option<usize> {
    match call_plan(head) {
        Plan::Data { data_bytes, .. } => Some(data_bytes),
        _ => None,
    }
}
